//! `xsched trace`: the last decisions, as a file for <https://ui.perfetto.dev>, a table, or JSON.

pub(super) mod output;
pub(super) mod perfetto;
pub(super) mod protobuf;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use xsched_command::progress::Progress;
use xsched_policy::registry::POLICIES;
use xsched_proto::text::escaped;
use xsched_proto::trace::{Record, Why};
use xsched_proto::units;
use xsched_proto::wire::{DaemonMsg, Head, Request, TracedGroup, TracedProgram};

use crate::client::Connection;
use crate::failure::{Error, Result, print, print_json, say};
use crate::history::{self, Doing, History, Span, quantile};
use crate::values;
use crate::width;

use self::output::Output;

/// Show what was ready, ran, waited, was preempted, and why, as a trace for Perfetto
///
/// The daemon keeps its last decisions, so that it can be asked afterwards. You see your own programs; root sees all.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
#[command(group = clap::ArgGroup::new("time").args(["last", "for"]))]
pub(crate) struct Args {
    /// Length of the time up to now [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    last: Option<Duration>,

    /// Length of the time from now on
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    r#for: Option<Duration>,

    /// File of the trace; - = standard output [default: xsched.pftrace, or xsched-2.pftrace and so on]
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file of --output
    #[arg(long, requires = "output")]
    force: bool,

    /// Print JSON instead of a file and a table
    #[arg(long, conflicts_with = "output")]
    json: bool,

    /// Print the JSON Schema of `--json`
    #[arg(long, exclusive = true)]
    schema: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  xsched trace                      what just happened? The last 10 s
  xsched trace --for 5s -o slow.pftrace

A TIME is a number and a unit: 500ms, 10s, 2m. Ctrl-C ends --for early, and the
part until then is written. Open the file at https://ui.perfetto.dev: a track
for each device and each group, and an arrow from each wait to what had the
device. The table fits the terminal, or $COLUMNS:

RAN       part of the time in which it wanted the device and had it
WAITED    part of the time in which it wanted the device and did not have it
WAITS     times it wanted the device, with median, P99 and longest wait
LOST      times it lost the device while it wanted it
HELD BY   the group that had the device for most of its waits; `suspended` where
          an operator kept it off for longer than others did";

/// Interval at which the daemon is asked for more: far shorter than the time after which it forgets records.
const PERIOD: Duration = Duration::from_millis(250);

/// Groups and records of the daemon.
struct Gathered {
    groups: Vec<TracedGroup>,
    records: Vec<Record>,
    /// Groups that an operator kept off at `from_us`.
    suspended: BTreeSet<u64>,
    /// Begin of the time that was asked for, in µs.
    asked_us: u64,
    /// Begin of the part of that time whose records the daemon still has, in µs.
    from_us: u64,
    to_us: u64,
    /// Failure that ended it early.
    failure: Option<Error>,
}

/// Gathers the records, and writes the file, the table or the JSON.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let name = args.output.as_deref();
    let to_stdout = name.is_some_and(|name| name.as_os_str() == "-");
    if to_stdout && std::io::stdout().is_terminal() {
        return Err(Error::input("--output: a trace is no text, and standard output is a terminal: name a file"));
    }
    if let Some(name) = name.filter(|_| !to_stdout) {
        output::check(name, args.force)?;
    }
    let connection = Connection::open(args.socket.as_deref())?;
    // Made before the time that it is to hold: a folder without room or right is told at once.
    let output = if to_stdout || args.json { None } else { Some(Output::create(name, args.force)?) };
    let gathered = match args.r#for {
        Some(time) => gather_for(&connection, time, args.json)?,
        None => gather(&connection, args.last.unwrap_or(Duration::from_secs(10)))?,
    };
    let Gathered { asked_us, from_us, to_us, .. } = gathered;
    let code = |failure: Option<Error>| match failure {
        None => ExitCode::SUCCESS,
        Some(why) => xsched_command::failure::report(&why),
    };
    let history = History::resumed(&gathered.groups, &gathered.records, gathered.suspended, from_us, to_us);
    if args.json {
        print_json(&Answer::new(&history))?;
        return Ok(code(gathered.failure));
    }
    let bytes = perfetto::encode(&history, clocks());
    if from_us > asked_us + 1_000 {
        say(&format!("what happened is known of the last {} only", units::of_us(to_us.saturating_sub(from_us))));
    }
    let Some(output) = output else {
        let done = std::io::stdout().write_all(&bytes);
        done.map_err(|e| Error::environment(format!("cannot write standard output: {e}")))?;
        return Ok(code(gathered.failure));
    };
    let file = output.write(&bytes)?.display().to_string();
    let table = summary::table(&history, width::of_output());
    print(&format!("{table}\n{}: open it at https://ui.perfetto.dev\n", escaped(&file)))?;
    Ok(code(gathered.failure))
}

