//! `xsched usage`: time that programs had on devices, also of programs that are gone.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use xsched_proto::account::of_bytes;
use xsched_proto::text::escaped;
use xsched_proto::units;
use xsched_proto::usage::{UsageBy, UsageRow};
use xsched_proto::wire::{DaemonMsg, Request};

use crate::failure::{Result, print, print_json};
use crate::users::Names;
use crate::{client, stored, values};

/// Show the device time of programs, also of those that have ended
///
/// Your own programs; root sees those of all users. The daemon keeps records over restarts, in its state folder; where none
/// runs, your own daemon's records are read there.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// From this long ago until now, such as 90s, 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = values::time_ago)]
    since: Duration,

    /// Key to add up by: user, job, program, class, device
    #[arg(long, value_name = "WHAT", default_value = "program", hide_possible_values = true, value_parser = by)]
    by: UsageBy,

    /// Comma-separated values, times in seconds
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print the JSON Schema of `--json`
    #[arg(long, exclusive = true)]
    schema: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
GPU TIME  device time, divided among programs that are on a device together:
          it sums to the time that the device was busy
PART      of the device time in this list
RESIDENT  time in which it was on a device, whatever else was there
MEM × H   memory that it held, times the hours for which it did
HOST × H  the same of memory that lay on the host, if some did
AT MOST   part of the GPU time that was not measured: it may be too much

Examples:
  xsched usage --since 12h --by user
  xsched usage --since 30d --by job --csv";

/// Answer in the form of `--json`.
#[derive(Serialize)]
struct Answer {
    version: u32,
    since_s: u64,
    by: UsageBy,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    key: Option<String>,
    gpu_seconds: f64,
    by_driver_seconds: f64,
    at_most_seconds: f64,
    resident_seconds: f64,
    memory_byte_hours: u64,
    host_byte_hours: u64,
    programs: u64,
}

/// Published schema of the answer.
const SCHEMA: &str = include_str!("../../../../docs/reference/usage.schema.json");

/// Asks the daemon and prints the answer.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let rows = ask(args.socket.as_deref(), stored::ms_before_now(args.since), args.by)?;
    if args.json {
        let rows = rows.iter().map(row).collect();
        return print_json(&Answer { version: 1, since_s: args.since.as_secs(), by: args.by, rows });
    }
    if args.csv { print(&csv(args.by, &rows)) } else { print(&table(args.by, &rows)) }
}

/// Asks the daemon, or reads what it has left where none answers.
fn ask(socket: Option<&Path>, since_ms: u64, by: UsageBy) -> Result<Vec<UsageRow>> {
    let row = |part| if let DaemonMsg::Usage(row) = part { Some(row) } else { None };
    let rows = match client::ask_if_there(socket, Request::Usage { since_ms, by })? {
        Some(parts) => parts.into_iter().filter_map(row).collect(),
        None => stored::find(socket)?.rows(since_ms, by)?,
    };
    let mut names = Names::default();
    let mut shown = |key: String| match key.parse() {
        Ok(uid) if by == UsageBy::User => names.of(uid).to_owned(),
        _ => key,
    };
    Ok(rows.into_iter().map(|row| UsageRow { key: row.key.map(&mut shown), ..row }).collect())
}

fn row(row: &UsageRow) -> Row {
    let seconds = |ns: u64| ns as f64 / 1e9;
    Row {
        key: row.key.clone(),
        gpu_seconds: seconds(row.gpu_ns),
        by_driver_seconds: seconds(row.by_driver_ns),
        at_most_seconds: seconds(row.at_most_ns),
        resident_seconds: seconds(row.resident_ns),
        memory_byte_hours: byte_hours(row.memory_kib_s),
        host_byte_hours: byte_hours(row.host_kib_s),
        programs: row.programs,
    }
}

fn table(by: UsageBy, rows: &[UsageRow]) -> String {
    if rows.is_empty() {
        return "no usage is recorded for that time\n".into();
    }
    let all: u64 = rows.iter().map(|row| row.gpu_ns).sum();
    // Where memory lay on the host, its column takes room of the others.
    let has_host = rows.iter().any(|row| row.host_kib_s > 0);
    let (names, time) = if has_host { (14, 9) } else { (20, 11) };
    let host = |text: String| if has_host { format!(" {text:>9}") } else { String::new() };
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{:<names$} {:>time$} {:>6} {:>time$} {:>9}{} {:>8} {:>8}",
        by.name().to_uppercase(),
        "GPU TIME",
        "PART",
        "RESIDENT",
        "MEM × H",
        host("HOST × H".into()),
        "AT MOST",
        "PROGRAMS"
    );
    for row in rows {
        let percent = |part: u64, whole: u64| format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64);
        let _ = writeln!(
            out,
            "{:<names$} {:>time$} {:>6} {:>time$} {:>9}{} {:>8} {:>8}",
            escaped(row.key.as_deref().unwrap_or("-")),
            units::of_ns(row.gpu_ns),
            percent(row.gpu_ns, all),
            units::of_ns(row.resident_ns),
            of_bytes(byte_hours(row.memory_kib_s)),
            host(of_bytes(byte_hours(row.host_kib_s))),
            percent(row.at_most_ns, row.gpu_ns),
            row.programs
        );
    }
    out
}

