//! Hooks that only programs with movable memory have: functions that ask about memory, or with which the driver looks at it. Others call the
//! driver's own unless they were linked with them. And, for all programs, hooks that open memory of those.

use super::super::api::Api;
use super::super::pool::noting;
use super::super::types::*;
use super::super::{real, sig};
use super::tickets;
use crate::interpose::hooks;
use crate::platform::shared::waits::lending_call;
use crate::process;

macro_rules! passed_on {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (_, function) = real!($name);
                // SAFETY: the caller's own arguments.
                unsafe { function($($arg),*) }
            }
        )*
        hooks! { MOVING, LOOKS: Memory; $($name)* }
    };
}

passed_on! {
    fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: c_uint);
    fn cuGraphAddBatchMemOpNode(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, numDependencies: usize, nodeParams: *mut c_void);
    fn cuGraphAddMemcpyNode(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, numDependencies: usize, copyParams: *mut c_void, ctx: CUcontext);
    fn cuGraphAddMemsetNode(phGraphNode: *mut c_void, hGraph: CUgraph, dependencies: *mut c_void, numDependencies: usize, memsetParams: *mut c_void, ctx: CUcontext);
    fn cuGraphBatchMemOpNodeSetParams(hNode: *mut c_void, nodeParams: *mut c_void);
    fn cuGraphMemcpyNodeSetParams(hNode: *mut c_void, nodeParams: *mut c_void);
    fn cuGraphMemsetNodeSetParams(hNode: *mut c_void, nodeParams: *mut c_void);
    fn cuGraphNodeSetParams(hNode: *mut c_void, nodeParams: *mut c_void);
    fn cuGraphNodeSetParams_v2(hNode: *mut c_void, nodeParams: *mut c_void);
    fn cuLibraryGetManaged(dptr: *mut c_void, bytes: *mut c_void, library: *mut c_void, name: *mut c_void);
    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize);
    fn cuMemGetAccess(flags: *mut c_void, location: *mut c_void, ptr: CUdeviceptr);
    fn cuMemGetAddressRange_v2(pbase: *mut c_void, psize: *mut c_void, dptr: CUdeviceptr);
    fn cuMemGetAllocationPropertiesFromHandle(prop: *mut c_void, handle: u64);
    fn cuMemGetHandleForAddressRange(handle: *mut c_void, dptr: CUdeviceptr, size: usize, handleType: c_uint, flags: u64);
    fn cuMemPoolGetAttribute(pool: *mut c_void, attr: c_uint, value: *mut c_void);
    fn cuMemPoolSetAccess(pool: *mut c_void, map: *mut c_void, count: usize);
    fn cuMemPoolSetAttribute(pool: *mut c_void, attr: c_uint, value: *mut c_void);
    fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *mut c_void, count: usize);
    fn cuMulticastBindAddr(mcHandle: u64, mcOffset: usize, memptr: CUdeviceptr, size: usize, flags: u64);
    fn cuMulticastBindAddr_v2(mcHandle: u64, dev: CUdevice, mcOffset: usize, memptr: CUdeviceptr, size: usize, flags: u64);
    fn cuMulticastBindMem(mcHandle: u64, mcOffset: usize, memHandle: u64, memOffset: usize, size: usize, flags: u64);
    fn cuMulticastBindMem_v2(mcHandle: u64, dev: CUdevice, mcOffset: usize, memHandle: u64, memOffset: usize, size: usize, flags: u64);
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr);
    fn cuPointerGetAttributes(numAttributes: c_uint, attributes: *mut c_void, data: *mut c_void, ptr: CUdeviceptr);
    fn cuPointerSetAttribute(value: *mut c_void, attribute: c_uint, ptr: CUdeviceptr);
    fn cuTexObjectCreate(pTexObject: *mut c_void, pResDesc: *mut c_void, pTexDesc: *mut c_void, pResViewDesc: *mut c_void);
    fn cuTexRefSetAddress2D_v2(hTexRef: *mut c_void, desc: *mut c_void, dptr: CUdeviceptr, Pitch: usize);
    fn cuTexRefSetAddress2D_v3(hTexRef: *mut c_void, desc: *mut c_void, dptr: CUdeviceptr, Pitch: usize);
    fn cuTexRefSetAddress_v2(ByteOffset: *mut c_void, hTexRef: *mut c_void, dptr: CUdeviceptr, bytes: usize);
}

macro_rules! opened {
    ($($name:ident)*) => {
        $(
            #[allow(improper_ctypes_definitions)] // an array is passed as the structure around it
            unsafe extern "C" fn $name(place: *mut c_void, handle: [u64; 8], flags: c_uint) -> CUresult {
                let (real, function) = real!($name);
                let ours = process::guarded("while memory is opened", || tickets::open(real, place, &handle, flags));
                // SAFETY: the caller's own arguments.
                ours.flatten().unwrap_or_else(|| unsafe { function(place, handle, flags) })
            }
        )*
        hooks! { CUDA, OPENS: Memory; $($name)* }
    };
}

// In all programs: the one that shares memory may be another.
opened! { cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 }

unsafe extern "C" fn cuIpcCloseMemHandle(address: CUdeviceptr) -> CUresult {
    let (real, function) = real!(cuIpcCloseMemHandle);
    let close = || {
        let ours = process::guarded("while memory is closed", || tickets::close(address)).flatten();
        // SAFETY: the caller's own argument.
        ours.unwrap_or_else(|| unsafe { function(address) })
    };
    noting(lending_call::<Api, _>(real, close))
}

hooks! { CUDA, CLOSES: Sync; cuIpcCloseMemHandle }
