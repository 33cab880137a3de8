//! Words of the process's memory that the daemon shares: claims before allocations, and their outcome.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use xsched_agent::say_once;
use xsched_core::Room;
use xsched_proto::account::{MemorySlot, MemoryUse, UNLIMITED, of_bytes};
use xsched_proto::settings::{Log, Settings};

use super::super::types::CUresult;
use super::{OUT_OF_MEMORY, device, driver, graphs, pools};
use crate::process;

/// Number of questions to the daemon for one allocation: another thread may take what it gave.
const QUESTIONS: usize = 3;

/// Part of the memory, each with a word of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Plain,
    Pooled,
    Virtual,
    Graph,
    Array,
    Overhead,
    /// Memory of the host, which is not part of what the device's limit is for.
    Host,
}

impl Part {
    fn word(self, words: &MemorySlot) -> &AtomicU64 {
        match self {
            Part::Plain => &words.plain_bytes,
            Part::Pooled => &words.pooled_bytes,
            Part::Virtual => &words.virtual_bytes,
            Part::Graph => &words.graph_bytes,
            Part::Array => &words.array_bytes,
            Part::Overhead => &words.overhead_bytes,
            Part::Host => &words.host_bytes,
        }
    }
}

/// Outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Counted; to be settled once the driver has answered.
    Counted,
    /// Not counted, since the process has no account or the size makes no sense.
    Uncounted,
    /// Over the limit.
    Refused,
}

/// The words of a device; `None` if nothing runs in this process.
pub(super) fn words(slot: u16) -> Option<&'static MemorySlot> {
    process::running().map(|rt| rt.memory(slot))
}

