//! Reaches all bounds of a daemon at once, as many users, and measures the daemon's memory and the time of its answers meanwhile.
//!
//! `cargo run --release -p xsched-decisions --bin full [USERS [PHASE…]]`, as root. Each user is a process with a user id of its own. The
//! daemon is another process, with as many descriptors as in `dist/xsched.service`, and with the unit's memory in a cgroup of its own if
//! one can be made. If root may have fewer descriptors, the memory is reduced in proportion. The daemon touches the memory that it shares
//! with programs before they do, as far as it reads it, so that the memory is charged to the daemon.

#[path = "../../../../crates/xsched-daemon/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::RecvFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, ask, hello, map, memfd, own_pidfd, receive, seals, send_raw, try_connect};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{COUNTERS, GROUPS, QUEUES, SEGMENT_BYTES, Segment, state};
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::{
    ClientMsg, DaemonMsg, Levels, MAX_PACKET, Platform, ProgramOptions, Request, Sharing, Target, decode, encode,
};
use xsched_testkit::until;

/// Memory in bytes, and descriptors, of `dist/xsched.service`.
const MEMORY_MAX: u64 = 2 << 30;
const DESCRIPTORS: u64 = 65_536;
/// Number of users that reach the bounds over all users, if each uses at least half of its own bounds.
const USERS: usize = 16;
/// Id of the first user.
const FIRST_UID: u32 = 40_000;
/// Bounds of one user and of all users, as in `src/tuning.rs`.
const USER_CONNS: usize = 1_024;
const USER_GROUPS: usize = 512;
const USER_DEVICES: usize = 64;
const DEVICE_GROUPS: usize = 128;
const USER_QUEUES: usize = 131_072;
const ALL_QUEUES: usize = 1 << 20;
const USER_BOOKS: usize = 2_048;
const USER_JOBS: usize = 16;
/// Number of programs of each user that attach and leave: those of five users fill the lists of a thousand ended programs.
const LISTED: usize = 200;
/// Largest number of descriptors in one packet.
const MAX_FDS: usize = 253;
/// Number of connections for commands of one user.
const COMMANDS: usize = 40;
/// Longest name of a device or job, in bytes.
const NAME_BYTES: usize = 256;
/// Number of programs of one user that are unsuitable for a pool, and the longest name of one, in bytes.
const UNSUITABLE: usize = 100;
const PROGRAM_BYTES: usize = 1_024;
/// Records of usage of all users, and of one user, in bytes.
const USAGE_BYTES: usize = 128 << 20;
const USAGE_USER_BYTES: usize = 8 << 20;
/// Largest number of targets of one command.
const TARGETS: usize = 64;
/// Actions of the users, one after the other.
const PHASES: [&str; 8] = ["programs", "groups", "queues", "announced", "gone", "unread", "beyond", "kept"];
/// Number of messages that fit into the socket of a program, and a few more.
const FITTING: usize = 38;
const KEPT: usize = 60;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--daemon", folder, cgroup] => daemon(Path::new(folder), cgroup),
        ["--user", number, users, socket] => {
            user(number.parse().expect("a number"), users.parse().expect("a number"), Path::new(socket));
        }
        ["--announce", job, socket] => announce(job, Path::new(socket)),
        [] => measure(USERS, &PHASES),
        [users] => measure(users.parse().expect("a number of users"), &PHASES),
        [users, ref phases @ ..] => measure(users.parse().expect("a number of users"), phases),
    }
}

/// Raises the limit of descriptors to the unit's, or to the largest one allowed. Returns the limit.
fn more_descriptors() -> u64 {
    let most = |n| setrlimit(Resource::Nofile, Rlimit { current: Some(n), maximum: Some(n) });
    let n = DESCRIPTORS;
    if most(n).is_ok() {
        return n;
    }
    let n = getrlimit(Resource::Nofile).maximum.map_or(n, |maximum| maximum.min(n));
    most(n).expect("no more than before");
    n
}

