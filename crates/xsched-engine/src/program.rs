//! Programs: attached processes, their queues, and what they are entitled to.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use xsched_policy::{GroupId, Lineage, ProgramId};
use xsched_proto::account::Amount;
use xsched_proto::class::{self, Class, Contention};
use xsched_proto::domains::DomainMode;
use xsched_proto::entitlement::Entitlement;
use xsched_proto::hint::{Hint, Hints, Laxity};
use xsched_proto::wire::{Levels, MemoryOrder, Platform};

use crate::changes::Changes;
use crate::group::Group;
use crate::parts::idling::Idling;
use crate::terms::{Settings, Terms};
use crate::user::User;

/// A process that attaches: all that is known of it.
#[derive(Debug)]
pub struct Arrival<M> {
    /// Process id, as the daemon sees it.
    pub pid: u32,
    /// Its owner.
    pub user: User,
    /// Path of its executable.
    pub exe: String,
    /// The name by which it is shown.
    pub name: String,
    /// Its start, in clock ticks since the boot, where the kernel tells.
    pub start: Option<u64>,
    /// Its process and the ones that it was started by.
    pub ancestors: Vec<u32>,
    /// Nice value, -20..=19.
    pub nice: i32,
    /// Its place among users, cgroups and namespaces.
    pub lineage: Lineage,
    /// The memory that it shares.
    pub memory: M,
    /// Its own wishes.
    pub wishes: Wishes,
    /// The operator's terms for it.
    pub terms: Terms,
}

/// Wishes that a program states when it attaches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// Priority.
    pub priority: Option<i32>,
    /// Hints for the policy.
    pub hints: Hints,
    /// Preemption level, 1..=3.
    pub level: Option<u8>,
    /// Commands in flight while watched; 0 = automatic.
    pub threshold: Option<u32>,
    /// Commands after which room comes back; 0 = automatic.
    pub batch: Option<u32>,
    /// Job, without its user.
    pub job: Option<String>,
    /// Treatment of launches of vendors' libraries.
    pub domains: Option<DomainMode>,
    /// Largest amount of memory of the program on each device.
    pub memory_limit: Option<Amount>,
    /// Memory of each device that less urgent programs leave to it.
    pub memory_reserve: Option<Amount>,
    /// True if its memory can leave its device.
    pub memory_swap: bool,
    /// Time without launches after which its memory leaves by itself, in seconds.
    pub memory_idle_s: Option<u32>,
}

/// Memory of a program on its way back to the device.
#[derive(Debug)]
pub struct Coming {
    /// Slot of the device.
    pub(crate) slot: u16,
    /// Bytes that come.
    pub(crate) bytes: u64,
    /// Time after which nobody waits for it, in ns.
    pub(crate) until_ns: u64,
}

/// Order to move memory that a program is carrying out.
#[derive(Debug)]
pub struct Move {
    /// The order.
    pub(crate) order: MemoryOrder,
    /// Numbers of the orders, one for each device, that are not answered.
    pub(crate) open: Vec<u32>,
    /// Command that waits for the end.
    pub(crate) command: Option<u64>,
    /// Time of the order, in ns.
    pub(crate) since_ns: u64,
    /// Time at which that command waits no longer, in ns.
    pub(crate) until_ns: u64,
    /// State of the memory before, in words.
    pub(crate) was: String,
    /// Memory on the device before, in bytes.
    pub(crate) held: u64,
    /// A piece of the memory has left, and the others follow.
    pub(crate) has_begun: bool,
    /// Reason for which a device's memory has not moved.
    pub(crate) why: Option<String>,
}

impl Move {
    /// Bytes that the order takes from a device, of so many that can leave it.
    pub(crate) fn leaving_bytes(&self, movable: u64) -> u64 {
        match self.order {
            MemoryOrder::Thaw => 0,
            MemoryOrder::Lend { bytes } => bytes.min(movable),
            MemoryOrder::Freeze | MemoryOrder::Leave => movable,
        }
    }
}

