//! Summary of a trace, in a line for each group.

use std::fmt::Write;

use xsched_proto::text::escaped;

use super::perfetto;
use crate::history::{Doing, History, quantile};

/// Table of all groups.
pub(super) fn table(history: &History) -> String {
    let all_us = history.to_us.saturating_sub(history.from_us);
    let mut out = format!("{} up to now\n", seconds(all_us));
    if history.groups.is_empty() {
        out.push_str("no program of yours was attached\n");
        return out;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{:>5} {:>8} {:<9} {:<12} {:>5} {:>6} {:>6} {:>8} {:>8} {:>8} {:>5}  {:<24} PROGRAM",
        "GROUP", "PID", "CLASS", "DEVICE", "RAN", "WAITED", "WAITS", "P50", "P99", "LONGEST", "LOST", "HELD BY"
    );
    let percent = |us: u64| format!("{:.0} %", us as f64 * 100.0 / all_us.max(1) as f64);
    // The groups that ran most come first, as in `top`.
    let mut groups: Vec<_> = history.groups.iter().collect();
    groups.sort_by_key(|(id, _)| std::cmp::Reverse(history.ran_us(**id)));
    for (id, h) in groups {
        let mut waits = h.waits_us.clone();
        let mut wait = |q| quantile(&mut waits, q).map_or_else(|| "-".to_owned(), duration);
        let (p50, p99, longest) = (wait(0.5), wait(0.99), wait(1.0));
        let held_by = history.mostly_held_by(*id).and_then(|(holder, part)| {
            let holder = history.groups.get(&holder)?;
            let of_it = format!("g{} {}", holder.group.id, perfetto::name(holder));
            Some(if part > 0.99 { of_it } else { format!("{of_it} ({:.0} %)", part * 100.0) })
        });
        let (pid, class) = match &h.group.program {
            Some(program) => (program.pid.to_string(), program.class.name()),
            None => ("-".to_owned(), "-"),
        };
        let _ = writeln!(
            out,
            "{:>5} {pid:>8} {class:<9} {:<12} {:>5} {:>6} {:>6} {p50:>8} {p99:>8} {longest:>8} {:>5}  {:<24} {}",
            format!("g{id}"),
            escaped(&h.group.device),
            percent(history.ran_us(*id)),
            percent(history.time_us(*id, Doing::Waits)),
            h.waits_us.len(),
            h.preemptions,
            held_by.unwrap_or_else(|| "-".into()),
            perfetto::name(h)
        );
    }
    for (id, h) in &history.groups {
        if let Some(longest) = h.late_us.iter().max() {
            let _ = writeln!(
                out,
                "g{id} {}: the daemon was late to take notice that it wanted the device, {} time{}, by up to {}: less urgent \
                 programs had the device meanwhile, too",
                perfetto::name(h),
                h.late_us.len(),
                if h.late_us.len() == 1 { "" } else { "s" },
                duration(*longest)
            );
        }
    }
    out
}

/// Text of a time in µs, short and in a readable unit.
fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// A time as the summary shows it.
pub(super) fn seconds(us: u64) -> String {
    format!("{:.1} s", us as f64 / 1e6)
}
