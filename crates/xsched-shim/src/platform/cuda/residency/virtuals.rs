//! Memory that a program maps itself (`cuMemCreate`, `cuMemMap`), behind handles of this library's.
//!
//! Memory with one whole mapping that its device may read and write is a chunk there: it moves. All other memory stays where it is, with
//! the state that the driver knows of it. A handle of the program's keeps its value while the memory behind it is replaced.
//!
//! All calls that change a mapping are made within the latch, so that each chunk can be reached, and none moves meanwhile.

use std::collections::BTreeMap;

use xsched_core::residency::{Body, Chunk, Driver as _};

use super::super::types::*;
use super::calls::{Access, Calls, Handle, Properties, Traits};
use super::movable::{Movable, movable, pass};
use super::stays::{Stay, Why};
use super::{chunks, held, hosted};
use crate::lock::Lock;

/// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY.
pub(super) const INVALID: CUresult = 1;
pub(super) const NO_MEMORY: CUresult = 2;

/// First handle given out: no address, as the driver's are.
const FIRST_HANDLE: u64 = 0x7853_0000_0000_0000;

/// Memory behind a handle.
struct Memory {
    bytes: u64,
    properties: Properties,
    /// References that the program has.
    references: u64,
    mappings: u64,
    /// The memory; `None` while it is a chunk.
    body: Option<Body<Handle>>,
    /// Reason why it stays on the device.
    pinned: Option<Stay>,
}

struct Mapping {
    bytes: u64,
    /// Handle of its memory.
    of: u64,
    access: Vec<Access>,
    is_chunk: bool,
    /// Number of the buffer, which stays while its memory moves.
    id: u64,
}

#[derive(Default)]
struct State {
    memory: BTreeMap<u64, Memory>,
    mappings: BTreeMap<u64, Mapping>,
    last: u64,
}

static STATE: Lock<State> = Lock::new();

/// A mapping, as the program sees it.
pub(super) struct Mapped {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) id: u64,
}

impl State {
    /// Addresses of the mappings that lie in a range or reach into it.
    fn within(&self, at: u64, bytes: u64) -> Vec<u64> {
        let end = at.saturating_add(bytes);
        let reaches = |(start, mapping): &(&u64, &Mapping)| **start + mapping.bytes > at;
        self.mappings.range(..end).rev().take_while(reaches).map(|(start, _)| *start).collect()
    }