/// An attached process.
#[derive(Debug)]
pub struct Program<M> {
    /// Its number, which is that of its connection.
    pub id: ProgramId,
    /// Process id.
    pub pid: u32,
    /// Its owner.
    pub user: User,
    /// Path of its executable.
    pub exe: String,
    /// The name by which it is shown.
    pub name: String,
    /// Its start, in clock ticks since the boot.
    pub start: Option<u64>,
    /// Its process and the ones that it was started by.
    pub ancestors: Vec<u32>,
    /// Nice value as last read.
    pub nice: i32,
    /// Its place among users, cgroups and namespaces.
    pub lineage: Arc<Lineage>,
    /// The memory that it shares.
    pub memory: M,
    /// Its priority, the origin of that, and its bounds.
    pub entitlement: Entitlement,
    /// The operator's terms for it.
    pub terms: Terms,
    /// Treatment of launches of vendors' libraries.
    pub domains: DomainMode,
    /// True if it asked for more of that than an operator's rule gives.
    pub domains_limited: bool,
    /// Hints in force: its own, those of commands, those of rules, those of its class.
    pub hints: Hints,
    /// Hints that the program or a command gave.
    pub asked: Hints,
    /// Changes by commands of other processes.
    pub hinted: Changes,
    /// Hints of which it was told that the policy ignores them.
    pub overlooked: Vec<Hint>,
    /// The time slice of its contexts as last told, in µs.
    pub told_timeslice_us: Option<u64>,
    /// True if it is one of several best-effort programs on its device.
    pub has_contention: bool,
    /// The last time that it was told to set its time slice again, in ns.
    pub reasserted_ns: u64,
    /// Preemption level that was asked for by number.
    pub level: Option<u8>,
    /// Commands in flight while watched; 0 = automatic.
    pub threshold: u32,
    /// Commands after which room comes back; 0 = automatic.
    pub batch: u32,
    /// Job, with its user in front: programs of different users are never one job.
    pub job: Option<String>,
    /// Number of the program that the process belongs to, for limits of memory.
    pub account: u64,
    /// Limit of memory that it asked for.
    pub memory_limit: Option<Amount>,
    /// Reserve of memory that it asked for.
    pub memory_reserve: Option<Amount>,
    /// Its groups, in the order in which they came.
    pub groups: Vec<GroupId>,
    /// Its queues by slot.
    pub queues: BTreeMap<u16, Queue>,
    /// True while an operator suspends it.
    pub held: bool,
    /// True if its memory can leave its device.
    pub swap: bool,
    /// True while its memory stays away until it is thawed.
    pub frozen: bool,
    /// Move of its memory under way.
    pub moving: Option<Move>,
    /// True while its memory waits for room on the device.
    pub awaits_room: bool,
    /// Memory that may come back, and has not so far.
    pub coming: Option<Coming>,
    /// Time since which it has had its memory on the device, in ns.
    pub in_since_ns: u64,
    /// Time by which its turns so far were too long, in ns.
    pub turn_over_ns: u64,
    /// Time at which its memory could not leave, in ns.
    pub refused_ns: Option<u64>,
    /// Return of its memory while it launches nothing.
    pub idling: Idling,
    /// Earliest time of the next line of the log on refused allocations, in ns, and the number of those that it has.
    pub refusals_logged: (u64, u64),
}

/// An XQueue.
#[derive(Debug)]
pub struct Queue {
    /// Its number.
    pub id: u64,
    /// Slot of its group.
    pub group: u16,
    /// Most launches that were read of it.
    launches: Cell<u64>,
}

impl Queue {
    /// A queue of the group in a slot.
    pub fn new(id: u64, group: u16) -> Queue {
        Queue { id, group, launches: Cell::new(0) }
    }

    /// Launches so far, by a reading of its counters. A launch that is counted and then waits at the gate is not counted for a moment: the
    /// number that was read once stays.
    pub fn launches(&self, read: u64) -> u64 {
        self.launches.set(self.launches.get().max(read));
        self.launches.get()
    }
}

