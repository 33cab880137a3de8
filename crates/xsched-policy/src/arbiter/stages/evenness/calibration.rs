//! Calibration: samples of the rate that a group has alone on the device.
//!
//! Samples that come by themselves are taken whenever a group is the only one of its pool on the device. For groups that never are, there
//! are *runs*: all others are held for one group, for `SAMPLE_US` from one completion to another, at growing intervals. All of these
//! together take one part in `RUN_PAUSE_TIMES` of the time.

use std::collections::BTreeMap;

use super::PoolGroup;
use super::eligible::{can_be_held, pool_of, takes_part};
use super::meter::{Meter, Stopwatch};
use crate::arbiter::member::Member;
use crate::tuning::*;
use crate::{GroupId, Micros, Verdict};

/// Calibration of all groups on one device.
#[derive(Default)]
pub(super) struct Calibration {
    /// The only group on the device, and the count of its commands.
    sole: Option<(GroupId, Window)>,
    run: Option<Run>,
    /// End of the pause between two runs of groups whose rate is known.
    runs_from: Micros,
    /// End of the pause before the run of a group whose rate is not known: all others have the device for as long as they were held, so that
    /// none is held for several runs at a stretch.
    first_runs_from: Micros,
}

/// A group that all others are held for.
struct Run {
    id: GroupId,
    /// Time for which the group may have had the device.
    clock: Stopwatch,
}

/// Count of the commands of a group that is the only one of its pool on the device. Its clock stands still while another context has the
/// device.
#[derive(Clone, Copy)]
struct Window {
    opened_at: Micros,
    clock: Stopwatch,
    /// Begin of the part not yet in `counted`, by the clock, and the count then; none = not begun.
    from: Option<(Micros, u64)>,
    /// Reading of the clock at the last count, and that count.
    to: (Micros, u64),
    /// Long enough that it does not matter where in a step it began.
    is_long: bool,
    /// Reading of the clock at the last completion.
    advanced_at: Option<Micros>,
    /// Commands and time counted, not confirmed yet.
    counted: (u64, Micros),
}

/// Calibration of one group.
#[derive(Default)]
pub(super) struct Schedule {
    /// Time since which the group has wanted the device, but for short pauses.
    steady_since: Option<Micros>,
    /// Commands and time counted in windows since the last sample.
    sample: (u64, Micros),
    /// Result of the last sample: true if the group was slower just before it, beside others; none = too little was known of that.
    was_slowed: Option<bool>,
    /// Result of the last sample beside others, compared with the rate alone.
    seems_slowed: Option<bool>,
    run_due_at: Micros,
    run_interval_us: Micros,
    /// Number of runs since the last that succeeded.
    runs: u32,
    /// Number of samples in a row that were slower, or faster if negative, than the rate alone.
    trend: i32,
}

impl Schedule {
    /// Takes in the readiness of the group.
    pub(super) fn observe(&mut self, now: Micros, m: &Member) {
        let paused = m.group.idle_since.is_none_or(|since| now > since + SHORT_IDLE_US);
        match (m.group.ready, self.steady_since) {
            (true, None) => self.steady_since = Some(now),
            (false, _) if paused => self.steady_since = None,
            _ => (),
        }
    }

    /// True if the group has had work pending all the time, as far as can be told. A program that serves requests is not kept waiting
    /// for a run.
    fn is_steady(&self, now: Micros) -> bool {
        self.steady_since.is_some_and(|since| now >= since + STEADY_US)
    }

    /// True unless the last sample alone was no faster than the time before it: then the host was slow for a while, not the device.
    pub(super) fn confirms_slowed(&self) -> bool {
        self.was_slowed != Some(false)
    }

    /// Takes in a sample beside others. Once the group begins to seem slowed, a run is due, which tells whether others are the cause.
    pub(super) fn observe_beside(&mut self, now: Micros, seems_slowed: bool) {
        let begins = self.seems_slowed.replace(seems_slowed) == Some(false) && seems_slowed;
        if begins && self.was_slowed != Some(true) {
            self.run_interval_us = RUN_INTERVAL_MIN_US;
            self.run_due_at = now;
        }
    }

    /// Takes in a sample alone: updates the rate, and puts the next run off.
    fn learn(&mut self, now: Micros, meter: &mut Meter, commands: u64, us: Micros) {
        let sample_us = us as f64 / commands.max(1) as f64;
        let ratio = sample_us / meter.command_us();
        let direction = if ratio.is_infinite() || (1.0 / TREND_RATIO..=TREND_RATIO).contains(&ratio) {
            0
        } else {
            (ratio - 1.0).signum() as i32
        };
        self.trend = if direction == self.trend.signum() { self.trend + direction } else { direction };
        if self.trend.unsigned_abs() >= TREND_SAMPLES {
            meter.alone.forget(TREND_FORGETS);
        }
        meter.learn_alone(commands, us);
        if meter.knows_beside() {
            self.was_slowed = Some(meter.is_slower_beside(Some(sample_us)));
        }
        self.postpone_run(now);
        if direction != 0 {
            self.run_interval_us = RUN_INTERVAL_MIN_US;
            self.run_due_at = now + RUN_INTERVAL_MIN_US;
        }
    }

