//! `xsched trace`: the daemon's decisions about two programs of the simulated device, as JSON and as a file for Perfetto. The file is read
//! by prost, and by the protocol classes of the Python package `perfetto`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};
use xsched_e2e::{Place, Process, TIMEOUT, finish, now_ns, signal, skipped, until};

/// Parts of Perfetto's interface that the files use.
mod perfetto {
    #[derive(prost::Message)]
    pub(crate) struct Trace {
        #[prost(message, repeated, tag = "1")]
        pub(crate) packet: Vec<Packet>,
    }

    #[derive(prost::Message)]
    pub(crate) struct Packet {
        #[prost(uint64, optional, tag = "8")]
        pub(crate) timestamp: Option<u64>,
        #[prost(uint32, tag = "10")]
        pub(crate) trusted_packet_sequence_id: u32,
        #[prost(message, optional, tag = "6")]
        pub(crate) clock_snapshot: Option<ClockSnapshot>,
        #[prost(message, optional, tag = "11")]
        pub(crate) track_event: Option<TrackEvent>,
        #[prost(uint32, tag = "58")]
        pub(crate) timestamp_clock_id: u32,
        #[prost(message, optional, tag = "60")]
        pub(crate) track_descriptor: Option<TrackDescriptor>,
    }

    #[derive(prost::Message)]
    pub(crate) struct ClockSnapshot {
        #[prost(message, repeated, tag = "1")]
        pub(crate) clocks: Vec<Clock>,
    }

    #[derive(prost::Message)]
    pub(crate) struct Clock {
        #[prost(uint32, tag = "1")]
        pub(crate) clock_id: u32,
        #[prost(uint64, tag = "2")]
        pub(crate) timestamp: u64,
    }

    #[derive(prost::Message)]
    pub(crate) struct TrackDescriptor {
        #[prost(uint64, tag = "1")]
        pub(crate) uuid: u64,
        #[prost(string, tag = "2")]
        pub(crate) name: String,
        #[prost(message, optional, tag = "3")]
        pub(crate) process: Option<Process>,
        #[prost(uint64, tag = "5")]
        pub(crate) parent_uuid: u64,
    }

    #[derive(prost::Message)]
    pub(crate) struct Process {
        #[prost(int32, tag = "1")]
        pub(crate) pid: i32,
        #[prost(string, tag = "6")]
        pub(crate) process_name: String,
    }

    #[derive(prost::Message)]
    pub(crate) struct TrackEvent {
        #[prost(message, repeated, tag = "4")]
        pub(crate) debug_annotations: Vec<Annotation>,
        #[prost(int32, tag = "9")]
        pub(crate) r#type: i32,
        #[prost(uint64, tag = "11")]
        pub(crate) track_uuid: u64,
        #[prost(string, tag = "23")]
        pub(crate) name: String,
        #[prost(fixed64, repeated, tag = "47")]
        pub(crate) flow_ids: Vec<u64>,
        #[prost(fixed64, repeated, tag = "48")]
        pub(crate) terminating_flow_ids: Vec<u64>,
    }

    #[derive(prost::Message)]
    pub(crate) struct Annotation {
        #[prost(string, tag = "6")]
        pub(crate) string_value: String,
        #[prost(string, tag = "10")]
        pub(crate) name: String,
    }
}

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;

/// Starts a low program that loses the device to a high one, has it while that one is suspended, and loses it again.
fn lost_twice(place: &Place) -> (Process, Process) {
    let (mut low, high) = place.low_held_by_high();
    let pid = high.pid().to_string();
    place.ask(&["suspend", "--pid", &pid]);
    low.progress_after(now_ns());
    place.ask(&["resume", "--pid", &pid]);
    place.await_state(low.pid(), "ready");
    (low, high)
}

fn group_of(trace: &Value, pid: u32) -> &Value {
    let groups = trace["groups"].as_array().expect("a list");
    groups.iter().find(|group| group["program"]["pid"] == pid).unwrap_or_else(|| panic!("no group of {pid}: {trace}"))
}

fn spans<'a>(group: &'a Value, doing: &str) -> Vec<&'a Value> {
    group["spans"].as_array().expect("a list").iter().filter(|span| span["doing"] == doing).collect()
}

