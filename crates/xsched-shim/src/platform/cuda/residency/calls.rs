//! The driver's calls that make and move chunks.

use std::collections::{BTreeMap, HashMap};

use xsched_core::residency::{Driver, Stored};
use xsched_vendor::functions;

use super::super::types::*;
use crate::lock::Lock;
use crate::platform::shared::search_beside;

pub(super) type Handle = u64;

/// CUmemLocation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    kind: c_int,
    id: c_int,
}

/// CUmemAllocationProp.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    windows: usize,
    /// Compression, RDMA, usage (16 bits), four bytes that are reserved.
    flags: [u8; 8],
}

impl Properties {
    /// True: memory of this device that may be replaced by other memory with these properties.
    pub(super) fn can_move(&self, device: CUdevice) -> bool {
        let here = self.kind == PINNED && self.location.is_on(device);
        here && self.windows == 0 && u16::from_le_bytes([self.flags[2], self.flags[3]]) & USAGE_TILES == 0
    }
}

/// CUmemAccessDesc.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

impl Access {
    /// Adds an access to those of a mapping.
    pub(super) fn join(self, all: &mut Vec<Access>) {
        all.retain(|other| other.location != self.location);
        all.push(self);
    }

    /// A device may read and write.
    pub(super) fn whole(device: CUdevice) -> Access {
        Access { location: Location { kind: ON_DEVICE, id: device }, flags: READ_WRITE }
    }

    /// True: the device may read and write.
    pub(super) fn is_whole(&self, device: CUdevice) -> bool {
        self.location.is_on(device) && self.flags == READ_WRITE
    }
}

impl Location {
    pub(super) fn is_on(self, device: CUdevice) -> bool {
        self == Location { kind: ON_DEVICE, id: device }
    }

    /// Device of the location.
    pub(super) fn device(self) -> Option<CUdevice> {
        (self.kind == ON_DEVICE).then_some(self.id)
    }
}

/// Properties of a chunk's memory, and access to it, for chunks that do not have the usual ones.
pub(super) struct Traits {
    pub(super) properties: Properties,
    pub(super) access: Vec<Access>,
}

/// CU_MEM_ALLOCATION_TYPE_PINNED.
const PINNED: c_int = 1;
/// CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA.
const ON_DEVICE: c_int = 1;
const ON_NODE: c_int = 3;
/// CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
const READ_WRITE: c_int = 3;
/// CU_MEM_CREATE_USAGE_TILE_POOL, CU_MEM_CREATE_USAGE_HW_DECOMPRESS.
const USAGE_TILES: u16 = 1;
const USAGE_DECOMPRESS: u8 = 2;
/// CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, HOST_NUMA_ID, HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
const ATTRIBUTE_VIRTUAL: c_int = 102;
const ATTRIBUTE_NODE: c_int = 134;
const ATTRIBUTE_VIRTUAL_HOST: c_int = 141;
/// CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, by which drivers align rows; GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED.
const ATTRIBUTE_ROWS: c_int = 14;
const ATTRIBUTE_RDMA: c_int = 110;
/// CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
const ATTRIBUTE_DESCRIPTORS: c_int = 103;
const DESCRIPTOR: c_int = 1;

