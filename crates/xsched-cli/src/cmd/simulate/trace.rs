//! A run as a trace for Perfetto: a track for each device, each program's requests, and its waits at each of its devices.

use std::collections::BTreeSet;

use xsched_simulate::{Outcome, Span, Track};

use crate::cmd::trace::perfetto::{Clocks, Trace};
use crate::cmd::trace::protobuf::Message;

/// Number of a track. Each kind has its own range of numbers.
fn number(track: Track) -> u64 {
    match track {
        Track::Device(device, _, _) => 1 << 60 | device as u64,
        Track::Requests(kind, number) => 2 << 60 | (kind as u64) << 32 | u64::from(number),
        Track::Waits(kind, number, device) => {
            3 << 60 | (kind as u64 & 0xfff) << 48 | u64::from(number & 0xff_ffff) << 24 | device as u64
        }
    }
}

/// Contents of the file.
pub(super) fn encode(run: &Outcome) -> Vec<u8> {
    let mut spans: Vec<&Span> = run.spans.iter().collect();
    spans.sort_by_key(|span| (number(span.track), span.from_ns, span.to_ns));
    let program = |kind: usize, number: u32| match run.programs[kind].placed {
        1 => run.programs[kind].name.clone(),
        _ => format!("{} {number}", run.programs[kind].name),
    };
    let mut out = Trace::default();
    // Virtual time begins at 1 s: a trace that begins at 0 is shown as one without a begin.
    let start_ns = 1_000_000_000;
    out.clocks(Clocks { realtime_ns: start_ns, monotonic_ns: start_ns, boottime_ns: start_ns });
    let mut described = BTreeSet::new();
    let mut ends = (0, 0);
    for span in spans {
        let track = number(span.track);
        let (label, words) = match span.track {
            Track::Device(device, kind, number) => (format!("device {device}"), program(kind, number)),
            Track::Requests(kind, number) => (format!("{}: requests", program(kind, number)), span.name.to_owned()),
            Track::Waits(kind, number, device) => {
                (format!("{} on device {device}", program(kind, number)), span.name.to_owned())
            }
        };
        if described.insert(track) {
            out.track(Message::default().number(1, track).text(2, &label));
            ends = (track, 0);
        }
        // Slices of one track follow each other. Requests that wait behind others of their program begin with their service.
        let from_ns = span.from_ns.max(if ends.0 == track { ends.1 } else { 0 });
        if from_ns < span.to_ns {
            ends = (track, span.to_ns);
            out.slice_ns((start_ns + from_ns, start_ns + span.to_ns), track, Message::default().text(23, &words));
        }
    }
    out.bytes
}
