//! The driver's calls that make and move chunks.

use std::collections::HashMap;

use xsched_core::residency::{Driver, Stored};
use xsched_vendor::functions;

use super::super::types::*;
use crate::lock::Lock;
use crate::platform::shared::search_beside;

pub(super) type Handle = u64;

/// CUmemLocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    kind: c_int,
    id: c_int,
}

/// CUmemAllocationProp.
#[repr(C)]
pub(super) struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    windows: usize,
    /// Compression, RDMA, usage (16 bits), four bytes that are reserved.
    flags: [u8; 8],
}

/// CUmemAccessDesc.
#[repr(C)]
pub(super) struct Access {
    location: Location,
    flags: c_int,
}

/// CU_MEM_ALLOCATION_TYPE_PINNED.
const PINNED: c_int = 1;
/// CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA.
const ON_DEVICE: c_int = 1;
const ON_NODE: c_int = 3;
/// CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
const READ_WRITE: c_int = 3;
/// CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, HOST_NUMA_ID, HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
const ATTRIBUTE_VIRTUAL: c_int = 102;
const ATTRIBUTE_NODE: c_int = 134;
const ATTRIBUTE_VIRTUAL_HOST: c_int = 141;

functions! {
    /// Functions of the driver, with signatures as in cuda.h.
    struct Functions -> CUresult;
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
        get_current: c"cuCtxGetCurrent" (*mut CUcontext);
        set_current: c"cuCtxSetCurrent" (CUcontext);
        get_device: c"cuCtxGetDevice" (*mut CUdevice);
        device_count: c"cuDeviceGetCount" (*mut c_int);
        device_attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, CUdevice);
        exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
        primary_state: c"cuDevicePrimaryCtxGetState" (CUdevice, *mut c_uint, *mut c_int);
    }
}

/// The functions, for one context and its device.
pub(super) struct Calls {
    functions: Functions,
    pub(super) context: usize,
    device: CUdevice,
    node: c_int,
    /// Stream of the moves, which waits for no other one.
    stream: usize,
    /// Host memory that no chunk uses, by its size in bytes.
    store: Lock<HashMap<u64, Vec<Stored<Handle>>>>,
}

fn ok(result: CUresult) -> Result<(), CUresult> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}

impl Calls {
    /// The functions beside `real`, for the calling thread's context. `None` if memory cannot move there: another device that may
    /// have access is in sight, the context is an MPS server's, or a part of the driver is missing.
    pub(super) fn beside(real: *mut c_void) -> Option<Calls> {
        // SAFETY: the driver's functions have cuda.h's signatures.
        let functions = unsafe { Functions::load(search_beside(real as usize)) }.ok()?;
        let (mut context, mut device, mut devices, mut node) = (std::ptr::null_mut(), 0, 0, 0);
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
                && (functions.device_count)(&mut devices) == SUCCESS
                // A fault of one client of a server ends the others.
                && !has(device, ATTRIBUTE_MPS)
                && has(device, ATTRIBUTE_VIRTUAL)
                && has(device, ATTRIBUTE_VIRTUAL_HOST)
                && (functions.device_attribute)(&mut node, ATTRIBUTE_NODE, device) == SUCCESS
        };
        // SAFETY: pointer to a local.
        let made = answered
            && devices == 1
            && unsafe { (functions.stream_create)(&mut stream, STREAM_NON_BLOCKING) } == SUCCESS;
        let (context, stream) = (context as usize, stream as usize);
        made.then(|| Calls { functions, context, device, node: node.max(0), stream, store: Lock::new() })
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

    /// Reports whether the chunks' context was the device's primary one and is gone.
    pub(super) fn is_gone(&self) -> bool {
        let (mut flags, mut active) = (0, 1);
        // SAFETY: pointers to locals.
        unsafe { (self.functions.primary_state)(self.device, &mut flags, &mut active) == SUCCESS && active == 0 }
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn is_of(&self, device: CUdevice) -> bool {
        device == self.device
    }

    /// Waits for all commands of the context.
    pub(super) fn synchronize(&self) -> Result<(), CUresult> {
        let mut before = std::ptr::null_mut();
        // SAFETY: pointer to a local; the context is the chunks', and the calling thread gets back the one that it had.
        unsafe {
            ok((self.functions.get_current)(&mut before))?;
            if before as usize == self.context {
                return ok((self.functions.synchronize)());
            }
            ok((self.functions.set_current)(self.context as CUcontext))?;
            let result = ok((self.functions.synchronize)());
            (self.functions.set_current)(before);
            result
        }
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, CUresult> {
        let mut at = 0;
        // SAFETY: pointer to a local.
        ok(unsafe { (self.functions.reserve)(&mut at, bytes as usize, 0, 0, 0) }).map(|()| at)
    }

    pub(super) fn unreserve(&self, at: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: a range that was reserved here, in which nothing is mapped.
        ok(unsafe { (self.functions.unreserve)(at, bytes as usize) })
    }

    fn create_at(&self, bytes: u64, kind: c_int, id: c_int) -> Result<Handle, CUresult> {
        let location = Location { kind, id };
        let wanted = Properties { kind: PINNED, handle_types: 0, location, windows: 0, flags: [0; 8] };
        let mut handle = 0;
        // SAFETY: pointers to locals.
        ok(unsafe { (self.functions.create)(&mut handle, bytes as usize, &wanted, 0) }).map(|()| handle)
    }

    /// Makes memory of the store.
    fn make(&self, bytes: u64) -> Result<Stored<Handle>, CUresult> {
        let mut driver = self;
        let handle = self.create_at(bytes, ON_NODE, self.node)?;
        let mapped = self.reserve(bytes).and_then(|at| {
            let shown = driver.map(at, bytes, handle).and_then(|()| {
                driver.allow(at, bytes).inspect_err(|_| {
                    let _ = driver.unmap(at, bytes);
                })
            });
            shown.map(|()| at).inspect_err(|_| {
                let _ = self.unreserve(at, bytes);
            })
        });
        mapped.map(|at| Stored { handle, at }).inspect_err(|_| {
            let _ = driver.release(handle);
        })
    }
}

impl Driver for &Calls {
    type Handle = Handle;
    type Error = CUresult;

    fn create(&mut self, bytes: u64) -> Result<Handle, CUresult> {
        self.create_at(bytes, ON_DEVICE, self.device)
    }

    fn release(&mut self, handle: Handle) -> Result<(), CUresult> {
        // SAFETY: a handle that was made here.
        ok(unsafe { (self.functions.release)(handle) })
    }

    fn map(&mut self, at: u64, bytes: u64, handle: Handle) -> Result<(), CUresult> {
        // SAFETY: a part of a reserved range, with nothing mapped there.
        ok(unsafe { (self.functions.map)(at, bytes as usize, 0, handle, 0) })
    }

    fn allow(&mut self, at: u64, bytes: u64) -> Result<(), CUresult> {
        let access = Access { location: Location { kind: ON_DEVICE, id: self.device }, flags: READ_WRITE };
        // SAFETY: mapped memory; pointer to a local.
        ok(unsafe { (self.functions.set_access)(at, bytes as usize, &access, 1) })
    }

    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: one whole mapping, which the device does not use now.
        ok(unsafe { (self.functions.unmap)(at, bytes as usize) })
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: mapped memory on both sides, until the stream has been waited for.
        ok(unsafe { (self.functions.copy)(to, from, bytes as usize, self.stream as CUstream) })
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
