//! Benchmark of decisions while another user floods the daemon, and of the memory that the flood takes. As root the flood comes from
//! another user, otherwise from the daemon's own, whose limits are wider.
//!
//! `cargo run --release -p xsched-decisions --bin flood [SAMPLES [FLOOD…]]`
//!
//! Each flood is measured in turn with its control, in which the same processes flood another daemon, on the same processors: the
//! difference between the two is the cost of one user's messages to another's decisions. `none` is the bare machine.

#[path = "../../../../crates/xsched-daemon/tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{RecvFlags, SendFlags};
use support::{Daemon, connect, hello, map, memfd, own_pidfd, receive, seals, send_raw, try_connect};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::account::MEMORY_SLOTS;
use xsched_proto::bounded::TARGETS_MAX;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{GROUPS, QUEUES as SEGMENT_QUEUES, SEGMENT_BYTES, Segment, state};
use xsched_proto::wire::{
    ClientMsg, DaemonMsg, Levels, MAX_PACKET, Platform, ProgramOptions, Request, Sharing, Target, encode,
};
use xsched_testkit::until;

const NOBODY: u32 = 65_534;
/// Nice value of `dist/xsched.service`, which only root may set.
const DAEMON_NICE: i32 = -10;
/// Number of programs of a flood.
const PROGRAMS: usize = 24;
/// Memory of the devices of a flood, in bytes.
const CAPACITY: u64 = 80 << 30;
/// Number of queues that `ps` reports.
const QUEUES: u16 = 1_024;
/// Number of rounds of each flood, which alternate with its control.
const ROUNDS: usize = 5;
/// Time limit of a round. If decisions take long, few samples show that as well.
const PATIENCE: Duration = Duration::from_secs(5);
/// Name of a flood, and its function: given the socket, it prints a line once it is under way, and does not return.
type Flood = (&'static str, fn(&Path));
const FLOODS: [Flood; 17] = [
    ("none", |_| wait()),
    ("groups", groups),
    ("jobs", jobs),
    ("looks", looks),
    ("ps", ps),
    ("unread", unread),
    ("churn", churn),
    ("silent", silent),
    ("descriptors", descriptors),
    ("malformed", malformed),
    ("hints", hints),
    ("attach", attach),
    ("targets", targets),
    ("claims", claims),
    ("names", names),
    ("messages", messages),
    ("rooms", rooms),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, name, socket] = args.as_slice()
        && first == "--flood"
    {
        let (_, flood) = FLOODS.iter().find(|(known, _)| known == name).expect("a flood");
        return flood(Path::new(socket));
    }
    if let [first, folder] = args.as_slice()
        && first == "--decoy"
    {
        return decoy(Path::new(folder));
    }
    let samples = args.first().map_or(1_000, |n| n.parse().expect("a number of samples"));
    for (name, _) in FLOODS.iter().filter(|(name, _)| args.len() < 2 || args[1..].iter().any(|a| a == name)) {
        let (mut under, mut control, mut most) = (Vec::new(), Vec::new(), 0);
        let mut room = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            most = most.max(measure(name, samples / ROUNDS, false, &mut under, &mut room[0]));
            measure(name, samples / ROUNDS, true, &mut control, &mut room[1]);
        }
        let at = |times: &mut Vec<u64>, q: f64| {
            times.sort_unstable();
            times[((times.len() - 1) as f64 * q) as usize] as f64 / 1e6
        };
        let user = if rustix::process::geteuid().is_root() { "another user" } else { "the same user" };
        let [(p50, c50), (p99, c99), (worst, c_worst)] =
            [0.5, 0.99, 1.0].map(|q| (at(&mut under, q), at(&mut control, q)));
        println!(
            "{name} by {user}: median {p50:.3} ms, P99 {p99:.3} ms, longest {worst:.3} ms, {} samples, {most} MiB more at most; \
             control {c50:.3}, {c99:.3}, {c_worst:.3} ms, {} samples; P99 {:.2}x",
            under.len(),
            control.len(),
            p99 / c99
        );
        let [under, control] = room.each_mut().map(|times| [0.5, 0.99, 1.0].map(|q| at(times, q)));
        let times = |[p50, p99, worst]: [f64; 3]| format!("median {p50:.3} ms, P99 {p99:.3} ms, longest {worst:.3} ms");
        println!("{name}: a question for room: {}; control {}", times(under), times(control));
    }
}