/// Number of connections that a daemon with this many descriptors has room for: see `max_conns` of `src/net/descriptors.rs`.
fn all_conns(descriptors: u64) -> usize {
    let besides = 32 + MAX_FDS + 256;
    (descriptors as usize - besides) / 6
}

// ---- The daemon ----------------------------------------------------------------------------------------------------------

fn daemon(folder: &Path, cgroup: &str) {
    if !cgroup.is_empty() {
        std::fs::write(Path::new(cgroup).join("cgroup.procs"), "0").expect("its cgroup");
    }
    let mut options = support::options(folder);
    options.config = vec![folder.join("config.toml")];
    // The log goes to stderr, a pipe that is not read for some time.
    options.state = Some(folder.join("state"));
    xsched_daemon::run(options).expect("it serves");
}

/// Memory cgroup of either version, with the unit's limit.
struct Cgroup {
    folder: PathBuf,
    peak: &'static str,
    now: &'static str,
}

impl Cgroup {
    fn new(memory_max: u64) -> Option<Cgroup> {
        let name = format!("xsched-full-{}", std::process::id());
        let make = |root: &str, bound: &str, peak: &'static str, now: &'static str| {
            let folder = Path::new(root).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let made = Cgroup { folder, peak, now };
            std::fs::write(made.folder.join(bound), memory_max.to_string()).ok()?;
            Some(made)
        };
        let second = || make("/sys/fs/cgroup", "memory.max", "memory.peak", "memory.current");
        let first = || {
            let (peak, now) = ("memory.max_usage_in_bytes", "memory.usage_in_bytes");
            make("/sys/fs/cgroup/memory", "memory.limit_in_bytes", peak, now)
        };
        if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { second() } else { first() }
    }

    fn mib(&self, file: &str) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0) >> 20
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The cgroup is empty once the daemon has ended.
        let gone = || std::fs::remove_dir(&self.folder).is_ok() || !self.folder.exists();
        let end = Instant::now() + Duration::from_secs(5);
        while !gone() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Value of a process's memory, in MiB.
fn of_process(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

// ---- Measurements ---------------------------------------------------------------------------------------------------------

/// Lines of the daemon's log, which may stay unread.
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    unread: Arc<AtomicBool>,
}

