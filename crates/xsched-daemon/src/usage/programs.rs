//! What is known of the programs that have books in the gatekeeper's ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use xsched_gatekeeper::ledger::Usage;
use xsched_policy::ProgramId;
use xsched_proto::class::Class;

use super::{Identity, Query, Record};
use crate::client::Client;
use crate::naming::{called, named_job};
use crate::tuning::USAGE_NAME_MAX_BYTES;

/// What is known of the programs that have books, beside what is in them.
#[derive(Debug, Default)]
pub(crate) struct Accounting {
    pub(crate) programs: HashMap<ProgramId, Program>,
    /// When devices were measured last, ns.
    pub(crate) measured: HashMap<String, u64>,
    /// When to measure, ns.
    pub(crate) measure_at: Option<u64>,
    /// When to hand over what was charged, ns.
    pub(crate) keep_at: Option<u64>,
    /// Questions that wait until what came before them is told, and until when, ns.
    pub(crate) queries: VecDeque<(u64, Query)>,
    /// Until when that was done, in ms since 1970; 0 = never.
    pub(crate) kept_ms: u64,
}

/// A program, beside its books.
#[derive(Debug)]
pub(crate) struct Program {
    identity: Arc<Identity>,
    pub(crate) class: Class,
    /// What was handed over, by device.
    pub(crate) kept: HashMap<String, Usage>,
}

impl Accounting {
    /// A program has a group. Told again, its class is that of now.
    pub(crate) fn know(&mut self, client: &Client) {
        let class = Class::of(client.priority);
        let fresh = || Program { identity: Arc::new(identity(client)), class, kept: HashMap::new() };
        self.programs.entry(client.program).or_insert_with(fresh).class = class;
    }

    /// When the first question is due, ns.
    pub(crate) fn query_at(&self) -> Option<u64> {
        self.queries.front().map(|(at, _)| *at)
    }

    /// Whose a program is, once it has had a group.
    pub(crate) fn identity(&self, program: ProgramId) -> Option<Arc<Identity>> {
        self.programs.get(&program).map(|program| program.identity.clone())
    }

    /// Whether there is something to hand over, now or later.
    pub(crate) fn is_needed(&self) -> bool {
        !self.programs.is_empty()
    }
}

impl Program {
    /// What it had on a device within a period.
    pub(crate) fn record(&self, device: &str, usage: Usage, from_ms: u64, to_ms: u64) -> Record {
        Record {
            from_ms,
            to_ms,
            identity: self.identity.clone(),
            class: self.class,
            device: device.to_owned(),
            gpu_ns: usage.gpu_ns,
            by_driver_ns: usage.by_driver_ns,
            at_most_ns: usage.at_most_ns,
            resident_ns: usage.resident_ns,
        }
    }
}

fn identity(client: &Client) -> Identity {
    let peer = &client.peer;
    Identity {
        pid: peer.pid,
        start: peer.start.unwrap_or(0),
        user: peer.user.to_string(),
        job: named_job(client).map(cut),
        program: cut(called(client)),
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