functions! {
    /// Functions of the driver, with signatures as in cuda.h.
    pub(super) struct Functions -> CUresult;
    needed {
        reserve: c"cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
        unreserve: c"cuMemAddressFree" (CUdeviceptr, usize);
        create: c"cuMemCreate" (*mut Handle, usize, *const Properties, u64);
        release: c"cuMemRelease" (Handle);
        map: c"cuMemMap" (CUdeviceptr, usize, usize, Handle, u64);
        unmap: c"cuMemUnmap" (CUdeviceptr, usize);
        set_access: c"cuMemSetAccess" (CUdeviceptr, usize, *const Access, usize);
        copy: c"cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
        stream_create: c"cuStreamCreate" (*mut CUstream, c_uint);
        stream_synchronize: c"cuStreamSynchronize" (CUstream);
        synchronize: c"cuCtxSynchronize" ();
        info: c"cuMemGetInfo_v2" (*mut usize, *mut usize);
        get_current: c"cuCtxGetCurrent" (*mut CUcontext);
        set_current: c"cuCtxSetCurrent" (CUcontext);
        get_device: c"cuCtxGetDevice" (*mut CUdevice);
        device_attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, CUdevice);
        exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
        primary_state: c"cuDevicePrimaryCtxGetState" (CUdevice, *mut c_uint, *mut c_int);
        event_create: c"cuEventCreate" (*mut CUevent, c_uint);
        event_record: c"cuEventRecord" (CUevent, CUstream);
        event_record_per_thread: c"cuEventRecord_ptsz" (CUevent, CUstream);
        event_query: c"cuEventQuery" (CUevent);
        event_synchronize: c"cuEventSynchronize" (CUevent);
        event_destroy: c"cuEventDestroy_v2" (CUevent);
        pool_in_use: c"cuDeviceGetMemPool" (*mut usize, CUdevice);
        export: c"cuMemExportToShareableHandle" (*mut c_void, Handle, c_int, u64);
        properties_of: c"cuMemGetAllocationPropertiesFromHandle" (*mut c_void, Handle);
    }
}

/// Contexts of the process, whose commands may touch chunks, with the device that one is the primary context of.
static CONTEXTS: Lock<Vec<(usize, Option<CUdevice>)>> = Lock::new();

/// Notes a context of the process.
pub(super) fn context_made(context: usize, primary_of: Option<CUdevice>) {
    let mut contexts = CONTEXTS.lock();
    if contexts.iter().all(|(other, _)| *other != context) {
        contexts.push((context, primary_of));
    }
}

pub(super) fn context_ends(context: usize) {
    CONTEXTS.lock().retain(|(other, _)| *other != context);
}

pub(super) fn primary_ends(device: CUdevice) {
    CONTEXTS.lock().retain(|(_, of)| *of != Some(device));
}

/// Reports whether all commands of the process are of one context.
pub(super) fn has_one_context() -> bool {
    CONTEXTS.lock().len() <= 1
}

/// Empties the list, in a forked child.
pub(super) fn forget_all() {
    CONTEXTS.forget();
}

/// The functions, for one context and its device.
pub(super) struct Calls {
    pub(super) functions: Functions,
    pub(super) context: usize,
    device: CUdevice,
    node: c_int,
    /// Unit in which rows of pitched memory are aligned, in bytes.
    pub(super) row_unit: u64,
    /// Properties of the chunks of plain memory: like those of the driver's own.
    usual: Properties,
    /// Chunks with others, by address.
    pub(super) traits: Lock<BTreeMap<u64, Traits>>,
    /// Other devices that have access to all plain memory of this one.
    peers: Lock<Vec<CUdevice>>,
    /// Stream of the moves, which waits for no other one.
    stream: usize,
    /// Host memory that no chunk uses, by its size in bytes.
    store: Lock<HashMap<u64, Vec<Stored<Handle>>>>,
}

fn ok(result: CUresult) -> Result<(), CUresult> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}

/// Tries again what gives something back, if it fails.
fn twice(call: impl Fn() -> Result<(), CUresult>) -> Result<(), CUresult> {
    call().or_else(|_| call())
}