/// Gathers the past, up to now.
fn gather(connection: &Connection, time: Duration) -> Result<Gathered> {
    let asked_us = monotonic_us().saturating_sub(time.as_micros() as u64);
    let (head, groups, records) = ask(connection, 0, asked_us)?;
    let from_us = asked_us.max(head.whole_since_us);
    let suspended = suspended_at(connection, &groups, &records, from_us, head.now_us)?;
    Ok(Gathered { groups, records, suspended, asked_us, from_us, to_us: head.now_us, failure: None })
}

/// Groups that an operator kept off at a time, where records since then do not tell. Looks back as far as it takes.
fn suspended_at(
    connection: &Connection,
    groups: &[TracedGroup],
    records: &[Record],
    at_us: u64,
    now_us: u64,
) -> Result<BTreeSet<u64>> {
    let mut back_us = 4 * now_us.saturating_sub(at_us);
    let mut is_unexplained = history::is_unexplained(groups, records);
    let mut suspended = BTreeSet::new();
    while is_unexplained {
        let asked_us = now_us.saturating_sub(back_us);
        let (head, groups, records) = ask(connection, 0, asked_us)?;
        let since_us = asked_us.max(head.whole_since_us);
        suspended = history::suspended_at(&groups, &records, since_us, at_us);
        is_unexplained = history::is_unexplained(&groups, &records) && since_us == asked_us && asked_us > 0;
        back_us = back_us.saturating_mul(4);
    }
    Ok(suspended)
}

/// Gathers the future, from now on. A signal, or the loss of the daemon, ends it early: what was gathered by then is kept.
fn gather_for(connection: &Connection, time: Duration, json: bool) -> Result<Gathered> {
    let ended = stop_on_signals()?;
    let asked_us = monotonic_us();
    let begin = Instant::now();
    let (mut groups, mut records, mut next) = (BTreeMap::new(), Vec::new(), 0);
    let (mut from_us, mut to_us, mut failure) = (asked_us, None, None);
    let (_, present, _) = ask(connection, 0, asked_us)?;
    let kept_off = present.iter().filter(|group| group.why == Why::Suspended && group.ready && !group.granted);
    let suspended: BTreeSet<u64> = kept_off.map(|group| group.id).collect();
    // A reader of the JSON needs no word about it.
    let about = format!("takes {}; Ctrl-C ends it early", units::of(time));
    let progress = Progress::new("trace", Some(about.as_str()).filter(|_| !json || std::io::stderr().is_terminal()));
    loop {
        let left = time.saturating_sub(begin.elapsed());
        std::thread::sleep(left.min(PERIOD));
        match (ask(connection, next, asked_us), to_us) {
            (Ok((head, known, more)), _) => {
                next = head.next;
                from_us = from_us.max(head.whole_since_us);
                to_us = Some(head.now_us);
                groups.extend(known.into_iter().map(|group| (group.id, group)));
                records.extend(more);
            }
            (Err(why), None) => return Err(why),
            (Err(why), Some(_)) => failure = Some(why),
        }
        progress.show(&format!("{} left, {} events", units::of_s(left.as_secs()), records.len()));
        if left <= PERIOD || failure.is_some() || ended.load(Relaxed) {
            let groups = groups.into_values().collect();
            // Times with missing records are left out.
            records.retain(|record: &Record| record.at_us >= from_us);
            return Ok(Gathered {
                groups,
                records,
                suspended,
                asked_us,
                from_us,
                to_us: to_us.unwrap_or(from_us),
                failure,
            });
        }
    }
}

/// Flag that Ctrl-C and SIGTERM set from now on. A second signal ends the process.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let done = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, ended.clone())
            .and_then(|_| signal_hook::flag::register(signal, ended.clone()));
        done.map_err(|e| Error::environment(format!("cannot wait for signals: {e}")))?;
    }
    Ok(ended)
}

/// Asks the daemon for groups and records.
fn ask(connection: &Connection, from: u64, since_us: u64) -> Result<(Head, Vec<TracedGroup>, Vec<Record>)> {
    let (mut head, mut groups, mut records) = (None, Vec::new(), Vec::new());
    for part in connection.ask(Request::Trace { from, since_us })? {
        match part {
            DaemonMsg::TraceHead(told) => head = Some(told),
            DaemonMsg::TraceGroups(told) => groups.extend(told),
            DaemonMsg::TraceRecords(told) => records.extend(told),
            _ => {}
        }
    }
    let head = head.ok_or_else(|| Error::environment("the daemon remembers nothing of what it decides"))?;
    Ok((head, groups, records))
}