#[test]
fn a_trace_tells_afterwards_what_held_a_program_and_why() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (low, high) = lost_twice(&place);
    let trace: Value = serde_json::from_str(&place.ask(&["trace", "--json", "--last", "1h"])).expect("JSON");
    let (of_low, of_high) = (group_of(&trace, low.pid()), group_of(&trace, high.pid()));
    assert_eq!((of_low["program"]["class"].as_str(), of_low["device"].as_str()), (Some("low"), Some("sim:0")));
    assert!(of_low["preemptions"].as_u64() >= Some(2), "{of_low}");
    // Cut at level 3, it tells that it has left only where its command was over by then.
    let (left, waited) = (of_low["leave_p99_us"].as_u64(), of_low["wait_p99_us"].as_u64());
    assert!(left.is_none_or(|us| Some(us) <= waited), "{of_low}");
    let waits = spans(of_low, "waits");
    let last = waits.last().expect("it waits");
    assert_eq!((&last["why"], &last["policy"], &last["preempted"]), (&json!("policy"), &json!("hpf"), &json!(true)));
    assert_eq!(last["held_by"], json!([of_high["id"]]));
    assert_eq!(last["to_us"], trace["to_us"], "it goes on");
    let suspended = spans(of_high, "suspended");
    let [span] = suspended.as_slice() else { panic!("it was suspended once: {of_high}") };
    assert_eq!(span["why"], "suspended");
    // Meanwhile the other program had the device, for most of that time at least.
    let (from, to) = (span["from_us"].as_u64().unwrap(), span["to_us"].as_u64().unwrap());
    let within = |run: &&&Value| run["from_us"].as_u64() <= Some(to) && run["to_us"].as_u64() >= Some(from);
    assert!(spans(of_low, "runs").iter().any(|run| within(&run)), "{of_low}");
    // Spans do not overlap, and are in order.
    for group in [of_low, of_high] {
        let all = group["spans"].as_array().unwrap();
        assert!(all.iter().all(|span| span["from_us"].as_u64() < span["to_us"].as_u64()), "{group}");
        assert!(all.windows(2).all(|pair| pair[0]["to_us"].as_u64() <= pair[1]["from_us"].as_u64()), "{group}");
    }
    let gone = high.pid();
    drop(high);
    until("it is gone", || place.program(gone).is_none());
    let trace: Value = serde_json::from_str(&place.ask(&["trace", "--json"])).expect("JSON");
    assert_eq!(
        (&group_of(&trace, low.pid())["ended"], &group_of(&trace, gone)["ended"]),
        (&json!(false), &json!(true))
    );
}

/// Trace of a time in which no decision was made about a program: it must not count as waiting then because its gate was last recorded as
/// closed.
#[test]
fn a_program_that_ran_and_has_gone_is_not_told_to_have_waited() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let mut program = place.run(&["--priority", "low"], &place.sim_program("steady"), &[]);
    program.expect("ready");
    program.progress_after(now_ns());
    let (since, pid) = (now_ns(), program.pid());
    // The command below must begin within this time, however late the machine is.
    program.progress_after(since + 3_000_000_000);
    program.tell("end");
    assert_eq!(program.wait().0, 0);
    until("it is gone", || place.program(pid).is_none());
    let last = format!("{}ms", (now_ns() - since) / 1_000_000);
    let trace: Value = serde_json::from_str(&place.ask(&["trace", "--json", "--last", &last])).expect("JSON");
    let group = group_of(&trace, pid);
    assert!(!spans(group, "runs").is_empty() && spans(group, "waits").is_empty(), "{group}");
}

