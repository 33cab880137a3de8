//! A program's thread where each kernel is played: commands pass the gate and the budget, and completions are seen. What decides is
//! `xsched-flow`'s, as in the preload library.

use std::sync::atomic::Ordering::Relaxed;

use xsched_flow::activity::is_contended;
use xsched_flow::admission::{AtGate, Budget, InFlight, Place, at_gate, fence_commands, fits, place};
use xsched_flow::estimate::told_ns;
use xsched_flow::tuning::{BEHIND_NS, LEAD_NS, LOOK_NS, UNKNOWN_NS};

use crate::outcome::Track;
use crate::scenario::Detail;

use super::device::{Command, Done};
use super::rank::{Fence, Sync, Thread};
use super::state::{Happening, Node};

/// Time between two tries of a thread that waits for room although none is due, in ns.
const ROOM_LOOK_NS: u64 = 1_000_000;

impl Node<'_> {
    /// The thread goes on from where it is.
    pub(super) fn go_on_in_kernels(&mut self, rank: usize) {
        loop {
            let (at, n) = self.ranks[rank].at;
            let kernels = self.members[self.ranks[rank].member].kernels(at);
            if kernels.as_ref().is_none_or(|kernels| kernels.waits_after(n)) && self.sync(rank) {
                return;
            }
            let Some(kernels) = kernels else { return self.end_request(rank) };
            if n == kernels.count {
                self.ranks[rank].at = (at + 1, 0);
                continue;
            }
            if !self.launch(rank) {
                return;
            }
            self.ranks[rank].at = (at, n + 1);
            let m = &mut self.members[self.ranks[rank].member];
            let r = &mut self.ranks[rank];
            if n == 0 || !kernels.steady {
                r.pace_ns = kernels.launch.draw(&mut m.work);
            }
            let launch_ns = r.pace_ns;
            if launch_ns > 0 {
                return self.compute(rank, launch_ns);
            }
        }
    }

    /// The host waits until its commands are complete. True: the wait is not over.
    pub(super) fn sync(&mut self, rank: usize) -> bool {
        let member = &mut self.members[self.ranks[rank].member];
        match self.ranks[rank].sync(self.now_ns) {
            Sync::Waits => true,
            Sync::Wakes => match member.kind.wake.draw(&mut member.work) {
                0 => self.sync(rank),
                wake_ns => {
                    self.compute(rank, wake_ns);
                    true
                }
            },
            Sync::Ends(gap_ns) => {
                if let Some(gap_ns) = gap_ns.filter(|_| self.scenario.detail == Detail::Kernels) {
                    self.outcome.programs[member.placed.kind].gaps.add(gap_ns);
                }
                self.ranks[rank].spell.idle_since_ns = self.now_ns;
                self.follow(rank);
                false
            }
            Sync::GoesOn => false,
        }
    }

    /// Gives the device the next command. False: the thread waits, or is elsewhere.
    fn launch(&mut self, rank: usize) -> bool {
        let at = self.ranks[rank].at.0;
        let ns = match self.ranks[rank].next {
            Some(ns) => ns,
            None => {
                let ns = self.draw_command(rank);
                self.segments[rank].count_launch();
                self.ranks[rank].next = Some(ns);
                ns
            }
        };
        self.announce_if_idle(rank);
        let gate = self.segments[rank].gate.load();
        let is_followed = is_contended(gate.bits());
        let budget_us = if is_followed { self.segments[rank].budget_us.load(Relaxed) } else { 0 };
        let budget_commands = if is_followed { self.segments[rank].budget_commands.load(Relaxed) } else { 0 };
        let has_gates = !gate.is_detached() && self.segments[rank].level.load(Relaxed) >= 2;
        let budget = Budget::new(budget_us, budget_commands, has_gates);
        let mut prequeues = false;
        let yields = !gate.is_open() && gate.yields();
        let has_gates = has_gates && !yields;
        let budget = if yields { Budget::new(budget_us, budget_commands, false) } else { budget };
        if !yields {
            self.stop_yielding(rank);
        }
        if !gate.is_open() && !yields {
            let ask =
                AtGate { word: gate.bits(), can_prequeue: true, loads: false, has_gates, budgeted: budget_us != 0 };
            prequeues = at_gate(&ask, || self.ranks[rank].flight.pending);
            if !prequeues {
                self.wait_at_gate(rank);
                return false;
            }
        }
        let estimate = self.ranks[rank].estimates[at].expected_ns();
        if !budget.is_none() && !self.has_room(rank, &budget, estimate.unwrap_or(UNKNOWN_NS)) {
            return false;
        }
        if yields && !self.passes_yielding(rank) {
            return false;
        }
        self.submit(rank, Launch { ns, estimate, budget_us, budget_commands, has_gates, prequeues });
        true
    }

    /// Device time of the next command, in ns.
    fn draw_command(&mut self, rank: usize) -> u64 {
        let r = &mut self.ranks[rank];
        let m = &mut self.members[r.member];
        let Some(kernels) = m.kernels(r.at.0) else { return 1 };
        let Some(total) = &kernels.total else {
            let copy_rate = self.scenario.devices[self.machine.kind].copy_rate;
            return kernels.times(copy_rate).draw(&mut m.work).max(1);
        };
        if r.at.1 == 0 {
            r.each_ns = total.draw(&mut m.work) / u64::from(kernels.count);
        }
        r.each_ns.max(1)
    }

    /// True if a command fits into the budget. Else the thread waits for room.
    fn has_room(&mut self, rank: usize, budget: &Budget, estimate_ns: u64) -> bool {
        let r = &self.ranks[rank];
        let in_flight = InFlight {
            commands: r.flight.fences.len() as u64,
            ns: r.flight.issued_ns.saturating_sub(r.flight.done.issued_ns),
        };
        let first_ns =
            r.flight.fences.front().map_or(0, |fence| fence.issued_ns.saturating_sub(r.flight.done.issued_ns));
        let consumed_ns = self.now_ns.saturating_sub(r.flight.running_since_ns).min(first_ns);
        if r.flight.pending == 0 || fits(budget, &in_flight, estimate_ns, || consumed_ns) {
            return true;
        }
        let was_waiting = r.thread == Thread::ForRoom;
        if !was_waiting {
            self.segments[rank].limited.fetch_add(1, Relaxed);
        }
        // Room comes with a completion, or while the running command uses up its time.
        let over_ns = in_flight
            .ns
            .saturating_sub(LEAD_NS)
            .min(in_flight.ns.saturating_add(estimate_ns).saturating_sub(budget.ns));
        let room_ns = r.flight.running_since_ns + over_ns;
        let at_ns = if over_ns <= first_ns && room_ns > self.now_ns { room_ns } else { self.now_ns + ROOM_LOOK_NS };
        self.ranks[rank].thread = Thread::ForRoom;
        self.set_step(rank, at_ns);
        false
    }

    fn submit(&mut self, rank: usize, launch: Launch) {
        let Launch { ns, estimate, budget_us, budget_commands, has_gates, prequeues } = launch;
        let estimate_ns = estimate.unwrap_or(UNKNOWN_NS);
        let segment = &self.segments[rank];
        let (grants, batch) = (segment.grants.load(Relaxed), segment.batch_commands.load(Relaxed));
        let forced = self.members[self.ranks[rank].member].kind.level.is_some();
        let r = &mut self.ranks[rank];
        let is_first_prequeued = prequeues && r.flight.prequeued != Some(grants);
        if prequeues {
            r.flight.prequeued = Some(grants);
        }
        if budget_us != 0 && estimate.is_some() {
            if let Some(length) = r.lengths(estimate_ns) {
                segment.lengths.store(length, Relaxed);
            }
            if estimate_ns > BEHIND_NS {
                segment.limited.fetch_add(1, Relaxed);
            }
        }
        r.flight.issued += 1;
        let ask = Place {
            seq: r.flight.issued,
            estimate_ns: estimate,
            issued_ns: r.flight.issued_ns,
            fenced: r.flight.fenced.seq,
            fenced_ns: r.flight.fenced.issued_ns,
            gated_ns: r.flight.gated_ns,
            before: r.flight.issued - 1,
            budget_us,
            fence_commands: fence_commands(budget_commands, batch),
            gate_due: is_first_prequeued,
            has_gates,
            forced,
            in_order: true,
            calls_back: false,
            blocking: false,
        };
        let mut placed = place(&ask, || 0, || true);
        placed.fence |= self.publish(rank, &ask);
        let segment = &self.segments[rank];
        let r = &mut self.ranks[rank];
        r.flight.issued_ns += estimate_ns;
        if placed.device_gate {
            r.flight.gated_ns = ask.issued_ns;
        }
        if placed.fence {
            r.flight.fenced = Fence { seq: r.flight.issued, issued_ns: r.flight.issued_ns };
            r.flight.fences.push_back(r.flight.fenced);
        }
        if r.flight.pending == 0 {
            r.flight.running_since_ns = self.now_ns;
        }
        r.flight.pending += 1;
        r.syncs.is_due = true;
        r.spell.burst_ns += estimate_ns;
        r.next = None;
        let command = Command { rank, seq: r.flight.issued, kind: r.at.0 as u32, ns };
        let (device, seat) = (r.device, r.seat);
        segment.count_issue();
        self.play_device(device);
        self.devices[device].submit(seat, command, placed.device_gate, &self.segments, &mut self.done);
    }

    /// The device has completed a command.
    pub(super) fn complete_kernel(&mut self, done: Done) {
        let Done { at_ns, command: Command { rank, seq, kind, ns }, .. } = done;
        if self.ranks[rank].thread == Thread::Gone {
            return;
        }
        let gate = self.segments[rank].gate.load();
        let segment = &self.segments[rank];
        let r = &mut self.ranks[rank];
        r.flight.pending -= 1;
        r.tally.device_ns += ns;
        segment.count_completion();
        let cell = &mut r.estimates[kind as usize];
        *cell = cell.sample(ns, true);
        let told_us = told_ns(*cell, true, gate.is_contended()) / 1_000;
        if told_us > segment.longest_us.load(Relaxed) {
            segment.longest_us.store(told_us, Relaxed);
        }
        r.reached(seq);
        let (member, device) = (r.member, r.device);
        let began_ns = r.flight.running_since_ns.max(at_ns.saturating_sub(ns));
        r.flight.running_since_ns = at_ns;
        let placed = self.members[member].placed;
        self.span(Track::Device(self.machine.first + device, placed.kind, placed.number), "runs", began_ns, at_ns);
        let is_complete = self.ranks[rank].flight.pending == 0;
        if is_complete {
            self.ranks[rank].spell.idle_since_ns = at_ns;
        }
        match self.ranks[rank].thread {
            Thread::ForRoom => self.go_on_in_kernels(rank),
            // The library sees the end of the last command once the thread has woken up.
            Thread::ForDevice if is_complete => return self.go_on_in_kernels(rank),
            _ => (),
        }
        if self.ranks[rank].flight.pending > 0 {
            return;
        }
        if !self.segments[rank].gate.load().is_open() {
            return self.follow(rank);
        }
        // The device writes completions into memory, where the library's agent finds them when it looks.
        let look_ns = self.now_ns.next_multiple_of(LOOK_NS);
        if self.ranks[rank].spell.look_ns < look_ns {
            self.ranks[rank].spell.look_ns = look_ns;
            self.set(look_ns, Happening::Looks(rank));
        }
    }
}

/// A command on its way to the device.
struct Launch {
    ns: u64,
    estimate: Option<u64>,
    budget_us: u32,
    budget_commands: u32,
    has_gates: bool,
    prequeues: bool,
}