    fn at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&at, mapping) = self.mappings.range(..=address).next_back()?;
        (address - at < mapping.bytes).then_some((at, mapping))
    }

    /// Has the memory of a mapping move, if it may.
    fn settle(&mut self, movable: &Movable, at: u64) {
        let Some(mapping) = self.mappings.get_mut(&at) else { return };
        let Some(memory) = self.memory.get_mut(&mapping.of) else { return };
        let device = movable.calls.device();
        let may = memory.mappings == 1
            && mapping.bytes == memory.bytes
            && memory.pinned.is_none()
            && mapping.access.iter().any(|access| access.is_whole(device));
        match memory.body {
            Some(body) if may => {
                let traits = Traits { properties: memory.properties, access: mapping.access.clone() };
                movable.calls.traits.lock().insert(at, traits);
                movable.residents.lock().chunks.push(Chunk::of(at, mapping.bytes, body));
                memory.body = None;
                mapping.is_chunk = true;
                movable.recount();
            }
            None if mapping.is_chunk && may => {
                if let Some(traits) = movable.calls.traits.lock().get_mut(&at) {
                    traits.access = mapping.access.clone();
                }
            }
            None if mapping.is_chunk => self.stay(movable, at),
            _ => {}
        }
    }

    /// Has the memory of a mapping stay where it is.
    fn stay(&mut self, movable: &Movable, at: u64) {
        let Some(mapping) = self.mappings.get_mut(&at).filter(|mapping| mapping.is_chunk) else { return };
        let taken = movable.residents.lock().take_range(at, 1).pop();
        movable.recount();
        movable.calls.traits.lock().remove(&at);
        mapping.is_chunk = false;
        if let Some(memory) = self.memory.get_mut(&mapping.of) {
            memory.body = taken.and_then(|chunk| chunk.body());
        }
    }

    /// Has memory stay where it is. Returns it.
    fn hold(&mut self, movable: &Movable, handle: u64) -> Option<Body<Handle>> {
        self.memory.get(&handle)?;
        let chunk = self.mappings.iter().find(|(_, mapping)| mapping.of == handle && mapping.is_chunk);
        if let Some(at) = chunk.map(|(at, _)| *at) {
            self.stay(movable, at);
        }
        self.memory.get(&handle)?.body
    }

    /// Has memory stay on the device for good. False: it is not there now.
    fn pin(&mut self, movable: &Movable, handle: u64, why: Why) -> bool {
        if !matches!(self.hold(movable, handle), Some(Body::Device(_))) {
            self.settle_of(movable, handle);
            return false;
        }
        if let Some(memory) = self.memory.get_mut(&handle) {
            let bytes = memory.bytes;
            memory.pinned.get_or_insert_with(|| Stay::new(movable, why, bytes));
        }
        true
    }

    fn settle_of(&mut self, movable: &Movable, handle: u64) {
        self.mappings_of(handle).into_iter().for_each(|at| self.settle(movable, at));
    }

    /// Reports whether the memory of mappings is on the device: of those that have a handle, or of all.
    fn is_home(&self, movable: &Movable, mappings: &[u64], all: bool) -> bool {
        let residents = movable.residents.lock();
        let is_away = |start: &u64| {
            let mapping = &self.mappings[start];
            let counts = all || self.memory.get(&mapping.of).is_some_and(|memory| memory.references > 0);
            let chunk = residents.chunks.iter().find(|chunk| mapping.is_chunk && chunk.at() == *start);
            counts && chunk.is_some_and(|chunk| chunk.handle().is_none())
        };
        !mappings.iter().any(is_away)
    }

    /// Addresses of the mappings of a handle's memory.
    fn mappings_of(&self, handle: u64) -> Vec<u64> {
        self.mappings.iter().filter(|(_, mapping)| mapping.of == handle).map(|(at, _)| *at).collect()
    }

    /// Releases memory that has neither a reference nor a mapping.
    fn end_if_unused(&mut self, movable: &Movable, handle: u64) -> CUresult {
        let unused = |memory: &Memory| memory.references == 0 && memory.mappings == 0;
        let Some(memory) = self.memory.get(&handle).filter(|memory| unused(memory)) else { return SUCCESS };
        let mut calls = &movable.calls;
        let released = match memory.body {
            Some(Body::Device(real)) => calls.release(real),
            Some(Body::Store(stored)) => {
                calls.give(stored, memory.bytes);
                Ok(())
            }
            None => Ok(()),
        };
        match released {
            Ok(()) => {
                self.memory.remove(&handle);
                SUCCESS
            }
            Err(refusal) => refusal,
        }
    }
}

/// Makes memory. `None`: it cannot move, the driver is to make it. `real` is one of its functions.
pub(super) fn create(real: *mut c_void, bytes: usize, wanted: *const Properties) -> Option<Result<u64, CUresult>> {
    // SAFETY: null, or the caller's own properties, which the driver would read too.
    let wanted = unsafe { wanted.as_ref() }?;
    let movable = chunks::ready(real).filter(|movable| wanted.can_move(movable.calls.device()))?;
    let bytes = bytes as u64;
    Some(pass(|| {
        let body = if hosted::is_wanted_now() {
            Body::Store((&movable.calls).take(bytes)?)
        } else {
            Body::Device(movable.calls.create_with(bytes, wanted)?)
        };
        let mut state = STATE.lock();
        state.last += 1;
        let handle = FIRST_HANDLE + state.last;
        let memory = Memory { bytes, properties: *wanted, references: 1, mappings: 0, body: Some(body), pinned: None };
        state.memory.insert(handle, memory);
        Ok(handle)
    }))
}

/// Movable memory, if a handle is one of this library's, also if its memory was released: the driver takes any number for an address.
fn owner(handle: u64) -> Option<&'static Movable> {
    if STATE.is_untouched() || handle <= FIRST_HANDLE {
        return None;
    }
    let movable = movable()?;
    (handle - FIRST_HANDLE <= STATE.lock().last).then_some(movable)
}

/// Movable memory, if this library knows a mapping in a range of addresses.
fn owner_of_range(at: u64, bytes: u64) -> Option<&'static Movable> {
    if STATE.is_untouched() {
        return None;
    }
    let movable = movable()?;
    (!STATE.lock().within(at, bytes.max(1)).is_empty()).then_some(movable)
}