/// Size by which memory counts. The driver takes it from the device in units of 2 MiB and puts small allocations into
/// units together.
pub(super) fn rounded(bytes: u64) -> u64 {
    let unit = if bytes <= 1 << 20 { 512 } else { 2 << 20 };
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

/// Counts memory that is about to be allocated.
#[inline]
pub(super) fn claim(slot: u16, bytes: u64) -> Claim {
    let Some(words) = words(slot) else { return Claim::Uncounted };
    if words.keep_free_bytes.load(Relaxed) == 0 && words.take(bytes) {
        return Claim::Counted;
    }
    claim_slowly(slot, words, bytes, true)
}

/// As [`claim`], for a caller that tries again: a refusal is not reported.
pub(super) fn try_claim(slot: u16, bytes: u64) -> Claim {
    words(slot).map_or(Claim::Uncounted, |words| claim_slowly(slot, words, bytes, false))
}

#[cold]
#[inline(never)]
fn claim_slowly(slot: u16, words: &MemorySlot, bytes: u64, is_last: bool) -> Claim {
    if words.keep_free_bytes.load(Relaxed) == 0 && words.allowance_bytes.load(SeqCst) == UNLIMITED {
        return Claim::Uncounted;
    }
    if is_left_free(words, bytes) && words.take(bytes) {
        return Claim::Counted;
    }
    // Memory that the process holds without use goes first.
    pools::trim(slot);
    graphs::trim(slot);
    if is_left_free(words, bytes) && words.take(bytes) {
        return Claim::Counted;
    }
    let Some(rt) = process::running() else { return Claim::Uncounted };
    let mut why = None;
    for _ in 0..QUESTIONS {
        let answer = rt.ask_memory(slot, bytes);
        why = answer.why;
        // The daemon knows what is reserved, and the driver what is free.
        if !answer.granted || !is_left_free(words, bytes) {
            break;
        }
        if words.take(bytes) {
            return Claim::Counted;
        }
    }
    if is_last {
        words.refuse(words.beyond(bytes));
        if !SAID.load(Relaxed) {
            report(words, bytes, why);
        }
    }
    Claim::Refused
}

/// Handles the driver's answer that the device has no room for an allocation: the daemon knows the programs that have
/// taken it, and may have made room now (true). A size beyond the whole device is no case for that.
#[cold]
fn refused_by_driver(slot: u16, bytes: u64) -> bool {
    let Some(words) = words(slot) else { return false };
    let is_possible = driver::info().is_some_and(|(_, total)| bytes <= total);
    let room = Room { refused: true, returns: false };
    let answer = process::running().filter(|_| is_possible).map(|rt| rt.ask_room(slot, bytes, room, || false));
    let answer = answer.unwrap_or_default();
    if answer.granted {
        return true;
    }
    words.refuse(bytes);
    if !SAID.load(Relaxed) && answer.why.is_some() {
        report(words, bytes, answer.why);
    }
    false
}

/// Reports whether the device has room for an allocation besides what is kept free for more urgent programs.
fn is_left_free(words: &MemorySlot, bytes: u64) -> bool {
    let keep = words.keep_free_bytes.load(Relaxed);
    keep == 0 || driver::info().is_none_or(|(free, _)| free >= keep.saturating_add(bytes))
}

/// Set once a refusal was reported.
static SAID: AtomicBool = AtomicBool::new(false);

fn report(words: &MemorySlot, bytes: u64, why: Option<String>) {
    let why = why.unwrap_or_else(|| {
        let (used, limit) = (words.used_bytes.load(Relaxed), words.allowance_bytes.load(Relaxed));
        format!("this process holds {} of the {} that it may", of_bytes(used), of_bytes(limit))
    });
    let line = format!("out of GPU memory: {why} ({} more were asked for)", of_bytes(bytes));
    say_once(&SAID, Settings::of_process().log, Log::Error, &line);
}

/// Gives a claim the exact size, after the driver has allocated the memory.
pub(super) fn settle(slot: u16, part: Part, claimed: u64, exact: u64) {
    let Some(words) = words(slot) else { return };
    if exact > claimed {
        words.take_anyway(exact - claimed);
    } else if exact < claimed {
        words.give(claimed - exact);
    }
    part.word(words).fetch_add(exact, Relaxed);
}

/// Counts a claim out again.
pub(super) fn unclaim(slot: u16, claimed: u64) {
    if let Some(words) = words(slot) {
        words.give(claimed);
    }
}

/// Makes a driver's call again that had no room for an allocation, as often as the daemon makes some.
pub(super) fn with_room(slot: u16, bytes: u64, call: impl Fn() -> CUresult) -> CUresult {
    let mut rc = call();
    for _ in 0..QUESTIONS {
        let is_full = rc == OUT_OF_MEMORY;
        if !is_full || process::guarded("without room", || refused_by_driver(slot, bytes)) != Some(true) {
            break;
        }
        rc = call();
    }
    rc
}

/// Counts memory that the process has in any case.
pub(super) fn add(slot: u16, part: Part, bytes: u64) {
    let Some(words) = words(slot) else { return };
    if part != Part::Host {
        words.take_anyway(bytes);
    }
    part.word(words).fetch_add(bytes, Relaxed);
}

/// Counts memory out.
pub(super) fn subtract(slot: u16, part: Part, bytes: u64) {
    let Some(words) = words(slot) else { return };
    lower(part.word(words), bytes);
    if part != Part::Host {
        words.give(bytes);
    }
}

/// Makes a part that is measured, not added up, as large as it is now.
pub(super) fn measured(slot: u16, part: Part, before: u64, now: u64) {
    if now > before {
        add(slot, part, now - before);
    } else if now < before {
        subtract(slot, part, before - now);
    }
}

/// Counts memory as shared with other processes.
pub(super) fn export(slot: u16, bytes: u64) {
    if let Some(words) = words(slot) {
        words.exported_bytes.fetch_add(bytes, Relaxed);
    }
}

/// Counts shared memory out that was freed.
pub(super) fn unexport(slot: u16, bytes: u64) {
    if let Some(words) = words(slot) {
        lower(&words.exported_bytes, bytes);
    }
}

fn lower(word: &AtomicU64, bytes: u64) {
    let _ = word.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(bytes)));
}

/// The words of a device as a JSON object.
pub(super) fn described(slot: u16) -> Option<String> {
    let is = MemoryUse::of(words(slot)?);
    let members = [
        ("used", is.used_bytes),
        ("peak", is.peak_bytes),
        ("plain", is.plain_bytes),
        ("pooled", is.pooled_bytes),
        ("virtual", is.virtual_bytes),
        ("graph", is.graph_bytes),
        ("array", is.array_bytes),
        ("overhead", is.overhead_bytes),
        ("exported", is.exported_bytes),
        ("host", is.host_bytes),
        ("refused", is.refused),
    ];
    Some(format!("{{{}}}", members.map(|(name, value)| format!("\"{name}\":{value}")).join(",")))
}

/// Reports whether the process may have memory of this device without a limit, and none is reserved on it.
#[inline]
pub(super) fn is_unlimited(slot: u16) -> bool {
    words(slot).is_none_or(|words| {
        words.allowance_bytes.load(Relaxed) == UNLIMITED && words.keep_free_bytes.load(Relaxed) == 0
    })
}

/// Free and total memory as the program is to see them, from the driver's figures.
pub(super) fn seen(slot: u16, free: u64, total: u64) -> (u64, u64) {
    let Some(words) = words(slot) else { return (free, total) };
    if device::has_pools(slot) {
        pools::refresh(slot);
    }
    graphs::refresh(slot);
    words.seen(free, total)
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
