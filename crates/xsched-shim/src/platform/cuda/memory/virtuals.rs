//! Virtual memory management: memory behind handles, mapped in ranges of addresses. Memory lasts as long as a handle or a
//! mapping of it; a handle may be retained and so counts. The driver may give a released handle to other memory while
//! the old is still mapped, so that memory has a number of its own here.

use std::collections::{BTreeMap, HashMap};

use super::super::types::*;
use super::super::{real, sig};
use super::calls::{OUT_OF_MEMORY, address_at, lend, memory_calls};
use super::device;
use super::keeper::Cuda;
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::platform::shared::memory::{Claim, Part, account, claims};
use crate::process;

/// CUmemLocation of cuda.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// Device of the location; `None` = the host.
    pub(super) fn device(self) -> Option<CUdevice> {
        // CU_MEM_LOCATION_TYPE_DEVICE
        (self.kind == 1).then_some(self.id)
    }
}

/// Beginning of CUmemAllocationProp of cuda.h: type of the allocation and that of handles, location.
#[repr(C)]
struct Properties {
    kinds: [c_int; 2],
    location: Location,
}

/// Memory behind handles.
struct Physical {
    /// Device that it is counted for; `None` = memory of another process, which counts there.
    slot: Option<u16>,
    part: Part,
    bytes: u64,
    /// Number of references through handles.
    handles: u64,
    mappings: u64,
    exported: bool,
}

/// A mapping in a range of addresses.
struct Mapping {
    bytes: u64,
    memory: u64,
}

#[derive(Default)]
struct State {
    /// Memory by its number here.
    memory: HashMap<u64, Physical>,
    /// Memory of each handle, and the number of references through it.
    handles: HashMap<u64, (u64, u64)>,
    /// Mappings by address.
    mappings: BTreeMap<u64, Mapping>,
    last: u64,
}

static STATE: Lock<State> = Lock::new();

impl State {
    fn add(&mut self, handle: u64, memory: Physical) {
        // A handle of this value that was there before is gone, though its end was not seen.
        self.drop_handle(handle, u64::MAX);
        self.last += 1;
        self.memory.insert(self.last, memory);
        self.handles.insert(handle, (self.last, 1));
    }

    /// Drops references through a handle.
    fn drop_handle(&mut self, handle: u64, most: u64) -> Option<u64> {
        let (memory, references) = self.handles.get_mut(&handle)?;
        let (memory, dropped) = (*memory, most.min(*references));
        *references -= dropped;
        if *references == 0 {
            self.handles.remove(&handle);
        }
        if let Some(physical) = self.memory.get_mut(&memory) {
            physical.handles -= dropped;
        }
        self.end_if_unused(memory);
        Some(memory)
    }

    /// Adds a reference through a handle.
    fn add_reference(&mut self, handle: u64, memory: u64) {
        let Some(physical) = self.memory.get_mut(&memory) else { return };
        physical.handles += 1;
        let (of, references) = self.handles.entry(handle).or_insert((memory, 0));
        if *of == memory {
            *references += 1;
        } else {
            (*of, *references) = (memory, 1);
        }
    }

    /// Memory that is mapped at an address.
    fn mapped_at(&self, address: u64) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some(mapping.memory)
    }

    fn map(&mut self, address: u64, bytes: u64, memory: u64) {
        let Some(physical) = self.memory.get_mut(&memory) else { return };
        physical.mappings += 1;
        if let Some(before) = self.mappings.insert(address, Mapping { bytes, memory }) {
            self.drop_mapping(before.memory);
        }
    }

    fn drop_mapping(&mut self, memory: u64) {
        if let Some(physical) = self.memory.get_mut(&memory) {
            physical.mappings -= 1;
        }
        self.end_if_unused(memory);
    }

    /// Counts memory out that has neither a handle nor a mapping.
    fn end_if_unused(&mut self, memory: u64) {
        let unused = |physical: &Physical| physical.handles == 0 && physical.mappings == 0;
        if !self.memory.get(&memory).is_some_and(unused) {
            return;
        }
        if let Some(physical) = self.memory.remove(&memory)
            && let Some(slot) = physical.slot
        {
            account::subtract(slot, physical.part, physical.bytes);
            if physical.exported {
                account::unexport(slot, physical.bytes);
            }
        }
    }
}