impl Calls {
    /// The functions beside `real`, for the calling thread's context. `None` if memory cannot move there: the context is an
    /// MPS server's, or a part of the driver is missing.
    pub(super) fn beside(real: *mut c_void) -> Option<Calls> {
        // SAFETY: the driver's functions have cuda.h's signatures.
        let functions = unsafe { Functions::load(search_beside(real as usize)) }.ok()?;
        let (mut context, mut device, mut node, mut row_unit) = (std::ptr::null_mut(), 0, 0, 0);
        let mut value = 0;
        let mut stream = std::ptr::null_mut();
        // SAFETY: pointers to locals.
        let answered = unsafe {
            let has = |device, which| {
                let mut value = 0;
                (functions.device_attribute)(&mut value, which, device) == SUCCESS && value == 1
            };
            (functions.get_current)(&mut context) == SUCCESS
                && !context.is_null()
                && (functions.get_device)(&mut device) == SUCCESS
                // A fault of one client of a server ends the others.
                && !has(device, ATTRIBUTE_MPS)
                && has(device, ATTRIBUTE_VIRTUAL)
                && has(device, ATTRIBUTE_VIRTUAL_HOST)
                && (functions.device_attribute)(&mut node, ATTRIBUTE_NODE, device) == SUCCESS
                && (functions.device_attribute)(&mut row_unit, ATTRIBUTE_ROWS, device) == SUCCESS
        };
        // SAFETY: pointer to a local.
        let made = answered && unsafe { (functions.stream_create)(&mut stream, STREAM_NON_BLOCKING) } == SUCCESS;
        // SAFETY: pointer to a local. An older driver does not know an attribute.
        let has =
            |which| made && unsafe { (functions.device_attribute)(&mut value, which, device) } == SUCCESS && value == 1;
        let [rdma, descriptors] = [ATTRIBUTE_RDMA, ATTRIBUTE_DESCRIPTORS].map(has);
        let location = Location { kind: ON_DEVICE, id: device };
        let usual = Properties { kind: PINNED, handle_types: 0, location, windows: 0, flags: [0; 8] };
        let (context, stream) = (context as usize, stream as usize);
        if made {
            context_made(context, None);
        }
        let mut calls = made.then(|| Calls {
            functions,
            context,
            device,
            node: node.max(0),
            row_unit: u64::try_from(row_unit).unwrap_or(0).max(1),
            usual,
            traits: Lock::new(),
            peers: Lock::new(),
            stream,
            store: Lock::new(),
        })?;
        calls.usual = calls.accepted(rdma, descriptors);
        Some(calls)
    }

    /// Properties of the driver's own memory, as far as other memory may have them, and such that chunks can be shared.
    fn accepted(&self, rdma: bool, descriptors: bool) -> Properties {
        let flags = |decompress| [0, rdma.into(), decompress, 0, 0, 0, 0, 0];
        let handle_types = if descriptors { DESCRIPTOR } else { 0 };
        let wishes = [(handle_types, flags(USAGE_DECOMPRESS)), (handle_types, flags(0)), (handle_types, [0; 8])];
        let wishes = wishes.map(|(handle_types, flags)| Properties { handle_types, flags, ..self.usual });
        let accepted = wishes.into_iter().find(|wish| {
            let made = self.create_with(super::chunks::UNIT, wish);
            made.is_ok_and(|handle| Driver::release(&mut &*self, handle).is_ok())
        });
        accepted.unwrap_or(self.usual)
    }

    /// Reports whether chunks can be shared with other processes.
    pub(super) fn is_exportable(&self) -> bool {
        self.usual.handle_types != 0
    }

    /// Plain memory can be used by network cards; by the unit that decompresses.
    pub(super) fn abilities(&self) -> (bool, bool) {
        (self.usual.flags[1] != 0, self.usual.flags[2] & USAGE_DECOMPRESS != 0)
    }

    /// Access to chunks that have no traits of their own.
    fn usual_access(&self) -> Vec<Access> {
        let peers = self.peers.lock();
        let all = std::iter::once(self.device).chain(peers.iter().copied());
        all.map(Access::whole).collect()
    }

    /// Gives another device access to plain memory that is made or moved from now on.
    pub(super) fn add_peer(&self, device: CUdevice) {
        let mut peers = self.peers.lock();
        if device != self.device && !peers.contains(&device) {
            peers.push(device);
        }
    }

    /// Device of the calling thread's context.
    pub(super) fn current_device(&self) -> Option<CUdevice> {
        let mut device = 0;
        // SAFETY: pointer to a local.
        (unsafe { (self.functions.get_device)(&mut device) } == SUCCESS).then_some(device)
    }

    /// Pool that the device uses unless another is named.
    pub(super) fn pool_in_use(&self) -> Option<usize> {
        let mut pool = 0;
        // SAFETY: pointer to a local.
        (unsafe { (self.functions.pool_in_use)(&mut pool, self.device) } == SUCCESS).then_some(pool)
    }

    /// Reports whether the calling thread may call what a capture of its mode forbids.
    pub(super) fn is_relaxed(&self) -> bool {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: pointers to a local; the thread gets back the mode that it had.
        unsafe {
            (self.functions.exchange_capture_mode)(&mut mode) == SUCCESS && {
                let before = mode;
                (self.functions.exchange_capture_mode)(&mut mode) == SUCCESS && before == CAPTURE_RELAXED
            }
        }
    }

