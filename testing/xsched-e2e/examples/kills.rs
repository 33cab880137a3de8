//! Random kills, stops and continues of programs and their daemon on the simulated device, with checked results.
//!
//! `cargo build --workspace && cargo run -p xsched-e2e --example kills -- [SEED] [COUNT] [POLICY…]`
//!
//! Prints a line of a table for each policy: the number of each event, and the time until others went on (median, P99 and maximum). It ends
//! with status 1 where a median is beyond the promised time, and with a panic where something hangs, is wrong or is left behind.

use std::process::ExitCode;

use xsched_e2e::kills::{Promise, random_kills};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| args.get(at).map_or(Some(usual), |text| text.parse().ok());
    let (Some(seed), Some(count)) = (number(0, 1), number(1, 1000)) else {
        eprintln!("kills: SEED and COUNT are numbers, not `{}`", args.join(" "));
        return ExitCode::from(2);
    };
    let mut policies: Vec<&str> = args.iter().skip(2).map(String::as_str).collect();
    if policies.is_empty() {
        policies = vec!["hpf", "cfs"];
    }
    println!("| policy | seed | acts | checked | {} |", Promise::ALL.map(|p| format!("{p:?}, ms")).join(" | "));
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut kept = true;
    for policy in policies {
        let report = random_kills(seed, count as usize, policy);
        let cells = Promise::ALL.map(|promise| {
            let (n, [median, p99, most]) = report.summary(promise);
            kept &= median / 1e3 < promise.within().as_secs_f64();
            format!("{n}: {median:.1} · {p99:.1} · {most:.1}")
        });
        println!("| {policy} | {seed} | {} | {} | {} |", report.acts, report.checked, cells.join(" | "));
    }
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