/// The daemon gets no processor while an urgent program has requests, and wakes up when that program is gone. Less urgent work went on
/// meanwhile; all reports afterwards must show that, and agree.
#[test]
fn what_the_daemon_never_took_notice_of_is_told_by_all_that_can_be_asked() {
    let place = Place::new();
    let daemon = place.daemon(&["--policy", "hpf"]);
    let mut low = place.run(&["--priority", "low"], &place.sim_program("steady"), &[]);
    low.expect("ready");
    low.progress_after(now_ns());
    let work = place.compile("programs/suite/work.c", &["-DPLATFORM=\"sim.h\"", "-lsimdev", "-lpthread", "-lm"]);
    let mut high = place.run(&["--priority", "high"], &work, &["requests", "500", "4"]);
    high.expect("ready");
    let pid = high.pid();
    let request = |high: &mut Process| {
        high.tell("request");
        high.find("the end of a request", |line| line.starts_with("done ").then_some(()));
    };
    request(&mut high);
    // The program makes no request before the daemon has stopped.
    until("it is between two requests", || {
        let of_high = place.group(pid).is_some_and(|g| g["state"] == "idle" && g["launches"] != 0);
        of_high && place.group(low.pid()).is_some_and(|g| g["state"] == "running")
    });
    let before = place.group(pid).expect("it is there")["heard_late"].clone();
    let stopped_us = now_ns() / 1_000;
    signal(daemon.pid(), Signal::STOP);
    for _ in 0..10 {
        request(&mut high);
        std::thread::sleep(Duration::from_millis(50)); // the time between requests
    }
    high.tell("end");
    let (code, _, errors) = high.wait();
    assert_eq!(code, 0, "{errors}");
    let ended_us = now_ns() / 1_000;
    low.skip_lines();
    low.progress_after(now_ns());
    signal(daemon.pid(), Signal::CONT);

    let figure = |late: &Value, name: &str| late[name].as_u64().expect("a figure");
    let own = place.stats_of(pid)["heard_late"].clone();
    assert!(figure(&own, "count") > figure(&before, "count"), "{own}");
    assert!(figure(&own, "longest_us") <= ended_us - stopped_us + 1_000_000, "{own}");
    until("the daemon knows that it is gone", || place.program(pid).is_none());
    let all: Value = serde_json::from_str(&place.ask(&["ps", "--json", "--all"])).expect("JSON");
    let program = all["programs"].as_array().unwrap().iter().find(|p| p["pid"] == pid).expect("it is remembered");
    let told = &program["groups"][0]["heard_late"];
    assert_eq!(told["count"], own["count"], "{told}");
    assert!(figure(told, "longest_us") >= figure(&own, "longest_us"), "{told} {own}");
    let trace: Value = serde_json::from_str(&place.ask(&["trace", "--json", "--last", "1h"])).expect("JSON");
    let (of_low, of_high) = (group_of(&trace, low.pid()), group_of(&trace, pid));
    assert_eq!(of_high["heard_late"], told["count"], "{of_high}");
    // Both programs ran, as the daemon finds out afterwards for one of them.
    let run = spans(of_high, "runs").last().copied().expect("it ran");
    let [from, to] = ["from_us", "to_us"].map(|key| run[key].as_u64().expect("a time"));
    assert!(from < ended_us && to >= ended_us, "{run}");
    let of_low = spans(of_low, "runs");
    assert!(of_low.iter().any(|s| s["from_us"].as_u64() < Some(to) && s["to_us"].as_u64() > Some(from)), "{of_low:?}");
    let table = place.ask(&["trace", "--last", "1h", "-o", place.join("late.pftrace").to_str().expect("text")]);
    assert!(table.contains("the daemon was late to take notice that it wanted the device"), "{table}");
    let found = place.xsched(&["doctor", "--json"]).output().expect("it runs");
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let check = found["checks"].as_array().unwrap().iter().find(|c| c["cause"] == "late-daemon");
    assert_eq!(check.expect("it is found")["status"], "note");
}

#[test]
fn a_trace_of_the_time_to_come_has_what_happens_then() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (mut low, high) = place.low_held_by_high();
    let pid = high.pid().to_string();
    let mut tracing = Process::start(place.xsched(&["trace", "--for", "2s", "--json"]));
    while tracing.has_ended().is_none() {
        place.ask(&["suspend", "--pid", &pid]);
        low.progress_after(now_ns());
        place.ask(&["resume", "--pid", &pid]);
        place.await_state(low.pid(), "ready");
    }
    let (code, lines, errors) = tracing.wait();
    assert_eq!((code, errors.as_str()), (0, ""));
    let trace: Value = serde_json::from_str(&lines.join("\n")).expect("JSON");
    let (of_low, of_high) = (group_of(&trace, low.pid()), group_of(&trace, high.pid()));
    assert!(!spans(of_low, "runs").is_empty() && !spans(of_low, "waits").is_empty(), "{of_low}");
    assert!(!spans(of_high, "suspended").is_empty(), "{of_high}");
    let [from, to] = ["from_us", "to_us"].map(|key| trace[key].as_u64().expect("a time"));
    assert!(to - from >= 2_000_000, "{trace}");
    let all = [of_low, of_high].into_iter().flat_map(|group| group["spans"].as_array().expect("a list"));
    assert!(all.clone().all(|span| span["from_us"].as_u64() >= Some(from) && span["to_us"].as_u64() <= Some(to)));
}

