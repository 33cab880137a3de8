//! Virtual memory management: ranges of addresses, and memory that is mapped in them.
//!
//! Memory is a sealed memfd, of which the device's server keeps account for all processes that hold it. It belongs to the
//! process, not to a context, so a context of its own for each device (the *keeper*) stands for it at the device. Memory of
//! the host is a memfd, too, and in no account. A range lies in the arena of one context, and ends with it.

use crate::context::{Ctx, current};
use crate::edge::{In, Out};
use crate::process::{device, note_fds, of_the_machine};
use crate::result::{Error, Result};
use crate::stats::{self, COUNTERS, Counters};
use rustix::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use xsched_sim::client::{self, Ordering, lock};
use xsched_sim::memory::sealed_memfd;

/// Unit of addresses and memory, in bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
const DESCRIPTOR: c_int = 1;
/// Name of the memfds.
const NAME: &str = "fakecuda-memory";

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// Device of the location. Memory of the host is not supported.
    pub(crate) fn device(self) -> Result<usize> {
        self.place()?.ok_or(Error::NOT_SUPPORTED)
    }

    /// Device of the location; `None` for the host, which has one node.
    fn place(self) -> Result<Option<usize>> {
        match self.kind {
            1 => device(self.id).map(Some),
            3 if self.id != 0 => Err(Error::INVALID_VALUE),
            2..=4 => Ok(None),
            _ => Err(Error::INVALID_VALUE),
        }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    windows: usize,
    flags: [u8; 8],
}

impl Properties {
    /// Device of the memory; `None` for memory of the host.
    fn check(&self) -> Result<Option<usize>> {
        // CU_MEM_ALLOCATION_TYPE_PINNED
        if self.kind != 1 {
            return Err(Error::INVALID_VALUE);
        }
        if self.handles & !DESCRIPTOR != 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        self.location.place()
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    location: Location,
    flags: c_int,
}

/// Memory, in use until its last handle and mapping are gone.
pub(crate) struct Physical {
    handle: u64,
    file: OwnedFd,
    bytes: u64,
    properties: Properties,
    /// Context that stands for it at its device, and its number there; `None` for memory of the host.
    held: Option<(&'static client::Context, u64)>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some((keeper, number)) = self.held {
            // When the device is gone, so is the account.
            let _ = keeper.drop_hold(number);
        }
    }
}

/// Memory in a range of addresses.
struct Mapped {
    bytes: u64,
    memory: Arc<Physical>,
    /// CUmemAccess_flags of each device that was given access.
    access: BTreeMap<c_int, c_int>,
    /// Number of this mapping among all.
    number: u64,
}

/// A reserved range of addresses.
struct Reserved {
    ctx: Arc<Ctx>,
    /// Block of the arena that contains the range.
    block: u64,
    bytes: u64,
    /// Memory by its address.
    mapped: BTreeMap<u64, Mapped>,
}

#[derive(Default)]
struct State {
    /// Handles with their counts.
    handles: BTreeMap<u64, (Arc<Physical>, u64)>,
    /// Ranges by address.
    ranges: BTreeMap<u64, Reserved>,
    /// Ranges that ended with their contexts, with their sizes. With NVIDIA's driver they stay until they are freed.
    ended: BTreeMap<u64, u64>,
    keepers: BTreeMap<usize, &'static client::Context>,
    last: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    handles: BTreeMap::new(),
    ranges: BTreeMap::new(),
    ended: BTreeMap::new(),
    keepers: BTreeMap::new(),
    last: 0,
});

/// Number of the next mapping.
static MAPPINGS: AtomicU64 = AtomicU64::new(1);

/// Context that stands for the process at a device.
fn keeper(state: &mut State, number: usize) -> Result<&'static client::Context> {
    if let Some(&known) = state.keepers.get(&number) {
        return Ok(known);
    }
    let machine = u8::try_from(of_the_machine(number)).map_err(|_| Error::INVALID_DEVICE)?;
    let made = client::Context::new(machine, Ordering::Free)?;
    note_fds(&made.fds());
    state.keepers.insert(number, made);
    Ok(made)
}

