//! The fast path: state words in, gate words out; and the slow look at counters.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use rustix::thread::futex;
use xsched_policy::{Action, Event, GroupId};
use xsched_proto::segment::{gate, state};
use xsched_proto::wire::{DaemonMsg, SIDE_BY_SIDE};

use crate::client::known_state;
use crate::long_kernels;
use crate::server::Server;

/// The least that several groups get each when they share the bound, in µs: with less in flight a device that switches
/// between their contexts does little else.
const BOUND_LEAST_US: u32 = 400;

/// Wakes whoever waits on a gate word, in any process.
pub(crate) fn wake(word: &AtomicU32) {
    // The only failure is a bad address.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

impl Server {
    /// Reads the state words of a client and acts on what changed.
    pub(crate) fn scan(&mut self, conn: u64) {
        let now_us = self.now_us();
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return };
        for &id in &client.groups {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let words = &group.segment.get().groups[usize::from(group.slot)];
            let lent = words.lent_priority.load(Relaxed);
            let now = words.state.load(Acquire);
            if lent != group.lent {
                group.lent = lent;
                let priority = (lent != i32::MIN).then(|| client.lent_priority(lent));
                self.arbiter.event(now_us, Event::Lend { group: id, priority }, &mut self.actions);
            }
            // A launch has cleared the bit: the group goes on.
            if group.stalled && words.gate.load(Acquire) & gate::STALLED == 0 {
                group.stalled = false;
                group.progress.forget();
                self.arbiter.event(now_us, Event::Progress(id), &mut self.actions);
            }
            // Whoever was told to go on is not drained, whatever the word still says.
            if now != group.state && !(now == state::DRAINED && group.granted) {
                group.state = now;
                group.progress.forget();
                let event = match now {
                    state::READY => Event::Ready(id),
                    state::DRAINED => Event::Drained(id),
                    state::IDLE => Event::Idle(id),
                    _ => {
                        debug_assert!(!known_state(now));
                        self.doomed.push((conn, Some("its state word makes no sense".into())));
                        continue;
                    }
                };
                self.arbiter.event(now_us, event, &mut self.actions);
            }
        }
        self.find_too_long(now_us);
        self.act();
    }

    /// Programs whose kernels turn out to be too long to run side by side share the time from then on.
    fn find_too_long(&mut self, now_us: u64) {
        for (&id, group) in &mut self.groups {
            let found = group.levels & SIDE_BY_SIDE != 0
                && !group.too_long
                && group.words().longest_us.load(Relaxed) > long_kernels::LONG_US;
            if found {
                group.too_long = true;
                self.arbiter.event(now_us, Event::TooLong(id), &mut self.actions);
            }
        }
    }

    /// Does what the arbiter said.
    pub(crate) fn act(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        while !actions.is_empty() {
            self.carry_out(&mut actions);
            // An interrupted group is off the device though it is not done: let its time not be charged.
            let now_us = self.now_us();
            for id in std::mem::take(&mut self.cut_off) {
                self.arbiter.event(now_us, Event::Drained(id), &mut actions);
            }
        }
        self.actions = actions;
        // Messages, which take their time: after all gates.
        while let Some(id) = self.reassert.pop() {
            self.reassert_timeslice(id);
        }
    }

    fn carry_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Close(id) => self.close(id),
                Action::Open(id) => self.open(id),
                Action::Bound(id, part) => {
                    let whole = self.config.bound_us();
                    let bound = whole.checked_div(part).map_or(0, |us| us.max(whole.min(BOUND_LEAST_US)));
                    if let Some(group) = self.groups.get(&id) {
                        group.words().bound_us.store(bound, Release);
                    }
                }
                Action::Watch(id, on) => self.mark(id, gate::WATCHED, on),
                Action::Solo(id, on) => self.mark(id, gate::SOLO, on),
                Action::Stalled(id, on) => {
                    self.mark(id, gate::STALLED, on);
                    if let Some(group) = self.groups.get_mut(&id) {
                        group.stalled = on;
                    }
                }
            }
        }
    }

    fn mark(&self, id: GroupId, bit: u32, on: bool) {
        let Some(group) = self.groups.get(&id) else { return };
        let word = &group.words().gate;
        if on {
            word.fetch_or(bit, SeqCst)
        } else {
            word.fetch_and(!bit, SeqCst)
        };
    }

    fn close(&mut self, id: GroupId) {
        // Whoever finds a gate closed looks for the beat: let it not find the one of long ago.
        if self.beat_at.is_none() {
            self.heartbeat.beat(self.now_ns);
        }
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.granted = false;
        group.progress.forget();
        group.words().gate.fetch_and(!gate::GRANTED, SeqCst);
        // A turn may end before the program noticed that it began: it is drained still and will not say so again.
        if group.words().state.load(SeqCst) == state::DRAINED {
            group.state = state::DRAINED;
            self.cut_off.push(id);
        }
        let (level, conn, interrupts) = (group.level, group.conn, group.platform.interrupts());
        // Cut off is only who was at it: an idle group that is told so would count as wanting the device.
        let at_it = group.state != state::IDLE;
        let gated = group.words().level.load(Relaxed) >= 2;
        // It takes the whole context off the device: only where all of the program's work there is one group.
        let whole = self.conns.get(&conn).and_then(|c| c.client()).is_some_and(|c| c.groups.len() == 1);
        if level == 3 && whole && interrupts {
            self.interrupt(id, true);
            self.cut_off.extend(at_it.then_some(id));
        } else if whole && gated {
            // All but what runs just now is held on the device.
            self.cut_off.extend(at_it.then_some(id));
            self.reassert.push(id);
        }
    }

    fn open(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.granted = true;
        group.progress.forget();
        // The next time it drains is news.
        if group.state == state::DRAINED {
            group.state = state::READY;
        }
        if group.interrupted {
            self.interrupt(id, false);
        }
        let Some(group) = self.groups.get(&id) else { return };
        group.words().turns.fetch_add(1, SeqCst);
        let word = &group.words().gate;
        word.fetch_or(gate::GRANTED, SeqCst);
        wake(word);
        self.reassert.push(id);
    }

    /// Tells a group's client what level it is at: not to use gates on the device where the policy wants none.
    pub(crate) fn publish_level(&self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        let forced = self.conns.get(&group.conn).and_then(|c| c.client()).is_some_and(|c| c.level.is_some());
        // Who is interrupted leaves the device, whatever waits there.
        let interrupted = group.level == 3 && group.platform.interrupts();
        let without = self.arbiter.shares_time() && !interrupted && !forced;
        group.words().level.store(if without { 1 } else { group.level.into() }, Relaxed);
    }

    /// Has a client interrupt what a group runs, or let it go on.
    pub(crate) fn interrupt(&mut self, id: GroupId, on: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.interrupted = on;
        let (conn, slot) = (group.conn, group.slot);
        self.send(conn, &DaemonMsg::Interrupt { slot, on }, &[]);
    }

    /// Looks at the counters of those that run while others wait.
    pub(crate) fn look(&mut self) {
        let now_us = self.now_us();
        for client in self.conns.values().filter_map(|c| c.client()) {
            let mut launches = None;
            for &id in &client.groups {
                let Some(group) = self.groups.get_mut(&id) else { continue };
                if !self.arbiter.status(now_us, id).is_some_and(|s| s.scrutinised) {
                    group.progress.forget();
                    continue;
                }
                let slot = usize::from(group.slot);
                let issued = launches.get_or_insert_with(|| client.segment.group_launches())[slot];
                let completed = client.segment.get().groups[slot].completed.load(Relaxed);
                if let Some(event) = group.progress.look(now_us, id, issued, completed) {
                    self.arbiter.event(now_us, event, &mut self.actions);
                }
            }
        }
        self.act();
    }
}
