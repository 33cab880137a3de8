//! Calls that wait for the device, or may: what they wait for is not idle meanwhile, and inherits the waiter's priority.

use super::api::Api;
use super::types::*;
use super::{real, sig};
use crate::interpose::hooks;
use crate::platform::CUDA;
use crate::platform::shared::Driver;
use crate::platform::shared::Which;
use crate::platform::shared::waits::{
    event_call, lending_call, loading_call, stream_call, stream_question, unloading_call,
};

/// Waits for a whole context.
fn context_call(real: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    // A process may have several contexts on the device; that this one is drained says nothing of the others.
    let alone = Api::beside(real).is_some_and(Api::has_one_context);
    crate::platform::shared::waits::context_call::<Api>(real, alone, call)
}

/// Calls that may wait for the device; before them how such a wait is taken.
macro_rules! may_wait {
    ($([$call:ident] $(fn $name:ident($($arg:ident: $ty:ty),*);)*)*) => {
        $($(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $call::<Api, _>(real, || unsafe { function($($arg),*) })
            }
            const _: sig::$name = $name;
        )*)*
    };
}

macro_rules! stream_waits {
    ($([$call:ident] $(fn $name:ident($flavour:ident);)*)*) => {
        $($(
            unsafe extern "C" fn $name(stream: CUstream) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                $call::<Api>(real, stream, Which::$flavour, || unsafe { function(stream) })
            }
            const _: sig::$name = $name;
        )*)*
    };
}

stream_waits! {
    [stream_call]
    fn cuStreamSynchronize(Legacy);
    fn cuStreamSynchronize_ptsz(PerThread);
    [stream_question]
    fn cuStreamQuery(Legacy);
    fn cuStreamQuery_ptsz(PerThread);
}

unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    let (real, function) = real!(cuCtxSynchronize);
    // SAFETY: no arguments.
    context_call(real, || unsafe { function() })
}
const _: sig::cuCtxSynchronize = cuCtxSynchronize;

unsafe extern "C" fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult {
    let (real, function) = real!(cuCtxSynchronize_v2);
    // SAFETY: the caller's own argument.
    context_call(real, || unsafe { function(context) })
}
const _: sig::cuCtxSynchronize_v2 = cuCtxSynchronize_v2;

unsafe extern "C" fn cuEventSynchronize(event: CUevent) -> CUresult {
    let (real, function) = real!(cuEventSynchronize);
    // SAFETY: the caller's own argument.
    event_call::<Api>(real, || unsafe { function(event) })
}
const _: sig::cuEventSynchronize = cuEventSynchronize;

may_wait! {
    [unloading_call]
    fn cuLibraryUnload(library: *mut c_void);
    fn cuModuleUnload(hmod: *mut c_void);
    [lending_call]
    fn cuArray3DCreate(pHandle: *mut c_void, pAllocateArray: *mut c_void);
    fn cuArray3DCreate_v2(pHandle: *mut c_void, pAllocateArray: *mut c_void);
    fn cuArrayCreate(pHandle: *mut c_void, pAllocateArray: *mut c_void);
    fn cuArrayCreate_v2(pHandle: *mut c_void, pAllocateArray: *mut c_void);
    fn cuArrayDestroy(hArray: *mut c_void);
    fn cuDeviceGraphMemTrim(device: CUdevice);
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr);
    fn cuMemAlloc(dptr: *mut c_void, bytesize: c_uint);
    fn cuMemAllocHost(pp: *mut c_void, bytesize: c_uint);
    fn cuMemAllocHost_v2(pp: *mut c_void, bytesize: usize);
    fn cuMemAllocManaged(dptr: *mut c_void, bytesize: usize, flags: c_uint);
    fn cuMemAllocPitch(dptr: *mut c_void, pPitch: *mut c_void, WidthInBytes: c_uint, Height: c_uint, ElementSizeBytes: c_uint);
    fn cuMemAllocPitch_v2(dptr: *mut c_void, pPitch: *mut c_void, WidthInBytes: usize, Height: usize, ElementSizeBytes: c_uint);
    fn cuMemAlloc_v2(dptr: *mut c_void, bytesize: usize);
    fn cuMemFree(dptr: c_uint);
    fn cuMemFreeHost(p: *mut c_void);
    fn cuMemFree_v2(dptr: CUdeviceptr);
    fn cuMemHostAlloc(pp: *mut c_void, bytesize: usize, Flags: c_uint);
    fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: c_uint);
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint);
    fn cuMemHostUnregister(p: *mut c_void);
    fn cuMemPoolDestroy(pool: *mut c_void);
    fn cuMemPoolTrimTo(pool: *mut c_void, minBytesToKeep: usize);
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize);
    fn cuMipmappedArrayCreate(pHandle: *mut c_void, pMipmappedArrayDesc: *mut c_void, numMipmapLevels: c_uint);
    fn cuMipmappedArrayDestroy(hMipmappedArray: *mut c_void);
}

macro_rules! loads {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) [$what:expr];)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                loading_call::<Api, _>(real, $what, || unsafe { function($($arg),*) })
            }
            const _: sig::$name = $name;
        )*
    };
}

