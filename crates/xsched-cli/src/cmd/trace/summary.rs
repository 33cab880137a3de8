//! Summary of a trace, in a line for each group.

use std::fmt::Write;

use xsched_proto::text::escaped;
use xsched_proto::units;

use super::perfetto;
use crate::history::{Doing, History, quantile};
use crate::width::{Width, columns_of, cut};

/// Columns before the program's name. Those with the greatest rank are left out first where there is no room.
const COLUMNS: [(&str, bool, u8); 12] = [
    ("GROUP", true, 6),
    ("PID", true, 0),
    ("CLASS", false, 3),
    ("DEVICE", false, 5),
    ("RAN", true, 1),
    ("WAITED", true, 1),
    ("WAITS", true, 7),
    ("P50", true, 8),
    ("P99", true, 2),
    ("LONGEST", true, 4),
    ("LOST", true, 9),
    ("HELD BY", false, 0),
];
const HELD_BY: usize = COLUMNS.len() - 1;
/// Least room for the name of a program, and for that of the one that held it.
const NAME: usize = 12;

/// Table of all groups.
pub(super) fn table(history: &History, width: Width) -> String {
    let all_us = history.to_us.saturating_sub(history.from_us);
    let mut out = format!("{} up to now\n", units::of_us(all_us));
    if history.groups.is_empty() {
        out.push_str("no program of yours was attached\n");
        return out;
    }
    // The groups that ran most come first, as in `top`.
    let mut groups: Vec<u64> = history.groups.keys().copied().collect();
    groups.sort_by_key(|id| std::cmp::Reverse(history.ran_us(*id)));
    let rows: Vec<([String; COLUMNS.len()], String)> = groups.iter().map(|id| row(history, *id, all_us)).collect();
    out.push_str(&laid_out(&rows, width));
    for (id, h) in &history.groups {
        if let Some(longest) = h.late_us.iter().max() {
            let line = format!(
                "g{id} {}: the daemon was late to take notice that it wanted the device, {} time{}, by up to {}: less urgent \
                 programs had the device meanwhile, too",
                perfetto::name(h),
                h.late_us.len(),
                if h.late_us.len() == 1 { "" } else { "s" },
                units::of_us(*longest)
            );
            out.push_str(&width.fill(&line, 2));
        }
    }
    out
}

