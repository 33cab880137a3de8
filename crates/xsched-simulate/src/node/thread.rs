//! A program's thread: requests come, commands pass the gate and the budget, and completions are seen. What decides is `xsched-flow`'s, as in
//! the preload library.

use std::sync::atomic::Ordering::Relaxed;

use xsched_flow::activity::{Activity, Step, is_contended, next_grace_ns};
use xsched_flow::admission::{AtGate, Budget, InFlight, Place, at_gate, fence_commands, fits, place};
use xsched_flow::estimate::told_ns;
use xsched_flow::tuning::{BEHIND_NS, LEAD_NS, UNKNOWN_NS};
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;

use crate::outcome::Track;
use crate::scenario::Detail;

use super::device::{Command, Done};
use super::rank::{Fence, Thread};
use super::{Happening, Node};

/// Time between two tries of a thread that waits for room although none is due, in ns.
const ROOM_LOOK_NS: u64 = 1_000_000;

impl Node<'_> {
    /// Sets the arrival of a program's next request.
    pub(super) fn set_arrival(&mut self, member: usize) {
        let now_ns = self.now_ns;
        let m = &mut self.members[member];
        let arrivals = &m.kind.arrivals;
        let at_ns = if let Some(every) = arrivals.every {
            // Programs of one kind are not in step.
            let first = m.came == 0;
            now_ns + if first { (every.0 as f64 * m.arrivals.unit()) as u64 } else { every.0 }
        } else if let Some(poisson) = arrivals.poisson {
            now_ns + (poisson.0 as f64 * m.arrivals.exponential()) as u64
        } else if let Some(gaps) = &arrivals.gaps {
            now_ns + gaps.draw(&mut m.arrivals)
        } else if arrivals.file.is_some() {
            let Some(at_ns) = arrivals.times.get(m.came as usize) else { return };
            (m.kind.start.0 + at_ns).max(now_ns)
        } else {
            let pause_ns = arrivals.pause.as_ref().map_or(0, |pause| pause.draw(&mut m.arrivals));
            now_ns + if m.came == 0 { 0 } else { pause_ns }
        };
        m.came += 1;
        self.set(at_ns, Happening::Arrives(member));
    }

    /// True if a program's next request comes after the one before is complete.
    fn is_closed_loop(&self, member: usize) -> bool {
        let arrivals = &self.members[member].kind.arrivals;
        arrivals.every.is_none() && arrivals.poisson.is_none() && arrivals.gaps.is_none() && arrivals.file.is_none()
    }

    pub(super) fn arrive(&mut self, member: usize) {
        if self.members[member].ranks.iter().all(|rank| self.ranks[*rank].thread == Thread::Gone) {
            return;
        }
        self.members[member].requests.push_back(self.now_ns);
        if self.members[member].serving == 0 {
            self.serve(member);
        }
        if !self.is_closed_loop(member) {
            self.set_arrival(member);
        }
    }

    /// Begins the request that has waited longest.
    fn serve(&mut self, member: usize) {
        let ranks = self.members[member].ranks.clone();
        self.members[member].serving = ranks.len();
        for rank in ranks {
            let m = &mut self.members[member];
            let host_ns = m.kind.host.draw(&mut m.work);
            self.ranks[rank].at = (0, 0);
            self.ranks[rank].next = None;
            self.compute(rank, host_ns);
        }
    }

    /// The thread computes for some time, and goes on then.
    fn compute(&mut self, rank: usize, ns: u64) {
        self.ranks[rank].thread = Thread::Computes;
        self.set_step(rank, self.now_ns + ns);
    }

    fn set_step(&mut self, rank: usize, at_ns: u64) {
        self.ranks[rank].step = self.ranks[rank].step.wrapping_add(1);
        self.set(at_ns, Happening::Steps(rank, self.ranks[rank].step));
    }

    /// The thread goes on from where it is.
    pub(super) fn go_on(&mut self, rank: usize) {
        if self.scenario.detail == Detail::Bursts {
            return self.go_on_in_bursts(rank);
        }
        let kind = self.members[self.ranks[rank].member].kind;
        loop {
            let (at, n) = self.ranks[rank].at;
            let Some(kernels) = kind.kernels.get(at) else {
                if self.ranks[rank].pending > 0 {
                    self.ranks[rank].thread = Thread::ForDevice;
                    return;
                }
                return self.end_request(rank);
            };
            if n == kernels.count {
                if kernels.wait && self.ranks[rank].pending > 0 {
                    self.ranks[rank].thread = Thread::ForDevice;
                    return;
                }
                self.ranks[rank].at = (at + 1, 0);
                continue;
            }
            if !self.launch(rank) {
                return;
            }
            self.ranks[rank].at = (at, n + 1);
            let m = &mut self.members[self.ranks[rank].member];
            let launch_ns = kernels.launch.draw(&mut m.work);
            if launch_ns > 0 {
                return self.compute(rank, launch_ns);
            }
        }
    }

    pub(super) fn end_request(&mut self, rank: usize) {
        self.ranks[rank].thread = Thread::Rests;
        let member = self.ranks[rank].member;
        self.members[member].serving -= 1;
        if self.members[member].serving > 0 {
            return;
        }
        let Some(came_ns) = self.members[member].requests.pop_front() else { return };
        let placed = self.members[member].placed;
        self.outcome.programs[placed.kind].requests.add(self.now_ns - came_ns);
        self.span(Track::Requests(placed.kind, placed.number), "request", came_ns, self.now_ns);
        if self.is_closed_loop(member) {
            self.set_arrival(member);
        } else if !self.members[member].requests.is_empty() {
            self.serve(member);
        }
    }

    /// Gives the device the next command. False: the thread waits, or is elsewhere.
    fn launch(&mut self, rank: usize) -> bool {
        let at = self.ranks[rank].at.0;
        let member = self.ranks[rank].member;
        let kind = self.members[member].kind;
        let ns = match self.ranks[rank].next {
            Some(ns) => ns,
            None => {
                let copy_rate = self.scenario.devices[self.machine.kind].copy_rate;
                let ns = kind.kernels[at].times(copy_rate).draw(&mut self.members[member].work).max(1);
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
        if !gate.is_open() {
            let ask =
                AtGate { word: gate.bits(), can_prequeue: true, loads: false, has_gates, budgeted: budget_us != 0 };
            prequeues = at_gate(&ask, || self.ranks[rank].pending);
            if !prequeues {
                self.wait_at_gate(rank);
                return false;
            }
        }
        let estimate = self.ranks[rank].estimates[at].expected_ns();
        if !budget.is_none() && !self.has_room(rank, &budget, estimate.unwrap_or(UNKNOWN_NS)) {
            return false;
        }
        self.submit(rank, Launch { ns, estimate, budget_us, budget_commands, has_gates, prequeues });
        true
    }

    /// Announces a launch of a group that is idle, or counts as idle, as far as the daemon knows.
    pub(super) fn announce_if_idle(&mut self, rank: usize) {
        let gate = self.segments[rank].gate.load();
        if gate.is_detached() {
            return;
        }
        let gap_ns = self.now_ns.saturating_sub(self.ranks[rank].idle_since_ns);
        if self.ranks[rank].grace_since_ns != 0 {
            let r = &mut self.ranks[rank];
            r.grace_since_ns = 0;
            r.grace_ns = next_grace_ns(r.grace_ns, gap_ns);
        }
        if gate.must_announce() {
            let r = &mut self.ranks[rank];
            if r.idle_since_ns != 0 {
                r.grace_ns = next_grace_ns(r.grace_ns, gap_ns);
            }
            self.announce(rank);
        } else if gate.is_stalled() && self.segments[rank].gate.go_on() {
            self.tell(rank);
        }
    }

    /// The group wants the device from now on.
    pub(super) fn announce(&mut self, rank: usize) {
        let segment = &self.segments[rank];
        segment.gate.announce();
        segment.ready_at_ns.store(self.now_ns, Relaxed);
        segment.state.store(state::READY, Relaxed);
        self.ranks[rank].ready_since_ns = self.now_ns;
        self.ranks[rank].burst_ns = 0;
        self.tell(rank);
    }

    /// The daemon reads the words in a moment.
    fn tell(&mut self, rank: usize) {
        if self.daemon.is_some() {
            self.set(self.now_ns + self.scenario.daemon.latency.0, Happening::Heard(rank));
        }
    }

    pub(super) fn wait_at_gate(&mut self, rank: usize) {
        self.ranks[rank].thread = Thread::AtGate;
        self.ranks[rank].waits_since_ns = self.now_ns;
        self.segments[rank].begin_wait(self.now_ns);
        self.waiting.push(rank);
        self.follow(rank);
    }

    /// The gate is open: the thread goes on.
    pub(super) fn leave_gate(&mut self, rank: usize) {
        let (since_ns, member, device) =
            (self.ranks[rank].waits_since_ns, self.ranks[rank].member, self.ranks[rank].device);
        self.segments[rank].end_wait(since_ns);
        let placed = self.members[member].placed;
        let track = Track::Waits(placed.kind, placed.number, self.machine.first + device);
        self.span(track, "waits at its gate", since_ns, self.now_ns);
        let segment = &self.segments[rank];
        if segment.state.load(Relaxed) == state::DRAINED {
            segment.state.store(state::READY, Relaxed);
        }
        self.ranks[rank].running_since_ns = self.now_ns;
        self.compute(rank, 0);
    }

    /// True if a command fits into the budget. Else the thread waits for room.
    fn has_room(&mut self, rank: usize, budget: &Budget, estimate_ns: u64) -> bool {
        let r = &self.ranks[rank];
        let in_flight = InFlight { commands: r.fences.len() as u64, ns: r.issued_ns.saturating_sub(r.done.issued_ns) };
        let first_ns = r.fences.front().map_or(0, |fence| fence.issued_ns.saturating_sub(r.done.issued_ns));
        let consumed_ns = self.now_ns.saturating_sub(r.running_since_ns).min(first_ns);
        if r.pending == 0 || fits(budget, &in_flight, estimate_ns, || consumed_ns) {
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
        let room_ns = r.running_since_ns + over_ns;
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
        let is_first_prequeued = prequeues && r.prequeued != Some(grants);
        if prequeues {
            r.prequeued = Some(grants);
        }
        if budget_us != 0 && estimate.is_some() {
            if let Some(length) = r.lengths(estimate_ns) {
                segment.lengths.store(length, Relaxed);
            }
            if estimate_ns > BEHIND_NS {
                segment.limited.fetch_add(1, Relaxed);
            }
        }
        r.issued += 1;
        let ask = Place {
            seq: r.issued,
            estimate_ns: estimate,
            issued_ns: r.issued_ns,
            fenced: r.fenced.seq,
            fenced_ns: r.fenced.issued_ns,
            gated_ns: r.gated_ns,
            before: r.issued - 1,
            budget_us,
            fence_commands: fence_commands(budget_commands, batch),
            gate_due: is_first_prequeued,
            has_gates,
            forced,
            in_order: true,
            calls_back: false,
            blocking: false,
        };
        let placed = place(&ask, || 0, || true);
        r.issued_ns += estimate_ns;
        if placed.device_gate {
            r.gated_ns = ask.issued_ns;
        }
        if placed.fence {
            r.fenced = Fence { seq: r.issued, issued_ns: r.issued_ns };
            r.fences.push_back(r.fenced);
        }
        if r.pending == 0 {
            r.running_since_ns = self.now_ns;
        }
        r.pending += 1;
        r.burst_ns += estimate_ns;
        r.next = None;
        let command = Command { rank, seq: r.issued, kind: r.at.0 as u32, ns };
        let (device, seat) = (r.device, r.seat);
        segment.count_issue();
        self.play_device(device);
        self.devices[device].submit(seat, command, placed.device_gate, &self.segments, &mut self.done);
    }

    /// The device has completed a command.
    pub(super) fn complete(&mut self, done: Done) {
        let Done { at_ns, command: Command { rank, seq, kind, ns }, left } = done;
        if self.ranks[rank].thread == Thread::Gone {
            return;
        }
        if self.scenario.detail == Detail::Bursts {
            return self.complete_burst(at_ns, rank, left);
        }
        let gate = self.segments[rank].gate.load();
        let segment = &self.segments[rank];
        let r = &mut self.ranks[rank];
        r.pending -= 1;
        r.device_ns += ns;
        segment.count_completion();
        let cell = &mut r.estimates[kind as usize];
        *cell = cell.sample(ns, true);
        let told_us = told_ns(*cell, true, gate.is_contended()) / 1_000;
        if told_us > segment.longest_us.load(Relaxed) {
            segment.longest_us.store(told_us, Relaxed);
        }
        r.reached(seq);
        let (member, device) = (r.member, r.device);
        let began_ns = r.running_since_ns.max(at_ns.saturating_sub(ns));
        r.running_since_ns = at_ns;
        let placed = self.members[member].placed;
        self.span(Track::Device(self.machine.first + device, placed.kind, placed.number), "runs", began_ns, at_ns);
        let is_complete = self.ranks[rank].pending == 0;
        if is_complete {
            self.ranks[rank].idle_since_ns = at_ns;
        }
        match self.ranks[rank].thread {
            Thread::ForRoom => self.go_on(rank),
            Thread::ForDevice if is_complete => self.go_on(rank),
            _ => (),
        }
        if self.ranks[rank].pending == 0 {
            self.follow(rank);
        }
    }

    /// Follows what a group does: tells that it is drained, begins its grace time.
    pub(super) fn follow(&mut self, rank: usize) {
        let segment = &self.segments[rank];
        let gate: Gate = segment.gate.load();
        if gate.is_detached() {
            return;
        }
        let activity = self.ranks[rank].activity(gate.bits(), segment.state.load(Relaxed), self.now_ns);
        match activity.step() {
            Step::TellDrained => {
                if segment.state.swap(state::DRAINED, Relaxed) != state::DRAINED {
                    self.tell(rank);
                }
            }
            Step::BeginGrace => {
                self.ranks[rank].grace_since_ns = self.now_ns.max(1);
                self.set(self.now_ns + self.ranks[rank].grace_ns, Happening::GraceEnds(rank));
            }
            Step::Nothing => (),
        }
    }

    /// The group is idle if nothing came in its grace time.
    pub(super) fn end_grace(&mut self, rank: usize) {
        let segment = &self.segments[rank];
        let gate = segment.gate.load();
        if self.ranks[rank].thread == Thread::Gone || gate.is_detached() || self.ranks[rank].pending > 0 {
            return;
        }
        let activity = self.ranks[rank].activity(gate.bits(), segment.state.load(Relaxed), self.now_ns);
        let Activity::Grace { left_ns: Some(left_ns) } = activity else { return };
        if left_ns > 0 {
            return;
        }
        let r = &mut self.ranks[rank];
        r.grace_since_ns = 0;
        segment.gate.call_idle();
        let burst_ns = r.idle_since_ns.saturating_sub(r.ready_since_ns);
        segment.burst_us.store(burst_ns / 1_000, Relaxed);
        segment.burst_device_us.store((r.burst_ns / 1_000) as u32, Relaxed);
        segment.bursts.fetch_add(1, Relaxed);
        segment.state.store(state::IDLE, Relaxed);
        self.tell(rank);
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
