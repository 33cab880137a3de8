//! What commands are told of what was decided lately: of their user's own programs, and of rivals without a name.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::GroupId;
use xsched_proto::class::Class;
use xsched_proto::trace::{Record, Why};
use xsched_proto::wire::{DaemonMsg, Head, TracedGroup, TracedProgram};

use crate::client::Client;
use crate::identity::User;
use crate::naming::called;
use crate::server::{Answer, Conn, Server};
use crate::traced::{LeftGroup, Telling};
use crate::tuning::{TRACED_ENDED_MAX, TRACED_RECORDS};

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
            class: Class::of(client.priority),
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
        (ended.group.ended, ended.group.ready, ended.group.granted) = (true, false, false);
        let ring = self.gatekeeper.ring();
        let oldest_us = ring.and_then(|ring| ring.get(ring.oldest())).map_or(0, |record| record.at_us);
        while self.left.len() >= TRACED_ENDED_MAX || self.left.front().is_some_and(|e| e.at_us < oldest_us) {
            self.left.pop_front();
        }
        self.left.push_back(ended);
    }

    /// Begins to tell what happened since a record or a time, whichever is later.
    pub(crate) fn trace(&mut self, id: u64, user: User, from: u64, since_us: u64) -> Option<Answer> {
        let ring = self.gatekeeper.ring()?;
        let next = from.max(ring.first_since(since_us)).min(ring.next());
        let forgotten = from < ring.oldest();
        let oldest_us = ring.get(ring.oldest()).filter(|_| forgotten).map_or(0, |record| record.at_us);
        let whole_since_us = since_us.max(oldest_us).max(self.started_ns / 1_000);
        let head = Head { now_us: self.now_us(), next: ring.next(), whole_since_us };
        let groups = self.traced_for(user, since_us);
        let known = groups.iter().map(|group| (group.id, group.program.is_some())).collect();
        let telling = Telling { groups: groups.into(), known, next, end: head.next };
        self.send(id, &DaemonMsg::TraceHead(head), &[]);
        Some(Answer::Trace(Box::new(telling)))
    }

    /// The groups of a user's own programs, and those of others on the same devices.
    fn traced_for(&self, user: User, since_us: u64) -> Vec<TracedGroup> {
        let clients = self.conns.values().filter_map(Conn::client);
        let living = clients.flat_map(|client| client.groups.iter().filter_map(|id| self.traced(*id, client)));
        let of_ended = |e: &LeftGroup| LeftGroup { group: e.group.clone(), ..*e };
        let ended = self.left.iter().filter(|e| e.at_us >= since_us).map(of_ended);
        let mut all: Vec<LeftGroup> = living.chain(ended).collect();
        all.sort_unstable_by_key(|e| e.group.id);
        let is_own = |e: &LeftGroup| user.is_root() || e.user == user;
        let own: BTreeSet<String> = all.iter().filter(|e| is_own(e)).map(|e| e.group.device.clone()).collect();
        let told = all.into_iter().filter(|e| own.contains(&e.group.device));
        let nameless = |group| TracedGroup { program: None, why: Why::Unsaid, policy: 0, level: 0, ..group };
        told.map(|e| if is_own(&e) { e.group } else { nameless(e.group) }).collect()
    }

    /// The next part of what is told: of bounded size, and so the work for it.
    pub(crate) fn trace_part(&self, telling: &mut Telling) -> Option<DaemonMsg> {
        if !telling.groups.is_empty() {
            return Some(DaemonMsg::TraceGroups(telling.more_groups()));
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