pub(super) fn monotonic_us() -> u64 {
    ns(ClockId::Monotonic) / 1_000
}

fn ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn clocks() -> perfetto::Clocks {
    perfetto::Clocks {
        realtime_ns: ns(ClockId::Realtime),
        monotonic_ns: ns(ClockId::Monotonic),
        boottime_ns: ns(ClockId::Boottime),
    }
}

/// Published schema of the answer.
const SCHEMA: &str = include_str!("../../../../../docs/reference/trace.schema.json");

/// Trace in the form that `--json` prints.
#[derive(Serialize)]
struct Answer {
    version: u32,
    from_us: u64,
    to_us: u64,
    groups: Vec<GroupAnswer>,
}

#[derive(Serialize)]
struct GroupAnswer {
    id: String,
    device: String,
    program: Option<TracedProgram>,
    ended: bool,
    ran_us: u64,
    yielded_us: u64,
    waited_us: u64,
    waits: usize,
    wait_p50_us: Option<u64>,
    wait_p99_us: Option<u64>,
    preemptions: u64,
    leave_p50_us: Option<u64>,
    leave_p99_us: Option<u64>,
    heard_late: usize,
    heard_late_longest_us: Option<u64>,
    spans: Vec<SpanAnswer>,
}

#[derive(Serialize)]
struct SpanAnswer {
    #[serde(flatten)]
    span: Span,
    policy: &'static str,
    gate: &'static str,
    held_by: Vec<String>,
}

impl Answer {
    fn new(history: &History) -> Answer {
        let span = |span: &Span| SpanAnswer {
            span: span.clone(),
            policy: POLICIES.get(usize::from(span.policy)).map_or("", |entry| entry.name),
            gate: perfetto::gate(span.level),
            held_by: span.holders.iter().map(|id| format!("g{id}")).collect(),
        };
        let groups = history.groups.values().map(|h| {
            let (mut waits, mut left) = (h.waits_us.clone(), h.left_us.clone());
            GroupAnswer {
                id: format!("g{}", h.group.id),
                device: h.group.device.clone(),
                program: h.group.program.clone(),
                ended: h.group.ended,
                ran_us: history.ran_us(h.group.id),
                yielded_us: history.time_us(h.group.id, Doing::Yields),
                waited_us: history.time_us(h.group.id, Doing::Waits),
                waits: waits.len(),
                wait_p50_us: quantile(&mut waits, 0.5),
                wait_p99_us: quantile(&mut waits, 0.99),
                preemptions: h.preemptions,
                leave_p50_us: quantile(&mut left, 0.5),
                leave_p99_us: quantile(&mut left, 0.99),
                heard_late: h.late_us.len(),
                heard_late_longest_us: h.late_us.iter().max().copied(),
                spans: h.spans.iter().map(span).collect(),
            }
        });
        Answer { version: 1, from_us: history.from_us, to_us: history.to_us, groups: groups.collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use xsched_proto::class::Class;
    use xsched_proto::wire::Platform;

    use super::*;
    use crate::markdown::page;

    fn group(id: u64, program: Option<TracedProgram>, granted: bool) -> TracedGroup {
        let (device, why) = ("sim:0".to_owned(), Why::Policy);
        TracedGroup { id, device, program, ended: false, ready: true, granted, why, policy: 0, level: 1 }
    }

    #[test]
    fn the_reference_has_every_field_and_no_other() {
        let program = TracedProgram {
            pid: 1,
            uid: 2,
            exe: "/bin/a".into(),
            name: "a".into(),
            class: Class::High,
            platform: Platform::Sim,
        };
        let groups = [group(1, Some(program), false), group(2, None, true)];
        let answer = serde_json::to_value(Answer::new(&History::new(&groups, &[], 100, 300))).unwrap();
        crate::reference::obeys(SCHEMA, &answer);
        let first = &answer["groups"][0];
        assert_eq!((&first["spans"][0]["held_by"], &first["wait_p50_us"]), (&serde_json::json!(["g2"]), &200.into()));
        assert_eq!(answer["groups"][1]["program"], Value::Null);
        let rows = page("docs/reference/trace-json.md").rows();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(rows[0].1.iter().cloned().collect::<BTreeSet<_>>(), keys(&answer));
        for (heading, value) in
            [("groups[]", first), ("groups[].program", &first["program"]), ("groups[].spans[]", &first["spans"][0])]
        {
            let (_, named) = rows.iter().find(|(h, _)| h == heading).unwrap();
            assert_eq!(named.iter().cloned().collect::<BTreeSet<_>>(), keys(value), "{heading}");
        }
    }
}
