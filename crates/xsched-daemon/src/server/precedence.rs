//! Precedence of the loop among the threads of the machine.
//!
//! Until the loop has noticed that a program wants its device, less urgent ones keep it. So where the daemon may, its loop runs before all
//! ordinary threads – as long as it sleeps in between. A loop that does not sleep, whatever keeps it busy, is an ordinary thread until it
//! has slept again: it keeps no program off a processor for longer than [`BUSY_MOST_NS`].

use xsched_proto::wakeup::{run_first, run_promptly, run_with_others};

use crate::tuning::{BUSY_MOST_NS, SLEPT_NS};

/// Precedence of the calling thread.
pub(crate) struct Precedence {
    /// True if the process may have precedence.
    may: bool,
    has: bool,
    slept_at_ns: u64,
}

impl Precedence {
    /// Takes precedence if it can be had.
    pub(crate) fn new(now_ns: u64) -> Precedence {
        run_promptly();
        let may = run_first();
        Precedence { may, has: may, slept_at_ns: now_ns }
    }

    /// Notes that the loop has waited for events between two times.
    pub(crate) fn waited(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns.saturating_sub(from_ns) < SLEPT_NS {
            return;
        }
        self.slept_at_ns = to_ns;
        if self.may && !self.has {
            self.has = run_first();
            // A refusal means that a service manager had given the precedence.
            self.may = self.has;
        }
    }

    /// Notes that the loop has worked until now.
    pub(crate) fn worked(&mut self, now_ns: u64) {
        if self.has && now_ns.saturating_sub(self.slept_at_ns) >= BUSY_MOST_NS {
            run_with_others();
            self.has = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_first() -> bool {
        // SAFETY: asks about the calling thread only.
        unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_RR }
    }

    #[test]
    fn a_loop_goes_first_while_it_sleeps_in_between() {
        // Tested in a thread of its own, which the harness does not use for another test.
        let looked = std::thread::spawn(|| {
            let may = run_first();
            run_with_others();
            let mut precedence = Precedence::new(0);
            let mut seen = vec![is_first()];
            precedence.worked(BUSY_MOST_NS - 1);
            seen.push(is_first());
            precedence.worked(BUSY_MOST_NS);
            seen.push(is_first());
            precedence.waited(BUSY_MOST_NS, BUSY_MOST_NS + SLEPT_NS - 1);
            seen.push(is_first());
            precedence.waited(BUSY_MOST_NS, BUSY_MOST_NS + SLEPT_NS);
            seen.push(is_first());
            precedence.worked(2 * BUSY_MOST_NS + SLEPT_NS - 1);
            seen.push(is_first());
            (may, seen)
        });
        let (may, seen) = looked.join().unwrap();
        assert_eq!(seen, [may, may, false, false, may, may]);
    }
}