/// Memory times hours, in byte·h.
fn byte_hours(kib_s: u64) -> u64 {
    u64::try_from(u128::from(kib_s) * 1_024 / 3_600).unwrap_or(u64::MAX)
}

fn csv(by: UsageBy, rows: &[UsageRow]) -> String {
    let head =
        "gpu_seconds,by_driver_seconds,at_most_seconds,resident_seconds,programs,memory_byte_hours,host_byte_hours";
    let mut out = format!("{},{head}\n", by.name());
    for row in rows {
        let key = row.key.as_deref().unwrap_or_default();
        let times = [row.gpu_ns, row.by_driver_ns, row.at_most_ns, row.resident_ns];
        let times = times.map(|ns| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)).join(",");
        let [memory, host] = [row.memory_kib_s, row.host_kib_s].map(byte_hours);
        let _ = writeln!(out, "{},{times},{},{memory},{host}", field(key), row.programs);
    }
    out
}

/// Field of CSV. A text that a spreadsheet would take for a formula is quoted.
fn field(text: &str) -> String {
    let text = escaped(text);
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.into_owned() };
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn by(text: &str) -> Result<UsageBy> {
    let known = UsageBy::ALL.into_iter().find(|by| by.name().eq_ignore_ascii_case(text));
    known.ok_or_else(|| {
        let names = UsageBy::ALL.map(UsageBy::name).join(", ");
        crate::failure::Error::input(format!("'{text}' is nothing to add up by: use {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(key: Option<&str>, gpu_ns: u64) -> UsageRow {
        UsageRow {
            key: key.map(str::to_owned),
            gpu_ns,
            resident_ns: 2 * gpu_ns,
            memory_kib_s: 3_600 << 20,
            programs: 1,
            ..UsageRow::default()
        }
    }

    #[test]
    fn tables_and_csv_have_a_line_for_each() {
        let rows = [row_of(Some("train.py"), 7_384_000_000_000), row_of(None, 1_250_000_000)];
        let table = table(UsageBy::Job, &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("JOB ") && lines[1].starts_with("train.py ") && lines[2].starts_with("- "));
        assert!(lines[1].contains(" 2 h 3 m  100 %     4 h 6 m     1 GiB      0 %"), "{table}");
        assert!(lines[2].contains(" 1.2 s    0 %       2.5 s     1 GiB      0 %"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let on_host = [UsageRow { host_kib_s: 7_200 << 20, ..row_of(Some("train.py"), 0) }, row_of(None, 0)];
        let wide = super::table(UsageBy::Job, &on_host);
        let lines: Vec<&str> = wide.lines().collect();
        assert!(lines[0].contains(" MEM × H  HOST × H  AT MOST") && lines[1].contains(" 1 GiB     2 GiB "), "{wide}");
        assert!(wide.lines().all(|line| line.chars().count() <= 80), "{wide}");
        let csv = csv(UsageBy::Job, &rows);
        assert_eq!(csv.lines().nth(2), Some(",1.250000000,0.000000000,0.000000000,2.500000000,1,1073741824,0"));
    }

    #[test]
    fn the_answer_obeys_its_schema_which_has_every_field() {
        let rows = [row_of(Some("train.py"), 7_384_000_000_000), row_of(None, 0)].iter().map(row).collect();
        let answer = Answer { version: 1, since_s: 60, by: UsageBy::Job, rows };
        crate::reference::obeys(SCHEMA, &serde_json::to_value(answer).unwrap());
    }

    #[test]
    fn what_a_program_calls_itself_is_no_formula_and_no_second_field() {
        assert_eq!(field("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert!(!field("a\nb\u{1b}").contains(['\n', '\u{1b}']));
    }

    #[test]
    fn what_it_is_added_up_by_is_one_of_five() {
        assert_eq!(by("User").unwrap(), UsageBy::User);
        assert!(by("pid").unwrap_err().line().ends_with("use user, job, program, class, device"));
    }
}
