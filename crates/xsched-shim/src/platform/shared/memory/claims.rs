//! Claims: memory is counted before the vendor's library is called, or refused.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_agent::say_once;
use xsched_core::{MemoryAnswer, Room};
use xsched_proto::account::{MemorySlot, UNLIMITED, of_bytes};
use xsched_proto::settings::{Log, Settings};

use super::super::SUCCESS;
use super::account::words;
use crate::process;

/// Number of questions to the daemon for one allocation: another thread may take what it gave.
const QUESTIONS: usize = 8;

/// A vendor's library, as far as claims on its devices' memory need it.
pub(crate) trait Keeper {
    /// Result of a call that the library refuses for want of memory.
    const OUT_OF_MEMORY: c_int;

    /// Free and total memory of the current device, in bytes, if the library tells them.
    fn info() -> Option<(u64, u64)>;

    /// Releases memory of a slot's device that the process holds without use, and counts it out.
    fn trim(slot: u16);

    /// Reports whether this process may have memory of the host in place of a device's that has no room.
    fn may_use_host() -> bool {
        false
    }

    /// Makes an allocation of the host's memory.
    fn on_host(call: &dyn Fn() -> c_int) -> c_int {
        call()
    }
}

/// Outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Counted; to be settled once the driver has answered.
    Counted,
    /// Not counted, since the process has no account or the size makes no sense.
    Uncounted,
    /// Counted although there is no room: to be made of the host's memory.
    OnHost,
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
    let mut answer = MemoryAnswer::default();
    for _ in 0..QUESTIONS {
        answer = rt.ask_memory(slot, bytes);
        // A context or module may have gone since the driver was asked last.
        if !answer.granted && rt.measure_memory(slot) {
            answer = rt.ask_memory(slot, bytes);
        }
        // The daemon knows what is reserved and what programs hold, the library what is free.
        if !answer.granted || is_left_free::<K>(words, bytes) == Some(false) {
            break;
        }
        if words.take(bytes) {
            return Claim::Counted;
        }
    }
    if is_last && may_use_host::<K>(words, &answer, bytes) {
        words.take_anyway(bytes);
        return Claim::OnHost;
    }
    if is_last {
        words.refuse(words.beyond(bytes));
        rt.memory_refused(slot, bytes, false);
        report(words, bytes, answer.why);
    }
    Claim::Refused
}

/// Remedy for an allocation that the driver has refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// There is room for it now.
    Again,
    /// The host's memory may take its place.
    OnHost,
    Nothing,
}

/// Handles the driver's answer that the device has no room for an allocation: the daemon knows the programs that have
/// taken it, and may have made room now. A size beyond the whole device is no case for that.
#[cold]
fn refused_by_driver<K: Keeper>(slot: u16, bytes: u64) -> Way {
    let Some(words) = words(slot) else { return Way::Nothing };
    let is_possible = K::info().is_some_and(|(_, total)| bytes <= total);
    let room = Room { lacking: bytes, ..Room::default() };
    let answer = process::running().filter(|_| is_possible).map(|rt| rt.ask_room(slot, bytes, room, || false));
    let answer = answer.unwrap_or_default();
    if answer.granted {
        return Way::Again;
    }
    // The allocation is counted already.
    if may_use_host::<K>(words, &answer, 0) {
        return Way::OnHost;
    }
    note_refusal_by_driver(slot, words, bytes, answer.why);
    Way::Nothing
}

/// Counts an allocation that the driver has refused for good, and reports it with the holders of the memory, if they are known.
fn note_refusal_by_driver(slot: u16, words: &MemorySlot, bytes: u64, why: Option<String>) {
    words.refuse(bytes);
    if let Some(rt) = process::running() {
        rt.memory_refused(slot, bytes, true);
    }
    if why.is_some() {
        report(words, bytes, why);
    }
}

/// Makes an allocation that was claimed. One that the library refuses for want of memory is made again as often as the daemon makes room,
/// and then, where the process may, of the host's memory.
pub(crate) fn with_room<K: Keeper>(slot: u16, bytes: u64, claim: Claim, call: impl Fn() -> c_int) -> c_int {
    if claim == Claim::OnHost {
        return host::<K>(slot, bytes, &call);
    }
    let mut rc = call();
    for _ in 0..QUESTIONS {
        if rc != K::OUT_OF_MEMORY {
            break;
        }
        match process::guarded("without room", || refused_by_driver::<K>(slot, bytes)) {
            Some(Way::Again) => rc = call(),
            Some(Way::OnHost) => return host::<K>(slot, bytes, &call),
            Some(Way::Nothing) | None => break,
        }
    }
    rc
}

fn host<K: Keeper>(slot: u16, bytes: u64, call: &dyn Fn() -> c_int) -> c_int {
    let rc = K::on_host(call);
    process::guarded("after an allocation", || {
        if rc == SUCCESS && !ON_HOST_SAID.load(Relaxed) {
            let line =
                "the device has no room: memory of this program lies on the host, which is slow, until there is some";
            say_once(&ON_HOST_SAID, Settings::of_process().log, Log::Info, line);
        } else if rc == K::OUT_OF_MEMORY
            && let Some(words) = words(slot)
        {
            let why = "neither the device nor the host has room for it";
            note_refusal_by_driver(slot, words, bytes, Some(why.to_owned()));
        }
    });
    rc
}

/// Set once it was reported that memory lies on the host.
static ON_HOST_SAID: AtomicBool = AtomicBool::new(false);

/// Reports whether an allocation may be made of the host's memory: the daemon says so, and the program has no more than its own limit then.
/// `bytes` is what is not counted so far.
fn may_use_host<K: Keeper>(words: &MemorySlot, answer: &MemoryAnswer, bytes: u64) -> bool {
    let all =
        [&words.used_bytes, &words.away_bytes].iter().map(|word| word.load(Relaxed)).fold(bytes, u64::saturating_add);
    let limit = words.limit_bytes.load(Relaxed);
    answer.on_host && K::may_use_host() && (limit == 0 || all <= limit)
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
    if SAID.load(Relaxed) {
        return;
    }
    let why = why.unwrap_or_else(|| {
        let (used, limit) = (words.used_bytes.load(Relaxed), words.allowance_bytes.load(Relaxed));
        format!("this process holds {} of the {} that it may", of_bytes(used), of_bytes(limit))
    });
    let line = format!("out of GPU memory: {why} ({} more were asked for)", of_bytes(bytes));
    say_once(&SAID, Settings::of_process().log, Log::Error, &line);
}