/// Ends a reference. `None`, here and below: the driver is to handle the call.
pub(super) fn release(handle: u64) -> Option<CUresult> {
    let movable = owner(handle)?;
    Some(pass(|| {
        let mut state = STATE.lock();
        let Some(memory) = state.memory.get_mut(&handle).filter(|memory| memory.references > 0) else { return INVALID };
        memory.references -= 1;
        let rc = state.end_if_unused(movable, handle);
        if rc != SUCCESS
            && let Some(memory) = state.memory.get_mut(&handle)
        {
            memory.references += 1;
        }
        rc
    }))
}

/// Adds a reference to the memory at an address.
pub(super) fn retain(address: u64) -> Option<u64> {
    owner_of_range(address, 1)?;
    let mut state = STATE.lock();
    let handle = state.at(address)?.1.of;
    state.memory.get_mut(&handle)?.references += 1;
    Some(handle)
}

pub(super) fn map(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Option<CUresult> {
    let movable = owner(handle)?;
    held::tried(held::FEW, |is_last| {
        let mut state = STATE.lock();
        if state.memory.get(&handle).is_none_or(|memory| memory.references == 0) {
            return Some(INVALID);
        }
        // Memory with two mappings does not move.
        if !is_last && !state.is_home(movable, &state.mappings_of(handle), true) {
            return None;
        }
        let Some(body) = state.hold(movable, handle) else { return Some(INVALID) };
        // SAFETY: the caller's own arguments, and the memory behind its handle.
        let rc = unsafe { (movable.calls.functions.map)(at, bytes, offset, body.handle(), flags) };
        if rc == SUCCESS {
            if let Some(memory) = state.memory.get_mut(&handle) {
                memory.mappings += 1;
            }
            let id = chunks::new_id();
            let mapping = Mapping { bytes: bytes as u64, of: handle, access: Vec::new(), is_chunk: false, id };
            state.mappings.insert(at, mapping);
        } else {
            state.settle_of(movable, handle);
        }
        Some(rc)
    })
}

pub(super) fn unmap(at: u64, bytes: usize) -> Option<CUresult> {
    let movable = owner_of_range(at, bytes as u64)?;
    // Memory that has a handle, too, should be on the device then: without a mapping it does not move.
    held::tried(held::FEW, |is_last| {
        let mut state = STATE.lock();
        let all = state.within(at, bytes as u64);
        if !is_last && !state.is_home(movable, &all, false) {
            return None;
        }
        all.iter().for_each(|&at| state.stay(movable, at));
        // SAFETY: the caller's own arguments.
        let rc = unsafe { (movable.calls.functions.unmap)(at, bytes) };
        for at in all {
            if rc != SUCCESS {
                state.settle(movable, at);
                continue;
            }
            let Some(gone) = state.mappings.remove(&at) else { continue };
            if let Some(memory) = state.memory.get_mut(&gone.of) {
                memory.mappings -= 1;
            }
            let _ = state.end_if_unused(movable, gone.of);
            state.settle_of(movable, gone.of);
        }
        Some(rc)
    })
}

pub(super) fn set_access(at: u64, bytes: usize, given: *const Access, count: usize) -> Option<CUresult> {
    let movable = owner_of_range(at, bytes as u64)?;
    // SAFETY: null, or the caller's own list, which the driver reads too.
    let list = if given.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(given, count) } };
    let device = movable.calls.device();
    let takes = list.iter().any(|access| access.location.is_on(device) && !access.is_whole(device));
    held::tried(held::FEW, |is_last| {
        let mut state = STATE.lock();
        if takes && !is_last && !state.is_home(movable, &state.within(at, bytes as u64), true) {
            return None;
        }
        // SAFETY: the caller's own arguments.
        let rc = unsafe { (movable.calls.functions.set_access)(at, bytes, given, count) };
        if rc != SUCCESS {
            return Some(rc);
        }
        let end = at.saturating_add(bytes as u64);
        for start in state.within(at, bytes as u64) {
            let Some(mapping) = state.mappings.get_mut(&start) else { continue };
            if start < at || start + mapping.bytes > end {
                // Two parts with an access each are more than a move restores.
                let handle = mapping.of;
                state.pin(movable, handle, Why::Parts);
                continue;
            }
            list.iter().for_each(|access| access.join(&mut mapping.access));
            state.settle(movable, start);
        }
        Some(SUCCESS)
    })
}

