//! Words of the process's memory that the daemon shares.

use std::sync::atomic::{AtomicU64, Ordering::*};

use xsched_proto::account::{MemorySlot, UNLIMITED};

use crate::process;

/// Part of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Plain,
    /// Plain memory that the library moves by itself.
    Managed,
    Pooled,
    Virtual,
    Graph,
    Array,
    Overhead,
    /// Memory of the host, which is not part of what the device's limit is for.
    Host,
}

impl Part {
    /// Word of the part; `None` for what is in no other part.
    fn word(self, words: &MemorySlot) -> Option<&AtomicU64> {
        match self {
            Part::Plain => None,
            Part::Managed => Some(&words.managed_bytes),
            Part::Pooled => Some(&words.pooled_bytes),
            Part::Virtual => Some(&words.virtual_bytes),
            Part::Graph => Some(&words.graph_bytes),
            Part::Array => Some(&words.array_bytes),
            Part::Overhead => Some(&words.overhead_bytes),
            Part::Host => Some(&words.host_bytes),
        }
    }

    fn raise(self, words: &MemorySlot, bytes: u64) {
        if let Some(word) = self.word(words) {
            word.fetch_add(bytes, Relaxed);
        }
    }

    fn lower(self, words: &MemorySlot, bytes: u64) {
        if let Some(word) = self.word(words) {
            lower(word, bytes);
        }
    }
}

/// The words of a device; `None` if nothing runs in this process.
pub(crate) fn words(slot: u16) -> Option<&'static MemorySlot> {
    process::running().map(|rt| rt.memory(slot))
}

/// Has the words of a device under a limit rest on what its driver has for this process now: modules and contexts, too.
pub(crate) fn renew(slot: u16, words: &MemorySlot) {
    if words.limit_bytes.load(Relaxed) != 0
        && let Some(rt) = process::running()
    {
        rt.measure_memory(slot);
    }
}

/// Size by which memory counts. The driver takes it from the device in units of 2 MiB and puts small allocations into
/// units together.
pub(crate) fn rounded(bytes: u64) -> u64 {
    let unit = if bytes <= 1 << 20 { 512 } else { 2 << 20 };
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

/// Gives a claim the exact size, after the driver has allocated the memory.
pub(crate) fn settle(slot: u16, part: Part, claimed: u64, exact: u64) {
    let Some(words) = words(slot) else { return };
    if exact > claimed {
        words.take_anyway(exact - claimed);
    } else if exact < claimed {
        words.give(claimed - exact);
    }
    part.raise(words, exact);
}

/// Counts a claim out again.
pub(crate) fn unclaim(slot: u16, claimed: u64) {
    if let Some(words) = words(slot) {
        words.give(claimed);
    }
}

/// Tells how much of the memory that counts as held may still be allocated without a question.
pub(crate) fn advance(slot: u16, bytes: u64) {
    if let Some(words) = words(slot) {
        words.advance_bytes.store(bytes, SeqCst);
    }
}

/// Counts memory that the process has in any case.
pub(crate) fn add(slot: u16, part: Part, bytes: u64) {
    let Some(words) = words(slot) else { return };
    if part != Part::Host {
        words.take_anyway(bytes);
    }
    part.raise(words, bytes);
}

/// Counts memory out.
pub(crate) fn subtract(slot: u16, part: Part, bytes: u64) {
    let Some(words) = words(slot) else { return };
    part.lower(words, bytes);
    if part != Part::Host {
        words.give(bytes);
    }
}

/// Makes a part that is measured, not added up, as large as it is now.
pub(crate) fn measured(slot: u16, part: Part, before: u64, now: u64) {
    if now > before {
        add(slot, part, now - before);
    } else if now < before {
        subtract(slot, part, before - now);
    }
}

/// Counts memory as shared with other processes.
pub(crate) fn export(slot: u16, bytes: u64) {
    if let Some(words) = words(slot) {
        words.exported_bytes.fetch_add(bytes, Relaxed);
    }
}

/// Counts shared memory out that was freed.
pub(crate) fn unexport(slot: u16, bytes: u64) {
    if let Some(words) = words(slot) {
        lower(&words.exported_bytes, bytes);
    }
}

/// Lowers a word, never below 0.
pub(crate) fn lower(word: &AtomicU64, bytes: u64) {
    let _ = word.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(bytes)));
}

/// Reports whether the process may have memory of this device without a limit, and none is reserved on it.
#[inline]
pub(crate) fn is_unlimited(slot: u16) -> bool {
    words(slot).is_none_or(|words| {
        words.allowance_bytes.load(Relaxed) == UNLIMITED && words.keep_free_bytes.load(Relaxed) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_share_units_and_large_ones_have_their_own() {
        const MIB: u64 = 1 << 20;
        assert_eq!([0, 1, 512, 513, MIB - 1, MIB].map(rounded), [0, 512, 512, 1024, MIB, MIB]);
        assert_eq!([MIB + 1, 2 * MIB, 2 * MIB + 1].map(rounded), [2 * MIB, 2 * MIB, 4 * MIB]);
        assert_eq!(rounded(u64::MAX), u64::MAX, "no overflow");
    }
}