impl Log {
    fn of(stderr: ChildStderr) -> Log {
        let log = Log { lines: Arc::default(), unread: Arc::default() };
        let (lines, unread) = (log.lines.clone(), log.unread.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().expect("no panic").push(line);
                while unread.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        log
    }
}

/// Writes the largest files that an earlier daemon may leave: programs unsuitable for a pool, and records of usage.
fn leave_behind(state: &Path, socket: &Path, users: usize) -> std::io::Result<()> {
    let mut unsuitable = String::new();
    for (user, n) in (0..users).flat_map(|user| (0..UNSUITABLE).map(move |n| (user, n))) {
        let key = text(&format!("{} /usr/bin/program-{n} ", FIRST_UID as usize + user), PROGRAM_BYTES);
        unsuitable += &format!("[programs.\"{key}\"]\nlongest_us = 20000\nfaults = 0\n");
    }
    std::fs::create_dir_all(state)?;
    std::fs::set_permissions(state, PermissionsExt::from_mode(0o700))?;
    std::fs::write(state.join("unsuitable.toml"), unsuitable)?;
    let name = socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
    let usage = state.join(format!("usage-{name}"));
    std::fs::create_dir(&usage)?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    for user in 0..users {
        let uid = FIRST_UID as usize + user;
        // One file that grows, and those put aside.
        for file in 0..(USAGE_BYTES / users).min(USAGE_USER_BYTES) >> 20 {
            let mut records = String::new();
            while records.len() < (1 << 20) - 600 {
                let n = records.len() + (file << 20);
                let (job, program) = (text(&format!("job {n} "), 128), text(&format!("program {n} "), 128));
                records += &format!(
                    "{{\"from_ms\":{},\"to_ms\":{now_ms},\"pid\":{n},\"start\":{n},\"user\":\"{uid}\",\"job\":\"{job}\",\
                     \"program\":\"{program}\",\"container\":null,\"pod\":null,\"class\":\"normal\",\"device\":\"gpu:0\",\
                     \"gpu_ns\":{n},\"by_driver_ns\":0,\"at_most_ns\":0,\"resident_ns\":{n}}}\n",
                    now_ms - 1_000
                );
            }
            let number = if file == 0 { String::new() } else { format!(".{file}") };
            std::fs::write(usage.join(format!("{uid}.jsonl{number}")), records)?;
        }
    }
    Ok(())
}

/// Measures decisions meanwhile: the time from a program's "ready" to the closed gate of its rival. Both are root's.
fn probe(socket: &Path, waits: &Mutex<Vec<Duration>>, ended: &AtomicBool) {
    let attach =
        |priority| Client::attach(socket, ProgramOptions { priority: Some(priority), ..ProgramOptions::default() });
    let (low, high) = (attach(0), attach(128));
    low.group(0, "gpu:probe");
    high.group(0, "gpu:probe");
    low.ready(0);
    while !ended.load(SeqCst) {
        let until_open = |open| {
            while low.open(0) != open && !ended.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(20));
            }
        };
        until_open(true);
        let start = Instant::now();
        high.set_state(0, state::READY);
        until_open(false);
        waits.lock().expect("no panic").push(start.elapsed());
        high.set_state(0, state::IDLE);
        for client in [&low, &high] {
            drain(&client.socket);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Median, 99th percentile and longest, in ms.
fn summary(mut waits: Vec<Duration>) -> String {
    waits.sort_unstable();
    let ms = |part: usize| waits.get(waits.len().saturating_sub(1) * part / 100).map_or(0.0, |d| d.as_secs_f64() * 1e3);
    format!("{:.2} ms, P99 {:.2}, longest {:.2}", ms(50), ms(99), ms(100))
}

/// Process that is killed at the end of the measurement.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct User {
    process: Ending,
    says: BufReader<std::process::ChildStdout>,
}

impl User {
    fn tell(&mut self, what: &str) {
        writeln!(self.process.0.stdin.as_mut().expect("a pipe"), "{what}").expect("it listens");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

fn measure(users: usize, phases: &[&str]) {
    let descriptors = more_descriptors();
    let folder = tempfile::tempdir().expect("a folder");
    let open = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("own folder");
    let (run, metrics) = (folder.path().join("run"), folder.path().join("metrics.sock"));
    std::fs::create_dir(&run).expect("own folder");
    open(folder.path());
    open(&run);
    let listen = format!("[metrics]\nlisten = \"unix:{}\"\nnames = true\npids = true\n", metrics.display());
    std::fs::write(folder.path().join("config.toml"), listen).expect("own file");
    // A path as long as a program's may be.
    let deep: PathBuf = (0..15).fold(folder.path().to_owned(), |path, _| path.join("d".repeat(250)));
    std::fs::create_dir_all(&deep).expect("own folder");
    let mut at = deep.as_path();
    while at != folder.path() {
        open(at);
        at = at.parent().expect("a folder");
    }
    let exe = deep.join("full");
    std::fs::copy(std::env::current_exe().expect("a path"), &exe).expect("a copy");
    open(&exe);
    // With fewer descriptors there are fewer programs, for which less memory must suffice in proportion, although the memory that does not
    // depend on them stays the same.
    let memory_max = MEMORY_MAX * descriptors / DESCRIPTORS;
    let cgroup = Cgroup::new(memory_max);
    let of_cgroup = cgroup.as_ref().map_or(String::new(), |cgroup| cgroup.folder.display().to_string());
    let socket = run.join("xsched.sock");
    leave_behind(&folder.path().join("state"), &socket, users).expect("own files");
    let mut command = Command::new(&exe);
    command.arg("--daemon").arg(folder.path()).arg(&of_cgroup).stderr(Stdio::piped());
    let mut daemon = Ending(command.spawn().expect("a process"));
    let log = Log::of(daemon.0.stderr.take().expect("a pipe"));
    let pid = daemon.0.id();
    until("the daemon listens", || try_connect(&socket).is_some());
    match &cgroup {
        Some(_) => println!("daemon in a cgroup of {} MiB, {descriptors} descriptors, {users} users", memory_max >> 20),
        None => println!("daemon without a cgroup (none can be made), {descriptors} descriptors, {users} users"),
    }
    let state_now = |what: &str| {
        let (rss, peak) = (of_process(pid, "VmRSS"), of_process(pid, "VmHWM"));
        let all = cgroup.as_ref().map_or(String::new(), |cgroup| {
            let (now, peak) = (cgroup.mib(cgroup.now), cgroup.mib(cgroup.peak));
            format!(", of the cgroup {now} MiB, {peak} at most")
        });
        println!("{what}: memory of the process {rss} MiB, {peak} at most{all}");
    };
    state_now("at the beginning");
    let mut all: Vec<User> = (0..users)
        .map(|number| {
            let uid = FIRST_UID + number as u32;
            let mut command = Command::new(&exe);
            command.arg("--user").arg(number.to_string()).arg(users.to_string()).arg(&socket).current_dir("/");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).uid(uid).gid(uid);
            let mut child = command.spawn().expect("a process");
            let says = BufReader::new(child.stdout.take().expect("a pipe"));
            User { process: Ending(child), says }
        })
        .collect();
    let (ended, waits) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| observe(&socket, &metrics, &ended));
        let probing = scope.spawn(|| probe(&socket, &waits, &ended));
        for what in phases {
            let start = Instant::now();
            // While many programs come and go, as many lines of the log as possible wait.
            log.unread.store(*what == "gone", SeqCst);
            all.iter_mut().for_each(|user| user.tell(what));
            let answers: Vec<String> = all.iter_mut().map(User::answer).collect();
            let waited = summary(std::mem::take(&mut *waits.lock().expect("no panic")));
            let took = start.elapsed().as_secs_f64();
            state_now(&format!("{what} ({took:.1} s): {}: a decision takes {waited}", summed(&answers)));
            if let Some(status) = daemon.0.try_wait().expect("a child") {
                println!("the daemon is gone: {status}");
                break;
            }
        }
        log.unread.store(false, SeqCst);
        if daemon.0.try_wait().expect("a child").is_none() {
            println!("reached: {}", reached(&socket, &metrics, &folder.path().join("state")));
        }
        ended.store(true, SeqCst);
        asking.join().expect("it ends");
        probing.join().expect("it ends");
    });
    drop(all);
    let alive = daemon.0.try_wait().expect("a child").is_none();
    if alive {
        let programs = || match ask(&socket, Request::Ps) {
            Ok(answer) => answer.iter().filter(|m| matches!(m, DaemonMsg::Program(_))).count(),
            Err(_) => usize::MAX,
        };
        until("the daemon has let all programs go", || programs() == 0);
        state_now("when all are gone");
        // By then the daemon has had its allocator release free memory.
        std::thread::sleep(Duration::from_secs(45));
        state_now("three quarters of a minute later");
        ask(&socket, Request::Stop).expect("it ends");
        println!("the daemon ended as told: {}", daemon.0.wait().expect("a child"));
    }
    let lines = log.lines.lock().expect("no panic").clone();
    for line in lines.iter().filter(|line| line.contains("no decision for") || line.contains("lines were left out: ")) {
        println!("log: {line}");
    }
    let reasons = lines.iter().filter_map(|line| line.split_once("dropped process ")?.1.split_once(": "));
    let reasons: BTreeSet<&str> = reasons.map(|(_, why)| why).collect();
    reasons.iter().for_each(|why| println!("log: dropped processes: {why}"));
    drop(daemon);
    assert!(alive, "the daemon did not outlive it");
}

