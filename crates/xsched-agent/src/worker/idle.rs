//! Polls of the groups: which of them are idle, and when to poll again.

use std::collections::BTreeMap;

use xsched_core::{Group, Runtime, journal, now_ns};
use xsched_flow::activity::Looks;
use xsched_flow::journal::Record;
use xsched_flow::timeline::Evidence;
use xsched_flow::tuning::{LOOK_NS, RARE_LOOK_LEAST_NS, RARE_LOOK_NS};
use xsched_proto::gate::Gate;

use super::interrupts::Interrupts;

/// Polls of one group so far.
#[derive(Default)]
struct Polled {
    looks: Looks,
    /// Launches at the last rare poll.
    launches: Option<u64>,
}

impl Polled {
    /// Records a poll. A stopped group cannot complete work, so only unstopped time counts towards idleness. True: a rare poll is due.
    fn record(&mut self, now: u64, stopped: bool) -> bool {
        let before = self.looks;
        let due = self.looks.look(now, stopped);
        journal::record(|| Record::Look(before, now, stopped, due, self.looks));
        due
    }

    /// Rare poll: true if the group has launched nothing since the last one.
    fn is_silent(&mut self, rt: &Runtime, group: &Group) -> bool {
        let launches = Some(group.launches(rt));
        core::mem::replace(&mut self.launches, launches) == launches
    }
}

/// Polls of all groups.
#[derive(Default)]
pub(super) struct Polls {
    /// By slot.
    groups: BTreeMap<u16, Polled>,
    /// Time of the next rare polls, in ns.
    rare_at: u64,
}

/// One round of polls.
struct Round<'a> {
    rt: &'a Runtime,
    interrupts: &'a Interrupts,
    now: u64,
    /// Rare polls are due.
    rare: bool,
    /// Some group needs rare polls.
    needs_rare: bool,
    /// Time until the next round, in ns.
    due: Option<u64>,
}

impl Round<'_> {
    fn sooner(&mut self, ns: u64) {
        self.due = Some(self.due.map_or(ns, |due| due.min(ns)));
    }
}

impl Polls {
    /// Polls every group and calls those idle that are. Returns the ns until the next round.
    pub(super) fn poll(&mut self, rt: &Runtime, interrupts: &Interrupts) -> Option<u64> {
        let now = now_ns();
        let mut round = Round { rt, interrupts, now, rare: now >= self.rare_at, needs_rare: false, due: None };
        for group in rt.groups() {
            self.poll_group(&mut round, group);
        }
        if round.needs_rare {
            if round.rare {
                self.rare_at = now + RARE_LOOK_NS;
            }
            round.sooner(self.rare_at.saturating_sub(now).max(RARE_LOOK_LEAST_NS));
        }
        round.due
    }

    /// Time until the first grace time of a group ends, in ns. A stopped group does not drain: there is nothing to decide.
    pub(super) fn idle_due_ns(&self, rt: &Runtime) -> Option<u64> {
        let now = now_ns();
        let drains = |group: &&Group| self.groups.get(&group.index()).is_none_or(|polled| !polled.looks.stopped);
        rt.groups().filter(drains).filter_map(|group| group.idle_due_ns(rt, now)).min()
    }

    fn poll_group(&mut self, round: &mut Round<'_>, group: &Group) {
        let rt = round.rt;
        if let Some(ns) = group.poll_filled(rt) {
            return round.sooner(ns);
        }
        let gate = rt.segment().groups[usize::from(group.index())].gate.load();
        if gate.has(Gate::MUST_ANNOUNCE | Gate::DETACHED) {
            return;
        }
        let held_inside = group.is_held_inside(rt);
        let stopped = held_inside || round.interrupts.has(group.index());
        let polled = self.groups.entry(group.index()).or_default();
        let rare = polled.record(round.now, stopped) && round.rare;
        if stopped && !group.is_quiet(rt) {
            round.needs_rare = true;
            // Nothing reports when its gate opens.
            if held_inside {
                round.sooner(LOOK_NS);
            }
            return;
        }
        if rare {
            polled.looks.looked();
        }
        // Without rivals, or where the device reports fenced commands only and perhaps none: a group that launched
        // nothing for a while is idle.
        if !gate.is_contended() || group.is_polled(rt) {
            round.needs_rare = true;
            if rare && polled.is_silent(rt, group) && group.try_idle(rt, false).is_some() {
                return;
            }
        }
        if gate.is_contended() {
            round.poll_contended(group, rare);
        }
    }
}

impl Round<'_> {
    /// Polls a group beside rivals: releases commands that are held for too long, presumes completions, and ends grace times.
    fn poll_contended(&mut self, group: &Group, rare: bool) {
        let (rt, now) = (self.rt, self.now);
        self.needs_rare = true;
        group.release_held(rt, now);
        if rare {
            group.presume(rt, Evidence::Silence);
            group.update_idle_state(rt);
        }
        match group.idle_due_ns(rt, now) {
            Some(0) if group.try_idle(rt, true).is_some() => {}
            Some(0) => self.sooner(LOOK_NS),
            Some(ns) => self.sooner(ns),
            None if group.is_polled(rt) => {
                if group.activity(rt, now).is_late() {
                    group.presume(rt, Evidence::Overdue);
                }
                group.update_idle_state(rt);
                let activity = group.activity(rt, now);
                self.sooner(activity.grace_left_ns().unwrap_or(activity.look_ns()));
            }
            None => {}
        }
    }
}