/// Waits until the parent kills this process.
fn wait() {
    println!("on");
    loop {
        std::thread::park();
    }
}

fn open(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("own folder");
}

/// Starts a daemon that other users can reach. The log goes to a file, since its output is not part of the measurement.
fn daemon() -> Daemon {
    // The daemon's threads inherit the nice value of this thread.
    let nice = |value| _ = rustix::process::setpriority_process(None, value);
    nice(DAEMON_NICE);
    let daemon = Daemon::start_with(|o| {
        let folder = o.socket.parent().expect("a folder");
        std::fs::create_dir_all(folder).expect("own folder");
        open(folder);
        open(folder.parent().expect("a folder"));
        (o.log, o.state) = (Some(folder.join("log")), Some(folder.join("state")));
    });
    nice(0);
    daemon
}

/// Starts another daemon, which the control floods, and writes the path of its socket to `says`.
fn decoy(says: &Path) {
    let daemon = daemon();
    let (fresh, socket) = (says.with_extension("new"), daemon.socket.to_str().expect("text"));
    std::fs::write(&fresh, socket).and_then(|()| std::fs::rename(&fresh, says)).expect("own folder");
    loop {
        std::thread::park();
    }
}

/// Adds the times of one round: from a wake-up to the closed gate, and from a question for room to its answer. Returns by how much the daemon's memory grew at most, in MiB.
fn measure(name: &str, samples: usize, is_control: bool, times: &mut Vec<u64>, room: &mut Vec<u64>) -> u64 {
    let root = rustix::process::geteuid().is_root();
    let daemon = daemon();
    let (low, high) = (daemon.attach(100), daemon.attach(128));
    low.group_with(0, "sim:0", 0, Levels::ONE);
    high.group_with(0, "sim:0", 0, Levels::ONE);
    low.ready(0);
    high.say(&ClientMsg::MemoryDevice { slot: 0, device: "sim:0".into(), capacity_bytes: CAPACITY });
    let before = resident_kib();
    let exe = daemon.folder.path().join("flood");
    std::fs::copy(std::env::current_exe().expect("a path"), &exe).expect("a copy");
    open(&exe);
    let (mut target, mut _other) = (daemon.socket.clone(), None);
    if is_control {
        let says = daemon.folder.path().join("decoy");
        _other = Some(Ending(Command::new(&exe).arg("--decoy").arg(&says).spawn().expect("a process")));
        until("the other daemon listens", || says.exists());
        target = std::fs::read_to_string(&says).expect("own file").into();
    }
    let mut command = Command::new(&exe);
    command.args(["--flood", name]).arg(&target).current_dir("/").stdout(Stdio::piped());
    if root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = Ending(command.spawn().expect("a process"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    // The thread sleeps between polls: spinning would take a processor from the daemon on a small machine.
    let nap = || std::thread::sleep(Duration::from_micros(10));
    let (begin, start) = (times.len(), Instant::now());
    let mut most = 0;
    while times.len() < begin + samples && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
        let asked = Instant::now();
        high.ready(0);
        while low.open(0) {
            nap();
        }
        times.push(asked.elapsed().as_nanos() as u64);
        let (number, asked) = (times.len() as u32, Instant::now());
        high.say(&ClientMsg::MemoryAsk { slot: 0, number, bytes: 1 << 20, lacking: 0, returns: false, part: false });
        let is_answer = |message| matches!(message, DaemonMsg::MemoryAnswer { number: n, .. } if n == number);
        while !receive(&high.socket).is_some_and(|(message, _)| is_answer(message)) {}
        room.push(asked.elapsed().as_nanos() as u64);
        high.idle(0);
        while !low.open(0) {
            nap();
        }
        most = most.max(resident_kib());
    }
    most.saturating_sub(before) / 1024
}

/// Process of a flood, killed at the end of its measurement.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Memory of this process, in which the daemon runs, in KiB.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("own status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Program of a flood. A refusal is no error to it.
struct Program {
    socket: OwnedFd,
    event: OwnedFd,
    segment: &'static Segment,
}

impl Program {
    fn start(path: &Path, options: ProgramOptions) -> Option<Program> {
        let (socket, event) = (try_connect(path)?, eventfd(0, EventfdFlags::CLOEXEC).ok()?);
        let file = memfd(SEGMENT_BYTES, seals());
        // SAFETY: mapped for the rest of the process's life; made of atomics.
        let segment = unsafe { &*map::<Segment>(&file, SEGMENT_BYTES, rustix::mm::ProtFlags::all()) };
        let greeting = encode(&hello(options)).ok()?;
        send_raw(&socket, &greeting, &[file.as_fd(), event.as_fd(), own_pidfd().as_fd()]).ok()?;
        Some(Program { socket, event, segment })
    }

    fn say(&self, message: &ClientMsg) -> bool {
        drain(&self.socket);
        encode(message).is_ok_and(|packet| send_raw(&self.socket, &packet, &[]).is_ok())
    }

    fn group(&self, slot: u16, device: &str) -> bool {
        self.group_below(slot, device, 0)
    }

    fn group_below(&self, slot: u16, device: &str, priority_steps: i32) -> bool {
        self.segment.groups[usize::from(slot)].inherited_priority.store(i32::MIN, SeqCst);
        self.say(&ClientMsg::GroupAdd {
            slot,
            device: device.into(),
            platform: Platform::Cuda,
            priority_steps,
            priority_fixed: None,
            system: false,
            levels: Levels::ALL,
            sharing: Sharing::Time,
        })
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        drain(&self.socket);
    }
}

/// Reads and discards all waiting messages.
fn drain(socket: &OwnedFd) {
    let mut buffer = [0; 1_024];
    while rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT).is_ok_and(|(got, _)| got > 0) {}
}