// In brackets what is loaded, where it is loaded once.
loads! {
    fn cuCtxSetLimit(limit: c_uint, value: usize) [None];
    fn cuFuncGetAttribute(pi: *mut c_void, attrib: c_uint, hfunc: CUfunction) [Some(hfunc)];
    fn cuFuncLoad(function: CUfunction) [Some(function)];
    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: c_uint, value: c_int) [Some(hfunc)];
    fn cuKernelGetAttribute(pi: *mut c_void, attrib: c_uint, kernel: *mut c_void, dev: CUdevice) [Some(kernel)];
    fn cuKernelGetFunction(pFunc: *mut c_void, kernel: *mut c_void) [Some(kernel)];
    fn cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: *mut c_void, dev: CUdevice) [Some(kernel)];
    fn cuLibraryGetGlobal(dptr: *mut c_void, bytes: *mut c_void, library: *mut c_void, name: *mut c_void) [Some(library)];
    fn cuLibraryGetModule(pMod: *mut c_void, library: *mut c_void) [Some(library)];
    fn cuLibraryLoadData(library: *mut c_void, code: *mut c_void, jitOptions: *mut c_void, jitOptionsValues: *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_void, libraryOptionValues: *mut c_void, numLibraryOptions: c_uint) [None];
    fn cuLibraryLoadFromFile(library: *mut c_void, fileName: *mut c_void, jitOptions: *mut c_void, jitOptionsValues: *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_void, libraryOptionValues: *mut c_void, numLibraryOptions: c_uint) [None];
    fn cuModuleGetFunction(hfunc: *mut c_void, hmod: *mut c_void, name: *mut c_void) [None];
    fn cuModuleGetGlobal(dptr: *mut c_void, bytes: *mut c_void, hmod: *mut c_void, name: *mut c_void) [Some(hmod)];
    fn cuModuleGetGlobal_v2(dptr: *mut c_void, bytes: *mut c_void, hmod: *mut c_void, name: *mut c_void) [Some(hmod)];
    fn cuModuleLoad(module: *mut c_void, fname: *mut c_void) [None];
    fn cuModuleLoadData(module: *mut c_void, image: *mut c_void) [None];
    fn cuModuleLoadDataEx(module: *mut c_void, image: *mut c_void, numOptions: c_uint, options: *mut c_void, optionValues: *mut c_void) [None];
    fn cuModuleLoadFatBinary(module: *mut c_void, fatCubin: *mut c_void) [None];
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks: *mut c_void, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize) [Some(func)];
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks: *mut c_void, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize, flags: c_uint) [Some(func)];
}

hooks! { CUDA;
    cuArray3DCreate => super::cuArray3DCreate,
    cuArray3DCreate_v2 => super::cuArray3DCreate_v2,
    cuArrayCreate => super::cuArrayCreate,
    cuArrayCreate_v2 => super::cuArrayCreate_v2,
    cuArrayDestroy => super::cuArrayDestroy,
    cuCtxSetLimit => super::cuCtxSetLimit,
    cuCtxSynchronize => super::cuCtxSynchronize,
    cuCtxSynchronize_v2 => super::cuCtxSynchronize_v2,
    cuDeviceGraphMemTrim => super::cuDeviceGraphMemTrim,
    cuEventSynchronize => super::cuEventSynchronize,
    cuFuncGetAttribute => super::cuFuncGetAttribute,
    cuFuncLoad => super::cuFuncLoad,
    cuFuncSetAttribute => super::cuFuncSetAttribute,
    cuIpcCloseMemHandle => super::cuIpcCloseMemHandle,
    cuKernelGetAttribute => super::cuKernelGetAttribute,
    cuKernelGetFunction => super::cuKernelGetFunction,
    cuKernelSetAttribute => super::cuKernelSetAttribute,
    cuLibraryGetGlobal => super::cuLibraryGetGlobal,
    cuLibraryGetModule => super::cuLibraryGetModule,
    cuLibraryLoadData => super::cuLibraryLoadData,
    cuLibraryLoadFromFile => super::cuLibraryLoadFromFile,
    cuLibraryUnload => super::cuLibraryUnload,
    cuMemAlloc => super::cuMemAlloc,
    cuMemAllocHost => super::cuMemAllocHost,
    cuMemAllocHost_v2 => super::cuMemAllocHost_v2,
    cuMemAllocManaged => super::cuMemAllocManaged,
    cuMemAllocPitch => super::cuMemAllocPitch,
    cuMemAllocPitch_v2 => super::cuMemAllocPitch_v2,
    cuMemAlloc_v2 => super::cuMemAlloc_v2,
    cuMemFree => super::cuMemFree,
    cuMemFreeHost => super::cuMemFreeHost,
    cuMemFree_v2 => super::cuMemFree_v2,
    cuMemHostAlloc => super::cuMemHostAlloc,
    cuMemHostRegister => super::cuMemHostRegister,
    cuMemHostRegister_v2 => super::cuMemHostRegister_v2,
    cuMemHostUnregister => super::cuMemHostUnregister,
    cuMemPoolDestroy => super::cuMemPoolDestroy,
    cuMemPoolTrimTo => super::cuMemPoolTrimTo,
    cuMemUnmap => super::cuMemUnmap,
    cuMipmappedArrayCreate => super::cuMipmappedArrayCreate,
    cuMipmappedArrayDestroy => super::cuMipmappedArrayDestroy,
    cuModuleGetFunction => super::cuModuleGetFunction,
    cuModuleGetGlobal => super::cuModuleGetGlobal,
    cuModuleGetGlobal_v2 => super::cuModuleGetGlobal_v2,
    cuModuleLoad => super::cuModuleLoad,
    cuModuleLoadData => super::cuModuleLoadData,
    cuModuleLoadDataEx => super::cuModuleLoadDataEx,
    cuModuleLoadFatBinary => super::cuModuleLoadFatBinary,
    cuModuleUnload => super::cuModuleUnload,
    cuOccupancyMaxActiveBlocksPerMultiprocessor => super::cuOccupancyMaxActiveBlocksPerMultiprocessor,
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags => super::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    cuStreamQuery => super::cuStreamQuery,
    cuStreamQuery_ptsz => super::cuStreamQuery_ptsz,
    cuStreamSynchronize => super::cuStreamSynchronize,
    cuStreamSynchronize_ptsz => super::cuStreamSynchronize_ptsz,
}
