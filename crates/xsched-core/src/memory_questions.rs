//! Questions for device memory that threads have put to the daemon, and its answers.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xsched_proto::account::{Amount, MEMORY_SLOTS, UNLIMITED};
use xsched_proto::memory::{Hardware, Memory, Sleepers};

use crate::clock::now_ns;

/// The daemon's answer to a question for memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryAnswer {
    /// The allocation may be tried again: there is room for it now.
    pub granted: bool,
    /// The host's memory may take the place of what is refused: other programs have the room.
    pub on_host: bool,
    /// Holders of the memory, in one line, with the limit that was met, if one was; none = no daemon has answered.
    pub why: Option<String>,
}

/// Need for room on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Room that the driver lacked for the memory, in bytes; 0 = it was not asked.
    pub lacking: u64,
    /// Memory that has left the device is to come back.
    pub returns: bool,
    /// The memory is a part without which the process goes on: there is room for it now, or there is none.
    pub part: bool,
}

/// Stage of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// On its way to the daemon.
    Asked,
    /// The daemon makes room.
    Waits,
    /// The daemon has answered.
    Answered(MemoryAnswer),
}

/// Values of [`DeviceMemory::daemon`]; 0 = the daemon is sought.
pub(crate) mod daemon {
    /// A daemon is attached.
    pub(crate) const ATTACHED: u32 = 1;
    /// There is none.
    pub(crate) const NONE: u32 = 2;
}

/// Questions to the daemon, and its answers.
#[derive(Default)]
pub(crate) struct DeviceMemory {
    /// Limit that the program was started with.
    pub(crate) limit: Option<Amount>,
    pub(crate) daemon: AtomicU32,
    /// Bits of the slots whose limits the daemon has set.
    pub(crate) known: AtomicU32,
    /// Times from which on a measurement of each slot may be asked for, in ns.
    pub(crate) measure_from_ns: [AtomicU64; MEMORY_SLOTS],
    /// Time from which on a refusal is told again, in ns.
    pub(crate) refused_from_ns: AtomicU64,
    /// Number of the last question.
    pub(crate) asked: AtomicU32,
    /// Changes with each of the words above and with each answer. A futex.
    pub(crate) changes: AtomicU32,
    /// Questions that threads wait on, with their answers.
    pub(crate) questions: Mutex<BTreeMap<u32, Question>>,
}

const _: () = assert!(MEMORY_SLOTS <= 32);

impl DeviceMemory {
    pub(crate) fn questions(&self) -> MutexGuard<'_, BTreeMap<u32, Question>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Release);
        Hardware::wake(&self.changes, Sleepers::Own);
    }

    /// Sleeps until `done` or for `most_ns` at most.
    pub(crate) fn wait_until(&self, most_ns: u64, done: impl Fn() -> bool) {
        let deadline = now_ns() + most_ns;
        loop {
            let before = self.changes.load(Acquire);
            let left = deadline.saturating_sub(now_ns());
            if done() || left == 0 {
                return;
            }
            let _ = Hardware::sleep(&self.changes, before, Sleepers::Own, left);
        }
    }

    /// Reports whether a daemon is attached.
    pub(crate) fn has_daemon(&self) -> bool {
        self.daemon.load(Acquire) == daemon::ATTACHED
    }

    /// Limit of the process where no daemon knows better.
    pub(crate) fn own_allowance(&self, capacity_bytes: u64) -> u64 {
        self.limit.map_or(UNLIMITED, |limit| limit.of(capacity_bytes))
    }

    pub(crate) fn is_known(&self, slot: u16) -> bool {
        self.known.load(Acquire) & 1 << slot != 0
    }
}