fn programs(path: &Path, job: impl Fn(usize) -> Option<String>) -> Vec<Program> {
    let start = |n| Program::start(path, ProgramOptions { job: job(n), ..ProgramOptions::default() });
    (0..PROGRAMS).filter_map(start).collect()
}

/// Makes all groups of all programs ready and idle again, as fast as possible.
fn toggle(programs: &[Program]) {
    println!("on");
    for word in [state::READY, state::IDLE].into_iter().cycle() {
        for program in programs {
            program.segment.groups.iter().for_each(|g| g.state.store(word, SeqCst));
            program.wake();
        }
    }
}

fn groups(path: &Path) {
    let programs = programs(path, |_| None);
    for program in &programs {
        (0..GROUPS as u16).all(|slot| program.group(slot, "sim:0"));
    }
    toggle(&programs);
}

/// Makes each program a job on many devices.
fn jobs(path: &Path) {
    let programs = programs(path, |n| Some(format!("job {n}")));
    for slot in 0..16 {
        for program in &programs {
            program.group(slot, &format!("sim:{slot}"));
        }
    }
    toggle(&programs);
}

/// Many programs that want the device and whose counters are read.
fn looks(path: &Path) {
    let options = || ProgramOptions { priority: Some(50), ..ProgramOptions::default() };
    let programs: Vec<_> = (0..400).filter_map(|_| Program::start(path, options())).collect();
    for (n, program) in programs.iter().enumerate() {
        for slot in [0, 1] {
            program.group_below(slot, &format!("other:{}", n / 50), -i32::from(slot));
            program.segment.groups[usize::from(slot)].state.store(state::READY, SeqCst);
        }
        program.wake();
    }
    println!("on");
    loop {
        programs.iter().for_each(|p| p.wake());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ps(path: &Path) {
    let program = Program::start(path, ProgramOptions::default()).expect("a program");
    (0..GROUPS as u16).all(|slot| program.group(slot, "sim:0"));
    (0..QUEUES).all(|slot| program.say(&ClientMsg::QueueAdd { slot, group: slot % GROUPS as u16 }));
    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request: Request::Ps }).expect("a message");
    println!("on");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut buffer = vec![0; MAX_PACKET];
                'again: loop {
                    let socket = connect(path);
                    loop {
                        if send_raw(&socket, &packet, &[]).is_err() {
                            continue 'again;
                        }
                        // The answer has one message about the daemon, one about the program, and the end.
                        for _ in 0..3 {
                            if rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).is_err() {
                                continue 'again;
                            }
                        }
                    }
                }
            });
        }
    });
}

