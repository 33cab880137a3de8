//! A cluster of 10,000 devices and 100,000 programs for an hour, and parts of it: wall time, events per second, memory per program.
//!
//! `cargo bench -p xsched-simulate` plays parts of 1/64 to 1/8; `cargo bench -p xsched-simulate -- 1` plays the whole one. Two threads.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use xsched_simulate::{Outcome, Run, Scenario};

const THREADS: usize = 2;

/// One of so many parts of the cluster: on each device a training and nine servers.
fn cluster(part: usize) -> Scenario {
    let text = format!(
        "time = \"1h\"\ndetail = \"bursts\"\n\
         [[device]]\ncount = {}\n\
         [[program]]\nname = \"training\"\ncount = {}\nclass = \"low\"\nmemory = 30\n\
         kernels = [{{ count = 20000, time = \"500us +- 30%\" }}]\n\
         [[program]]\nname = \"server\"\ncount = {}\nclass = \"high\"\nmemory = 5\narrivals = {{ poisson = \"60s\" }}\n\
         kernels = [{{ count = 200, time = \"500us +- 30%\" }}]\n",
        10_000 / part,
        10_000 / part,
        90_000 / part
    );
    Scenario::read(&text, |_| unreachable!()).expect("a scenario")
}

/// Memory of this process, in KiB: now and at most.
fn memory_kib() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    (of("VmRSS:"), of("VmHWM:"))
}

fn play(run: &Run<'_>) -> Outcome {
    let (all, next) = (Mutex::new(run.nothing()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Relaxed)).filter(|at| *at < run.machines()) {
                    let outcome = run.machine(at);
                    all.lock().expect("no panic").merge(outcome);
                }
            });
        }
    });
    all.into_inner().expect("no panic")
}

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let parts = if given.is_empty() { vec![64, 32, 16, 8] } else { given };
    println!(
        "{:>8} {:>9} {:>9} {:>8} {:>12} {:>11} {:>10}",
        "devices", "programs", "placed s", "wall s", "events", "events/s", "B/program"
    );
    for part in parts {
        let scenario = cluster(part);
        let (before, _) = memory_kib();
        let began = Instant::now();
        let run = Run::new(&scenario, "hpf", scenario.placement.strategy).expect("a policy");
        let placed = began.elapsed().as_secs_f64();
        let outcome = play(&run);
        let wall = began.elapsed().as_secs_f64();
        let (_, most) = memory_kib();
        let bytes = most.saturating_sub(before) * 1_024 / scenario.program_count() as u64;
        let (devices, programs) = (scenario.device_count(), scenario.program_count());
        let rate = outcome.events as f64 / (wall - placed);
        println!(
            "{devices:>8} {programs:>9} {placed:>9.2} {wall:>8.1} {:>12} {rate:>11.0} {bytes:>10}",
            outcome.events
        );
        assert!(outcome.programs.iter().all(|program| program.requests.count() > 0));
    }
}