/// Reason for which memory does not move by itself.
const SEVERAL: &str = "not mapped exactly once";

/// Calls what another library or device will use memory by, once it stays on the device.
pub(super) fn pinned(handle: u64, why: Why, call: impl FnOnce(Handle) -> CUresult) -> Option<CUresult> {
    let movable = owner(handle)?;
    let mut call = Some(call);
    let rc = held::tried(held::MANY, |_| {
        let mut state = STATE.lock();
        let was_pinned = match state.memory.get(&handle) {
            Some(memory) if memory.references > 0 => memory.pinned.is_some(),
            _ => return Some(INVALID),
        };
        if !state.pin(movable, handle, why) {
            return None;
        }
        let body = state.memory.get(&handle).and_then(|memory| memory.body)?;
        let rc = call.take()?(body.handle());
        if rc != SUCCESS && !was_pinned {
            if let Some(memory) = state.memory.get_mut(&handle) {
                memory.pinned = None;
            }
            state.settle_of(movable, handle);
        }
        Some(rc)
    });
    Some(rc.unwrap_or(NO_MEMORY))
}

/// Has the memory of mappings in a range stay on the device for good, within the latch. False: some is not there now.
pub(super) fn pin_range(movable: &Movable, at: u64, bytes: u64, why: Why) -> bool {
    if STATE.is_untouched() {
        return true;
    }
    let mut state = STATE.lock();
    let within = state.within(at, bytes.max(1));
    within.into_iter().all(|at| {
        let handle = state.mappings.get(&at).map_or(0, |mapping| mapping.of);
        state.pin(movable, handle, why)
    })
}

/// Properties of memory.
pub(super) fn properties(handle: u64, place: *mut c_void) -> Option<CUresult> {
    let movable = owner(handle)?;
    if place.is_null() {
        return Some(INVALID);
    }
    Some(pass(|| {
        let mut state = STATE.lock();
        let Some(memory) = state.memory.get(&handle).filter(|memory| memory.references > 0) else { return INVALID };
        let asked = memory.properties;
        let body = state.hold(movable, handle);
        let rc = match body {
            // SAFETY: the caller's own place; memory of this library.
            Some(Body::Device(real)) => unsafe { (movable.calls.functions.properties_of)(place, real) },
            _ => {
                // SAFETY: the caller's own place, for properties.
                unsafe { place.cast::<Properties>().write_unaligned(asked) };
                SUCCESS
            }
        };
        state.settle_of(movable, handle);
        rc
    }))
}

/// The mapping that contains an address.
pub(super) fn mapped(address: u64) -> Option<Mapped> {
    if STATE.is_untouched() {
        return None;
    }
    let state = STATE.lock();
    state.at(address).map(|(at, mapping)| Mapped { at, bytes: mapping.bytes, id: mapping.id })
}

/// Memory that stays on the device, by reason.
pub(super) fn pins(each: &mut dyn FnMut(&'static str, u64)) {
    if STATE.is_untouched() {
        return;
    }
    for memory in STATE.lock().memory.values() {
        match &memory.pinned {
            Some(stay) => each(stay.why.text(), memory.bytes),
            None if memory.body.is_some() => each(SEVERAL, memory.bytes),
            None => {}
        }
    }
}

/// Bytes of memory without a mapping that is on the host.
pub(super) fn hosted_bytes() -> u64 {
    if STATE.is_untouched() {
        return 0;
    }
    let state = STATE.lock();
    let hosted = state.memory.values().filter(|memory| matches!(memory.body, Some(Body::Store(_))));
    hosted.map(|memory| memory.bytes).sum()
}

/// Has all memory stay where it is: its context ends, and the memory does not.
pub(super) fn end_all(movable: &Movable) {
    if STATE.is_untouched() {
        return;
    }
    let mut state = STATE.lock();
    let all: Vec<u64> = state.mappings.keys().copied().collect();
    all.into_iter().for_each(|at| state.stay(movable, at));
}

/// Reports whether calls of this library still know the memory of programs.
pub(super) fn calls() -> Option<&'static Calls> {
    movable().map(|movable| &movable.calls)
}

/// Empties the tables, in a forked child.
pub(super) fn forget_all() {
    STATE.forget();
}