/// Context that stands for the process at a device, for memory that belongs to no context.
pub(crate) fn keeper_of(number: usize) -> Result<&'static client::Context> {
    keeper(&mut lock(&STATE), number)
}

impl State {
    /// Puts memory into account and gives it a handle.
    fn add(&mut self, number: Option<usize>, file: OwnedFd, bytes: u64, properties: Properties) -> Result<u64> {
        let keeper = number.map(|number| keeper(self, number)).transpose()?;
        let held = keeper.map(|keeper| Ok::<_, Error>((keeper, keeper.hold(&file)?.0))).transpose()?;
        stats::tell_left(left);
        self.last += 1;
        let handle = 0x5a << 40 | self.last << 6;
        let memory = Arc::new(Physical { handle, file, bytes, properties, held });
        self.handles.insert(handle, (memory, 1));
        Ok(handle)
    }

    fn handle(&mut self, handle: c_ulonglong) -> Result<&mut (Arc<Physical>, u64)> {
        self.handles.get_mut(&handle).ok_or_else(|| {
            stats::illegal(format!("memory handle {handle:#x} does not exist"));
            Error::INVALID_VALUE
        })
    }

    /// The range that contains another.
    fn range(&mut self, wanted: &Range<u64>) -> Result<&mut Reserved> {
        let found = self.ranges.range_mut(..=wanted.start).next_back();
        let inside = |(start, range): &(&u64, &mut Reserved)| wanted.end <= *start + range.bytes;
        found.filter(inside).map(|(_, range)| range).ok_or(Error::INVALID_VALUE)
    }
}

impl Reserved {
    /// Addresses of the mappings that are the whole of a range, without gaps.
    fn whole(&self, wanted: &Range<u64>) -> Result<Vec<u64>> {
        let (mut next, mut found) = (wanted.start, Vec::new());
        while next < wanted.end {
            let mapped = self.mapped.get(&next).ok_or(Error::INVALID_VALUE)?;
            found.push(next);
            next += mapped.bytes;
        }
        if next == wanted.end { Ok(found) } else { Err(Error::INVALID_VALUE) }
    }

    /// Offset of an address in the arena.
    fn offset(&self, address: u64) -> Result<u64> {
        let pointer = std::ptr::with_exposed_provenance::<c_void>(address as usize);
        self.ctx.sim.offset(pointer, 0).ok_or(Error::INVALID_VALUE)
    }

    fn unmap(&mut self, at: u64) -> Result<()> {
        let offset = self.offset(at)?;
        self.ctx.sim.restore(offset)?;
        self.mapped.remove(&at);
        Ok(())
    }
}

fn units(bytes: usize) -> Result<u64> {
    let bytes = bytes as u64;
    if bytes > 0 && bytes.is_multiple_of(GRANULARITY) { Ok(bytes) } else { Err(Error::INVALID_VALUE) }
}

fn span(address: u64, bytes: usize) -> Result<Range<u64>> {
    let end = address.checked_add(units(bytes)?).filter(|_| address.is_multiple_of(GRANULARITY));
    end.map(|end| address..end).ok_or(Error::INVALID_VALUE)
}

/// A wanted address is a wish, which this driver does not grant.
pub(crate) fn reserve(out: Out<u64>, bytes: usize, alignment: usize, _: u64, flags: c_ulonglong) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    let bytes = units(bytes)?;
    if flags != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
        return Err(Error::INVALID_VALUE);
    }
    let alignment = GRANULARITY.max(alignment as u64);
    let room = bytes.checked_add(alignment).ok_or(Error::OUT_OF_MEMORY)?;
    // Addresses alone need no memory.
    let block = lock(&ctx.sim.heaps).device.alloc(room).ok_or(Error::OUT_OF_MEMORY)?;
    let start = (ctx.sim.address(block).expose_provenance() as u64).next_multiple_of(alignment);
    stats::tell_left(left);
    let mut state = lock(&STATE);
    state.ended.retain(|&ended, &mut length| ended + length <= start || start + bytes <= ended);
    state.ranges.insert(start, Reserved { ctx, block, bytes, mapped: BTreeMap::new() });
    out.put(start)
}

