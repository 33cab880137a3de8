//! Claims: memory is counted before the vendor's library is called, or refused.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_agent::say_once;
use xsched_core::Room;
use xsched_proto::account::{MemorySlot, UNLIMITED, of_bytes};
use xsched_proto::settings::{Log, Settings};

use super::account::words;
use crate::process;

/// Number of questions to the daemon for one allocation: another thread may take what it gave.
const QUESTIONS: usize = 3;

/// A vendor's library, as far as claims on its devices' memory need it.
pub(crate) trait Keeper {
    /// Result of a call that the library refuses for want of memory.
    const OUT_OF_MEMORY: c_int;

    /// Free and total memory of the current device, in bytes, if the library tells them.
    fn info() -> Option<(u64, u64)>;

    /// Releases memory of a slot's device that the process holds without use, and counts it out.
    fn trim(slot: u16);
}

/// Outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Counted; to be settled once the driver has answered.
    Counted,
    /// Not counted, since the process has no account or the size makes no sense.
    Uncounted,
    /// Over the limit.
    Refused,
}

/// Counts memory that is about to be allocated.
#[inline]
pub(crate) fn claim<K: Keeper>(slot: u16, bytes: u64) -> Claim {
    let Some(words) = words(slot) else { return Claim::Uncounted };
    if words.keep_free_bytes.load(Relaxed) == 0 && words.take(bytes) {
        return Claim::Counted;
    }
    claim_slowly::<K>(slot, words, bytes, true)
}

/// As [`claim`], for a caller that tries again: a refusal is not reported.
pub(crate) fn try_claim<K: Keeper>(slot: u16, bytes: u64) -> Claim {
    words(slot).map_or(Claim::Uncounted, |words| claim_slowly::<K>(slot, words, bytes, false))
}

#[cold]
#[inline(never)]
fn claim_slowly<K: Keeper>(slot: u16, words: &MemorySlot, bytes: u64, is_last: bool) -> Claim {
    if words.keep_free_bytes.load(Relaxed) == 0 && words.allowance_bytes.load(SeqCst) == UNLIMITED {
        return Claim::Uncounted;
    }
    if is_left_free::<K>(words, bytes) == Some(true) && words.take(bytes) {
        return Claim::Counted;
    }
    // Memory that the process holds without use goes first.
    K::trim(slot);
    if is_left_free::<K>(words, bytes) == Some(true) && words.take(bytes) {
        return Claim::Counted;
    }
    let Some(rt) = process::running() else { return Claim::Uncounted };
    let mut why = None;
    for _ in 0..QUESTIONS {
        let mut answer = rt.ask_memory(slot, bytes);
        // A context or module may have gone since the driver was asked last.
        if !answer.granted && rt.measure_memory(slot) {
            answer = rt.ask_memory(slot, bytes);
        }
        why = answer.why;
        // The daemon knows what is reserved and what programs hold, the library what is free.
        if !answer.granted || is_left_free::<K>(words, bytes) == Some(false) {
            break;
        }
        if words.take(bytes) {
            return Claim::Counted;
        }
    }
    if is_last {
        words.refuse(words.beyond(bytes));
        rt.memory_refused(slot, bytes, false);
        if !SAID.load(Relaxed) {
            report(words, bytes, why);
        }
    }
    Claim::Refused
}

/// Handles the driver's answer that the device has no room for an allocation: the daemon knows the programs that have
/// taken it, and may have made room now (true). A size beyond the whole device is no case for that.
#[cold]
fn refused_by_driver<K: Keeper>(slot: u16, bytes: u64) -> bool {
    let Some(words) = words(slot) else { return false };
    let is_possible = K::info().is_some_and(|(_, total)| bytes <= total);
    let room = Room { refused: true, returns: false };
    let answer = process::running().filter(|_| is_possible).map(|rt| rt.ask_room(slot, bytes, room, || false));
    let answer = answer.unwrap_or_default();
    if answer.granted {
        return true;
    }
    words.refuse(bytes);
    if let Some(rt) = process::running() {
        rt.memory_refused(slot, bytes, true);
    }
    if !SAID.load(Relaxed) && answer.why.is_some() {
        report(words, bytes, answer.why);
    }
    false
}

/// Makes a call again that the library refused for want of memory, as often as the daemon makes room.
pub(crate) fn with_room<K: Keeper>(slot: u16, bytes: u64, call: impl Fn() -> c_int) -> c_int {
    let mut rc = call();
    for _ in 0..QUESTIONS {
        let is_full = rc == K::OUT_OF_MEMORY;
        if !is_full || process::guarded("without room", || refused_by_driver::<K>(slot, bytes)) != Some(true) {
            break;
        }
        rc = call();
    }
    rc
}

/// Reports whether the device has room for an allocation besides what is kept free for more urgent programs; `None` = the
/// library does not tell.
fn is_left_free<K: Keeper>(words: &MemorySlot, bytes: u64) -> Option<bool> {
    match words.keep_free_bytes.load(Relaxed) {
        0 => Some(true),
        keep => K::info().map(|(free, _)| free >= keep.saturating_add(bytes)),
    }
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
