//! What the gatekeeper leaves to the daemon when it scans and when gates change: interrupts, time slices, the heartbeat.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use xsched_gatekeeper::{Change, UnknownState};
use xsched_policy::{Event, GroupId};
use xsched_proto::class::SHORT_SLICE_US;
use xsched_proto::wire::{DaemonMsg, Sharing};

use crate::Error;
use crate::bursts::Whose;
use crate::pages::Beside;
use crate::server::Server;
use crate::timeslices::is_sliced;
use crate::tuning::{LONG_US, LOOK_PLACES};

impl Server {
    /// Reads the words of a client and acts on what changed.
    pub(crate) fn scan(&mut self, conn: u64) {
        self.read_words(conn);
        self.act();
    }

    /// Reads the words of a client. What follows from them is left to [`Self::act`], once for all clients that have woken the daemon:
    /// a decision costs far more than this.
    pub(crate) fn read_words(&mut self, conn: u64) {
        let now_us = self.now_us();
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return };
        let mut lost = None;
        for &id in &client.groups {
            if let Err(UnknownState) = self.gatekeeper.scan(now_us, id, |lent| client.entitlement.inherited(lent)) {
                self.doomed.push((conn, Some(Error::input("its state word makes no sense"))));
            }
            // A program whose kernels turn out to be too long to run side by side shares the time from then on.
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if let Some(bursts) = &mut self.bursts {
                let whose = Whose { pid: client.peer.pid, priority: client.priority(), device: &group.device };
                if let Err(e) = bursts.look(id, &group.words, whose) {
                    lost = Some(e);
                }
            }
            if group.spatial().is_some() && !group.too_long && group.words.longest_us.load(Relaxed) > LONG_US {
                group.too_long = true;
                self.gatekeeper.event(now_us, Event::TooLong(id));
                self.gatekeeper.set_company(id, None);
            }
            let slice_us = match group.sharing {
                Sharing::Pool => Some(self.config.pool_timeslice_us()),
                _ => client.told_timeslice_us.filter(|_| is_sliced(group)),
            };
            let in_slices = slice_us.is_some_and(|us| us <= SHORT_SLICE_US) && group.words.ends_soon();
            if std::mem::replace(&mut group.drains_in_slices, in_slices) != in_slices {
                self.gatekeeper.event(now_us, Event::DrainsInSlices(id, in_slices));
            }
        }
        if let Some(e) = lost {
            self.bursts = None;
            self.say(&format!("bursts are written no more: {e}"));
        }
    }

    /// Tells the arbiter what the device still executes of suspended programs, where that matters.
    pub(crate) fn look_at_drains(&mut self) {
        let now_us = self.now_us();
        let due: Vec<GroupId> = self.gatekeeper.arbiter().drains_due(now_us).collect();
        for id in due {
            let executes = self.groups.get(&id).is_some_and(|group| group.words.is_executing(&group.completed));
            self.gatekeeper.event(now_us, Event::Executes(id, executes));
        }
    }

    /// Does what the arbiter said.
    pub(crate) fn act(&mut self) {
        let now_us = self.now_us();
        // A program that finds a gate closed looks for the beat, which must not be one of long ago.
        let mut closing = self.gatekeeper.closing(now_us).peekable();
        if self.beat_at.is_none() && closing.peek().is_some() {
            self.heartbeat.beat(self.now_ns);
        }
        for id in closing {
            if let Some(group) = self.groups.get_mut(&id).filter(|group| group.drains_in_slices) {
                group.words.completed(&mut group.completed);
            }
        }
        while let Some(change) = self.gatekeeper.carry_out(now_us) {
            match change {
                Change::Closed(id) => self.closed(id),
                Change::Opened(id) => self.opened(id),
            }
        }
        self.note_observed();
        // Messages: after all gates.
        while let Some(id) = self.reassert.pop() {
            self.reassert_timeslice(id);
        }
    }

    /// Takes a group whose gate was just closed off the device where that is possible.
    fn closed(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        // It takes the whole context off the device: only where all of the program's work there is one group.
        let client = self.conns.get(&group.conn).and_then(|c| c.client());
        if client.is_none_or(|c| c.groups.len() != 1) {
            return;
        }
        if group.level == 3 && group.platform.interrupts() {
            self.interrupt(id, true);
            self.gatekeeper.off_device(self.now_us(), id);
        } else if group.words.level.load(Relaxed) >= 2 {
            // All but what runs just now is held on the device.
            self.gatekeeper.off_device(self.now_us(), id);
            self.reassert.push(id);
        }
    }

    fn opened(&mut self, id: GroupId) {
        if self.groups.get(&id).is_some_and(|group| group.interrupted) {
            self.interrupt(id, false);
        }
        self.reassert.push(id);
    }

    /// Tells a group's client what level it is at: not to use gates on the device where the policy wants none.
    pub(crate) fn publish_level(&self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        let forced = self.conns.get(&group.conn).and_then(|c| c.client()).is_some_and(|c| c.level.is_some());
        // A group that is interrupted leaves the device, whatever waits there.
        let interrupted = group.level == 3 && group.platform.interrupts();
        // A gate on the device looks at one word: it cannot yield.
        let yields = self.beside == Beside::Yielding && group.spatial().is_some();
        let without = (yields || self.gatekeeper.arbiter().shares_time(&group.device)) && !interrupted && !forced;
        group.words.level.store(if without { 1 } else { group.level.into() }, Relaxed);
    }

    /// Has a client interrupt what a group runs, or let it go on.
    pub(crate) fn interrupt(&mut self, id: GroupId, on: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.interrupted = on;
        let (conn, slot) = (group.conn, group.slot);
        self.send(conn, &DaemonMsg::Interrupt { slot, on }, &[]);
    }

    /// Has the counters of the programs looked at whose progress is of interest, and once more of those whose was: what was seen of them
    /// is forgotten then. Reading those of one program takes some 0.1 ms.
    pub(crate) fn look_soon(&mut self) {
        let scrutinised = self.gatekeeper.arbiter().scrutinised();
        let now: BTreeSet<u64> = scrutinised.filter_map(|id| Some(self.groups.get(&id)?.conn)).collect();
        let before = std::mem::replace(&mut self.looked_at, now);
        for id in self.looked_at.union(&before) {
            if let Some(conn) = self.conns.get(id) {
                self.looks.push(conn.user, *id);
            }
        }
    }

    /// Looks at the counters of a client's groups that run while others wait: a part of them, and then at the groups. False: the rest is to
    /// be read in further pieces of work.
    pub(crate) fn look(&mut self, conn: u64) -> bool {
        let now_us = self.now_us();
        let mut sum = self.counting.remove(&conn).unwrap_or_default();
        // Between two looks lies what is between their beginnings, however long they take.
        let began_us = if sum.began_us == 0 { now_us } else { sum.began_us };
        sum.began_us = began_us;
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return true };
        let arbiter = self.gatekeeper.arbiter();
        let is_counted = client.groups.iter().any(|id| arbiter.status(now_us, *id).is_some_and(|s| s.scrutinised));
        if is_counted && !client.segment.add_launches(&mut sum, LOOK_PLACES) {
            self.counting.insert(conn, sum);
            return false;
        }
        for &id in &client.groups {
            let Some(group) = self.groups.get(&id) else { continue };
            self.gatekeeper.end_look(now_us, began_us, id, || sum.launches[usize::from(group.slot)]);
        }
        self.act();
        true
    }
}