pub(crate) fn unreserve(address: u64, bytes: usize) -> Result<()> {
    let mut state = lock(&STATE);
    if state.ended.get(&address) == Some(&(bytes as u64)) {
        state.ended.remove(&address);
        return Ok(());
    }
    let Some(range) = state.ranges.get(&address).filter(|range| range.bytes == bytes as u64) else {
        stats::illegal(format!("no reserved range begins at {address:#x}"));
        return Err(Error::INVALID_VALUE);
    };
    if !range.mapped.is_empty() {
        return Err(Error::INVALID_VALUE);
    }
    let (ctx, block) = (range.ctx.clone(), range.block);
    state.ranges.remove(&address);
    drop(state);
    Ok(ctx.sim.release(block, |heaps| &mut heaps.device)?)
}

pub(crate) fn create(out: Out<u64>, bytes: usize, properties: In<Properties>, flags: c_ulonglong) -> Result<()> {
    let (out, properties) = (out.required()?, properties.get()?);
    let number = properties.check()?;
    let bytes = units(bytes)?;
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let file = usize::try_from(bytes).ok().and_then(|bytes| sealed_memfd(NAME, bytes).ok());
    out.put(lock(&STATE).add(number, file.ok_or(Error::OUT_OF_MEMORY)?, bytes, properties)?)
}

/// The memory of a handle.
pub(crate) fn memory_of(handle: u64) -> Result<Arc<Physical>> {
    Ok(lock(&STATE).handle(handle)?.0.clone())
}

/// The memory of the mapping in which a range lies.
pub(crate) fn memory_at(address: u64, bytes: usize) -> Result<Arc<Physical>> {
    let mut state = lock(&STATE);
    let end = address.checked_add(bytes as u64).ok_or(Error::INVALID_VALUE)?;
    let found = state.range(&(address..end))?.mapped.range(..=address).next_back();
    let inside = found.filter(|(at, mapped)| end <= *at + mapped.bytes);
    inside.map(|(_, mapped)| mapped.memory.clone()).ok_or(Error::INVALID_VALUE)
}

/// A descriptor of the memory of the mapping in which a range lies.
pub(crate) fn copy_at(address: u64, bytes: usize) -> Result<OwnedFd> {
    let memory = memory_at(address, bytes)?;
    rustix::io::fcntl_dupfd_cloexec(&memory.file, 3).map_err(|_| Error::OUT_OF_MEMORY)
}

pub(crate) fn release(handle: c_ulonglong) -> Result<()> {
    let mut state = lock(&STATE);
    let known = state.handle(handle);
    let (_, count) = known.inspect_err(|_| stats::illegal(format!("no memory has the handle {handle:#x}")))?;
    *count -= 1;
    if *count == 0 {
        state.handles.remove(&handle);
    }
    Ok(())
}

pub(crate) fn retain(out: Out<u64>, address: *mut c_void) -> Result<()> {
    let out = out.required()?;
    let at = address.addr() as u64;
    let mut state = lock(&STATE);
    let range = state.range(&(at..at + 1))?;
    let found = range.mapped.range(..=at).next_back().filter(|(start, mapped)| at < *start + mapped.bytes);
    let memory = found.map(|(_, mapped)| mapped.memory.clone()).ok_or(Error::INVALID_VALUE)?;
    let handle = memory.handle;
    state.handles.entry(handle).or_insert((memory, 0)).1 += 1;
    out.put(handle)
}