/// Sums the numbers in the users' lines by their names, and keeps the first of each other word.
fn summed(answers: &[String]) -> String {
    let mut sums: Vec<(String, u64)> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for part in answers.iter().flat_map(|answer| answer.split(", ")) {
        let number = part.split_once(' ').and_then(|(number, what)| Some((number.parse::<u64>().ok()?, what)));
        match number {
            Some((number, what)) => match sums.iter_mut().find(|(known, _)| known == what) {
                Some((_, sum)) => *sum += number,
                None => sums.push((what.to_owned(), number)),
            },
            None if !texts.iter().any(|known| known == part) => texts.push(part.to_owned()),
            None => (),
        }
    }
    let sums = sums.into_iter().map(|(what, sum)| format!("{sum} {what}"));
    sums.chain(texts.into_iter().take(6)).collect::<Vec<_>>().join(", ")
}

/// Counts each kind of thing that the daemon reports.
fn reached(socket: &Path, metrics: &Path, state: &Path) -> String {
    let answer = |request| ask(socket, request).unwrap_or_default();
    let programs = |answer: &[DaemonMsg]| answer.iter().filter(|m| matches!(m, DaemonMsg::Program(_))).count();
    let (now, all) = (answer(Request::Ps), answer(Request::PsAll));
    let groups = now.iter().flat_map(|m| if let DaemonMsg::Program(p) = m { &p.groups[..] } else { &[] });
    let (mut devices, mut of_all, mut queues) = (BTreeSet::new(), 0, 0);
    for group in groups {
        devices.insert(group.device.clone());
        (of_all, queues) = (of_all + 1, queues + group.queues.len());
    }
    let traced = answer(Request::Trace { from: 0, since_us: 0 });
    let traced: usize =
        traced.iter().map(|m| if let DaemonMsg::TraceGroups(groups) = m { groups.len() } else { 0 }).sum();
    let page = scrape(metrics).unwrap_or_default();
    let page = String::from_utf8_lossy(&page);
    let histograms = page.lines().filter(|line| line.contains("_bucket{") && line.contains("le=\"+Inf\"")).count();
    let bytes = |name: &str| std::fs::metadata(state.join(name)).map_or(0, |meta| meta.len()) >> 10;
    format!(
        "{} programs, {of_all} groups on {} devices, {queues} queues, {} programs that ended, {traced} traced groups, {histograms} \
         histograms, a page of {} KiB, lists on disk of {} KiB (unsuitable)",
        programs(&now),
        devices.len(),
        programs(&all) - programs(&now),
        page.len() >> 10,
        bytes("unsuitable.toml"),
    )
}

