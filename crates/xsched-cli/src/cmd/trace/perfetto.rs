//! Writes a history as a trace in Perfetto's format, which <https://ui.perfetto.dev> shows.
//!
//! The field numbers are those of Perfetto's published interface (`protos/perfetto/trace/`: `trace.proto`, `trace_packet.proto`,
//! `clock_snapshot.proto`, `track_event/track_descriptor.proto`, `process_descriptor.proto`, `track_event.proto`,
//! `debug_annotation.proto`).

use std::collections::{BTreeMap, BTreeSet};

use xsched_policy::registry::POLICIES;
use xsched_proto::text::escaped;

use super::protobuf::Message;
use crate::history::{Doing, GroupHistory, History, Span};

/// Clocks at one moment, in ns: they relate the times of a trace to those of others.
#[derive(Clone, Copy)]
pub(in crate::cmd) struct Clocks {
    pub(in crate::cmd) realtime_ns: u64,
    pub(in crate::cmd) monotonic_ns: u64,
    pub(in crate::cmd) boottime_ns: u64,
}

mod clock {
    pub(super) const REALTIME: u64 = 1;
    pub(super) const MONOTONIC: u64 = 3;
    pub(super) const BOOTTIME: u64 = 6;
}

mod kind {
    pub(super) const SLICE_BEGIN: u64 = 1;
    pub(super) const SLICE_END: u64 = 2;
    pub(super) const INSTANT: u64 = 3;
}

/// Number of the packets' source; any number will do.
const SEQUENCE: u64 = 1;
/// Field of a file that holds a packet.
const FIELD_PACKET: u32 = 1;

/// Track number of a device. Each kind of track has its own range of numbers.
fn device_track(at: usize) -> u64 {
    1 << 48 | at as u64
}

fn process_track(pid: u32) -> u64 {
    2 << 48 | u64::from(pid)
}

fn group_track(id: u64) -> u64 {
    3 << 48 | id
}

/// Contents of the file.
pub(super) fn encode(history: &History, clocks: Clocks) -> Vec<u8> {
    let mut out = Trace::default();
    out.clocks(clocks);
    let devices: Vec<&str> =
        history.groups.values().map(|h| h.group.device.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    for (at, device) in devices.iter().enumerate() {
        out.track(Message::default().number(1, device_track(at)).text(2, &escaped(device)));
        let of_device: Vec<&GroupHistory> = history.groups.values().filter(|h| h.group.device == *device).collect();
        out.device(device_track(at), &of_device);
    }
    let mut described = BTreeSet::new();
    for h in history.groups.values() {
        let device = devices.iter().position(|device| *device == h.group.device).unwrap_or(0);
        let parent = match &h.group.program {
            Some(program) => {
                if described.insert(program.pid) {
                    let process = Message::default().number(1, program.pid.into()).text(6, &name(h));
                    out.track(Message::default().number(1, process_track(program.pid)).message(3, process));
                }
                process_track(program.pid)
            }
            None => device_track(device),
        };
        let label = match h.group.program {
            Some(_) => format!("g{} on {}", h.group.id, escaped(&h.group.device)),
            None => name(h),
        };
        out.track(Message::default().number(1, group_track(h.group.id)).number(5, parent).text(2, &label));
    }
    let mut flows = 0;
    for h in history.groups.values() {
        out.group(h, history, &mut flows);
    }
    out.bytes
}

/// Name of a group's program.
pub(super) fn name(h: &GroupHistory) -> String {
    match &h.group.program {
        Some(program) => escaped(&program.name).into_owned(),
        None => "another program".into(),
    }
}

/// Name of a span.
fn title(span: &Span) -> &'static str {
    match span.doing {
        Doing::Runs => "runs",
        Doing::Yields => "runs, yielding",
        Doing::Leaves if span.preempted => "preempted: leaves the device",
        Doing::Leaves => "leaves the device",
        Doing::Waits if span.preempted => "preempted: waits",
        Doing::Waits => "waits",
        Doing::Suspended => "suspended",
        Doing::Stalled => "stalled: counts as idle",
    }
}

/// Place where commands of a group wait at this level.
pub(super) fn gate(level: u8) -> &'static str {
    match level {
        0 => "not told",
        1 => "host",
        2 => "host, device",
        _ => "host, device; the running command is cut",
    }
}

/// Reason, with the policy's name.
pub(super) fn verdict(span: &Span) -> String {
    let policy = POLICIES.get(usize::from(span.policy)).map_or("", |entry| entry.name);
    format!("{} ({policy})", span.why.name())
}

/// A trace that grows.
#[derive(Default)]
pub(in crate::cmd) struct Trace {
    pub(in crate::cmd) bytes: Vec<u8>,
}

impl Trace {
    fn packet(&mut self, packet: Message) {
        self.bytes.extend_from_slice(&Message::default().message(FIELD_PACKET, packet).into_bytes());
    }

