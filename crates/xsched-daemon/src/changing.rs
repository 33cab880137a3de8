//! Commands that change programs, worked off piece by piece: a user may have many programs, and decisions for others come in between.
//! Each piece is bounded by the constants of [`crate::tuning`], whatever the command names, and is charged to the ration of its user.

use std::collections::{BTreeSet, VecDeque};

use xsched_policy::{Event, GroupId};
use xsched_proto::wire::{ChangedValue, DaemonMsg, Target};

use crate::Error;
use crate::changes::{Change, Changes, Changing, Hinting, Lacking, Search, Stage};
use crate::control::{told, too_high};
use crate::identity::User;
use crate::naming::may;
use crate::server::{Answer, Conn, Role, Server};
use crate::targets::{distinct, processes, side_by_side};
use crate::tuning::{CHANGED_AT_ONCE, CHANGED_GROUPS, CHECKED_AT_ONCE, COMPARED_AT_ONCE};

impl Server {
    /// Programs are suspended, or let go on.
    pub(crate) fn hold(&mut self, user: User, targets: Vec<Target>, hold: bool) -> Result<Answer, Error> {
        if targets.iter().any(|target| matches!(target, Target::Queue(_))) {
            return Err(Error::input("a queue is no program: use --pid"));
        }
        let stage = Stage::Starts(self.search(user, targets));
        Ok(Answer::Changing(Box::new(Changing { user, change: Change::Hold(hold), stage })))
    }

    /// Programs and queues are told something for the policy.
    pub(crate) fn hint(
        &mut self,
        command: u64,
        user: User,
        targets: Vec<Target>,
        asked: Changes,
    ) -> Result<Answer, Error> {
        let ceilings = self.ceilings(user);
        let (limit, notice) = (ceilings.priority, ceilings.notice(asked.hints));
        let changes = Changes { hints: ceilings.cut(asked.hints), ..asked };
        if changes.priority.is_some_and(|p| p > limit) {
            return Err(too_high(limit));
        }
        let (queues, programs): (Vec<Target>, Vec<Target>) =
            distinct(targets).into_iter().partition(|target| matches!(target, Target::Queue(_)));
        let queue = |target| if let Target::Queue(queue) = target { Some(queue) } else { None };
        let hint = Hinting {
            asker: self.conns.get(&command).and_then(|c| c.who.clone()),
            changes,
            queues: queues.into_iter().filter_map(queue).collect(),
            lacking: Lacking::default(),
            devices: BTreeSet::new(),
            pooled: false,
            notice,
        };
        let stage = Stage::Starts(self.search(user, programs));
        Ok(Answer::Changing(Box::new(Changing { user, change: Change::Hint(Box::new(hint)), stage })))
    }

    /// A search among the programs that a user may control.
    fn search(&self, user: User, targets: Vec<Target>) -> Search {
        let candidates = self.conns.iter().filter_map(|(id, c)| c.client().filter(|c| may(user, c)).map(|_| *id));
        Search::new(distinct(targets), candidates.collect())
    }

    /// Does the next piece of a command, and ends its answer after the last one.
    pub(crate) fn go_on_changing(&mut self, command: u64) {
        // Taken out meanwhile: changes are made to what else the server has.
        let Some(conn) = self.conns.get_mut(&command) else { return };
        let Role::Command(Some(Answer::Changing(mut changing))) =
            std::mem::replace(&mut conn.role, Role::Command(None))
        else {
            return;
        };
        let last = match self.change_on(command, &mut changing) {
            Ok(true) => DaemonMsg::End,
            Err(why) => DaemonMsg::Refused(why),
            Ok(false) => {
                if let Some(conn) = self.conns.get_mut(&command) {
                    conn.role = Role::Command(Some(Answer::Changing(changing)));
                }
                return;
            }
        };
        self.finish(command, &last);
    }

    /// Does one piece. True: that was the last one.
    ///
    /// # Errors
    /// The reason for the command's end, for its sender.
    fn change_on(&mut self, command: u64, changing: &mut Changing) -> Result<bool, Error> {
        let Changing { user, change, stage } = changing;
        let user = *user;
        let next = match stage {
            Stage::Starts(search) => {
                if self.read_start(search) {
                    return Ok(false);
                }
                Stage::Search(std::mem::replace(search, Search::new(Vec::new(), Vec::new())))
            }
            Stage::Search(search) => {
                if self.compare_some(user, search) {
                    return Ok(false);
                }
                let search = std::mem::replace(search, Search::new(Vec::new(), Vec::new()));
                let found = search.found().map_err(|target| self.nothing(command, user, &target))?;
                Stage::Check { found, next: 0 }
            }
            Stage::Check { found, next } => {
                let some = &found[*next..found.len().min(*next + CHECKED_AT_ONCE)];
                if let Change::Hint(hint) = change {
                    self.check_some(user, some, hint)?;
                }
                *next += some.len();
                if *next < found.len() {
                    return Ok(false);
                }
                self.begin_change(command, found, change)?;
                Stage::Programs(std::mem::take(found).into())
            }
            Stage::Programs(left) => {
                self.change_some(command, left, change);
                if !left.is_empty() {
                    return Ok(false);
                }
                match change {
                    Change::Hold(_) => return Ok(true),
                    Change::Hint(hint) => Stage::Queues(std::mem::take(&mut hint.queues)),
                }
            }
            Stage::Queues(left) => {
                let Change::Hint(hint) = change else { return Ok(true) };
                if let Some(queue) = left.pop_front() {
                    self.hint_queue(command, user, queue, hint)?;
                }
                if !left.is_empty() {
                    return Ok(false);
                }
                Stage::Timeslices(hint.devices.iter().cloned().collect())
            }
            Stage::Timeslices(left) => {
                if let Some(device) = left.pop_front() {
                    self.assign_timeslices(&[device]);
                }
                if !left.is_empty() {
                    return Ok(false);
                }
                if let Change::Hint(hint) = change {
                    self.tell_of_hint(command, hint);
                }
                return Ok(true);
            }
        };
        *stage = next;
        Ok(false)
    }