fn unread(path: &Path) {
    let request = Request::PolicyList;
    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request }).expect("a message");
    let mut sockets: Vec<OwnedFd> = (0..100).map(|_| connect(path)).collect();
    println!("on");
    loop {
        let mut sent = false;
        for socket in &mut sockets {
            match rustix::net::send(&*socket, &packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => sent = true,
                Err(rustix::io::Errno::AGAIN) => (),
                Err(_) => *socket = connect(path),
            }
        }
        if !sent {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Attaches programs that use many groups and leave, again and again.
fn churn(path: &Path) {
    println!("on");
    loop {
        let programs = programs(path, |_| None);
        for program in &programs {
            (0..GROUPS as u16).all(|slot| program.group(slot, "sim:0"));
            program.segment.groups.iter().for_each(|g| g.state.store(state::READY, SeqCst));
            program.wake();
        }
        for program in programs {
            let start: *const Segment = program.segment;
            // SAFETY: mapped by this program at its start, as long as this, and not used after.
            unsafe { rustix::mm::munmap(start.cast_mut().cast(), SEGMENT_BYTES).expect("own memory") };
        }
    }
}

/// Makes connections that send nothing, and closes them.
fn silent(path: &Path) {
    println!("on");
    loop {
        let _all: Vec<_> = (0..200).filter_map(|_| try_connect(path)).collect();
    }
}

/// Sends descriptors that may be slow to close, with an invalid greeting.
fn descriptors(path: &Path) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("a port");
    println!("on");
    loop {
        let Some(socket) = try_connect(path) else { continue };
        let Ok(stream) = std::net::TcpStream::connect(address) else { continue };
        let Ok((pipe, _end)) = std::io::pipe() else { continue };
        let _ = send_raw(&socket, &[0xff], &[stream.as_fd(), pipe.as_fd(), listener.as_fd()]);
        let _ = listener.accept();
    }
}

fn malformed(path: &Path) {
    let bytes = [0xffu8; 2_000];
    println!("on");
    loop {
        let Some(socket) = try_connect(path) else { continue };
        while send_raw(&socket, &bytes, &[]).is_ok() {}
    }
}

/// A program that changes state which is kept over a restart, again and again.
fn hints(path: &Path) {
    let programs = programs(path, |_| None);
    programs.iter().for_each(|program| _ = program.group(0, "sim:0"));
    let pid = std::process::id();
    let hint = |weight| {
        let hints = Hints { weight: Some(weight), ..Hints::default() };
        let target = Target::Pid(pid);
        Request::Hint { targets: vec![target], priority: Some(3), hints, level: None, threshold: None, batch: None }
    };
    println!("on");
    loop {
        let Some(socket) = try_connect(path) else { continue };
        for weight in 1..1_000 {
            let message = ClientMsg::Control { version: PROTOCOL_VERSION, request: hint(weight) };
            if encode(&message).is_ok_and(|packet| send_raw(&socket, &packet, &[]).is_err()) {
                break;
            }
            programs.iter().for_each(|program| drain(&program.socket));
            drain(&socket);
        }
    }
}

/// Attaches programs without groups, which leave at once: each makes the daemon read about the process and write to its log.
fn attach(path: &Path) {
    println!("on");
    loop {
        let Some(program) = Program::start(path, ProgramOptions::default()) else { continue };
        let start: *const Segment = program.segment;
        drop(program);
        // SAFETY: mapped by this program at its start, as long as this, and not used after.
        unsafe { rustix::mm::munmap(start.cast_mut().cast(), SEGMENT_BYTES).expect("own memory") };
    }
}

/// Commands that name as many targets as allowed, each to be searched among many programs.
fn targets(path: &Path) {
    let programs: Vec<_> = (0..400).filter_map(|_| Program::start(path, ProgramOptions::default())).collect();
    for (n, program) in programs.iter().enumerate() {
        program.group(0, &format!("other:{}", n / 50));
    }
    let own = std::process::id();
    let trees = (0..TARGETS_MAX as u32 - 1).map(|n| Target::Tree(own.saturating_sub(n)));
    let targets: Vec<Target> = [Target::All].into_iter().chain(trees).collect();
    let hints = Hints { weight: Some(7), ..Hints::default() };
    let hint = Request::Hint { targets, priority: Some(3), hints, level: None, threshold: None, batch: None };
    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request: hint }).expect("a message");
    println!("on");
    loop {
        let Some(socket) = try_connect(path) else { continue };
        while send_raw(&socket, &packet, &[]).is_ok() {
            programs.iter().for_each(|program| drain(&program.socket));
            drain(&socket);
        }
    }
}

