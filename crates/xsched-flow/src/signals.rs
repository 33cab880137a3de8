//! The rule by which signals that interrupt a thread's wait end it, and let its command past a closed gate or a full budget.
//!
//! The handler has run by then, and nothing tells which signal it was. If the handler set a flag, or an interpreter noted the signal to run
//! the program's own handler later, the thread has to come back from its launch; the tick of a profiler or timer needs nothing. Ticks
//! follow one another closely, while signals from a user or another program do not. The two are told apart by how long the thread *waited*
//! in between, since the gate keeps a signal from its purpose only while the thread waits.

use serde::{Deserialize, Serialize};

use crate::tuning::{SIGNAL_APART_NS, SIGNAL_LATE_NS, SIGNAL_LATEST_NS};

/// Signals of a thread so far, measured in the time that the thread has waited. All zero = no signal so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// Time between two signals of a row that may end a wait, in ns; 0 = no signal so far.
    spacing_ns: u64,
    /// Time waited since the last signal, in ns.
    since_ns: u64,
    /// Time waited since the last signal that ended a wait, in ns.
    since_pass_ns: u64,
}

impl Signals {
    /// Adds time for which the thread waited, in ns.
    #[must_use]
    pub fn waited(self, ns: u64) -> Signals {
        Signals {
            since_ns: self.since_ns.saturating_add(ns),
            since_pass_ns: self.since_pass_ns.saturating_add(ns),
            ..self
        }
    }

    /// Records a signal that interrupts the wait. Returns whether it ends the wait: a single signal does, and in a row of signals one does
    /// now and then, each after twice the waiting time of the one before. `runs_handlers`: an interpreter runs the program's handlers on
    /// this thread once it comes back.
    #[must_use]
    pub fn interrupted(self, runs_handlers: bool) -> (Signals, bool) {
        let apart = self.spacing_ns == 0 || self.since_ns >= SIGNAL_APART_NS;
        let ends = apart || self.since_pass_ns >= self.spacing_ns;
        let longest_ns = if runs_handlers { SIGNAL_LATE_NS } else { SIGNAL_LATEST_NS };
        let spacing_ns = match (apart, ends) {
            (true, _) => SIGNAL_APART_NS,
            (false, true) => self.spacing_ns.saturating_mul(2),
            (false, false) => self.spacing_ns,
        };
        let since_pass_ns = if ends { 0 } else { self.since_pass_ns };
        (Signals { spacing_ns: spacing_ns.min(longest_ns), since_ns: 0, since_pass_ns }, ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulates ticks of a thread that waits all the time. Returns the ms of waiting after which a tick ended a wait.
    fn passes(ticks: u64, apart_ms: u64, runs_handlers: bool) -> Vec<u64> {
        let mut signals = Signals::default();
        let mut passes = Vec::new();
        for tick in 0..ticks {
            let ends;
            (signals, ends) = signals.waited(if tick == 0 { 0 } else { apart_ms * MS }).interrupted(runs_handlers);
            if ends {
                passes.push(tick * apart_ms);
            }
        }
        passes
    }

    #[test]
    fn a_signal_by_itself_ends_the_wait() {
        assert_eq!(passes(5, 50, false), [0, 50, 100, 150, 200]);
        assert_eq!(passes(3, 10_000, false), [0, 10_000, 20_000]);
    }

    #[test]
    fn of_ticks_ever_fewer_end_a_wait() {
        for apart_ms in [2, 10] {
            assert_eq!(
                passes(6_000 / apart_ms, apart_ms, false),
                [0, 50, 150, 350, 750, 1_550, 2_550, 3_550, 4_550, 5_550]
            );
        }
    }

    #[test]
    fn the_handlers_of_an_interpreter_run_within_a_tenth_of_a_second() {
        assert_eq!(passes(250, 2, true), [0, 50, 150, 250, 350, 450]);
        // The thread may have begun to run the handlers only now.
        let mut signals = Signals::default();
        for _ in 0..3_000 {
            signals = signals.waited(2 * MS).interrupted(false).0;
        }
        let ends = (0..50).map(|_| {
            let ends;
            (signals, ends) = signals.waited(2 * MS).interrupted(true);
            ends
        });
        assert!(ends.filter(|ends| *ends).count() >= 1);
    }

    #[test]
    fn after_a_pause_a_signal_counts_by_itself_again() {
        let mut signals = Signals::default();
        for _ in 0..3_000 {
            signals = signals.waited(2 * MS).interrupted(false).0;
        }
        let (signals, ends) = signals.waited(SIGNAL_APART_NS).interrupted(false);
        assert!(ends);
        assert!(signals.waited(SIGNAL_APART_NS).interrupted(false).1);
    }

    #[test]
    fn ticks_between_short_waits_are_one_row() {
        // Each request of an urgent program waits for 2 ms, with any time in between.
        let mut signals = Signals::default();
        let mut passed = 0;
        for _ in 0..1_000 {
            let ends;
            (signals, ends) = signals.waited(MS).interrupted(false);
            signals = signals.waited(MS);
            passed += u32::from(ends);
        }
        assert_eq!(passed, 6, "in 2 s of waiting");
    }
}
