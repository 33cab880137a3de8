//! The words that a program shares with the daemon: it announces itself, waits at its gate, is drained, and is idle after its grace time. The
//! models of `xsched-flow` decide, as in the preload library.

use std::sync::atomic::Ordering::Relaxed;

use xsched_flow::activity::{Activity, Step, next_grace_ns};
use xsched_flow::gaps::Terms;
use xsched_proto::gate::Gate;
use xsched_proto::segment::state;

use crate::outcome::Track;

use super::rank::Thread;
use super::state::{Happening, Node};

impl Node<'_> {
    /// Announces a launch of a group that is idle, or counts as idle, as far as the daemon knows.
    pub(super) fn announce_if_idle(&mut self, rank: usize) {
        let gate = self.segments[rank].gate.load();
        if gate.is_detached() {
            return;
        }
        let now_ns = self.now_ns;
        let spell = &mut self.ranks[rank].spell;
        let gap_ns = now_ns.saturating_sub(spell.idle_since_ns);
        let ends_request = gap_ns >= spell.grace_ns;
        let was_in_grace = std::mem::take(&mut spell.grace_since_ns) != 0;
        if was_in_grace || gate.must_announce() && spell.idle_since_ns != 0 {
            spell.grace_ns = next_grace_ns(spell.grace_ns, gap_ns);
            spell.gap = Some((gap_ns, now_ns, was_in_grace));
        }
        if gate.must_announce() {
            self.announce(rank);
        } else if was_in_grace && ends_request {
            // The group has kept the device for longer.
            self.end_burst(rank);
            self.begin_burst(rank);
            self.tell(rank);
        } else if gate.is_stalled() && self.segments[rank].gate.go_on() {
            self.tell(rank);
        }
    }

    /// The group wants the device from now on.
    pub(super) fn announce(&mut self, rank: usize) {
        let segment = &self.segments[rank];
        segment.gate.announce();
        segment.state.store(state::READY, Relaxed);
        self.begin_burst(rank);
        self.tell(rank);
    }

    fn begin_burst(&mut self, rank: usize) {
        self.segments[rank].ready_at_ns.store(self.now_ns, Relaxed);
        self.ranks[rank].spell.ready_since_ns = self.now_ns;
        self.ranks[rank].spell.burst_ns = 0;
    }

    fn end_burst(&mut self, rank: usize) {
        let (segment, spell) = (&self.segments[rank], &self.ranks[rank].spell);
        let burst_ns = spell.idle_since_ns.saturating_sub(spell.ready_since_ns);
        segment.burst_us.store(burst_ns / 1_000, Relaxed);
        segment.burst_device_us.store((spell.burst_ns / 1_000) as u32, Relaxed);
        segment.burst_launches.store(spell.launches as u32, Relaxed);
        segment.bursts.fetch_add(1, Relaxed);
    }

    pub(super) fn wait_at_gate(&mut self, rank: usize) {
        self.ranks[rank].thread = Thread::AtGate;
        self.ranks[rank].spell.waits_since_ns = self.now_ns;
        self.segments[rank].begin_wait(self.now_ns);
        self.waiting.push(rank);
        self.follow(rank);
    }

    /// The gate is open: the thread goes on.
    pub(super) fn leave_gate(&mut self, rank: usize) {
        let (since_ns, member, device) =
            (self.ranks[rank].spell.waits_since_ns, self.ranks[rank].member, self.ranks[rank].device);
        self.segments[rank].end_wait(since_ns);
        let placed = self.members[member].placed;
        let track = Track::Waits(placed.kind, placed.number, self.machine.first + device);
        self.span(track, "waits at its gate", since_ns, self.now_ns);
        let segment = &self.segments[rank];
        if segment.state.load(Relaxed) == state::DRAINED {
            segment.state.store(state::READY, Relaxed);
        }
        self.ranks[rank].flight.running_since_ns = self.now_ns;
        self.compute(rank, 0);
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
                let terms = Terms {
                    hold_ns: u64::from(segment.hold_us.load(Relaxed)) * 1_000,
                    slowdown_percent: segment.slowdown_percent.load(Relaxed),
                };
                let r = &mut self.ranks[rank];
                r.spell.grace_since_ns = self.now_ns.max(1);
                r.spell.launches = segment.launches();
                r.begin_gap(self.now_ns, terms);
                let ends_ns = r.spell.ends_ns();
                self.set(self.now_ns + ends_ns, Happening::GraceEnds(rank));
            }
            Step::Nothing => (),
        }
    }

    /// The group is idle if nothing came in its grace time.
    pub(super) fn end_grace(&mut self, rank: usize) {
        let segment = &self.segments[rank];
        let gate = segment.gate.load();
        if self.ranks[rank].thread == Thread::Gone || gate.is_detached() || self.ranks[rank].flight.pending > 0 {
            return;
        }
        let activity = self.ranks[rank].activity(gate.bits(), segment.state.load(Relaxed), self.now_ns);
        let Activity::Grace { left_ns: Some(left_ns) } = activity else { return };
        if left_ns > 0 {
            return;
        }
        segment.gate.call_idle();
        self.ranks[rank].spell.grace_since_ns = 0;
        self.end_burst(rank);
        self.segments[rank].state.store(state::IDLE, Relaxed);
        self.tell(rank);
    }
}
