//! Reasons for which memory stays on the device, counted for the daemon and for `xsched ps`.

use std::sync::atomic::AtomicU64;

use xsched_proto::account::MemorySlot;

use super::super::memory::moved;
use super::movable::Movable;

/// Reason for which memory stays on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// Other processes may use it.
    Shared,
    Multicast,
    /// Other hardware may use it.
    Registered,
    /// Two parts of a mapping have an access each.
    Parts,
}

impl Why {
    /// The reason in words, as `XSCHED_STATS` has it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Why::Shared => "shared with other processes",
            Why::Multicast => "multicast",
            Why::Registered => "registered for direct access by other hardware",
            Why::Parts => "access to parts of a mapping",
        }
    }

    /// Word that counts such memory; `None` where the account counts it elsewhere, or where moves of the rest are as good as all.
    fn word(self) -> Option<fn(&MemorySlot) -> &AtomicU64> {
        match self {
            Why::Multicast => Some(|words| &words.multicast_bytes),
            Why::Registered => Some(|words| &words.registered_bytes),
            Why::Shared | Why::Parts => None,
        }
    }
}

/// Memory that stays on the device, counted by its reason until it is dropped.
pub(super) struct Stay {
    pub(super) why: Why,
    slot: Option<u16>,
    bytes: u64,
}

impl Stay {
    pub(super) fn new(movable: &Movable, why: Why, bytes: u64) -> Stay {
        let slot = movable.slot();
        if let (Some(slot), Some(word)) = (slot, why.word()) {
            moved::stays(slot, word, bytes);
        }
        Stay { why, slot, bytes }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let (Some(slot), Some(word)) = (self.slot, self.why.word()) {
            moved::stays_no_more(slot, word, self.bytes);
        }
    }
}