    fn postpone_run(&mut self, now: Micros) {
        self.run_interval_us = (self.run_interval_us * 2).clamp(RUN_INTERVAL_MIN_US, RUN_INTERVAL_MAX_US);
        self.run_due_at = now + self.run_interval_us;
    }

    /// Takes over the confirmed counts of a window, and learns from them once they make a sample.
    fn confirm(&mut self, now: Micros, meter: &mut Meter, window: &mut Window) {
        let (commands, us) = std::mem::take(&mut window.counted);
        self.sample = (self.sample.0 + commands, self.sample.1 + us);
        if self.sample.1 >= SAMPLE_US && self.sample.0 > 0 {
            let (commands, us) = std::mem::take(&mut self.sample);
            self.learn(now, meter, commands, us);
        }
    }
}

impl Window {
    fn opened(now: Micros) -> Window {
        Window {
            opened_at: now,
            clock: Stopwatch::started(now),
            from: None,
            to: (0, 0),
            is_long: false,
            advanced_at: None,
            counted: (0, 0),
        }
    }

    /// Leaves out commands that completed while the clock stood still.
    fn skip(&mut self, commands: u64) {
        if let Some((_, count)) = &mut self.from {
            *count = count.wrapping_add(commands);
        }
        self.to.1 = self.to.1.wrapping_add(commands);
    }

    /// Moves the time since `from` to `counted` if the window is long by now.
    fn gather(&mut self) {
        let Some((from, count)) = self.from else { return };
        let us = self.to.0 - from;
        if us > 0 && (self.is_long || us >= SAMPLE_US) {
            self.from = Some(self.to);
            self.is_long = true;
            self.counted.0 += self.to.1.wrapping_sub(count);
            self.counted.1 += us;
        }
    }
}

impl Calibration {
    /// True if all others are held for this group.
    pub(super) fn runs_for(&self, id: GroupId) -> bool {
        self.run.as_ref().is_some_and(|run| run.id == id)
    }

    /// The group that all others are held for.
    pub(super) fn running(&self) -> Option<GroupId> {
        self.run.as_ref().map(|run| run.id)
    }

    /// True if this group was the only one on the device at the last decision.
    pub(super) fn was_sole(&self, id: GroupId) -> bool {
        self.sole.is_some_and(|(sole, _)| sole == id)
    }

    /// Drops the window of the sole group: others were there, too.
    pub(super) fn drop_window(&mut self) {
        self.sole = None;
    }

    fn window(&mut self, id: GroupId) -> Option<&mut Window> {
        self.sole.as_mut().filter(|(sole, _)| *sole == id).map(|(_, window)| window)
    }

    /// Leaves commands out of the window while its clock stands still.
    pub(super) fn skip(&mut self, id: GroupId, commands: u64) {
        if let Some(window) = self.window(id).filter(|window| window.clock.running_since.is_none()) {
            window.skip(commands);
        }
    }

    /// Stops the clock of the window.
    pub(super) fn stop(&mut self, now: Micros) {
        if let Some((_, window)) = &mut self.sole {
            window.clock.run(now, false);
        }
    }

    /// Takes in a count of a group. `completed` is the whole, `commands` the part since the last count.
    pub(super) fn count(&mut self, now: Micros, id: GroupId, group: &mut PoolGroup, completed: u64, commands: u64) {
        let is_run = self.runs_for(id);
        let Some(window) = self.window(id) else { return };
        let at = window.clock.read(now);
        if commands > 0 {
            // Counts come from time to time only.
            let gap_us = (at - window.advanced_at.unwrap_or(at)).saturating_sub(2 * COUNT_US);
            group.meter.note_gap(gap_us);
            window.advanced_at = Some(at);
        }
        window.to = (at, completed);
        let Some((from, count)) = window.from else {
            // Runs are short: from anywhere to anywhere they would miss long commands, so they go from one completion to another.
            if !is_run || commands > 0 {
                window.from = Some((at, completed));
            }
            return;
        };
        if !is_run {
            window.gather();
            // From then on no command that others had in the driver can turn out to have been running.
            if now >= window.opened_at + WINDOW_PROVEN_US {
                group.schedule.confirm(now, &mut group.meter, window);
            }
        } else if commands > 0 && at >= from + SAMPLE_US {
            group.schedule.learn(now, &mut group.meter, completed.wrapping_sub(count), at - from);
            group.schedule.runs = 0;
            window.from = None;
            self.end_run(now);
        }
    }

