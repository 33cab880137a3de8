//! Account of memory that leaves its device and comes back.

use std::sync::atomic::{AtomicU64, Ordering::*};

use xsched_core::Room;
use xsched_proto::account::{MemorySlot, MemoryUse, Residency};

use super::super::types::CUdevice;
use super::{device, driver};
use crate::platform::shared::memory::account;
use crate::process;

/// Part of a device that stays free beside memory that comes back: the program to which it was lent may need a little more.
const SPARE_PARTS: u64 = 64;

/// Slot of a device whose memory is counted.
pub(in super::super) fn slot_of(number: CUdevice) -> Option<u16> {
    device::slot_of(number)
}

/// Counts memory that comes back, and returns the bytes that it has counted. The daemon says when there is room: others may be before.
/// 0: there will be room for one piece after the other, each to be claimed by [`claim_piece`]. `lacking`: bytes
/// of room that the driver lacked; 0 = it was not asked. Gives the wait up once `stop` returns true.
///
/// # Errors
/// Holders of the room, in one line, if there is none.
pub(in super::super) fn claim(slot: u16, bytes: u64, lacking: u64, stop: impl Fn() -> bool) -> Result<u64, String> {
    let Some(words) = account::words(slot) else { return Ok(bytes) };
    let room = Room { lacking, returns: true, part: false };
    let answer = process::running().map(|rt| rt.ask_room(slot, bytes, room, &stop)).unwrap_or_default();
    match answer.granted {
        true if words.take(bytes) => Ok(bytes),
        true => Ok(0),
        false => Err(answer.why.unwrap_or_else(|| "there is no room for it".to_owned())),
    }
}

/// Counts a piece of memory that comes back while another program's leaves. False: there is no room for it yet.
pub(in super::super) fn claim_piece(slot: u16, bytes: u64) -> bool {
    let Some(words) = account::words(slot) else { return true };
    let room = Room { lacking: 0, returns: true, part: true };
    process::running().is_some_and(|rt| rt.ask_room(slot, bytes, room, || false).granted) && words.take(bytes)
}

/// Counts a part of the memory that comes back while the program goes on. False: there is no room for it.
pub(in super::super) fn claim_part(slot: u16, bytes: u64) -> bool {
    if account::words(slot).is_none() {
        return true;
    }
    if driver::info().is_some_and(|(free, total)| free < bytes.saturating_add(total / SPARE_PARTS)) {
        return false;
    }
    claim_piece(slot, bytes)
}

/// Counts out what was claimed and has not come back.
pub(in super::super) fn unclaim(slot: u16, bytes: u64) {
    account::unclaim(slot, bytes);
}

/// Counts memory that is away now, in place of what was before, and memory that could leave. That is last: the daemon, which reads it first,
/// counts on memory until it has left.
pub(in super::super) fn count(slot: u16, before: u64, now: u64, movable: u64) {
    let Some(words) = account::words(slot) else { return };
    words.away_bytes.store(now, Relaxed);
    if now > before {
        words.give(now - before);
    } else if now < before {
        words.take_anyway(before - now);
    }
    words.movable_bytes.store(movable, Release);
}

/// Counts memory that has left, of which [`count`] is told later. What could leave is last, as there.
pub(in super::super) fn left(slot: u16, bytes: u64) {
    let Some(words) = account::words(slot) else { return };
    words.away_bytes.fetch_add(bytes, Relaxed);
    words.give(bytes);
    let _ = words.movable_bytes.fetch_update(Release, Relaxed, |movable| Some(movable.saturating_sub(bytes)));
}

/// Publishes that memory is being moved, until its state is published next.
pub(in super::super) fn begins(slot: u16) {
    if let Some(words) = account::words(slot) {
        words.residency.fetch_or(Residency::MOVING.0, Release);
    }
}

/// Publishes the state of the memory.
pub(in super::super) fn publish(slot: u16, state: Residency) {
    if let Some(words) = account::words(slot) {
        words.residency.store(state.0, Release);
    }
}

/// Use of a device's memory for which it must stay, in words.
pub(in super::super) fn prevented(slot: u16) -> Option<String> {
    MemoryUse::of(account::words(slot)?).stays_now()
}

/// Counts memory that stays on the device, in the word of its reason.
pub(in super::super) fn stays(slot: u16, word: fn(&MemorySlot) -> &AtomicU64, bytes: u64) {
    if let Some(words) = account::words(slot) {
        word(words).fetch_add(bytes, Relaxed);
    }
}

/// Counts memory out that has stayed.
pub(in super::super) fn stays_no_more(slot: u16, word: fn(&MemorySlot) -> &AtomicU64, bytes: u64) {
    if let Some(words) = account::words(slot) {
        account::lower(word(words), bytes);
    }
}
