//! Threads of a program: their steps, and the path of a launch into the driver.

use std::sync::atomic::Ordering::SeqCst;

use xsched_flow::activity::{is_contended, next_grace_ns};
use xsched_flow::admission::{self, AtGate, Budget, InFlight, Place, Placed};
use xsched_flow::timeline::{Evidence, Point};
use xsched_flow::watchdog::{epoch, is_cross_stream};
use xsched_proto::segment::state;

use super::{Command, Do, STREAM_COMMANDS, Stream, WAKES_NS, World};
use crate::Rule;

impl World {
    pub(super) fn announce(&mut self, p: usize) {
        let program = &mut self.programs[p];
        if program.words.gate.announce() {
            program.words.state.store(state::READY, SeqCst);
            program.look_at = self.now;
            // The daemon answers before the launch goes on, as a daemon without other work does.
            self.daemon();
        }
    }

    /// Takes the next step of a thread. Returns false if the thread waits or is busy.
    pub(super) fn goes_on(&mut self, p: usize, t: usize) -> bool {
        let now = self.now;
        let thread = &self.programs[p].threads[t];
        if now < thread.busy_until {
            return false;
        }
        let what = match thread.plan[thread.at] {
            Do::Once(what) => *what,
            what => what,
        };
        let locked = self.programs[p].driver.is_some_and(|(by, _)| by != t);
        let done = match what {
            Do::Once(_) => true,
            Do::Launch(stream, ns) => !locked && self.launch(p, t, stream, ns, None),
            Do::LaunchAfter { stream, other, ns, known } => {
                if known {
                    self.programs[p].cross_at = now;
                    self.set_device_gates(p);
                }
                let given = self.programs[p].streams[other].given;
                !locked && self.launch(p, t, stream, ns, Some((other, given)))
            }
            Do::Sync(stream) => {
                let program = &mut self.programs[p];
                let over = program.streams[stream].queue.is_empty();
                program.threads[t].syncs = !over;
                if over {
                    program.streams[stream].advance(Evidence::Sync);
                    self.update(p);
                }
                over
            }
            Do::Poll(stream) => self.programs[p].streams[stream].queue.is_empty(),
            Do::Load => {
                let program = &mut self.programs[p];
                // A command that loads code is not launched behind a closed gate.
                if !program.loading && program.is_closed() && self.off != Rule::Bypass {
                    return false;
                }
                program.loading = program.streams.iter().any(|s| !s.queue.is_empty());
                let over = !program.loading;
                self.set_device_gates(p);
                over
            }
            Do::Query => {
                let program = &mut self.programs[p];
                let began = *program.threads[t].call_at.get_or_insert(now);
                if !locked {
                    program.longest_query_ns = program.longest_query_ns.max(now - began);
                    program.threads[t].call_at = None;
                }
                !locked
            }
            Do::Rest(ns) => {
                self.programs[p].threads[t].busy_until = now + ns;
                true
            }
            Do::Each(ns) => {
                let thread = &mut self.programs[p].threads[t];
                let due = if thread.request_at == 0 { now } else { thread.request_at + ns };
                if now >= due {
                    thread.request_at = due;
                }
                now >= due
            }
            Do::End => {
                let program = &mut self.programs[p];
                program.took_ns.push(now - program.threads[t].request_at);
                true
            }
        };
        let thread = &mut self.programs[p].threads[t];
        if done {
            if matches!(thread.plan[thread.at], Do::Once(_)) {
                thread.plan.remove(thread.at);
                thread.at %= thread.plan.len();
            } else {
                thread.at = (thread.at + 1) % thread.plan.len();
            }
        }
        done
    }

    pub(super) fn has_gates(&self, p: usize) -> bool {
        let program = &self.programs[p];
        program.has_gates && (self.off == Rule::Bypass || !is_cross_stream(program.cross_at, self.now))
    }

    /// Takes a launch from the gate into the driver. Returns false if the thread waits.
    fn launch(&mut self, p: usize, t: usize, at: usize, ns: u64, after: Option<(usize, u64)>) -> bool {
        let placed = match self.programs[p].driver.take() {
            Some((_, placed)) => placed,
            None => match self.admit(p, t, at, ns, after.is_some()) {
                Some(placed) => placed,
                None => return false,
            },
        };
        let program = &mut self.programs[p];
        let stream = &mut program.streams[at];
        if stream.queue.len() >= STREAM_COMMANDS {
            program.driver = Some((t, placed));
            return false;
        }
        stream.given += 1;
        let tells = placed.fence.then_some(Point { seq: stream.issued, ns: stream.issued_ns, counted: stream.counted });
        let gated = placed.device_gate;
        stream.queue.push_back(Command { left_ns: ns, begun: false, gated, after, tells });
        program.threads[t].busy_until = self.now + program.host_ns;
        true
    }