    fn end_run(&mut self, now: Micros) {
        if let Some(run) = self.run.take() {
            let length_us = run.clock.read(now);
            self.runs_from = now + length_us * RUN_PAUSE_TIMES;
            self.first_runs_from = now + length_us;
        }
    }

    /// Ends a run, or begins one. `undisturbed` = no group goes on beside a more urgent one.
    pub(super) fn update_run(
        &mut self,
        now: Micros,
        undisturbed: bool,
        members: &[Member],
        verdicts: &[Verdict],
        groups: &mut BTreeMap<GroupId, PoolGroup>,
    ) {
        if let Some(run) = &mut self.run {
            if run.goes_on(now, undisturbed, members, verdicts) {
                return;
            }
            self.end_run(now);
        }
        let Some(id) = self.next_run(now, members, verdicts, groups) else { return };
        self.run = Some(Run { id, clock: Stopwatch::started(now) });
        self.sole = None;
        if let Some(group) = groups.get_mut(&id) {
            group.schedule.runs += 1;
            group.schedule.postpone_run(now);
        }
    }

    /// The group for which a run may begin and is due first: one without a known rate before all others.
    fn next_run(
        &self,
        now: Micros,
        members: &[Member],
        verdicts: &[Verdict],
        groups: &BTreeMap<GroupId, PoolGroup>,
    ) -> Option<GroupId> {
        let part = || members.iter().zip(verdicts).filter(|(m, v)| takes_part(m, v)).map(|(m, _)| m);
        // There is nothing to share out where the device holds up no group.
        let matters = part().any(|m| groups.get(&m.group.id).is_some_and(|g| g.meter.is_limited()));
        let is_steady = |m: &Member| groups.get(&m.group.id).is_some_and(|g| g.schedule.is_steady(now));
        if !matters || !part().all(is_steady) {
            return None;
        }
        let has_company = |own: &Member| part().filter(|m| pool_of(m) == pool_of(own)).count() > 1;
        let is_due = |group: &PoolGroup| {
            let is_new = group.meter.alone.command_us().is_none() && group.schedule.runs < RUNS_FIRST;
            let may_begin = if is_new { self.first_runs_from <= now } else { self.runs_from <= now };
            group.schedule.run_due_at <= now && !group.meter.is_stuck(now) && may_begin
        };
        let due = part().filter_map(|m| Some((m, groups.get(&m.group.id).filter(|group| is_due(group))?)));
        let possible = due.filter(|(m, _)| has_company(m) && can_be_alone(m, members, verdicts));
        let order = |(m, group): &(&Member, &PoolGroup)| {
            (group.meter.alone.command_us().is_some(), group.schedule.run_due_at, m.group.id)
        };
        possible.min_by_key(order).map(|(m, _)| m.group.id)
    }

    /// Takes in which group is the only one on the device, and whether its gate is open with no other context there.
    pub(super) fn set_sole(
        &mut self,
        now: Micros,
        sole: Option<GroupId>,
        runs: bool,
        groups: &mut BTreeMap<GroupId, PoolGroup>,
    ) {
        if self.sole.map(|(id, _)| id) != sole {
            if let Some((id, mut window)) = self.sole.take()
                && let Some(group) = groups.get_mut(&id)
            {
                group.schedule.confirm(now, &mut group.meter, &mut window);
            }
            self.sole = sole.map(|id| (id, Window::opened(now)));
        }
        if let Some((_, window)) = &mut self.sole {
            window.clock.run(now, runs);
        }
    }
}

impl Run {
    /// Runs the clock while the group has the device. Returns false once the run is over, or has taken too long. A group that a more
    /// urgent program takes off the device continues its run afterwards.
    fn goes_on(&mut self, now: Micros, undisturbed: bool, members: &[Member], verdicts: &[Verdict]) -> bool {
        let own = members.iter().zip(verdicts).find(|(m, _)| m.group.id == self.id);
        let waits = own.is_some_and(|(m, v)| !v.run && takes_part(m, &Verdict { run: true, ..*v }));
        let runs = own.is_some_and(|(m, v)| takes_part(m, v) && can_be_alone(m, members, verdicts));
        self.clock.run(now, runs && undisturbed);
        (runs || waits) && self.clock.us < RUN_MOST_US
    }
}

/// True if all other groups that run can be held for a while.
fn can_be_alone(own: &Member, members: &[Member], verdicts: &[Verdict]) -> bool {
    let mut others = members.iter().zip(verdicts).filter(|(m, _)| m.group.id != own.group.id);
    others.all(|(m, v)| can_be_held(m, own) || !(v.run && m.group.ready && !m.is_held()))
}
