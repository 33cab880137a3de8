//! Journal of a machine's daemon: its inputs, with the words of all programs at that time, and the gates that it decided. Another host of
//! the same decisions can replay it, and must come to the same gates.

use std::sync::atomic::Ordering::Relaxed;

use xsched_proto::segment::GroupSlot;

/// An input of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time, in ns.
    pub at_ns: u64,
    /// The input.
    pub event: Event,
    /// Words of the programs before it, in the order in which they came.
    pub words: Vec<Words>,
    /// Gates of the programs after it.
    pub gates: Vec<Gate>,
}

/// Kinds of inputs. Programs are numbered in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program with one group of a priority came to a device.
    Came {
        /// Priority that it asked for.
        priority: Option<i32>,
        /// Device key.
        device: String,
    },
    /// A program has gone.
    Left(usize),
    /// The words of a program are read.
    Words(usize),
    /// Decisions are due.
    Decide,
    /// A time that the policy wanted has come.
    Policy,
    /// Time to look at the progress of programs.
    LookTime,
    /// The progress of a program is looked at.
    Look(usize),
    /// The page by which programs see that the daemon lives is due.
    Beat,
}

/// Words that a program stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Launches so far.
    pub launches: u64,
    state: u32,
    stalled: bool,
    ready_at_ns: u64,
    completed: u64,
    longest_us: u64,
    lengths: u32,
    bursts: u64,
    burst_us: u64,
    burst_device_us: u32,
    limited: u32,
    waiting: u32,
}

/// A gate, as a program sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// True if it is open.
    pub granted: bool,
    /// In-flight budget, in µs.
    pub budget_us: u32,
    /// Times that it was opened.
    pub grants: u32,
}

impl Words {
    /// The words of a program.
    pub fn of(slot: &GroupSlot, launches: u64) -> Words {
        Words {
            launches,
            state: slot.state.load(Relaxed),
            stalled: slot.gate.load().is_stalled(),
            ready_at_ns: slot.ready_at_ns.load(Relaxed),
            completed: slot.completed.load(Relaxed),
            longest_us: slot.longest_us.load(Relaxed),
            lengths: slot.lengths.load(Relaxed),
            bursts: slot.bursts.load(Relaxed),
            burst_us: slot.burst_us.load(Relaxed),
            burst_device_us: slot.burst_device_us.load(Relaxed),
            limited: slot.limited.load(Relaxed),
            waiting: slot.waiting.load(Relaxed),
        }
    }

    /// Stores them for a replay, whose clock shows `offset_ns` more. Launches are those of queues that are gone.
    pub fn store(&self, slot: &GroupSlot, offset_ns: u64) {
        slot.launches_retired.store(self.launches, Relaxed);
        if !self.stalled {
            slot.gate.go_on();
        }
        slot.ready_at_ns.store(self.ready_at_ns + offset_ns, Relaxed);
        slot.completed.store(self.completed, Relaxed);
        slot.longest_us.store(self.longest_us, Relaxed);
        slot.lengths.store(self.lengths, Relaxed);
        slot.burst_us.store(self.burst_us, Relaxed);
        slot.burst_device_us.store(self.burst_device_us, Relaxed);
        slot.limited.store(self.limited, Relaxed);
        slot.waiting.store(self.waiting, Relaxed);
        slot.bursts.store(self.bursts, Relaxed);
        slot.state.store(self.state, Relaxed);
    }
}

impl Gate {
    /// The gate of a program.
    pub fn of(slot: &GroupSlot) -> Gate {
        Gate {
            granted: slot.gate.load().is_granted(),
            budget_us: slot.budget_us.load(Relaxed),
            grants: slot.grants.load(Relaxed),
        }
    }
}