    /// Takes a launch through gate and budget. Returns none if the thread waits.
    fn admit(&mut self, p: usize, t: usize, at: usize, ns: u64, waits_for_other: bool) -> Option<Placed> {
        let gate = self.programs[p].gate();
        if !gate.is_plainly_open() {
            if gate.must_announce() {
                self.announce(p);
            }
            if self.programs[p].words.gate.go_on() {
                self.daemon();
            }
            self.end_grace(p);
        }
        let gate = self.programs[p].gate();
        let closed = !gate.is_open();
        if !closed && !is_contended(gate.bits()) {
            self.programs[p].streams[at].counted += 1;
            return Some(Placed::default());
        }
        let has_gates = self.has_gates(p);
        let program = &mut self.programs[p];
        let budget_us = program.words.budget_us.load(SeqCst);
        let ask = AtGate {
            word: gate.bits(),
            can_prequeue: !waits_for_other,
            loads: false,
            has_gates,
            budgeted: budget_us != 0,
        };
        let issued = program.streams.iter().map(|s| s.issued - s.done).sum();
        let prequeues = match self.off {
            // Without the first half of the rule, nothing is pre-queued.
            Rule::Prequeue => false,
            // Without the second half, more is pre-queued than the driver takes.
            Rule::PrequeueLimit => admission::at_gate(&ask, || 0),
            _ => admission::at_gate(&ask, || issued),
        };
        if closed && !prequeues {
            if !std::mem::replace(&mut program.threads[t].waits, true) {
                if program.is_complete() && self.off != Rule::Drained {
                    program.words.state.store(state::DRAINED, SeqCst);
                }
                program.waits_since_ns = self.now;
                program.look_at = self.now;
            }
            return None;
        }
        if std::mem::take(&mut program.threads[t].waits) {
            let _ = program.words.state.compare_exchange(state::DRAINED, state::READY, SeqCst, SeqCst);
            program.threads[t].busy_until = self.now + WAKES_NS;
            return None;
        }
        let sum = |f: fn(&Stream) -> u64| program.streams.iter().map(f).sum::<u64>();
        let in_flight = InFlight {
            commands: sum(|s| s.fenced.0.saturating_sub(s.done)),
            ns: sum(|s| s.fenced.1.saturating_sub(s.done_ns)),
        };
        let budget = Budget::new(budget_us, 0, has_gates);
        if !closed && !budget.is_none() && !admission::fits(&budget, &in_flight, ns, || 0) {
            return None;
        }
        let epoch = epoch(program.words.grants.load(SeqCst));
        let stream = &mut program.streams[at];
        stream.issued += 1;
        let ask = Place {
            seq: stream.issued,
            estimate_ns: Some(ns),
            issued_ns: stream.issued_ns,
            fenced: stream.fenced.0,
            fenced_ns: stream.fenced.1,
            gated_ns: stream.gated_ns,
            before: stream.given,
            budget_us,
            gate_due: closed && stream.gated_epoch != epoch,
            has_gates,
            in_order: true,
            ..Place::default()
        };
        let placed = admission::place(&ask, || 0, || true);
        stream.issued_ns += ns;
        if closed {
            stream.gated_epoch = epoch;
        }
        if placed.fence {
            stream.fenced = (stream.issued, stream.issued_ns);
        }
        if placed.device_gate {
            stream.gated = stream.issued;
            stream.gated_ns = ask.issued_ns;
        }
        Some(placed)
    }

    pub(super) fn end_grace(&mut self, p: usize) {
        let program = &mut self.programs[p];
        let since = std::mem::take(&mut program.grace_since_ns);
        if since != 0 {
            let gap_ns = self.now - since;
            program.gap = Some((gap_ns, self.now, gap_ns < program.grace_ns.max(program.hold_ns)));
            program.grace_ns = next_grace_ns(program.grace_ns, gap_ns);
        }
    }
}