fn scrape(metrics: &Path) -> std::io::Result<Vec<u8>> {
    let mut page = UnixStream::connect(metrics)?;
    page.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut text = Vec::new();
    page.read_to_end(&mut text)?;
    Ok(text)
}

/// Asks for everything that root may ask for, again and again.
fn observe(socket: &Path, metrics: &Path, ended: &AtomicBool) {
    let requests = [
        ("ps", Request::Ps),
        ("ps --all", Request::PsAll),
        ("trace", Request::Trace { from: 0, since_us: 0 }),
        ("usage by program", Request::Usage { since_ms: 0, by: UsageBy::Program }),
        ("usage by job", Request::Usage { since_ms: 0, by: UsageBy::Job }),
        ("policies", Request::PolicyList),
    ];
    let mut longest = vec![(Duration::ZERO, 0, 0); requests.len() + 1];
    while !ended.load(SeqCst) {
        for (at, (_, request)) in requests.iter().enumerate() {
            let start = Instant::now();
            let answered = try_ask(socket, request.clone());
            let (most, messages, failed) = &mut longest[at];
            *most = (*most).max(start.elapsed());
            *messages = answered.unwrap_or(0).max(*messages);
            *failed += usize::from(answered.is_none());
        }
        let start = Instant::now();
        let page = scrape(metrics);
        let (most, bytes, failed) = &mut longest[requests.len()];
        *most = (*most).max(start.elapsed());
        let page = page.ok().filter(|page| page.starts_with(b"HTTP/1.1 200"));
        *failed += usize::from(page.is_none());
        *bytes = page.map_or(0, |page| page.len()).max(*bytes);
        std::thread::sleep(Duration::from_millis(300));
    }
    for ((name, _), (most, messages, failed)) in requests.iter().zip(&longest) {
        println!(
            "{name}: {messages} messages at most, {:.2} s at most, {failed} without an answer",
            most.as_secs_f64()
        );
    }
    let (most, bytes, failed) = longest[requests.len()];
    println!("metrics: {} KiB at most, {:.2} s at most, {failed} without an answer", bytes >> 10, most.as_secs_f64());
}

