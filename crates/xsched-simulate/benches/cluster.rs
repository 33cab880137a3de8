//! Clusters of 100, 1,000 and 10,000 devices with ten programs each, for ten minutes of virtual time: processor time, events a second of it,
//! memory a program. Each line also has the time for an event and a level of a binary tree of all programs: it stays where it is as long as
//! time grows no faster than n log n.
//!
//! `cargo bench -p xsched-simulate` prints the table of docs/guide/simulate.md; `-- 10000 3600` plays the largest cluster for an hour.
//! Two threads.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use xsched_simulate::{Outcome, Run, Scenario};

const THREADS: usize = 2;

/// A cluster: on each device a training and nine servers.
fn cluster(devices: usize, secs: usize) -> Scenario {
    let text = format!(
        "time = \"{secs}s\"\ndetail = \"bursts\"\n\
         [[device]]\ncount = {}\n\
         [[program]]\nname = \"training\"\ncount = {}\nclass = \"low\"\nmemory = 30\n\
         kernels = [{{ count = 20000, time = \"500us +- 30%\" }}]\n\
         [[program]]\nname = \"server\"\ncount = {}\nclass = \"high\"\nmemory = 5\narrivals = {{ poisson = \"60s\" }}\n\
         kernels = [{{ count = 200, time = \"500us +- 30%\" }}]\n",
        devices,
        devices,
        9 * devices
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

/// Processor time of this process so far, in s, to 10 ms.
fn processor_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (sizes, secs) = match given[..] {
        [devices, secs] => (vec![devices], secs),
        _ => (vec![100, 1_000, 10_000], 600),
    };
    println!(
        "| devices | programs | placed, s | wall, s | processors, s | events | events a s | ns an event and level | B a program |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for devices in sizes {
        let scenario = cluster(devices, secs);
        let (before, _) = memory_kib();
        let (began, before_s) = (Instant::now(), processor_s());
        let run = Run::new(&scenario, "hpf", scenario.placement.strategy).expect("a policy");
        let placed = began.elapsed().as_secs_f64();
        let outcome = play(&run);
        let (wall, took) = (began.elapsed().as_secs_f64(), processor_s() - before_s);
        let (_, most) = memory_kib();
        let programs = scenario.program_count();
        let bytes = most.saturating_sub(before) * 1_024 / programs as u64;
        let events = outcome.events as f64;
        println!(
            "| {devices} | {programs} | {placed:.2} | {wall:.1} | {took:.1} | {events:.2e} | {:.2e} | {:.0} | {bytes} |",
            events / took,
            took * 1e9 / events / (programs as f64).log2(),
        );
        assert!(outcome.programs.iter().all(|program| program.requests.count() > 0));
    }
}