#[test]
fn a_trace_is_not_lost_and_overwrites_nothing() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (_low, _high) = place.low_held_by_high();
    let in_place = |args: &[&str]| {
        let mut command = place.xsched(args);
        command.current_dir(place.join(""));
        command
    };
    // Ctrl-C ends it, and what there is by then is written.
    let mut command = in_place(&["trace", "--for", "1h"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("xsched runs");
    let (mut errors, mut first) = (BufReader::new(child.stderr.take().expect("a pipe")), String::new());
    errors.read_line(&mut first).expect("a line");
    assert_eq!(first, "xsched: trace takes 1 h; Ctrl-C ends it early\n");
    signal(child.id(), Signal::INT);
    let output = finish(child, TIMEOUT);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success() && table.ends_with("\nxsched.pftrace: open it at https://ui.perfetto.dev\n"),
        "{table}"
    );
    let bytes = std::fs::read(place.join("xsched.pftrace")).expect("the trace");
    assert!(perfetto::Trace::decode(bytes.as_slice()).is_ok_and(|trace| !trace.packet.is_empty()));
    // A second one has another name; one that was named is kept.
    let again = in_place(&["trace"]).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("xsched-2.pftrace: open it"), "{again:?}");
    let refused = in_place(&["trace", "-o", "xsched.pftrace"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert_eq!(said, "xsched: --output: xsched.pftrace exists: name another file, or add --force\n");
    assert_eq!(std::fs::read(place.join("xsched.pftrace")).expect("the trace"), bytes);
    assert!(in_place(&["trace", "-o", "xsched.pftrace", "--force"]).status().unwrap().success());
    assert_ne!(std::fs::read(place.join("xsched.pftrace")).expect("the trace"), bytes);
}

#[test]
fn a_trace_file_has_tracks_slices_and_arrows_that_perfetto_reads() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (low, high) = lost_twice(&place);
    let file = place.join("a.pftrace");
    let table = place.ask(&["trace", "--last", "1h", "-o", file.to_str().expect("text")]);
    assert!(table.contains("HELD BY") && table.contains("a.pftrace: open it at https://ui.perfetto.dev"), "{table}");
    let bytes = std::fs::read(&file).expect("the trace");
    let trace = perfetto::Trace::decode(bytes.as_slice()).expect("a trace");

    let clocks = trace.packet[0].clock_snapshot.as_ref().expect("the clocks come first");
    assert_eq!(clocks.clocks.iter().map(|clock| clock.clock_id).collect::<Vec<_>>(), [1, 3, 6]);
    assert!(clocks.clocks.iter().all(|clock| clock.timestamp > 0));
    let tracks: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
    let device = tracks.iter().find(|track| track.name == "sim:0").expect("a track of the device");
    let track_of = |pid: u32| {
        let is_it = |track: &&&perfetto::TrackDescriptor| {
            track.process.as_ref().is_some_and(|p| (p.pid, p.process_name.as_str()) == (pid as i32, "steady"))
        };
        let process = tracks.iter().find(is_it).expect("a track of the process");
        let group = tracks.iter().find(|track| track.parent_uuid == process.uuid).expect("a track of its group");
        assert!(group.name.ends_with(" on sim:0"), "{group:?}");
        group.uuid
    };
    let (low_track, high_track) = (track_of(low.pid()), track_of(high.pid()));

    // Slices of a track do not overlap, and each has an end.
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    let mut ended: BTreeMap<u64, u64> = BTreeMap::new();
    let mut slices: Vec<(u64, &perfetto::TrackEvent)> = Vec::new();
    let mut arrows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for packet in &trace.packet {
        let Some(event) = &packet.track_event else { continue };
        assert_eq!((packet.timestamp_clock_id, packet.trusted_packet_sequence_id), (3, 1));
        let at = packet.timestamp.expect("a time");
        match event.r#type {
            BEGIN => {
                assert_eq!(open.insert(event.track_uuid, at), None, "{event:?}");
                assert!(ended.get(&event.track_uuid).is_none_or(|ended| *ended <= at), "{event:?}");
                event.flow_ids.iter().for_each(|flow| _ = arrows.insert(*flow, (event.track_uuid, at)));
                slices.push((event.track_uuid, event));
            }
            END => {
                assert!(open.remove(&event.track_uuid).is_some_and(|begin| begin < at), "{event:?}");
                ended.insert(event.track_uuid, at);
            }
            INSTANT => {
                let flow = event.terminating_flow_ids.first().expect("the end of an arrow");
                let (from, begin) = arrows.remove(flow).or_else(|| begin_of(&trace, *flow)).expect("its beginning");
                assert_eq!(begin, at);
                assert_ne!(from, event.track_uuid);
            }
            other => panic!("an event of type {other}"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let of = |track: u64| slices.iter().filter(move |(uuid, _)| *uuid == track).map(|(_, event)| *event);
    let holders: Vec<&str> = of(device.uuid).map(|slice| slice.name.as_str()).collect();
    // Both programs run until the daemon has noticed that the urgent one wants the device.
    let is_known = |name: &&str| ["steady", "steady + steady"].contains(name);
    assert!(holders.len() >= 2 && holders.iter().all(is_known), "{holders:?}");
    let names: BTreeSet<&str> = of(high_track).map(|slice| slice.name.as_str()).collect();
    assert!(names.contains("runs") && names.contains("suspended"), "{names:?}");
    let held = of(low_track).rfind(|slice| slice.name == "preempted: waits").expect("it lost the device");
    let notes: BTreeMap<&str, &str> =
        held.debug_annotations.iter().map(|note| (note.name.as_str(), note.string_value.as_str())).collect();
    assert_eq!(notes["verdict"], "policy (hpf)");
    assert!(notes["held by"].ends_with(" steady") && notes["gate"].starts_with("host"), "{notes:?}");
    assert_eq!(held.flow_ids.len(), 1);

    let Some(python) = python_with_perfetto() else { return };
    let read = Command::new(python).args(["-c", READ]).arg(&file).output().expect("python runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    slices.iter().for_each(|(_, slice)| *named.entry(&slice.name).or_default() += 1);
    let flows: usize = slices.iter().map(|(_, slice)| slice.flow_ids.len()).sum();
    let expected = json!({ "packets": trace.packet.len(), "tracks": tracks.len(), "slices": named, "arrows": flows,
        "unknown": 0 });
    assert_eq!(read, expected);
}

/// Track and time at which an arrow begins, for one whose end was read first.
fn begin_of(trace: &perfetto::Trace, flow: u64) -> Option<(u64, u64)> {
    trace.packet.iter().find_map(|packet| {
        let event = packet.track_event.as_ref().filter(|event| event.flow_ids.contains(&flow))?;
        Some((event.track_uuid, packet.timestamp?))
    })
}

const READ: &str = r#"
import collections, json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
def unknown(message):
    found = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            found += sum(map(unknown, value if hasattr(value, "add") else [value]))
    return found
events = [p.track_event for p in trace.packet if p.HasField("track_event")]
slices = [e for e in events if e.type == TrackEvent.TYPE_SLICE_BEGIN]
starts = [f for e in slices for f in e.flow_ids]
assert sorted(starts) == sorted(f for e in events for f in e.terminating_flow_ids)
print(json.dumps({
    "packets": len(trace.packet),
    "tracks": sum(p.HasField("track_descriptor") for p in trace.packet),
    "slices": collections.Counter(e.name for e in slices),
    "arrows": len(starts),
    "unknown": unknown(trace),
}))
"#;

/// Python with the package `perfetto`, in an environment of the tests' own that is made once.
fn python_with_perfetto() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto");
    let python = folder.join("bin/python");
    let works = || {
        let checks = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2, google.protobuf.unknown_fields";
        Command::new(&python).args(["-c", checks]).output().is_ok_and(|done| done.status.success())
    };
    let make = |program: &Path, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
    };
    let path = folder.to_str().expect("text");
    let made = works()
        || make(Path::new("python3"), &["-m", "venv", "--clear", path])
            && make(&python, &["-m", "pip", "install", "--quiet", "--retries", "1", "perfetto"])
            && works();
    if !made {
        skipped("a trace read by Python's perfetto: the package cannot be installed here (pip install perfetto)");
    }
    made.then_some(python)
}