/// Runs a call that makes memory, of the device that its properties say.
fn created(
    real: *mut c_void,
    place: *mut c_void,
    bytes: usize,
    properties: *mut c_void,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let bytes = bytes as u64;
    let claimed = process::guarded("before an allocation", || {
        let here = device::current(real);
        // SAFETY: null, or the caller's own properties, which the driver reads too.
        let location = unsafe { properties.cast::<Properties>().as_ref() }?.location;
        match location.device() {
            Some(device) => {
                let slot = device::slot_of(device).or_else(|| device::by_number(real, device))?;
                Some((slot, Part::Virtual, claims::claim::<Cuda>(slot, bytes)))
            }
            None => Some((here?.slot, Part::Host, Claim::Counted)),
        }
    });
    let (slot, part, claim) = match claimed.flatten() {
        Some((_, _, Claim::Refused)) => return OUT_OF_MEMORY,
        Some((_, _, Claim::Uncounted)) | None => return call(),
        Some(counted) => counted,
    };
    let rc = if part == Part::Host { call() } else { claims::with_room::<Cuda>(slot, bytes, claim, call) };
    process::guarded("after an allocation", || {
        match (rc, part) {
            (SUCCESS, Part::Host) => account::add(slot, part, bytes),
            (SUCCESS, _) => account::settle(slot, part, bytes, bytes),
            (_, Part::Host) => return,
            _ => return account::unclaim(slot, bytes),
        }
        let memory = Physical { slot: Some(slot), part, bytes, handles: 1, mappings: 0, exported: false };
        STATE.lock().add(address_at::<u64>(place), memory);
    });
    rc
}

fn released(_: *mut c_void, handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    // Dropped before the driver can give the handle to other memory. A mapping holds the memory until it is known whether
    // the driver has released it.
    let memory = process::guarded("before memory is released", || {
        let mut state = STATE.lock();
        let memory = state.handles.get(&handle)?.0;
        state.memory.get_mut(&memory)?.mappings += 1;
        state.drop_handle(handle, 1)
    });
    let rc = call();
    process::guarded("after memory was released", || {
        let memory = memory.flatten()?;
        let mut state = STATE.lock();
        if rc != SUCCESS {
            state.add_reference(handle, memory);
        }
        state.drop_mapping(memory);
        Some(())
    });
    rc
}

fn retained(_: *mut c_void, place: *mut c_void, address: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after memory was retained", || {
            let mut state = STATE.lock();
            let memory = state.mapped_at(address as u64)?;
            state.add_reference(address_at::<u64>(place), memory);
            Some(())
        });
    }
    rc
}

fn mapped(
    _: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    handle: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after memory was mapped", || {
            let mut state = STATE.lock();
            let memory = state.handles.get(&handle)?.0;
            state.map(address, bytes as u64, memory);
            Some(())
        });
    }
    rc
}

fn unmapped(real: *mut c_void, address: CUdeviceptr, bytes: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    // Taken out before the driver can map other memory there; counted out once it has succeeded.
    let gone = process::guarded("before memory is unmapped", || {
        let mut state = STATE.lock();
        let end = address.saturating_add(bytes as u64);
        let starts: Vec<u64> = state.mappings.range(address..end).map(|(start, _)| *start).collect();
        starts.iter().filter_map(|start| Some((*start, state.mappings.remove(start)?))).collect::<Vec<_>>()
    });
    let rc = lend(real, call);
    process::guarded("after memory was unmapped", || {
        let mut state = STATE.lock();
        for (start, mapping) in gone.into_iter().flatten() {
            if rc == SUCCESS {
                state.drop_mapping(mapping.memory);
            } else {
                state.mappings.insert(start, mapping);
            }
        }
    });
    rc
}

