//! What commands are told of what was decided lately: of their user's own programs, and of rivals without a name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::GroupId;
use xsched_proto::class::Class;
use xsched_proto::trace::{Record, Why};
use xsched_proto::wire::{DaemonMsg, Head, TracedGroup, TracedProgram};

use crate::client::Client;
use crate::fair::trim;
use crate::identity::User;
use crate::naming::called;
use crate::server::{Answer, Server};
use crate::traced::{LeftGroup, Telling, ToTell, bytes_of};
use crate::tuning::{TRACED_BYTES, TRACED_ENDED_MAX, TRACED_RECORDS};

/// The same of a program of another user: that it has the device or waits is seen by those who share it, and no more.
fn nameless(record: &Record) -> Record {
    Record { why: Why::Unsaid, policy: 0, level: 0, value: 0, ..*record }
}

impl Server {
    /// A group as it is told of.
    pub(crate) fn traced(&self, id: GroupId, client: &Client) -> Option<LeftGroup> {
        let group = self.groups.get(&id)?;
        let program = TracedProgram {
            pid: client.peer.pid,
            uid: client.peer.uid,
            exe: client.peer.exe.clone(),
            name: called(client).to_owned(),
            class: Class::of(client.priority()),
            platform: group.platform,
        };
        let status = self.gatekeeper.arbiter().status(self.now_us(), id)?;
        let (why, policy) = self.gatekeeper.arbiter().why(id);
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
        Some(LeftGroup { at_us: self.now_us(), user: client.peer.user, group })
    }

    /// Keeps in mind whose a group was that is about to go, for as long as there are records of it.
    pub(crate) fn remember_traced(&mut self, ended: Option<LeftGroup>) {
        let Some(mut ended) = ended else { return };
        // Else as it was when it went, which records of before may not tell.
        ended.group.ended = true;
        let ring = self.gatekeeper.ring();
        let oldest_us = ring.and_then(|ring| ring.get(ring.oldest())).map_or(0, |record| record.at_us);
        while self.left.front().is_some_and(|e| e.at_us < oldest_us) {
            self.left.pop_front();
        }
        self.left.push_back(Arc::new(ended));
        trim(&mut self.left, TRACED_ENDED_MAX, |e| e.user);
    }

    /// Begins to tell what happened since a record or a time, whichever is later.
    pub(crate) fn trace(&mut self, id: u64, user: User, from: u64, since_us: u64) -> Option<Answer> {
        let ring = self.gatekeeper.ring()?;
        let next = from.max(ring.first_since(since_us)).min(ring.next());
        let forgotten = from < ring.oldest();
        let oldest_us = ring.get(ring.oldest()).filter(|_| forgotten).map_or(0, |record| record.at_us);
        let whole_since_us = since_us.max(oldest_us).max(self.started_ns / 1_000);
        let head = Head { now_us: self.now_us(), next: ring.next(), whole_since_us };
        let (groups, known) = self.to_tell(user, since_us);
        let telling = Telling { groups, known, next, end: head.next };
        self.send(id, &DaemonMsg::TraceHead(head), &[]);
        Some(Answer::Trace(Box::new(telling)))
    }

    /// The groups of a user's own programs, and those of others on the same devices, by their numbers; and which of them are its own.
    fn to_tell(&self, user: User, since_us: u64) -> (VecDeque<ToTell>, HashMap<u64, bool>) {
        let is_own = |theirs: User| user.is_root() || theirs == user;
        let ended = || self.left.iter().filter(|e| e.at_us >= since_us);
        let living = self.groups.values().filter(|group| is_own(group.user)).map(|group| &*group.device);
        let left = ended().filter(|e| is_own(e.user)).map(|e| &*e.group.device);
        let devices: HashSet<&str> = living.chain(left).collect();
        let living = self.groups.iter().filter(|(_, group)| devices.contains(&*group.device));
        let left = ended().filter(|e| devices.contains(&*e.group.device));
        let mut all: Vec<(u64, bool, ToTell)> =
            living.map(|(id, group)| (id.0, is_own(group.user), ToTell::Living(*id))).collect();
        all.extend(left.map(|e| (e.group.id, is_own(e.user), ToTell::Left(e.clone()))));
        all.sort_unstable_by_key(|(id, ..)| *id);
        let known = all.iter().map(|(id, own, _)| (*id, *own)).collect();
        (all.into_iter().map(|(.., group)| group).collect(), known)
    }

    /// The next message's worth of groups. One that has left since the answer began is told as it is now.
    fn more_groups(&self, telling: &mut Telling) -> Vec<TracedGroup> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < TRACED_BYTES
            && let Some(next) = telling.groups.pop_front()
        {
            let group = match next {
                ToTell::Left(ended) => Some(ended.group.clone()),
                ToTell::Living(id) => {
                    let client = self.groups.get(&id).and_then(|group| self.conns.get(&group.conn)?.client());
                    let living = client.and_then(|client| self.traced(id, client)).map(|living| living.group);
                    living.or_else(|| Some(self.left.iter().find(|e| e.group.id == id.0)?.group.clone()))
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

    /// The next part of what is told: of bounded size, and so the work for it.
    pub(crate) fn trace_part(&self, telling: &mut Telling) -> Option<DaemonMsg> {
        if !telling.groups.is_empty() {
            return Some(DaemonMsg::TraceGroups(self.more_groups(telling)));
        }
        let ring = self.gatekeeper.ring().filter(|_| telling.next < telling.end)?;
        // What was overwritten meanwhile is lost.
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
