//! The trace: decisions of late, as commands are told of them. A user sees all of its own programs, and of others on the same devices when
//! they had the device or waited, without a name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::GroupId;
use xsched_proto::trace::{Record, Why};
use xsched_proto::wire::{DaemonMsg, Head, TracedGroup, TracedProgram};

use crate::memory::Memory;
use crate::parts::gone::GoneGroup;
use crate::state::Engine;
use crate::tuning::{TRACED_BYTES, TRACED_RECORDS};
use crate::user::User;

/// The part of an answer that is still to be sent.
#[derive(Debug)]
pub struct Telling {
    /// Groups, the oldest first.
    groups: VecDeque<ToTell>,
    /// Groups whose records are told, and whether they are of the user's own programs.
    known: HashMap<u64, bool>,
    /// Numbers of the next record and of the one after the last.
    next: u64,
    end: u64,
}

/// A group that is still to be told.
#[derive(Debug)]
enum ToTell {
    /// A group that was there when the answer began.
    Living(GroupId),
    Gone(Arc<GoneGroup>),
}

/// Bytes that a group takes in a message, about.
fn bytes_of(group: &TracedGroup) -> usize {
    64 + group.device.len() + group.program.as_ref().map_or(0, |program| program.exe.len() + program.name.len())
}

/// A record of another user's program: it had the device or waited, and no more.
fn nameless(record: &Record) -> Record {
    Record { why: Why::Unsaid, policy: 0, level: 0, value: 0, ..*record }
}

impl<M: Memory> Engine<M> {
    /// A group as the trace tells it.
    fn traced(&self, id: GroupId) -> Option<GoneGroup> {
        let group = self.groups.get(&id)?;
        let owner = self.program_of(group)?;
        let program = TracedProgram {
            pid: owner.pid,
            uid: owner.user.uid,
            exe: owner.exe.clone(),
            name: owner.name.clone(),
            class: owner.class(),
            platform: group.platform,
        };
        let status = self.arbiter().status(self.now_us(), id)?;
        let (why, policy) = self.arbiter().why(id);
        let group = TracedGroup {
            id: id.0,
            device: group.device.to_string(),
            program: Some(program),
            ended: false,
            ready: status.ready,
            granted: status.granted,
            why,
            policy,
            level: group.words.level.load(Relaxed) as u8,
        };
        Some(GoneGroup { at_us: self.now_us(), user: owner.user, group })
    }

    /// Keeps a group that is about to go for as long as there are records of it.
    pub(crate) fn remember_gone(&mut self, id: GroupId) {
        let Some(mut ended) = self.traced(id) else { return };
        // Else as it was when it went, which records of before may not tell.
        ended.group.ended = true;
        let ring = self.gatekeeper.ring();
        let oldest_us = ring.and_then(|ring| ring.get(ring.oldest())).map_or(0, |record| record.at_us);
        self.history.gone.add(ended, oldest_us);
    }

    /// Begins to tell what happened since a record or a time in µs, whichever is later. `started_us` is when the daemon started.
    pub fn trace(&self, user: User, from: u64, since_us: u64, started_us: u64) -> Option<(Head, Telling)> {
        let ring = self.gatekeeper.ring()?;
        let next = from.max(ring.first_since(since_us)).min(ring.next());
        let forgotten = from < ring.oldest();
        let oldest_us = ring.get(ring.oldest()).filter(|_| forgotten).map_or(0, |record| record.at_us);
        let whole_since_us = since_us.max(oldest_us).max(started_us);
        let head = Head { now_us: self.now_us(), next: ring.next(), whole_since_us };
        let (groups, known) = self.to_tell(user, since_us);
        Some((head, Telling { groups, known, next, end: head.next }))
    }

    /// The groups of a user's own programs, and those of others on the same devices, by their numbers; and which of them are its own.
    fn to_tell(&self, user: User, since_us: u64) -> (VecDeque<ToTell>, HashMap<u64, bool>) {
        let is_own = |theirs: User| user.may_see(theirs);
        let gone = || self.history.gone.since(since_us);
        let of_living = self.groups.values().filter(|group| is_own(group.user)).map(|group| &*group.device);
        let of_gone = gone().filter(|e| is_own(e.user)).map(|e| &*e.group.device);
        let devices: HashSet<&str> = of_living.chain(of_gone).collect();
        let living = self.groups.iter().filter(|(_, group)| devices.contains(&*group.device));
        let mut all: Vec<(u64, bool, ToTell)> =
            living.map(|(id, group)| (id.0, is_own(group.user), ToTell::Living(*id))).collect();
        let left = gone().filter(|e| devices.contains(&*e.group.device));
        all.extend(left.map(|e| (e.group.id, is_own(e.user), ToTell::Gone(e.clone()))));
        all.sort_unstable_by_key(|(id, ..)| *id);
        let known = all.iter().map(|(id, own, _)| (*id, *own)).collect();
        (all.into_iter().map(|(.., group)| group).collect(), known)
    }

    /// The groups of the next message. One that has gone since the answer began is told as it is now.
    fn more_groups(&self, telling: &mut Telling) -> Vec<TracedGroup> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < TRACED_BYTES
            && let Some(next) = telling.groups.pop_front()
        {
            let group = match next {
                ToTell::Gone(gone) => Some(gone.group.clone()),
                ToTell::Living(id) => {
                    let living = self.traced(id).map(|living| living.group);
                    living.or_else(|| Some(self.history.gone.numbered(id.0)?.group.clone()))
                }
            };
            let Some(group) = group else { continue };
            let is_own = telling.known.get(&group.id).copied().unwrap_or(false);
            let nameless = |group| TracedGroup { program: None, why: Why::Unsaid, policy: 0, level: 0, ..group };
            let group = if is_own { group } else { nameless(group) };
            bytes += bytes_of(&group);
            part.push(group);
        }
        part
    }

    /// The next message of an answer: of bounded size, and so the work for it. None: the answer is complete.
    pub fn trace_part(&self, telling: &mut Telling) -> Option<DaemonMsg> {
        if !telling.groups.is_empty() {
            return Some(DaemonMsg::TraceGroups(self.more_groups(telling)));
        }
        let ring = self.gatekeeper.ring().filter(|_| telling.next < telling.end)?;
        // Records that were overwritten meanwhile are lost.
        let from = telling.next.max(ring.oldest()).min(telling.end);
        let to = telling.end.min(from + TRACED_RECORDS);
        telling.next = to;
        let told = (from..to).filter_map(|number| {
            let record = ring.get(number)?;
            telling.known.get(&record.group).map(|own| if *own { *record } else { nameless(record) })
        });
        Some(DaemonMsg::TraceRecords(told.collect()))
    }
}
