//! The agent of a program: its polls, and its reports to the daemon.

use std::sync::atomic::Ordering::SeqCst;

use xsched_flow::activity::{Activity, Step, View};
use xsched_flow::gaps::{Cycle, Terms};
use xsched_flow::timeline::{Evidence, Presumed, presumes};
use xsched_flow::tuning::{LOOK_NS, RARE_LOOK_NS};
use xsched_flow::watchdog::{Bypass, bypasses, epoch, is_cross_stream, is_silent, release_patience_ns, releases};
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;

use super::{STEP_NS, World};
use crate::Rule;

impl World {
    /// Returns the model's view of a group now; `complete` = all of its commands are known to be.
    fn view(&self, p: usize, complete: bool) -> View {
        let program = &self.programs[p];
        View {
            word: program.gate().bits(),
            told: program.words.state.load(SeqCst),
            complete,
            waiters: program.waiters(),
            waits_since_ns: program.waits_since_ns,
            grace_since_ns: program.grace_since_ns,
            grace_ns: program.fixed_grace_ns.unwrap_or(program.grace_ns).max(program.hold_ns),
            now_ns: self.now,
        }
    }

    pub(super) fn update(&mut self, p: usize) {
        let activity = Activity::of(&self.view(p, self.programs[p].is_complete()));
        let program = &mut self.programs[p];
        match activity.step() {
            Step::Nothing => {}
            Step::TellDrained if self.off == Rule::Drained => {}
            Step::TellDrained => program.words.state.store(state::DRAINED, SeqCst),
            Step::BeginGrace => {
                program.grace_since_ns = self.now;
                program.hold_ns = 0;
                let (hold_us, slowdown) =
                    (program.words.hold_us.load(SeqCst), program.words.slowdown_percent.load(SeqCst));
                if hold_us > 0 && !matches!(self.off, Rule::Gaps | Rule::Grace) {
                    if let Some((gap_ns, ended_at, kept)) = program.gap.take() {
                        program.gaps.learn(Cycle { gap_ns, own_ns: self.now - ended_at, kept });
                    }
                    let terms = Terms { hold_ns: u64::from(hold_us) * 1_000, slowdown_percent: slowdown };
                    program.hold_ns = program.gaps.hold_ns(terms);
                }
            }
        }
    }

    /// Polls the agent's group, when a poll is due.
    pub(super) fn agent(&mut self, p: usize) {
        self.check_lease(p);
        let gate = self.programs[p].gate();
        if self.now < self.programs[p].look_at || gate.has(Gate::MUST_ANNOUNCE | Gate::DETACHED) {
            return;
        }
        self.programs[p].look_at = self.now + LOOK_NS;
        let program = &mut self.programs[p];
        let stopped = program.interrupts && program.is_closed();
        let counts = self.off != Rule::StoppedTime;
        let rare = program.looks.look(self.now, stopped && counts) && self.now >= program.rare_at;
        if stopped && !program.is_complete() {
            return;
        }
        if rare {
            program.looks.looked();
            program.rare_at = self.now + RARE_LOOK_NS;
            let launches = Some(program.launches());
            if std::mem::replace(&mut program.rare_launches, launches) == launches && self.try_idle(p, false) {
                return;
            }
        }
        if !gate.is_contended() {
            return;
        }
        self.release_held(p);
        if rare {
            self.presume(p, Evidence::Silence);
            self.update(p);
        }
        let known = |world: &World| Activity::of(&world.view(p, world.programs[p].grace_since_ns != 0));
        if known(self).grace_left_ns().is_none() {
            if known(self).is_late() {
                self.presume(p, Evidence::Overdue);
            }
            self.update(p);
        }
        let activity = known(self);
        match activity.grace_left_ns() {
            Some(0) if self.try_idle(p, true) => {}
            Some(ns) => self.programs[p].look_at = self.now + ns.max(STEP_NS),
            None => self.programs[p].look_at = self.now + activity.look_ns(),
        }
    }

    fn presume(&mut self, p: usize, evidence: Evidence) {
        let off = match evidence {
            Evidence::Silence => Rule::Silence,
            _ => Rule::Overdue,
        };
        let waited_for = self.programs[p].threads.iter().any(|t| t.syncs);
        if self.off == off || evidence == Evidence::Silence && waited_for {
            return;
        }
        for at in 0..self.programs[p].streams.len() {
            let held = self.programs[p].waits_for_turn(at);
            let stream = &mut self.programs[p].streams[at];
            let launches = Some(stream.issued + stream.counted);
            let silent =
                evidence == Evidence::Silence && std::mem::replace(&mut stream.seen_launches, launches) == launches;
            let ask = Presumed {
                fenced: stream.fenced.0 > stream.done,
                held,
                in_order: true,
                counted_done: stream.counted_done >= stream.counted,
                silent,
            };
            if presumes(&ask, evidence) {
                stream.advance(evidence);
            }
        }
    }

    /// Declares a group idle if nothing contradicts it. `exact`: only if all of its commands are complete; else it is enough that no fence
    /// or held command is under way, since no launch came for a while. Returns whether it is idle.
    fn try_idle(&mut self, p: usize, exact: bool) -> bool {
        let program = &mut self.programs[p];
        let follows = |at: usize| program.waits_for_turn(at) || program.streams[at].fenced.0 > program.streams[at].done;
        let busy = if exact { !program.is_complete() } else { (0..program.streams.len()).any(follows) };
        if busy || program.waiters() > 0 || program.threads.iter().any(|t| t.syncs) {
            program.grace_since_ns = 0;
            return false;
        }
        program.words.gate.call_idle();
        program.words.state.store(state::IDLE, SeqCst);
        true
    }

    fn release_held(&mut self, p: usize) {
        let program = &mut self.programs[p];
        let epoch = epoch(program.words.grants.load(SeqCst));
        if self.off == Rule::Release || !(0..program.streams.len()).any(|s| program.waits_for_turn(s)) {
            return;
        }
        if program.held.0 != epoch {
            if program.held.0 != program.released_epoch {
                program.release_patience_ns = release_patience_ns(program.release_patience_ns, false);
            }
            program.held = (epoch, self.now);
        } else if releases(program.held.1, self.now, program.release_patience_ns) {
            program.release_patience_ns = release_patience_ns(program.release_patience_ns, true);
            program.released_epoch = epoch;
            self.set_device_gates(p);
        }
    }

    fn check_lease(&mut self, p: usize) {
        let program = &mut self.programs[p];
        if !program.is_closed() {
            program.closed_since = 0;
            return;
        }
        if program.closed_since == 0 {
            program.closed_since = self.now;
        }
        if self.off != Rule::Lease && is_silent(self.beat_at, program.closed_since, self.now) {
            program.words.gate.detach();
        }
    }

    pub(super) fn set_device_gates(&mut self, p: usize) {
        let program = &self.programs[p];
        let known = self.off != Rule::Bypass;
        let ask = Bypass {
            word: program.gate().bits(),
            gates_inside: false,
            fits_inside: true,
            released: program.released_epoch == epoch(program.words.grants.load(SeqCst)),
            loading: known && program.loading,
            cross_stream: known && is_cross_stream(program.cross_at, self.now),
        };
        if program.has_gates && bypasses(&ask) {
            let _ = program.words.gate.bypass(program.gate(), true);
        } else {
            let _ = program.words.gate.bypass(program.gate(), false);
        }
    }
}