/// Number of messages in an answer, or none for a refusal or an answer without an end.
fn try_ask(socket: &Path, request: Request) -> Option<usize> {
    let socket = try_connect(socket)?;
    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request }).ok()?;
    send_raw(&socket, &packet, &[]).ok()?;
    let mut buffer = vec![0; MAX_PACKET];
    for n in 0.. {
        match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) | Err(_) => return None,
            Ok((_, bytes)) => match decode::<DaemonMsg>(&buffer[..bytes]) {
                Ok(DaemonMsg::End) => return Some(n),
                // After a refusal the connection would stay open for further questions.
                Ok(DaemonMsg::Refused(_)) => return None,
                _ => (),
            },
        }
    }
    None
}

// ---- A user --------------------------------------------------------------------------------------------------------------

/// Program of the user.
struct Program {
    socket: OwnedFd,
    event: OwnedFd,
    segment: &'static Segment,
}

/// Text of this many bytes, filled up with letters.
fn text(begin: &str, bytes: usize) -> String {
    format!("{begin}{}", "x".repeat(bytes - begin.len()))
}

impl Program {
    fn start(path: &Path, job: Option<String>) -> Option<Program> {
        Program::with(path, job, &memfd(SEGMENT_BYTES, seals()))
    }

    fn with(path: &Path, job: Option<String>, file: &OwnedFd) -> Option<Program> {
        let (socket, event) = (try_connect(path)?, eventfd(0, EventfdFlags::CLOEXEC).ok()?);
        // SAFETY: mapped for the rest of the process's life; made of atomics.
        let segment = unsafe { &*map::<Segment>(file, SEGMENT_BYTES, rustix::mm::ProtFlags::all()) };
        segment.header.used[0].store(QUEUES as u32, SeqCst);
        segment.header.used[1].store(COUNTERS as u32, SeqCst);
        // The longest command that fits into the message.
        let command = vec![text("/usr/bin/python3", 48 << 10)];
        let title = Some(text("title ", 8 << 10));
        let options = ProgramOptions { job, command, title, ..ProgramOptions::default() };
        let greeting = encode(&hello(options)).ok()?;
        send_raw(&socket, &greeting, &[file.as_fd(), event.as_fd(), own_pidfd().as_fd()]).ok()?;
        Some(Program { socket, event, segment })
    }

    fn say(&self, message: &ClientMsg) -> bool {
        encode(message).is_ok_and(|packet| send_raw(&self.socket, &packet, &[]).is_ok())
    }

    fn add_group(&self, slot: u16, device: &str) -> bool {
        self.say(&ClientMsg::GroupAdd {
            slot,
            device: device.into(),
            platform: Platform::Cuda,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: Levels::ALL,
            sharing: Sharing::Time,
        })
    }

