//! Threads go on, and what follows from gates that have changed.

use crate::scenario::Detail;

use super::daemon::Told;
use super::device::Done;
use super::rank::Thread;
use super::state::{Happening, Node};

impl Node<'_> {
    /// The thread goes on from where it is.
    pub(super) fn go_on(&mut self, rank: usize) {
        match self.scenario.detail {
            Detail::Kernels => self.go_on_in_kernels(rank),
            Detail::Bursts => self.go_on_in_bursts(rank),
        }
    }

    fn complete(&mut self, done: Done) {
        if self.ranks[done.command.rank].thread == Thread::Gone {
            return;
        }
        match self.scenario.detail {
            Detail::Kernels => self.complete_kernel(done),
            Detail::Bursts => self.complete_burst(done.at_ns, done.command.rank, done.left),
        }
    }

    pub(super) fn take_completions(&mut self) {
        while !self.done.is_empty() {
            for done in std::mem::take(&mut self.done) {
                self.complete(done);
            }
        }
    }

    /// Follows what a decision has changed: threads at gates that are open now go on, devices look at their gates again, messages go to
    /// programs.
    pub(super) fn after_gates(&mut self) {
        for at in 0..self.devices.len() {
            self.play_device(at);
            self.devices[at].look(&self.segments, &mut self.done);
        }
        let Some(daemon) = &mut self.daemon else { return };
        let told = std::mem::take(&mut daemon.told);
        let latency_ns = self.scenario.daemon.latency.0;
        for (rank, told) in told {
            let happening = match told {
                Told::Timeslice(us) => Happening::Slice(rank, us),
                Told::Interrupt(on) => Happening::Interrupt(rank, on),
                Told::Page { owner, page, epoch } => Happening::Page { rank, owner, page, epoch },
            };
            self.set(self.now_ns + latency_ns, happening);
        }
        self.wake_open();
    }

    /// Lets threads go on whose gates are open.
    pub(super) fn wake_open(&mut self) {
        let mut at = 0;
        while let Some(&rank) = self.waiting.get(at) {
            if self.segments[rank].gate.load().is_open() {
                self.waiting.swap_remove(at);
                self.leave_gate(rank);
            } else {
                at += 1;
            }
        }
    }
}
