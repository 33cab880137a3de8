//! Benchmark of a decision: the time from a more urgent program's becoming ready to the closed gate of another, beside a bare hop (eventfd
//! write, epoll, store) to a thread that does nothing else, alternated in the same run.
//!
//! `cargo run --release -p xsched-decisions --bin decision [SAMPLES [SOCKET]]`
//!
//! With SOCKET the daemon there decides, on a device of its own that has the policy hpf; the result, beside a hop to a thread, is a line of
//! JSON, in µs.

#[path = "../../../../crates/xsched-daemon/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use xsched_proto::wire::{Levels, ProgramOptions};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use support::{Client, Daemon};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let samples = args.first().map_or(2_000, |n| n.parse().expect("a number of samples"));
    if let Some(socket) = args.get(1) {
        return beside_others(Path::new(socket), samples);
    }
    let daemon = Daemon::start();
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    low.group_with(0, "sim:0", 0, Levels::ONE);
    high.group_with(0, "sim:0", 0, Levels::ONE);
    low.ready(0);
    let (word, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let (mut bare, mut decision) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll instance");
            epoll::add(&epoll, &event, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).expect("an entry");
            let mut events = Vec::with_capacity(1);
            while !stop.load(SeqCst) {
                events.clear();
                let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None);
                word.store(1, SeqCst);
            }
        });
        let rest = || std::thread::sleep(Duration::from_millis(2));
        let time = |done: &dyn Fn() -> bool, start: Instant| {
            while !done() {
                std::hint::spin_loop();
            }
            start.elapsed().as_nanos() as u64
        };
        for _ in 0..samples {
            rest();
            word.store(0, SeqCst);
            let start = Instant::now();
            rustix::io::write(&event, &1u64.to_ne_bytes()).expect("a write");
            bare.push(time(&|| word.load(SeqCst) == 1, start));
            rest();
            let start = Instant::now();
            high.ready(0);
            decision.push(time(&|| !low.open(0), start));
            high.idle(0);
            low.until_open(0);
        }
        stop.store(true, SeqCst);
        rustix::io::write(&event, &1u64.to_ne_bytes()).expect("a write");
    });
    for (name, mut times) in [("bare hop", bare), ("decision", decision)] {
        times.sort_unstable();
        let at = |q: f64| quantile_us(&times, q);
        println!("{name}: median {:.1} us, P99 {:.1} us, {} samples", at(0.5), at(0.99), times.len());
    }
}

/// Quantile of sorted times in ns, in µs.
fn quantile_us(times: &[u64], q: f64) -> f64 {
    times[((times.len() - 1) as f64 * q) as usize] as f64 / 1_000.0
}

/// Measures decisions of a daemon that has other work as well.
fn beside_others(socket: &Path, samples: usize) {
    let attach =
        |priority| Client::attach(socket, ProgramOptions { priority: Some(priority), ..ProgramOptions::default() });
    let (low, high) = (attach(0), attach(128));
    low.group_with(0, "sim:probe", 0, Levels::ONE);
    high.group_with(0, "sim:probe", 0, Levels::ONE);
    low.ready(0);
    low.until_open(0);
    let (word, event) = (AtomicU32::new(0), eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
    let (stop, mut bare, mut decision) = (AtomicBool::new(false), Vec::new(), Vec::new());
    // The thread sleeps between polls: spinning would take a processor from the daemon on a small machine.
    let until = |start: Instant, done: &dyn Fn() -> bool| {
        while !done() {
            std::thread::sleep(Duration::from_micros(10));
        }
        start.elapsed().as_nanos() as u64
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = [0; 8];
            while !stop.load(SeqCst) {
                let _ = rustix::io::read(&event, &mut count);
                word.store(1, SeqCst);
            }
        });
        let wake = || rustix::io::write(&event, &1u64.to_ne_bytes()).expect("a write");
        for _ in 0..samples {
            std::thread::sleep(Duration::from_millis(2));
            word.store(0, SeqCst);
            let start = Instant::now();
            wake();
            bare.push(until(start, &|| word.load(SeqCst) == 1));
            std::thread::sleep(Duration::from_millis(2));
            let start = Instant::now();
            high.ready(0);
            decision.push(until(start, &|| !low.open(0)));
            high.idle(0);
            until(start, &|| low.open(0));
        }
        stop.store(true, SeqCst);
        wake();
    });
    let said = [("bare", bare), ("decision", decision)].map(|(name, mut times)| {
        times.sort_unstable();
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| quantile_us(&times, q));
        format!("\"{name}\": {{\"p50\": {p50:.1}, \"p99\": {p99:.1}, \"max\": {most:.1}}}")
    });
    println!("{{{}, \"samples\": {samples}}}", said.join(", "));
}