pub(crate) fn map(address: u64, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong) -> Result<()> {
    let wanted = span(address, bytes)?;
    let mut state = lock(&STATE);
    let memory = state.handle(handle)?.0.clone();
    // An offset is for the future, by cuda.h.
    if offset != 0 || flags != 0 || bytes as u64 > memory.bytes {
        return Err(Error::INVALID_VALUE);
    }
    let range = state.range(&wanted)?;
    if range.mapped.iter().any(|(&start, other)| start < wanted.end && wanted.start < start + other.bytes) {
        return Err(Error::INVALID_VALUE);
    }
    let at = range.offset(address)?;
    range.ctx.sim.map(at, &memory.file, 0, bytes as u64)?;
    let number = MAPPINGS.fetch_add(1, Relaxed);
    range.mapped.insert(address, Mapped { bytes: bytes as u64, memory, access: BTreeMap::new(), number });
    Ok(())
}

/// Does not wait for work that uses the memory, as drivers do not.
pub(crate) fn unmap(address: u64, bytes: usize) -> Result<()> {
    let wanted = span(address, bytes)?;
    let mut state = lock(&STATE);
    let ended = state.ended.range(..=wanted.start).next_back();
    if ended.is_some_and(|(start, bytes)| wanted.end <= start + bytes) {
        return Ok(());
    }
    let range = state.range(&wanted)?;
    range.whole(&wanted)?.into_iter().try_for_each(|at| range.unmap(at))
}

pub(crate) fn set_access(address: u64, bytes: usize, given: In<Access>, count: usize) -> Result<()> {
    let (wanted, given) = (span(address, bytes)?, given.list(count)?);
    for access in &given {
        access.location.place()?;
        // CU_MEM_ACCESS_FLAGS_PROT_NONE, READ, READWRITE.
        if ![0, 1, 3].contains(&access.flags) {
            return Err(Error::INVALID_VALUE);
        }
    }
    let mut state = lock(&STATE);
    let range = state.range(&wanted)?;
    for at in range.whole(&wanted)? {
        let Some(mapped) = range.mapped.get_mut(&at) else { continue };
        let devices = given.iter().filter(|access| access.location.kind == 1);
        mapped.access.extend(devices.map(|access| (access.location.id, access.flags)));
    }
    Ok(())
}

pub(crate) fn get_access(out: Out<c_ulonglong>, location: In<Location>, address: u64) -> Result<()> {
    let (out, location) = (out.required()?, location.get()?);
    location.device()?;
    let found = of(address).ok_or(Error::INVALID_VALUE)?.mapping.ok_or(Error::INVALID_VALUE)?;
    out.put(found.access.get(&location.id).copied().unwrap_or(0) as c_ulonglong)
}

pub(crate) fn granularity(out: Out<usize>, properties: In<Properties>, option: c_uint) -> Result<()> {
    properties.get()?.check()?;
    // Minimum, recommended.
    if option > 1 {
        return Err(Error::INVALID_VALUE);
    }
    out.put(GRANULARITY as usize)
}

pub(crate) fn properties(out: Out<Properties>, handle: c_ulonglong) -> Result<()> {
    let out = out.required()?;
    out.put(lock(&STATE).handle(handle)?.0.properties)
}

pub(crate) fn export(out: Out<c_void>, handle: c_ulonglong, kind: c_int, flags: c_ulonglong) -> Result<()> {
    let out = out.required()?;
    let memory = lock(&STATE).handle(handle)?.0.clone();
    if kind != DESCRIPTOR || memory.properties.handles & DESCRIPTOR == 0 || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(&memory.file, 3).map_err(|_| Error::OUT_OF_MEMORY)?;
    // SAFETY: for this kind of handle the place is one of a descriptor, by cuda.h.
    unsafe { std::mem::transmute::<Out<c_void>, Out<RawFd>>(out) }.put(copy.into_raw_fd())
}

