//! Benchmark of observation: a thousand programs are attached, ten of them keep a device busy and a more urgent one comes and goes, while
//! nothing, a monitor, `ps`, `usage` or `trace` asks the daemon again and again.
//!
//! `cargo run --release -p xsched-decisions --bin observed [ROUNDS [SAMPLES [PROGRAMS]]]`
//!
//! Prints a line of JSON for each way of observation: how long an answer takes (ms), the number of answers, and how long a decision takes
//! meanwhile (µs, from the first launch of the urgent program until the gate of a busy one is closed). Rounds alternate.

#[path = "../../../../crates/xsched-daemon/tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, options, try_connect};
use xsched_proto::ask;
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::{Levels, ProgramOptions, Request};
use xsched_testkit::until;

const BUSY: usize = 10;
/// Pause between two requests of one kind.
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
const WAYS: [&str; 5] = ["nothing", "metrics", "ps", "usage", "trace"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, folder] = args.as_slice()
        && first == "--daemon"
    {
        let folder = Path::new(folder);
        let config = folder.join("config.toml");
        let listen = folder.join("metrics.sock");
        std::fs::write(&config, format!("[metrics]\nlisten = \"unix:{}\"\n", listen.display())).expect("a file");
        let mut options = options(folder);
        (options.log, options.config) = (Some(folder.join("log")), vec![config]);
        options.state = Some(folder.join("state"));
        return xsched_daemon::run(options).expect("a daemon");
    }
    let number = |at: usize, usual: usize| args.get(at).map_or(usual, |text| text.parse().expect("a number"));
    let (rounds, samples, programs) = (number(0, 10), number(1, 100), number(2, 1_000));
    // The daemon needs four descriptors for a program.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("its own limit");
    measure(rounds, samples, programs);
}

struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes one request, and reads its whole answer.
fn look(way: &str, folder: &Path, socket: &Path) {
    let ask = |request| drop(ask::ask(socket, request, PATIENCE).expect("an answer"));
    match way {
        "metrics" => {
            let mut stream = UnixStream::connect(folder.join("metrics.sock")).expect("it listens");
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("text");
            assert!(text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200"), "{text}");
            assert!(text.trim_end().ends_with("# EOF"), "the whole of it");
        }
        "ps" => ask(Request::Ps),
        "usage" => ask(Request::Usage { since_ms: 0, by: UsageBy::Program }),
        "trace" => ask(Request::Trace { from: 0, since_us: 0 }),
        _ => {}
    }
}

/// Times measured with one way of observation.
#[derive(Default)]
struct Seen {
    answers: Vec<u64>,
    decisions: Vec<u64>,
}

fn measure(rounds: usize, samples: usize, programs: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("a path");
    let _daemon = Ending(Command::new(own).arg("--daemon").arg(folder.path()).spawn().expect("a process"));
    let socket = options(folder.path()).socket;
    until("the daemon listens", || try_connect(&socket).is_some());
    let attach = |priority| {
        let client = Client::attach(&socket, ProgramOptions { priority: Some(priority), ..ProgramOptions::default() });
        // The header is as of a program with a stream and two threads: unused slots are not scanned, and take no memory.
        client.segment().header.used.iter().zip([1, 2]).for_each(|(word, used)| word.store(used, SeqCst));
        client.group_with(0, "sim:0", 0, Levels::ONE);
        client.queue(0, 0);
        client
    };
    let idle: Vec<Client> = (BUSY..programs).map(|_| attach(0)).collect();
    let busy: Vec<Client> = (0..BUSY).map(|_| attach(0)).collect();
    let urgent = attach(128);
    busy.iter().for_each(|client| client.ready(0));
    busy.iter().for_each(|client| client.until_open(0));
    // By then all programs are attached and long idle.
    std::thread::sleep(Duration::from_secs(3));
    let mut seen: Vec<Seen> = WAYS.iter().map(|_| Seen::default()).collect();
    // The thread sleeps between polls: spinning would take a processor from the daemon on a small machine.
    let nap = || std::thread::sleep(Duration::from_micros(10));
    for round in 0..rounds {
        for step in 0..WAYS.len() {
            let at = (round + step) % WAYS.len();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let looking = scope.spawn(|| {
                    let mut answers = Vec::new();
                    while at > 0 && !stop.load(SeqCst) {
                        let start = Instant::now();
                        look(WAYS[at], folder.path(), &socket);
                        answers.push(start.elapsed().as_nanos() as u64);
                        std::thread::sleep(PAUSE);
                    }
                    answers
                });
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        let all = busy.iter().chain([&urgent]);
                        all.for_each(|client| _ = client.words(0).completed.fetch_add(1, SeqCst));
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                for _ in 0..samples {
                    std::thread::sleep(Duration::from_millis(2));
                    let start = Instant::now();
                    urgent.ready(0);
                    while busy[0].open(0) {
                        nap();
                    }
                    seen[at].decisions.push(start.elapsed().as_nanos() as u64);
                    urgent.idle(0);
                    while !busy[0].open(0) {
                        nap();
                    }
                }
                stop.store(true, SeqCst);
                seen[at].answers.extend(looking.join().expect("a thread"));
            });
        }
    }
    for (way, seen) in WAYS.iter().zip(&mut seen) {
        let of = |values: &mut Vec<u64>, unit: f64| {
            values.sort_unstable();
            let at = |q: f64| {
                values.get(((values.len().max(1) - 1) as f64 * q) as usize).map_or(0.0, |ns| *ns as f64 / unit)
            };
            format!("{{\"p50\": {:.3}, \"p99\": {:.3}, \"max\": {:.3}}}", at(0.5), at(0.99), at(1.0))
        };
        let answers = seen.answers.len();
        println!(
            "{{\"looks\": \"{way}\", \"programs\": {programs}, \"answers\": {answers}, \"answer_ms\": {}, \"decisions\": {}, \
             \"decision_us\": {}}}",
            of(&mut seen.answers, 1e6),
            seen.decisions.len(),
            of(&mut seen.decisions, 1e3),
        );
    }
    drop((idle, busy, urgent));
}