/// Attaches programs that claim to use their whole segments, and asks for `ps`, which reads the segments.
fn claims(path: &Path) {
    let programs: Vec<_> = (0..500).filter_map(|_| Program::start(path, ProgramOptions::default())).collect();
    for (n, program) in programs.iter().enumerate() {
        program.group(0, &format!("other:{}", n / 100));
        program.segment.header.used[0].store(u32::MAX, SeqCst);
        program.segment.header.used[1].store(u32::MAX, SeqCst);
        program.say(&ClientMsg::QueueAdd { slot: SEGMENT_QUEUES as u16 - 1, group: 0 });
    }
    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request: Request::Ps }).expect("a message");
    println!("on");
    loop {
        let Some(socket) = try_connect(path) else { continue };
        let mut buffer = vec![0; MAX_PACKET];
        let _ = send_raw(&socket, &packet, &[]);
        while rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).is_ok_and(|(got, _)| got > 8) {}
    }
}

/// Adds groups on ever new devices that do not exist, with time on each.
fn names(path: &Path) {
    println!("on");
    for round in 0_u64.. {
        let Some(program) = Program::start(path, ProgramOptions::default()) else { continue };
        (0..GROUPS as u16).all(|slot| program.group(slot, &format!("made-up:{round}-{slot}")));
        for word in [state::READY, state::IDLE] {
            program.segment.groups.iter().for_each(|g| g.state.store(word, SeqCst));
            program.wake();
        }
        let start: *const Segment = program.segment;
        drop(program);
        // SAFETY: mapped by this program at its start, as long as this, and not used after.
        unsafe { rustix::mm::munmap(start.cast_mut().cast(), SEGMENT_BYTES).expect("own memory") };
    }
}

/// Sends hints for the groups of programs without a pause.
fn messages(path: &Path) {
    let programs = programs(path, |_| None);
    programs.iter().for_each(|program| _ = program.group(0, "sim:0"));
    println!("on");
    for weight in (1..1_000).cycle() {
        for program in &programs {
            let hints = Hints { weight: Some(weight), ..Hints::default() };
            program.say(&ClientMsg::GroupHint { slot: 0, priority: Some(1), hints });
        }
    }
}

/// Programs that hold memory of 16 devices each, and ask for more than there is as often as they may. A quarter of them leaves and comes
/// again all the time.
fn rooms(path: &Path) {
    let start = || {
        let options = ProgramOptions { memory_swap: true, ..ProgramOptions::default() };
        let program = Program::start(path, options)?;
        for slot in 0..MEMORY_SLOTS as u16 {
            let words = &program.segment.memory[usize::from(slot)];
            words.take_anyway(1 << 30);
            words.movable_bytes.store(1 << 30, SeqCst);
            program.say(&ClientMsg::MemoryDevice { slot, device: format!("sim:{slot}"), capacity_bytes: CAPACITY });
        }
        Some(program)
    };
    let mut programs: Vec<Program> = (0..100).filter_map(|_| start()).collect();
    println!("on");
    for round in 0_usize.. {
        for (n, program) in programs.iter().enumerate() {
            for number in 0..16 {
                let slot = ((n + number as usize) % MEMORY_SLOTS) as u16;
                let (bytes, returns) = (4 << 30, number % 2 == 1);
                program.say(&ClientMsg::MemoryAsk {
                    slot,
                    number: number + 1,
                    bytes,
                    lacking: bytes,
                    returns,
                    part: false,
                });
            }
        }
        let at = round % programs.len().max(1);
        for place in (at..programs.len()).step_by(4) {
            let segment: *const Segment = programs[place].segment;
            let Some(next) = start() else { continue };
            programs[place] = next;
            // SAFETY: mapped by the program that is dropped, as long as this, and not used after.
            unsafe { rustix::mm::munmap(segment.cast_mut().cast(), SEGMENT_BYTES).expect("own memory") };
        }
    }
}
