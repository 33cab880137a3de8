//! What is known of the programs that have books in the gatekeeper's ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use xsched_gatekeeper::ledger::Usage;
use xsched_policy::ProgramId;
use xsched_proto::class::Class;

use super::{Identity, Query, Record};
use crate::client::Client;
use crate::identity::User;
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
    /// Books that are open.
    pub(crate) books: Books,
    /// The books are being looked at.
    pub(crate) sweep: Option<Sweep>,
}

/// A look at all books, piece by piece.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Books that are still to be looked at.
    pub(crate) left: Vec<(ProgramId, Arc<str>)>,
    /// When it began, ns, and in ms since 1970.
    pub(crate) began_ns: u64,
    pub(crate) began_ms: u64,
}

/// The books of the ledger that are open, by the user of their program.
#[derive(Debug, Default)]
pub(crate) struct Books {
    open: HashMap<(ProgramId, Arc<str>), User>,
    of_user: HashMap<User, OfUser>,
    /// How many there are of each device.
    devices: HashMap<Arc<str>, usize>,
}

/// Books of one user.
#[derive(Debug, Default)]
struct OfUser {
    books: usize,
    /// How many of them are of each device.
    devices: HashMap<Arc<str>, usize>,
}

impl Books {
    /// A program of a user has a group on a device.
    pub(crate) fn open(&mut self, program: ProgramId, device: &Arc<str>, user: User) {
        if self.open.insert((program, device.clone()), user).is_none() {
            let theirs = self.of_user.entry(user).or_default();
            theirs.books += 1;
            *theirs.devices.entry(device.clone()).or_default() += 1;
            *self.devices.entry(device.clone()).or_default() += 1;
        }
    }

    /// The book of a program is closed.
    pub(crate) fn close(&mut self, program: ProgramId, device: &str) {
        let Some(((_, device), user)) = self.open.remove_entry(&(program, Arc::from(device))) else { return };
        one_less(&mut self.devices, &device);
        let Some(theirs) = self.of_user.get_mut(&user) else { return };
        theirs.books -= 1;
        one_less(&mut theirs.devices, &device);
        if theirs.books == 0 {
            self.of_user.remove(&user);
        }
    }

    /// How many books a user has, and of how many devices, this one left out.
    pub(crate) fn of(&self, user: User, device: &str) -> (usize, usize) {
        let Some(theirs) = self.of_user.get(&user) else { return (0, 0) };
        (theirs.books, theirs.devices.len() - usize::from(theirs.devices.contains_key(device)))
    }

    /// How many books there are.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// How many devices they are of; none = this one is among them.
    pub(crate) fn devices_beside(&self, device: &str) -> Option<usize> {
        (!self.devices.contains_key(device)).then_some(self.devices.len())
    }

    /// All of them.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &(ProgramId, Arc<str>)> {
        self.open.keys()
    }
}

fn one_less(counts: &mut HashMap<Arc<str>, usize>, device: &str) {
    if let Some(count) = counts.get_mut(device) {
        *count -= 1;
        if *count == 0 {
            counts.remove(device);
        }
    }
}

/// A program, beside its books.
#[derive(Debug)]
pub(crate) struct Program {
    identity: Arc<Identity>,
    pub(crate) class: Class,
    /// When it came, in ms since 1970.
    pub(crate) since_ms: u64,
    /// Usage that was handed over, by device, and until when that is, in ms since 1970.
    pub(crate) kept: HashMap<Arc<str>, (Usage, u64)>,
}

impl Accounting {
    /// A program has a group. Told again, its class is that of now.
    pub(crate) fn know(&mut self, client: &Client, now_ms: u64) {
        let class = Class::of(client.priority);
        let identity = || Arc::new(identity(client));
        let fresh = || Program { identity: identity(), class, since_ms: now_ms, kept: HashMap::new() };
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
    /// A record of its time on a device since the last one, of all that it has had by now; none = nothing.
    pub(crate) fn record(&self, device: &str, usage: Usage, to_ms: u64) -> Option<Record> {
        let (before, from_ms) = self.kept.get(device).copied().unwrap_or((Usage::default(), self.since_ms));
        let usage = usage.since(before);
        (usage.resident_ns > 0 || usage.gpu_ns > 0).then(|| Record {
            from_ms,
            to_ms,
            identity: self.identity.clone(),
            class: self.class,
            device: device.to_owned(),
            gpu_ns: usage.gpu_ns,
            by_driver_ns: usage.by_driver_ns,
            at_most_ns: usage.at_most_ns,
            resident_ns: usage.resident_ns,
        })
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