    /// Compares some more programs with the targets. False: there are no more.
    fn compare_some(&self, user: User, search: &mut Search) -> bool {
        let some = search.candidates.split_off(search.candidates.len().saturating_sub(COMPARED_AT_ONCE));
        for conn in some {
            // One that has left meanwhile is not meant any more.
            if let Some(client) = self.conns.get(&conn).and_then(Conn::client).filter(|client| may(user, client)) {
                search.compare(conn, client);
            }
        }
        !search.candidates.is_empty()
    }

    /// Checks whether some programs may be changed so.
    fn check_some(&self, user: User, conns: &[u64], hint: &mut Hinting) -> Result<(), Error> {
        for &conn in conns {
            let groups = self.conns.get(&conn).and_then(Conn::client).map_or(&[][..], |client| &client.groups);
            self.lacks(groups, hint.changes.level, &mut hint.lacking);
            let allowed = self.allowed(conn).filter(|a| hint.changes.priority.is_some_and(|p| p > *a));
            if let Some(allowed) = allowed.filter(|_| !user.is_root()) {
                return Err(too_high(allowed));
            }
        }
        Ok(())
    }

    /// All programs are found and checked: writes down what becomes of them.
    fn begin_change(&mut self, command: u64, found: &[u64], change: &Change) -> Result<(), Error> {
        if let Change::Hint(hint) = change {
            self.all_lack(hint.changes.level, &hint.lacking)?;
        }
        if found.is_empty() {
            return Ok(());
        }
        let whom = processes(found.len(), self.pids_of(found));
        let what = match change {
            Change::Hold(true) => format!("suspend {whom}"),
            Change::Hold(false) => format!("resume {whom}"),
            Change::Hint(hint) => format!("hint {whom}: {}", told(&hint.changes)),
        };
        self.record_command(command, &what);
        Ok(())
    }

    /// Changes some more programs: until they have had as many groups as a piece may have.
    fn change_some(&mut self, command: u64, left: &mut VecDeque<u64>, change: &mut Change) {
        let (mut some, mut groups) = (Vec::new(), 0);
        while some.len() < CHANGED_AT_ONCE && groups < CHANGED_GROUPS {
            let Some(conn) = left.pop_front() else { break };
            groups += self.conns.get(&conn).and_then(Conn::client).map_or(0, |client| client.groups.len());
            some.push(conn);
        }
        if some.is_empty() {
            return;
        }
        match change {
            Change::Hold(hold) => self.hold_some(command, &some, *hold),
            Change::Hint(hint) => self.hint_some(command, &some, hint),
        }
        self.act();
        self.remember();
    }

    fn hold_some(&mut self, command: u64, conns: &[u64], hold: bool) {
        let state = |held: bool| if held { "suspended" } else { "scheduled" }.to_owned();
        for &conn in conns {
            let Some(client) = self.conns.get_mut(&conn).and_then(Conn::client_mut) else { continue };
            let was = std::mem::replace(&mut client.held, hold);
            let program = client.program;
            let event = if hold { Event::Hold(program) } else { Event::Release(program) };
            self.gatekeeper.event(self.now_ns / 1_000, event);
            let value = ChangedValue { what: "state".into(), was: state(was), now: state(hold) };
            self.tell_changed(command, conn, vec![value]);
        }
    }

    fn hint_some(&mut self, command: u64, conns: &[u64], hint: &mut Hinting) {
        let changes = hint.changes;
        for &conn in conns {
            let before = self.values_of(conn, &changes);
            // What a program has said of itself, it says again to the next daemon.
            if let Some(client) = self.conns.get_mut(&conn).and_then(Conn::client_mut)
                && !hint.asker.as_ref().is_some_and(|who| who.ancestors.contains(&client.peer.pid))
            {
                client.hinted = changes.or(client.hinted);
            }
            self.hint_client(conn, changes);
            for group in self.groups_of(conn) {
                self.note_hinted(group, hint);
            }
            let values = side_by_side(before, self.values_of(conn, &changes));
            self.tell_changed(command, conn, values);
        }
    }

    /// Notes that a group was changed by a hint.
    pub(crate) fn note_hinted(&self, id: GroupId, hint: &mut Hinting) {
        if let Some(group) = self.groups.get(&id) {
            hint.pooled |= group.is_pooled();
            if !hint.devices.contains(&group.device) {
                hint.devices.insert(group.device.clone());
            }
        }
    }

    /// Tells a command in the end what it should know, a line each.
    fn tell_of_hint(&mut self, command: u64, hint: &mut Hinting) {
        let mut notes = Vec::from_iter(std::mem::take(&mut hint.lacking.lines));
        notes.extend(self.without_effect(&hint.devices, &hint.changes.hints));
        notes.extend(hint.notice.take());
        notes.extend(hint.changes.priority.filter(|_| hint.pooled).and_then(|priority| self.stays(priority)));
        for text in notes {
            self.send(command, &DaemonMsg::Note { text }, &[]);
        }
    }
}