fn imported(_: *mut c_void, place: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after memory was opened", || {
            let memory =
                Physical { slot: None, part: Part::Virtual, bytes: 0, handles: 1, mappings: 0, exported: false };
            STATE.lock().opened(address_at::<u64>(place), memory);
        });
    }
    rc
}

impl State {
    /// Enters memory of another process. If it is this process's own, the driver may return the handle that it has.
    fn opened(&mut self, handle: u64, memory: Physical) {
        match self.handles.get(&handle).copied() {
            Some((own, _)) => self.add_reference(handle, own),
            None => self.add(handle, memory),
        }
    }
}

fn exported(_: *mut c_void, handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS {
        process::guarded("after memory was exported", || {
            let mut state = STATE.lock();
            let (memory, _) = *state.handles.get(&handle)?;
            let physical = state.memory.get_mut(&memory).filter(|physical| !physical.exported)?;
            physical.exported = true;
            account::export(physical.slot?, physical.bytes);
            Some(())
        });
    }
    rc
}

memory_calls! {
    HANDLES: Memory;
    fn cuMemCreate(handle: *mut c_void, size: usize, prop: *mut c_void, flags: u64) [created(handle, size, prop)];
    fn cuMemExportToShareableHandle(shareableHandle: *mut c_void, handle: u64, handleType: c_uint, flags: u64) [exported(handle)];
    fn cuMemImportFromShareableHandle(handle: *mut c_void, osHandle: *mut c_void, shHandleType: c_uint) [imported(handle)];
    fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: u64) [mapped(ptr, size, handle)];
    fn cuMemRelease(handle: u64) [released(handle)];
    fn cuMemRetainAllocationHandle(handle: *mut c_void, addr: *mut c_void) [retained(handle, addr)];
}

memory_calls! {
    UNMAPS: Sync;
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) [unmapped(ptr, size)];
}

/// Empties the tables, in a forked child.
pub(super) fn forget_all() {
    STATE.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Physical {
        Physical { slot: None, part: Part::Virtual, bytes: 2 << 20, handles: 1, mappings: 0, exported: false }
    }

    #[test]
    fn memory_lasts_as_long_as_a_handle_or_a_mapping() {
        let mut state = State::default();
        state.add(7, memory());
        state.map(0x20_0000, 2 << 20, 1);
        state.drop_handle(7, 1);
        assert_eq!((state.memory.len(), state.mapped_at(0x3f_ffff), state.mapped_at(0x40_0000)), (1, Some(1), None));
        // The driver gives the handle to other memory; then the first is retained under another.
        state.add(7, memory());
        state.add_reference(9, 1);
        state.mappings.remove(&0x20_0000);
        state.drop_mapping(1);
        assert_eq!(state.memory.len(), 2);
        state.drop_handle(9, 1);
        assert_eq!(state.memory.keys().collect::<Vec<_>>(), [&2]);
        state.add_reference(7, 2);
        state.drop_handle(7, 1);
        assert_eq!(state.memory.len(), 1, "counted handles");
        state.drop_handle(7, 1);
        assert!(state.memory.is_empty() && state.handles.is_empty() && state.mappings.is_empty());
    }

    #[test]
    fn memory_whose_end_was_not_seen_ends_with_its_handle_or_place() {
        let mut state = State::default();
        state.add(7, memory());
        state.map(0x20_0000, 2 << 20, 1);
        state.add(7, memory());
        assert_eq!(state.memory.len(), 2, "the first is mapped");
        state.map(0x20_0000, 2 << 20, 2);
        assert_eq!(state.memory.keys().collect::<Vec<_>>(), [&2]);
        // The driver returns the handle that the process has.
        state.opened(7, Physical { bytes: 0, ..memory() });
        assert_eq!((state.memory.len(), state.handles[&7]), (1, (2, 2)));
        state.opened(8, Physical { bytes: 0, ..memory() });
        assert_eq!(state.handles[&8], (3, 1));
    }
}