/// Cells of a group, and its program's name.
fn row(history: &History, id: u64, all_us: u64) -> ([String; COLUMNS.len()], String) {
    let h = &history.groups[&id];
    let percent = |us: u64| format!("{:.0} %", us as f64 * 100.0 / all_us.max(1) as f64);
    let mut waits = h.waits_us.clone();
    let mut wait = |q| quantile(&mut waits, q).map_or_else(|| "-".to_owned(), units::of_us);
    let (pid, class) = match &h.group.program {
        Some(program) => (program.pid.to_string(), program.class.name().to_owned()),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let cells = [
        format!("g{id}"),
        pid,
        class,
        escaped(&h.group.device).into_owned(),
        percent(history.ran_us(id)),
        percent(history.time_us(id, Doing::Waits)),
        h.waits_us.len().to_string(),
        wait(0.5),
        wait(0.99),
        wait(1.0),
        h.preemptions.to_string(),
        held_by(history, id),
    ];
    (cells, perfetto::name(h))
}

/// Cause of most of the time in which a group wanted the device and did not have it.
fn held_by(history: &History, id: u64) -> String {
    let suspended_us = history.time_us(id, Doing::Suspended);
    if suspended_us > 0 && suspended_us >= history.time_us(id, Doing::Waits) {
        return "suspended".into();
    }
    let holder = history.mostly_held_by(id).and_then(|(holder, part)| {
        let holder = history.groups.get(&holder)?;
        let of_it = format!("g{} {}", holder.group.id, perfetto::name(holder));
        Some(if part > 0.99 { of_it } else { format!("{of_it} ({:.0} %)", part * 100.0) })
    });
    holder.unwrap_or_else(|| "-".into())
}

/// Lines of the table, with the columns for which there is room.
fn laid_out(rows: &[([String; COLUMNS.len()], String)], width: Width) -> String {
    let widest = |at: usize| rows.iter().map(|(cells, _)| columns_of(&cells[at])).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..COLUMNS.len()).map(|at| widest(at).max(COLUMNS[at].0.len())).collect();
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    let name = rows.iter().map(|(_, name)| columns_of(name)).chain(["PROGRAM".len()]).max().unwrap_or(0);
    let mut room = usize::MAX;
    if let Width::Columns(all) = width {
        let used = |shown: &[usize], held_by: usize| -> usize {
            shown.iter().map(|at| 1 + if *at == HELD_BY { held_by } else { widths[*at] }).sum()
        };
        let least = widths[HELD_BY].min(NAME);
        while used(&shown, least) + name.min(NAME) > all {
            let Some(last) = shown.iter().copied().filter(|at| COLUMNS[*at].2 > 0).max_by_key(|at| COLUMNS[*at].2)
            else {
                break;
            };
            shown.retain(|at| *at != last);
        }
        // The two names share the rest.
        let rest = all.saturating_sub(used(&shown, 0));
        let held_by = widths[HELD_BY].min(rest.saturating_sub(name).max(rest / 2));
        widths[HELD_BY] = held_by;
        room = rest.saturating_sub(held_by).max(1);
    }
    let mut out = String::new();
    let mut line = |cell: &dyn Fn(usize) -> String, last: &str| {
        for at in shown.iter().copied() {
            let text = cut(&cell(at), widths[at]);
            let blank = " ".repeat(widths[at].saturating_sub(columns_of(&text)));
            // Writing to a String cannot fail.
            let _ = if COLUMNS[at].1 { write!(out, "{blank}{text} ") } else { write!(out, "{text}{blank} ") };
        }
        let _ = writeln!(out, "{}", cut(last, room));
    };
    line(&|at| COLUMNS[at].0.to_owned(), "PROGRAM");
    for (cells, name) in rows {
        line(&|at| cells[at].clone(), name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use xsched_proto::class::Class;
    use xsched_proto::trace::{Record, What, Why};
    use xsched_proto::wire::{Platform, TracedGroup, TracedProgram};

    fn group(id: u64, name: &str, why: Why, granted: bool) -> TracedGroup {
        let program = TracedProgram {
            pid: 1_234_560 + id as u32,
            uid: 1,
            exe: format!("/bin/{name}"),
            name: name.into(),
            class: Class::Realtime,
            platform: Platform::Sim,
        };
        let (device, program) = ("pci:0000:41:00.0".into(), Some(program));
        TracedGroup { id, device, program, ended: false, ready: true, granted, why, policy: 0, level: 1 }
    }

    #[test]
    fn the_table_fits_its_terminal() {
        let groups = [
            group(1_001, "a-server-with-a-rather-long-name.py", Why::Policy, true),
            group(1_002, "a-trainer-with-a-rather-long-name.py", Why::Policy, false),
        ];
        let history = History::new(&groups, &[], 0, 12_345_678);
        for columns in [60, 80, 100, 120] {
            let text = table(&history, Width::Columns(columns));
            assert!(text.lines().all(|line| columns_of(line) <= columns), "{columns}: {text}");
            for part in ["PID", "HELD BY", "PROGRAM", "1235562", "g1001 a-", "a-train"] {
                assert!(text.contains(part), "{columns}: {part}: {text}");
            }
        }
        let narrow = table(&history, Width::Columns(80));
        assert!(["RAN", "WAITED", "P99"].iter().all(|name| narrow.contains(name)), "{narrow}");
        let whole = table(&history, Width::Unlimited);
        assert!(
            whole.contains("g1001 a-server-with-a-rather-long-name.py a-trainer-with-a-rather-long-name.py\n"),
            "{whole}"
        );
        assert!(whole.starts_with("12.3 s up to now\n"), "{whole}");
    }

    #[test]
    fn a_suspension_by_hand_is_named_instead_of_what_runs() {
        let record = |at_us, what, why| Record { at_us, group: 2, what, why, policy: 0, level: 2, value: 0 };
        let groups = [group(1, "other", Why::Policy, true), group(2, "held", Why::Suspended, false)];
        let mostly = |until: u64| {
            let records = [record(0, What::Waits, Why::Policy), record(until, What::Waits, Why::Suspended)];
            let history = History::new(&groups, &records, 0, 1_000);
            held_by(&history, 2)
        };
        assert_eq!((mostly(300).as_str(), mostly(700).as_str()), ("suspended", "g1 other"));
    }
}