    /// Waits until the daemon adds a group.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn until_added(&self) -> Result<(), String> {
        loop {
            match receive(&self.socket) {
                Some((DaemonMsg::GroupAdded { .. }, _)) => return Ok(()),
                Some((DaemonMsg::Refused(why), _)) => return Err(why.to_string()),
                None => return Err("it has hung up".into()),
                Some(_) => (),
            }
        }
    }

    fn set_all(&self, word: u32) {
        self.segment.groups.iter().for_each(|g| g.state.store(word, SeqCst));
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn set(&self, word: u32) {
        self.segment.groups[0].state.store(word, SeqCst);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// Reads and discards all waiting messages.
fn drain(socket: &OwnedFd) {
    let mut buffer = [0; 1_024];
    while rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT).is_ok_and(|(got, _)| got > 0) {}
}

/// Number of queues of this user that the daemon has.
fn queues_of(path: &Path) -> usize {
    let answer = ask(path, Request::Ps).unwrap_or_default();
    let groups = answer.iter().flat_map(|message| match message {
        DaemonMsg::Program(program) => &program.groups[..],
        _ => &[],
    });
    groups.map(|group| group.queues.len()).sum()
}

/// Has this many changes reported to programs of this user, one after the other. Returns how many succeeded.
fn tell_all(path: &Path, targets: &[Target], times: usize) -> usize {
    let hint = |n: usize| Request::Hint {
        targets: targets.to_vec(),
        priority: Some(-(n as i32 % 2)),
        hints: Hints::default(),
        level: None,
        threshold: None,
        batch: None,
    };
    (0..times).filter(|n| try_ask(path, hint(*n)).is_some()).count()
}

fn announce(job: &str, socket: &Path) {
    let request = Request::Announce { job: job.into(), program: text("/usr/bin/python3 ", 60 << 10) };
    let done = try_ask(socket, request).is_some();
    std::process::exit(i32::from(!done));
}

fn user(number: usize, users: usize, path: &Path) {
    let all = all_conns(getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS));
    let conns = ((all - all / 8) / users).min(all / 4).min(USER_CONNS);
    let (in_all, queues) = (conns - COMMANDS - 2, (ALL_QUEUES / users).min(USER_QUEUES));
    let job = text(&format!("job {number} "), NAME_BYTES);
    let (mut programs, mut commands) = (Vec::new(), Vec::new());
    // Eight users fill the common device with their groups.
    let common = text(&format!("gpu:common {} ", number / 8), NAME_BYTES);
    let own = |n: usize| text(&format!("gpu:{number}.{n} "), NAME_BYTES);
    let device = |n: usize| if n < DEVICE_GROUPS { common.clone() } else { own(n % (USER_DEVICES - 1)) };
    let with_groups = (USER_GROUPS - GROUPS).min(in_all);
    // Slot and program of each group, in order.
    let places = (0..GROUPS).flat_map(|slot| (0..with_groups).map(move |n| (slot, n)));
    for line in std::io::stdin().lines() {
        let said = match line.expect("a line").as_str() {
            "programs" => {
                for n in 0..in_all {
                    // Only a few jobs may span several devices.
                    let spans = (USER_GROUPS - 1).saturating_sub(with_groups);
                    let own = if n == 0 { job.clone() } else { text(&format!("job {number}.{n} "), NAME_BYTES) };
                    programs.extend(Program::start(path, Some(own).filter(|_| n < USER_JOBS || n >= spans)));
                }
                let welcome = |p: &&Program| matches!(receive(&p.socket), Some((DaemonMsg::Welcome { .. }, _)));
                format!("{} programs", programs.iter().filter(welcome).count())
            }
            "groups" => {
                let mut has = 0;
                // One group is left for programs that come and go.
                for (n, (slot, program)) in places.clone().take(USER_GROUPS - 1).enumerate() {
                    let done = programs[program].add_group(slot as u16, &device(n));
                    has += usize::from(done && programs[program].until_added().is_ok());
                }
                format!("{has} groups")
            }
            "queues" => {
                let mut left = queues;
                let add = |program: &Program, slot: usize| {
                    usize::from(program.say(&ClientMsg::QueueAdd { slot: slot as u16, group: 0 }))
                };
                // One queue in the last slot of each program makes the daemon read all slots before it.
                for program in &programs[..with_groups] {
                    left -= add(program, QUEUES - 1);
                }
                for program in &programs {
                    for slot in 0..left.min(QUEUES - 1) {
                        left -= add(program, slot);
                    }
                }
                let deadline = Instant::now() + Duration::from_secs(120);
                let mut has = 0;
                while has < queues - left && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(500));
                    has = queues_of(path);
                }
                format!("{has} queues")
            }
            "announced" => {
                let exe = std::env::current_exe().expect("a path");
                let mut announced = 0;
                for _ in 0..(all / users).min(all / 4) {
                    let mut command = Command::new(&exe);
                    command.arg("--announce").arg(&job).arg(path);
                    announced += usize::from(command.status().is_ok_and(|status| status.success()));
                }
                format!("{announced} announced")
            }
            "gone" => {
                let mut gone = 0;
                let again = memfd(SEGMENT_BYTES, seals());
                // One user has as many books as one may, and the others fill the bound over all users.
                let listed = if number == 0 { USER_BOOKS } else { LISTED };
                for n in 0..listed + conns {
                    // The last programs have segments of their own that stay mapped: the daemon does not give their memory back, until it
                    // takes no more of them.
                    let program =
                        if n < listed { Program::with(path, None, &again) } else { Program::start(path, None) };
                    let Some(program) = program else { continue };
                    program.add_group(0, &own(n % (USER_DEVICES - 1)));
                    if program.until_added().is_ok() {
                        gone += 1;
                        program.set(state::READY);
                        program.set(state::IDLE);
                    }
                }
                format!("{gone} that came and went")
            }
            "unread" => {
                // More messages than fit into the sockets of programs that read nothing.
                let told = tell_all(path, &[Target::All], FITTING);
                for word in [state::READY, state::IDLE, state::READY] {
                    programs.iter().for_each(|program| program.set_all(word));
                }
                // Commands with long answers, none of which is read.
                for n in 0..COMMANDS {
                    let request = match n % 3 {
                        0 => Request::Trace { from: 0, since_us: 0 },
                        1 => Request::Usage { since_ms: 0, by: UsageBy::Job },
                        _ => Request::Ps,
                    };
                    let Some(socket) = try_connect(path) else { continue };
                    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request }).expect("a message");
                    if send_raw(&socket, &packet, &[]).is_ok() {
                        commands.push(socket);
                    }
                }
                let unread = |p: &&Program| rustix::io::ioctl_fionread(&p.socket).is_ok_and(|bytes| bytes > 0);
                let unread = programs.iter().filter(unread).count();
                format!(
                    "{told} commands to all programs, {unread} programs and {} commands that read nothing",
                    commands.len()
                )
            }
            // Messages that are kept beside that for two seconds: to programs without a job on several devices.
            "kept" => {
                let with_jobs = (USER_GROUPS - 1).saturating_sub(with_groups).max(USER_JOBS)..with_groups;
                let job = |n| Target::Job(text(&format!("job {number}.{n} "), NAME_BYTES));
                let targets: Vec<Target> = match with_jobs.len() {
                    0..TARGETS => vec![Target::All],
                    _ => with_jobs.rev().take(TARGETS).map(job).collect(),
                };
                format!("{} commands to some programs", tell_all(path, &targets, KEPT))
            }
            "beyond" => {
                let mut refusals = Vec::new();
                let alive =
                    programs.iter().filter(|p| p.say(&ClientMsg::ProgramHint { hints: Hints::default() })).count();
                if let Some(program) = programs.get(with_groups) {
                    drain(&program.socket);
                    program.add_group(0, &own(0));
                    if let Ok(()) = program.until_added() {
                        program.add_group(1, &own(1));
                    }
                    refusals.extend(program.until_added().err());
                }
                let mut said = vec![format!("{alive} programs attached still")];
                said.extend(refusals);
                said.join(", ")
            }
            other => panic!("'{other}' is none"),
        };
        println!("{said}");
    }
}