/// Imports memory, whose descriptor stays the caller's.
pub(crate) fn import(out: Out<u64>, descriptor: *mut c_void, kind: c_int) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    let number = RawFd::try_from(descriptor.addr()).ok().filter(|_| kind == DESCRIPTOR).ok_or(Error::INVALID_VALUE)?;
    if !std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|path| path.to_string_lossy().contains(NAME)) {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: an open descriptor, as just seen, used only to duplicate it.
    let file = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 3);
    let file = file.map_err(|_| Error::INVALID_VALUE)?;
    let bytes = rustix::fs::fstat(&file).map_err(|_| Error::INVALID_VALUE)?.st_size.cast_unsigned();
    let location = Location { kind: 1, id: ctx.device as c_int };
    let properties = Properties { kind: 1, handles: DESCRIPTOR, location, windows: 0, flags: [0; 8] };
    out.put(lock(&STATE).add(Some(ctx.device), file, bytes, properties)?)
}

/// The mapping that contains an address.
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) handles: c_int,
    /// The memory is the device's.
    pub(crate) on_device: bool,
    pub(crate) number: u64,
    /// The memory was made for network cards; for the unit that decompresses.
    pub(crate) rdma: bool,
    pub(crate) decompress: bool,
    access: BTreeMap<c_int, c_int>,
}

/// The reserved range that contains an address.
pub(crate) struct Known {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) mapping: Option<Mapping>,
}

/// State of an address; `None` if it is in no reserved range.
pub(crate) fn of(address: u64) -> Option<Known> {
    let state = lock(&STATE);
    let (&start, range) = state.ranges.range(..=address).next_back()?;
    let mapped = range.mapped.range(..=address).next_back();
    let mapped = mapped.filter(|(at, mapped)| address < *at + mapped.bytes);
    let mapping = mapped.map(|(&start, mapped)| Mapping {
        start,
        bytes: mapped.bytes,
        handles: mapped.memory.properties.handles,
        on_device: mapped.memory.held.is_some(),
        number: mapped.number,
        rdma: mapped.memory.properties.flags[1] != 0,
        decompress: mapped.memory.properties.flags[2] & 2 != 0,
        access: mapped.access.clone(),
    });
    (address < start + range.bytes).then_some(Known { start, bytes: range.bytes, mapping })
}

/// Checks that the device may use a range of a reserved one; `None` if it is in no reserved range.
pub(crate) fn check(address: u64, bytes: usize) -> Option<Result<()>> {
    let state = lock(&STATE);
    let (&start, range) = state.ranges.range(..=address).next_back()?;
    if address >= start + range.bytes {
        return None;
    }
    let (mut next, end, mut on_host) = (address, address.saturating_add(bytes as u64), false);
    while next < end {
        let found = range.mapped.range(..=next).next_back().filter(|(at, mapped)| next < *at + mapped.bytes);
        let readable =
            |mapped: &Mapped| mapped.access.get(&(range.ctx.device as c_int)).is_some_and(|flags| *flags != 0);
        match found {
            Some((at, mapped)) if readable(mapped) => {
                on_host |= mapped.memory.held.is_none();
                next = at + mapped.bytes;
            }
            _ => return Some(Err(Error::INVALID_VALUE)),
        }
    }
    if on_host {
        Counters::add(&COUNTERS.host_ranges);
    }
    Some(Ok(()))
}

/// Drops the ranges of a context that ends, with the mappings in them. Handles remain.
pub(crate) fn forget(ctx: &Ctx) {
    let mut state = lock(&STATE);
    let State { ranges, ended, .. } = &mut *state;
    ended.extend(ranges.iter().filter(|(_, range)| range.ctx.id == ctx.id).map(|(start, range)| (*start, range.bytes)));
    ranges.retain(|_, range| range.ctx.id != ctx.id);
}

/// Numbers of handles and of ranges that are left.
fn left() -> (usize, usize) {
    let state = lock(&STATE);
    (state.handles.len(), state.ranges.len() + state.ended.len())
}