    /// Reports whether the calling thread's context is that of the chunks.
    pub(super) fn is_current(&self) -> bool {
        let mut context = std::ptr::null_mut();
        // SAFETY: pointer to a local.
        unsafe { (self.functions.get_current)(&mut context) == SUCCESS && context as usize == self.context }
    }

    /// Makes the chunks' context current for a thread of this library, whose calls are no part of anyone's capture.
    pub(super) fn enter_context(&self) -> bool {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: the context whose end is noted before it comes; pointer to a local.
        unsafe {
            (self.functions.set_current)(self.context as CUcontext) == SUCCESS
                && (self.functions.exchange_capture_mode)(&mut mode) == SUCCESS
        }
    }

    /// Reports whether a device has no primary context.
    pub(super) fn is_gone(&self, device: CUdevice) -> bool {
        let (mut flags, mut active) = (0, 1);
        // SAFETY: pointers to locals.
        unsafe { (self.functions.primary_state)(device, &mut flags, &mut active) == SUCCESS && active == 0 }
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn is_of(&self, device: CUdevice) -> bool {
        device == self.device
    }

    /// Waits for all commands of the chunks' context.
    pub(super) fn synchronize_own(&self) -> Result<(), CUresult> {
        self.synchronize_one(self.context)
    }

    /// Waits for all commands of the process. A context that ends meanwhile has none left.
    pub(super) fn synchronize(&self) -> Result<(), CUresult> {
        let all = CONTEXTS.lock().clone();
        for (context, _) in all.into_iter().filter(|(context, _)| *context != self.context) {
            let lives = CONTEXTS.lock().iter().any(|(other, _)| *other == context);
            if lives {
                let _ = self.synchronize_one(context);
            }
        }
        self.synchronize_own()
    }

    fn synchronize_one(&self, context: usize) -> Result<(), CUresult> {
        let mut before = std::ptr::null_mut();
        // SAFETY: pointer to a local; a context of the process, and the calling thread gets back the one that it had.
        unsafe {
            ok((self.functions.get_current)(&mut before))?;
            if before as usize == context {
                return ok((self.functions.synchronize)());
            }
            ok((self.functions.set_current)(context as CUcontext))?;
            let result = ok((self.functions.synchronize)());
            (self.functions.set_current)(before);
            result
        }
    }

    /// Memory of the device that nobody has, in bytes, in the calling thread's context.
    pub(super) fn unused(&self) -> Option<u64> {
        let (mut unused, mut total) = (0, 0);
        // SAFETY: pointers to locals.
        (unsafe { (self.functions.info)(&mut unused, &mut total) } == SUCCESS).then_some(unused as u64)
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, CUresult> {
        let mut at = 0;
        // SAFETY: pointer to a local.
        ok(unsafe { (self.functions.reserve)(&mut at, bytes as usize, 0, 0, 0) }).map(|()| at)
    }

    pub(super) fn unreserve(&self, at: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: a range that was reserved here, in which nothing is mapped.
        twice(|| ok(unsafe { (self.functions.unreserve)(at, bytes as usize) }))
    }

    pub(super) fn create_with(&self, bytes: u64, wanted: &Properties) -> Result<Handle, CUresult> {
        let mut handle = 0;
        // SAFETY: pointers to a local, and to properties of the driver's layout.
        ok(unsafe { (self.functions.create)(&mut handle, bytes as usize, wanted, 0) }).map(|()| handle)
    }

    /// Takes a mapping away that is of no use.
    pub(super) fn unmap_surely(&self, at: u64, bytes: u64) {
        let _ = twice(|| Driver::unmap(&mut &*self, at, bytes));
    }

    /// Makes memory of the store.
    fn make(&self, bytes: u64) -> Result<Stored<Handle>, CUresult> {
        let mut driver = self;
        let location = Location { kind: ON_NODE, id: self.node };
        let handle = self.create_with(bytes, &Properties { location, flags: [0; 8], handle_types: 0, ..self.usual })?;
        let mapped = self.reserve(bytes).and_then(|at| {
            let shown = driver
                .map(at, bytes, handle)
                .and_then(|()| driver.allow(at, bytes).inspect_err(|_| self.unmap_surely(at, bytes)));
            shown.map(|()| at).inspect_err(|_| {
                let _ = self.unreserve(at, bytes);
            })
        });
        mapped.map(|at| Stored { handle, at }).inspect_err(|_| {
            let _ = driver.release(handle);
        })
    }
}

/// CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING.
const MARK: c_uint = 3;

/// Event after the copies that were enqueued before it.
pub(super) struct Mark<'a> {
    calls: &'a Calls,
    event: CUevent,
}

impl Mark<'_> {
    fn wait(&self) -> Result<(), CUresult> {
        // SAFETY: an event of this value.
        ok(unsafe { (self.calls.functions.event_synchronize)(self.event) })
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // SAFETY: an event of this value, which ends with it. The driver keeps one that is not over until it is.
        unsafe { (self.calls.functions.event_destroy)(self.event) };
    }
}

