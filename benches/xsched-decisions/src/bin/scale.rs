//! Benchmark of a decision beside many programs that want nothing: ten programs keep a device busy, a more urgent one comes and goes, and 0
//! to 990 others are attached and idle, each with 16 queues.
//!
//! `cargo run --release -p xsched-decisions --bin scale [SAMPLES [PROGRAMS…]]`
//!
//! Prints a line of JSON for each number of programs: how long a decision takes (µs, from the first launch of the urgent program until the
//! gate of a busy one is closed), processor time of the daemon for one (the urgent program comes, and goes), its memory beside the
//! programs' own, and its part of a processor while the urgent program works and the ten wait.

#[path = "../../../../crates/xsched-daemon/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, options, try_connect};
use xsched_proto::wire::{Levels, ProgramOptions};
use xsched_testkit::until;

const BUSY: usize = 10;
const QUEUES: u16 = 16;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, folder] = args.as_slice()
        && first == "--daemon"
    {
        let folder = Path::new(folder);
        let mut options = options(folder);
        options.log = Some(folder.join("log"));
        return xsched_daemon::run(options).expect("a daemon");
    }
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let samples = args.first().map_or(500, number);
    let programs: Vec<usize> =
        if args.len() > 1 { args[1..].iter().map(number).collect() } else { vec![10, 100, 316, 1_000] };
    // The daemon needs four descriptors for a program.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("its own limit");
    for programs in programs {
        measure(samples, programs.max(BUSY));
    }
}

struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(samples: usize, programs: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("a path");
    let daemon = Ending(Command::new(own).arg("--daemon").arg(folder.path()).spawn().expect("a process"));
    let (pid, socket) = (daemon.0.id(), options(folder.path()).socket);
    until("the daemon listens", || try_connect(&socket).is_some());
    let before_kib = memory_kib(pid).0;
    let attach = |priority| {
        let client = Client::attach(&socket, ProgramOptions { priority: Some(priority), ..ProgramOptions::default() });
        client.group_with(0, "sim:0", 0, Levels::ONE);
        (0..QUEUES).for_each(|slot| client.queue(slot, 0));
        client
    };
    let idle: Vec<Client> = (BUSY..programs).map(|_| attach(0)).collect();
    let busy: Vec<Client> = (0..BUSY).map(|_| attach(0)).collect();
    let urgent = attach(128);
    busy.iter().for_each(|client| client.ready(0));
    busy.iter().for_each(|client| client.until_open(0));
    // By then all programs are attached and long idle.
    std::thread::sleep(Duration::from_secs(3));
    let stop = AtomicBool::new(false);
    let (mut times, mut cpu, mut looking) = (Vec::new(), 0.0, 0.0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                let all = busy.iter().chain([&urgent]);
                all.for_each(|client| _ = client.words(0).completed.fetch_add(1, SeqCst));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // The urgent program works, the ten wait for it: the daemon polls its progress.
        urgent.ready(0);
        let (begin, before) = (Instant::now(), cpu_s(pid));
        std::thread::sleep(Duration::from_secs(2));
        looking = (cpu_s(pid) - before) / begin.elapsed().as_secs_f64();
        urgent.idle(0);
        busy[0].until_open(0);
        // The thread sleeps between polls: spinning would take a processor from the daemon on a small machine.
        let nap = || std::thread::sleep(Duration::from_micros(10));
        let before = cpu_s(pid);
        for _ in 0..samples {
            std::thread::sleep(Duration::from_millis(2));
            let start = Instant::now();
            urgent.ready(0);
            while busy[0].open(0) {
                nap();
            }
            times.push(start.elapsed().as_nanos() as u64);
            urgent.idle(0);
            while !busy[0].open(0) {
                nap();
            }
        }
        cpu = (cpu_s(pid) - before) / samples as f64 * 1e6;
        stop.store(true, SeqCst);
    });
    let (own_kib, all_kib) = memory_kib(pid);
    drop((idle, busy, urgent));
    times.sort_unstable();
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| times[((times.len() - 1) as f64 * q) as usize] as f64 / 1e3);
    println!(
        "{{\"programs\": {programs}, \"idle\": {}, \"queues\": {}, \"decision_us\": {{\"p50\": {p50:.1}, \"p99\": {p99:.1}, \"max\": {most:.1}}}, \
         \"cpu_us_each\": {cpu:.1}, \"own_kib\": {}, \"with_shared_kib\": {all_kib}, \"cpu_share_looking\": {looking:.4}, \"samples\": {samples}}}",
        programs - BUSY,
        (programs + 1) * usize::from(QUEUES),
        own_kib.saturating_sub(before_kib),
    );
}

/// Memory of a process in KiB: without and with the memory that it shares.
fn memory_kib(pid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    (of("RssAnon:"), of("VmRSS:"))
}

/// Processor time of a process, in seconds, summed over its threads, with the kernel's finest resolution.
fn cpu_s(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    let of = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.map(of).sum::<u64>() as f64 / 1e9
}
