//! Identities and accounts of programs that have an account in the gatekeeper's ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use xsched_gatekeeper::ledger::Usage;
use xsched_policy::ProgramId;
use xsched_proto::class::Class;

use super::{Identity, Query, Record};
use crate::Program;
use crate::identity::peer::Peer;
use crate::programs::naming::named_of;
use crate::tuning::USAGE_NAME_MAX_BYTES;

/// Facts about the programs that have accounts, beside the accounts themselves.
#[derive(Debug, Default)]
pub(crate) struct Accounting {
    pub(crate) programs: HashMap<ProgramId, Known>,
    /// When devices were measured last, ns.
    pub(crate) measured: HashMap<String, u64>,
    /// Questions that wait until earlier usage is recorded, and the latest time for that, in ns.
    pub(crate) queries: VecDeque<(u64, Query)>,
    /// Pass over all accounts that is under way.
    pub(crate) sweep: Option<Sweep>,
}

/// Pass over all accounts, piece by piece.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Accounts that are still to be processed.
    pub(crate) left: Vec<(ProgramId, Arc<str>)>,
    /// When it began, ns, and in ms since 1970.
    pub(crate) began_ns: u64,
    pub(crate) began_ms: u64,
}

/// A program, beside its books.
#[derive(Debug)]
pub(crate) struct Known {
    identity: Arc<Identity>,
    pub(crate) class: Class,
    /// Time at which the program came, in ms since 1970.
    pub(crate) since_ms: u64,
    /// Usage that was handed over, by device, and until when that is, in ms since 1970.
    pub(crate) kept: HashMap<Arc<str>, (Usage, u64)>,
    /// Memory held by device, added up over the time since the last record.
    pub(crate) memory: HashMap<Arc<str>, Held>,
}

/// Memory of a program of one device, added up over time: on the device, and on the host.
#[derive(Debug, Default)]
pub(crate) struct Held {
    device: MemoryTime,
    host: MemoryTime,
}

impl Held {
    /// So much is held now, on the device and on the host; until now it was as much as at the last look.
    pub(crate) fn look(&mut self, now_ns: u64, device_bytes: u64, host_bytes: u64) {
        self.device.look(now_ns, device_bytes);
        self.host.look(now_ns, host_bytes);
    }

    /// Takes off memory time that was recorded.
    pub(crate) fn kept(&mut self, record: &Record) {
        self.device.kept(record.memory_kib_s);
        self.host.kept(record.host_kib_s);
    }
}

/// Memory held, added up over time.
#[derive(Debug, Default)]
struct MemoryTime {
    /// Time of the last look, in ns, and the bytes that were held then.
    last: (u64, u64),
    byte_ns: u128,
}

impl MemoryTime {
    /// Memory is held now; until now it was as much as at the last look.
    fn look(&mut self, now_ns: u64, bytes: u64) {
        let (then_ns, held) = std::mem::replace(&mut self.last, (now_ns, bytes));
        self.byte_ns += u128::from(held) * u128::from(now_ns.saturating_sub(then_ns));
    }

    /// Whole KiB·s since the last record.
    fn kib_s(&self) -> u64 {
        u64::try_from(self.byte_ns / KIB_S).unwrap_or(u64::MAX)
    }

    /// Takes off memory time that was recorded.
    fn kept(&mut self, kib_s: u64) {
        self.byte_ns = self.byte_ns.saturating_sub(u128::from(kib_s) * KIB_S);
    }
}

/// Byte·ns of a KiB·s.
const KIB_S: u128 = 1_024 * 1_000_000_000;

impl Accounting {
    /// Records that a program has a group. At a repetition, its class is updated.
    pub(crate) fn know(&mut self, program: &Program, peer: &Peer, now_ms: u64) {
        let class = program.class();
        let identity = || Arc::new(identity(program, peer));
        let fresh =
            || Known { identity: identity(), class, since_ms: now_ms, kept: HashMap::new(), memory: HashMap::new() };
        self.programs.entry(program.id).or_insert_with(fresh).class = class;
    }

    /// When the first question is due, ns.
    pub(crate) fn query_at(&self) -> Option<u64> {
        self.queries.front().map(|(at, _)| *at)
    }

    /// Identity of a program, once it has had a group.
    pub(crate) fn identity(&self, program: ProgramId) -> Option<Arc<Identity>> {
        self.programs.get(&program).map(|program| program.identity.clone())
    }

    /// Reports whether there is usage to hand over, now or later.
    pub(crate) fn is_needed(&self) -> bool {
        !self.programs.is_empty()
    }
}

impl Known {
    /// A record of its time on a device since the last one, of all that it has had by now; none = nothing.
    pub(crate) fn record(&self, device: &str, usage: Usage, to_ms: u64) -> Option<Record> {
        let (before, from_ms) = self.kept.get(device).copied().unwrap_or((Usage::default(), self.since_ms));
        let usage = usage.since(before);
        let held = self.memory.get(device).map(|held| [held.device.kib_s(), held.host.kib_s()]);
        let [memory_kib_s, host_kib_s] = held.unwrap_or_default();
        (usage.resident_ns > 0 || usage.gpu_ns > 0 || memory_kib_s > 0 || host_kib_s > 0).then(|| Record {
            from_ms,
            to_ms,
            identity: self.identity.clone(),
            class: self.class,
            device: device.to_owned(),
            gpu_ns: usage.gpu_ns,
            by_driver_ns: usage.by_driver_ns,
            at_most_ns: usage.at_most_ns,
            resident_ns: usage.resident_ns,
            memory_kib_s,
            host_kib_s,
        })
    }
}

fn identity(program: &Program, peer: &Peer) -> Identity {
    Identity {
        pid: peer.pid,
        start: peer.start.unwrap_or(0),
        user: peer.user.to_string(),
        job: named_of(program.job.as_deref(), peer.user).map(cut),
        program: cut(&program.name),
        container: peer.place.container().as_deref().map(cut),
        pod: peer.place.pod_uid(),
        container_name: peer.place.name().map(cut),
        pod_name: peer.place.pod().map(cut),
        namespace: peer.place.namespace().map(cut),
    }
}

fn cut(text: &str) -> String {
    let at = (0..=USAGE_NAME_MAX_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..at].replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_adds_up_over_time_and_what_is_kept_does_not_count_twice() {
        const S: u64 = 1_000_000_000;
        let mut memory = MemoryTime::default();
        memory.look(5 * S, 2_048);
        assert_eq!(memory.kib_s(), 0, "nothing is known of the time before");
        memory.look(8 * S, 512);
        memory.look(9 * S, 0);
        assert_eq!(memory.kib_s(), 6, "and a half");
        memory.kept(6);
        memory.look(10 * S, 1_536);
        memory.look(11 * S, 0);
        assert_eq!(memory.kib_s(), 2);
    }
}
