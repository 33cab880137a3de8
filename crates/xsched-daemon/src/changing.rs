//! Commands that change programs, some of them at a time: a user may have many, and decisions for others come in between.

use std::collections::BTreeSet;
use std::sync::Arc;

use xsched_policy::{Event, GroupId};
use xsched_proto::wire::{ChangedValue, DaemonMsg, Target};

use crate::Error;
use crate::changes::{Change, Changes, Changing, Hinting};
use crate::clock::now_ns;
use crate::control::{told, too_high};
use crate::identity::User;
use crate::server::{Answer, Conn, Role, Server};
use crate::targets::{processes, side_by_side};
use crate::tuning::CHANGED_AT_ONCE;

impl Server {
    /// Programs are suspended, or let go on.
    pub(crate) fn hold(&mut self, command: u64, user: User, targets: &[Target], hold: bool) -> Result<Answer, Error> {
        let conns = self.programs(command, user, targets)?;
        let whom = processes(&self.pids_of(&conns));
        self.record_command(command, &format!("{} {whom}", if hold { "suspend" } else { "resume" }));
        Ok(Answer::Changing(Box::new(Changing { user, change: Change::Hold(hold), left: conns.into() })))
    }

    /// Programs and queues are told something for the policy.
    pub(crate) fn hint(
        &mut self,
        command: u64,
        user: User,
        targets: &[Target],
        asked: Changes,
    ) -> Result<Answer, Error> {
        let ceilings = self.ceilings(user);
        let (limit, notice) = (ceilings.priority, ceilings.notice(asked.hints));
        let changes = Changes { hints: ceilings.cut(asked.hints), ..asked };
        if changes.priority.is_some_and(|p| p > limit) {
            return Err(too_high(limit));
        }
        let queue = |target: &Target| if let Target::Queue(queue) = target { Some(*queue) } else { None };
        let queues: Vec<u64> = targets.iter().filter_map(queue).collect();
        let programs: Vec<Target> = targets.iter().filter(|target| queue(target).is_none()).cloned().collect();
        let conns = self.programs(command, user, &programs)?;
        let groups: Vec<GroupId> = conns.iter().flat_map(|conn| self.groups_of(*conn)).collect();
        let lacking = self.lacking(&groups, changes.level)?;
        let allowed = conns.iter().filter_map(|c| self.allowed(*c)).min();
        if let Some(allowed) = allowed.filter(|a| changes.priority.is_some_and(|p| p > *a) && !user.is_root()) {
            return Err(too_high(allowed));
        }
        if !conns.is_empty() {
            let whom = processes(&self.pids_of(&conns));
            self.record_command(command, &format!("hint {whom}: {}", told(&changes)));
        }
        let asker = self.conns.get(&command).and_then(|c| c.who.clone());
        let hint = Hinting { asker, changes, queues, hinted: Vec::new(), lacking, notice };
        Ok(Answer::Changing(Box::new(Changing { user, change: Change::Hint(Box::new(hint)), left: conns.into() })))
    }

    /// Changes some more programs, and ends the answer after the last one.
    pub(crate) fn go_on_changing(&mut self, command: u64) {
        // Taken out meanwhile: changes are made to what else the server has.
        let Some(conn) = self.conns.get_mut(&command) else { return };
        let Role::Command(Some(Answer::Changing(mut changing))) =
            std::mem::replace(&mut conn.role, Role::Command(None))
        else {
            return;
        };
        self.change_some(command, &mut changing);
        if !changing.left.is_empty() {
            if let Some(conn) = self.conns.get_mut(&command) {
                conn.role = Role::Command(Some(Answer::Changing(changing)));
            }
            return;
        }
        let last = match self.end_change(command, *changing) {
            Ok(()) => DaemonMsg::End,
            Err(why) => DaemonMsg::Refused(why),
        };
        self.finish(command, &last);
    }

    /// Does at once what a command has left to do that does not wait for its answer: what it asked for is done all the same.
    pub(crate) fn change_the_rest(&mut self, command: u64, mut changing: Changing) {
        let (user, began_ns) = (changing.user, now_ns());
        while !changing.left.is_empty() {
            self.change_some(command, &mut changing);
        }
        // Nobody is there to be told.
        let _ = self.end_change(command, changing);
        let now_ns = now_ns();
        self.commands.charge(user, now_ns, now_ns - began_ns);
    }

    fn change_some(&mut self, command: u64, changing: &mut Changing) {
        let some = changing.left.len().min(CHANGED_AT_ONCE);
        let some: Vec<u64> = changing.left.drain(..some).collect();
        match &mut changing.change {
            Change::Hold(hold) => self.hold_some(command, &some, *hold),
            Change::Hint(hint) => self.hint_some(command, &some, hint),
        }
        if !some.is_empty() {
            self.remember();
        }
    }

    fn end_change(&mut self, command: u64, changing: Changing) -> Result<(), Error> {
        match changing.change {
            Change::Hold(_) => Ok(()),
            Change::Hint(hint) => self.end_hint(command, changing.user, *hint),
        }
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
        self.act();
    }

    fn hint_some(&mut self, command: u64, conns: &[u64], hint: &mut Hinting) {
        let changes = hint.changes;
        let mut hinted = Vec::new();
        for &conn in conns {
            let before = self.values_of(conn, &changes);
            // What a program has said of itself, it says again to the next daemon.
            if let Some(client) = self.conns.get_mut(&conn).and_then(Conn::client_mut)
                && !hint.asker.as_ref().is_some_and(|who| who.ancestors.contains(&client.peer.pid))
            {
                client.hinted = changes.or(client.hinted);
            }
            self.hint_client(conn, changes);
            hinted.extend(self.groups_of(conn));
            let values = side_by_side(before, self.values_of(conn, &changes));
            self.tell_changed(command, conn, values);
        }
        self.carry_out(&hinted);
        hint.hinted.extend(hinted);
    }

    /// The queues, and what is to be said in the end.
    fn end_hint(&mut self, command: u64, user: User, hint: Hinting) -> Result<(), Error> {
        let Hinting { changes, queues, mut hinted, lacking: mut notes, notice, .. } = hint;
        let mut of_queues = Vec::new();
        for queue in queues {
            of_queues.extend(self.hint_queue(command, user, queue, changes, &mut notes)?);
        }
        self.carry_out(&of_queues);
        hinted.extend(of_queues);
        notes.extend(self.without_effect(&hinted, &changes.hints));
        notes.extend(notice);
        notes.extend(changes.priority.and_then(|priority| self.stays(&hinted, priority)));
        for text in notes {
            self.send(command, &DaemonMsg::Note { text }, &[]);
        }
        Ok(())
    }

    /// Decides anew after hints for some groups.
    fn carry_out(&mut self, hinted: &[GroupId]) {
        if hinted.is_empty() {
            return;
        }
        self.act();
        let device = |id: &GroupId| Some(self.groups.get(id)?.device.clone());
        let devices: BTreeSet<Arc<str>> = hinted.iter().filter_map(device).collect();
        for device in &devices {
            self.assign_timeslices(device);
        }
    }
}
