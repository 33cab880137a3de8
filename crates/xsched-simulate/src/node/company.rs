//! Programs of one pool beside an urgent one: a gate that yields lets commands pass while the urgent program's queue keeps up. The models of
//! `xsched-flow` decide, as in the preload library.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use xsched_flow::admission::Place;
use xsched_flow::backlog::{Behind, Yielding};
use xsched_flow::tuning::{FEW_FENCES, UNKNOWN_NS};

use crate::memory::Segment;

use super::rank::Thread;
use super::state::Node;

/// A program beside others of its pool.
#[derive(Default)]
pub(super) struct Company {
    /// Programs that tell how they keep up, by the places of their pages.
    pages: BTreeMap<u8, usize>,
    newest: u32,
    state: Yielding,
    /// Number of the last command of its own that others must wait for, and the expected time up to it in ns.
    wanted: u64,
    wanted_ns: u64,
}

impl Company {
    /// Takes in that a program tells how it keeps up: another one, or this one from now on.
    pub(super) fn learn(&mut self, rank: usize, owner: usize, page: u8, epoch: u32, segments: &[Segment]) {
        self.pages.insert(page, owner);
        self.newest = epoch;
        if owner == rank {
            segments[rank].publishes.store(1, Relaxed);
        }
    }
}

impl Node<'_> {
    /// True: all programs that a group yields to are known and keep up.
    fn is_clear(&self, rank: usize) -> bool {
        let (segment, company) = (&self.segments[rank], &self.ranks[rank].company);
        if (company.newest.wrapping_sub(segment.yields_epoch.load(Relaxed)) as i32) < 0 {
            return false;
        }
        let pages = segment.yields_to.load(Relaxed);
        let keeps_up = |page: u8| {
            let owner = company.pages.get(&page).map(|owner| &self.ranks[*owner]);
            owner.is_some_and(|owner| owner.thread == Thread::Gone || owner.flight.done.seq >= owner.company.wanted)
        };
        (0..u32::BITS as u8).filter(|page| pages & 1 << page != 0).all(keeps_up)
    }

    /// At a gate that yields: true if the next command may pass. Else the thread looks again in a moment.
    pub(super) fn passes_yielding(&mut self, rank: usize) -> bool {
        let clear = self.is_clear(rank);
        let (state, passes) = self.ranks[rank].company.state.look(self.now_ns, clear);
        self.ranks[rank].company.state = state;
        if passes {
            self.stop_yielding(rank);
            return true;
        }
        if self.ranks[rank].thread != Thread::Yields {
            self.ranks[rank].thread = Thread::Yields;
            self.ranks[rank].spell.waits_since_ns = self.now_ns;
            self.segments[rank].begin_wait(self.now_ns);
        }
        self.follow(rank);
        self.set_step(rank, self.now_ns + state.look_in_ns(self.now_ns).max(1));
        false
    }

    /// The thread waits for other programs no more.
    pub(super) fn stop_yielding(&mut self, rank: usize) {
        if self.ranks[rank].thread == Thread::Yields {
            self.ranks[rank].thread = Thread::Computes;
            self.segments[rank].end_wait(self.ranks[rank].spell.waits_since_ns);
        }
    }

    /// Tells, before a command, whether the device will be behind. True: a fence follows it.
    pub(super) fn publish(&mut self, rank: usize, ask: &Place) -> bool {
        let segment = &self.segments[rank];
        if segment.publishes.load(Relaxed) == 0 || !segment.gate.load().tells() {
            return false;
        }
        let r = &mut self.ranks[rank];
        let issued_ns = ask.issued_ns + ask.estimate_ns.unwrap_or(UNKNOWN_NS);
        let first_ns =
            r.flight.fences.front().map_or(0, |fence| fence.issued_ns.saturating_sub(r.flight.done.issued_ns));
        let consumed_ns = self.now_ns.saturating_sub(r.flight.running_since_ns).min(first_ns);
        let behind = Behind {
            in_flight_ns: issued_ns.saturating_sub(r.flight.done.issued_ns),
            unfenced_ns: issued_ns.saturating_sub(ask.fenced_ns),
            unwanted_ns: issued_ns.saturating_sub(r.company.wanted_ns),
            few_fences: r.flight.fences.len() < FEW_FENCES,
            known: ask.estimate_ns.is_some(),
            blocking: false,
            copies: false,
        };
        let published = behind.published(|| consumed_ns);
        if published.wanted {
            (r.company.wanted, r.company.wanted_ns) = (ask.seq, issued_ns);
        }
        published.fence
    }
}