impl<M> Program<M> {
    /// A program that attaches.
    pub fn new(id: ProgramId, arrival: Arrival<M>, settings: &Settings) -> Program<M> {
        let Arrival { pid, user, exe, name, start, ancestors, nice, lineage, memory, wishes, terms } = arrival;
        let domains = DomainMode::granted(wishes.domains, terms.given.domains);
        let mut program = Program {
            id,
            pid,
            user,
            exe,
            name,
            start,
            ancestors,
            nice,
            lineage: Arc::new(lineage),
            memory,
            entitlement: Entitlement::new(terms.claim(wishes.priority)),
            terms,
            domains,
            domains_limited: wishes.domains.is_some_and(|asked| asked > domains),
            hints: Hints::default(),
            asked: wishes.hints,
            hinted: Changes::default(),
            overlooked: Vec::new(),
            told_timeslice_us: None,
            has_contention: false,
            reasserted_ns: 0,
            level: wishes.level.or(terms.given.level),
            threshold: wishes.threshold.or(terms.given.threshold).unwrap_or(0),
            batch: wishes.batch.or(terms.given.batch).unwrap_or(0),
            job: wishes.job.map(|job| format!("{user}:{job}")),
            account: 0,
            memory_limit: wishes.memory_limit,
            memory_reserve: wishes.memory_reserve,
            groups: Vec::new(),
            queues: BTreeMap::new(),
            held: false,
            swap: wishes.memory_swap,
            frozen: false,
            moving: None,
            awaits_room: false,
            coming: None,
            in_since_ns: 0,
            turn_over_ns: 0,
            refused_ns: None,
            idling: Idling::new(wishes.memory_idle_s),
            refusals_logged: (0, 0),
        };
        program.reconsider(terms, settings);
        // The program chose this slice when it made its context.
        let usual = class::hardware_timeslice_us(program.class(), Contention::None);
        program.told_timeslice_us = wishes.hints.timeslice_us.or(Some(usual));
        program
    }

    /// Applies other terms. Level, threshold and batch stay.
    pub(crate) fn reconsider(&mut self, terms: Terms, settings: &Settings) {
        self.terms = terms;
        self.entitlement.reconsider(terms.claim(None));
        if !self.hinted.by_root {
            self.asked = terms.ceilings.cut(self.asked);
        }
        self.hints = self.asked.or(terms.given.hints).or(settings.hints_of(self.priority()));
    }

    /// Priority of its groups unless they have one of their own.
    pub fn priority(&self) -> i32 {
        self.entitlement.priority
    }

    /// Returns true while it is kept off its devices: suspended, frozen, or without room.
    pub fn is_off(&self) -> bool {
        self.held
            || self.frozen
            || self.awaits_room
            || self.moving.as_ref().is_some_and(|moving| moving.order == MemoryOrder::Freeze)
    }

    /// Time without launches after which its memory leaves, in seconds: what it asked for, or else its rule's.
    pub(crate) fn idle_s(&self) -> Option<u32> {
        self.idling.asked_s().or(self.terms.memory.idle_s).filter(|_| self.swap)
    }

    /// Class of its priority.
    pub fn class(&self) -> Class {
        Class::of(self.priority())
    }

    /// Job as it was given, without the user.
    pub fn own_job(&self) -> Option<&str> {
        self.job.as_deref()?.strip_prefix(&format!("{}:", self.user))
    }

    /// The priority of a group of this program.
    pub fn group_priority<W>(&self, group: &Group<W>) -> i32 {
        self.entitlement.group(group.steps, group.fixed, group.system)
    }

    /// Hints for the policy of a group of this program. No priority in them is above the program's bound.
    pub fn group_hints<W>(&self, group: &Group<W>) -> Hints {
        Hints { laxity: self.group_laxity(group, self.hints.laxity), ..self.hints }
    }

    /// The laxity of a group of this program, with priorities within the program's bound.
    pub fn group_laxity<W>(&self, group: &Group<W>, asked: Option<Laxity>) -> Option<Laxity> {
        let own = self.group_priority(group);
        asked.map(|laxity| Laxity {
            us: laxity.us,
            lax: laxity.lax.map(|p| self.entitlement.bounded(p)),
            critical: Some(self.entitlement.bounded(laxity.critical.unwrap_or(Class::High.nominal().max(own)))),
        })
    }

    /// The preemption level of a group: the one that was asked for, or the next lower one that its device has; else the highest. Where some
    /// launches are exempt it is the first: a gate on the device would hold a stream with the exempt launches in it.
    pub fn group_level(&self, platform: Platform, levels: Levels) -> u8 {
        if self.domains == DomainMode::Exempt {
            return 1;
        }
        levels.highest_to(self.level.unwrap_or(platform.automatic_level()))
    }

    /// Notes hints of which somebody was told that the policy ignores them, each once.
    pub(crate) fn note_overlooked(&mut self, hints: impl IntoIterator<Item = Hint>) {
        for hint in hints {
            if !self.overlooked.contains(&hint) {
                self.overlooked.push(hint);
            }
        }
    }
}

/// Name of a program in messages.
pub(crate) fn named<M>(program: &Program<M>) -> String {
    format!("process {} ({})", program.pid, program.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_were_read_once_stay() {
        let queue = Queue::new(1, 0);
        assert_eq!([149, 150, 149, 151].map(|read| queue.launches(read)), [149, 150, 150, 151]);
    }
}