impl<'a> Driver for &'a Calls {
    type Handle = Handle;
    type Mark = Mark<'a>;
    type Error = CUresult;

    fn create(&mut self, at: u64, bytes: u64) -> Result<Handle, CUresult> {
        let own = self.traits.lock().get(&at).map(|traits| traits.properties);
        self.create_with(bytes, &own.unwrap_or(self.usual))
    }

    fn release(&mut self, handle: Handle) -> Result<(), CUresult> {
        // SAFETY: a handle that was made here, and that is not released if that fails.
        twice(|| ok(unsafe { (self.functions.release)(handle) }))
    }

    fn map(&mut self, at: u64, bytes: u64, handle: Handle) -> Result<(), CUresult> {
        // SAFETY: a part of a reserved range, with nothing mapped there.
        ok(unsafe { (self.functions.map)(at, bytes as usize, 0, handle, 0) })
    }

    fn allow(&mut self, at: u64, bytes: u64) -> Result<(), CUresult> {
        let own = self.traits.lock().get(&at).map(|traits| traits.access.clone());
        let access = own.unwrap_or_else(|| self.usual_access());
        // SAFETY: mapped memory; a list that lives on.
        ok(unsafe { (self.functions.set_access)(at, bytes as usize, access.as_ptr(), access.len()) })
    }

    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: one whole mapping, which the device does not use now.
        ok(unsafe { (self.functions.unmap)(at, bytes as usize) })
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: mapped memory on both sides, until the stream has been waited for.
        ok(unsafe { (self.functions.copy)(to, from, bytes as usize, self.stream as CUstream) })
    }

    fn mark(&mut self) -> Result<Mark<'a>, CUresult> {
        let mut event = std::ptr::null_mut();
        // SAFETY: pointer to a local; a stream of this library.
        unsafe {
            ok((self.functions.event_create)(&mut event, MARK))?;
            let mark = Mark { calls: self, event };
            ok((self.functions.event_record)(event, self.stream as CUstream)).map(|()| mark)
        }
    }

    fn reach(&mut self, mark: Mark<'a>) -> Result<(), CUresult> {
        mark.wait()
    }

    fn finish(&mut self) -> Result<(), CUresult> {
        // SAFETY: a stream of this library.
        ok(unsafe { (self.functions.stream_synchronize)(self.stream as CUstream) })
    }

    fn take(&mut self, bytes: u64) -> Result<Stored<Handle>, CUresult> {
        let kept = self.store.lock().get_mut(&bytes).and_then(Vec::pop);
        kept.map_or_else(|| self.make(bytes), Ok)
    }

    fn give(&mut self, stored: Stored<Handle>, bytes: u64) {
        self.store.lock().entry(bytes).or_default().push(stored);
    }
}

impl Calls {
    /// Releases the memory of the store that no chunk uses.
    pub(super) fn empty_store(&self) {
        let mut driver = self;
        for (bytes, all) in std::mem::take(&mut *self.store.lock()) {
            for stored in all {
                self.unmap_surely(stored.at, bytes);
                let _ = driver.release(stored.handle);
                let _ = self.unreserve(stored.at, bytes);
            }
        }
    }
}