    pub(in crate::cmd) fn clocks(&mut self, clocks: Clocks) {
        let clock = |id, ns| Message::default().number(1, id).number(2, ns);
        let snapshot = Message::default()
            .message(1, clock(clock::REALTIME, clocks.realtime_ns))
            .message(1, clock(clock::MONOTONIC, clocks.monotonic_ns))
            .message(1, clock(clock::BOOTTIME, clocks.boottime_ns))
            .number(2, clock::MONOTONIC);
        // Begins the state on which later packets of this sequence rely.
        self.packet(Message::default().number(10, SEQUENCE).number(13, 1).message(6, snapshot));
    }

    pub(in crate::cmd) fn track(&mut self, descriptor: Message) {
        self.packet(Message::default().number(10, SEQUENCE).message(60, descriptor));
    }

    fn event(&mut self, at_us: u64, kind: u64, track: u64, event: Message) {
        self.event_at(at_us * 1_000, kind, track, event);
    }

    fn event_at(&mut self, at_ns: u64, kind: u64, track: u64, event: Message) {
        let event = event.number(9, kind).number(11, track);
        let packet = Message::default().number(8, at_ns).number(58, clock::MONOTONIC).number(10, SEQUENCE);
        self.packet(packet.message(11, event));
    }

    fn slice(&mut self, span: (u64, u64), track: u64, begin: Message) {
        self.event(span.0, kind::SLICE_BEGIN, track, begin);
        self.event(span.1, kind::SLICE_END, track, Message::default());
    }

    /// Writes something that lasted from one time to another, in ns.
    pub(in crate::cmd) fn slice_ns(&mut self, span: (u64, u64), track: u64, begin: Message) {
        self.event_at(span.0, kind::SLICE_BEGIN, track, begin);
        self.event_at(span.1, kind::SLICE_END, track, Message::default());
    }

    /// Writes which groups have a device, several at a time where they share it side by side.
    fn device(&mut self, track: u64, groups: &[&GroupHistory]) {
        let mut changes: BTreeMap<u64, Vec<(&GroupHistory, bool)>> = BTreeMap::new();
        for h in groups {
            for span in h.spans.iter().filter(|span| matches!(span.doing, Doing::Runs | Doing::Yields)) {
                changes.entry(span.from_us).or_default().push((h, true));
                changes.entry(span.to_us).or_default().push((h, false));
            }
        }
        let mut have: BTreeMap<u64, &GroupHistory> = BTreeMap::new();
        let mut since = 0;
        for (at, changes) in changes {
            let before: Vec<u64> = have.keys().copied().collect();
            let label = have.values().map(|h| name(h)).collect::<Vec<_>>().join(" + ");
            changes.iter().filter(|(_, on)| !on).for_each(|(h, _)| _ = have.remove(&h.group.id));
            changes.iter().filter(|(_, on)| *on).for_each(|(h, _)| _ = have.insert(h.group.id, h));
            if !have.keys().eq(&before) {
                if !before.is_empty() {
                    self.slice((since, at), track, Message::default().text(23, &label));
                }
                since = at;
            }
        }
    }

    fn group(&mut self, h: &GroupHistory, history: &History, flows: &mut u64) {
        for span in &h.spans {
            let mut begin = Message::default().text(23, title(span));
            let note = |name: &str, value: String| Message::default().text(10, name).text(6, &value);
            let own = h.group.program.is_some();
            if own && span.doing != Doing::Stalled {
                begin = begin.message(4, note("verdict", verdict(span)));
            }
            let waits = matches!(span.doing, Doing::Waits | Doing::Leaves | Doing::Suspended);
            if own && waits {
                begin = begin.message(4, note("gate", gate(span.level).into()));
            }
            if own && span.threads > 0 {
                begin = begin.message(4, note("threads at the host gate at its end", span.threads.to_string()));
            }
            if span.doing != Doing::Waits {
                self.slice((span.from_us, span.to_us), group_track(h.group.id), begin);
                continue;
            }
            let holders: Vec<&GroupHistory> = span.holders.iter().filter_map(|id| history.groups.get(id)).collect();
            let held_by: Vec<String> = holders.iter().map(|h| format!("g{} {}", h.group.id, name(h))).collect();
            if !held_by.is_empty() {
                begin = begin.message(4, note("held by", held_by.join(", ")));
            }
            let first = *flows;
            for n in 0..holders.len() as u64 {
                begin = begin.fixed(47, first + n + 1);
            }
            self.slice((span.from_us, span.to_us), group_track(h.group.id), begin);
            for holder in holders {
                *flows += 1;
                let event = Message::default().text(23, &format!("g{} waits for it", h.group.id)).fixed(48, *flows);
                self.event(span.from_us, kind::INSTANT, group_track(holder.group.id), event);
            }
        }
    }
}
