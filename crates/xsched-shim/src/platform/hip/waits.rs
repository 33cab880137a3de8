//! Calls that wait for the device, or may.

use super::api::Api;
use super::lifetime::announce;
use super::types::*;
use super::{real, sig};
use crate::interpose::hooks;
use crate::platform::shared::waits::{context_call, event_call, lending_call, stream_call, stream_question};
use crate::platform::shared::{StreamKind, behind};

macro_rules! stream_waits {
    ($list:ident: $class:ident; $([$call:ident] $(fn $name:ident($mode:ident);)*)*) => {
        $($(
            unsafe extern "C" fn $name(stream: hipStream_t) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                $call::<Api>(real, stream, StreamKind::$mode, || unsafe { function(stream) })
            }
        )*)*
        hooks! { HIP, $list: $class; $($($name)*)* }
    };
}

stream_waits! {
    STREAM_WAITS: Sync;
    [stream_call]
    fn hipStreamSynchronize(Legacy);
    fn hipStreamSynchronize_spt(PerThread);
    [stream_question]
    fn hipStreamQuery(Legacy);
    fn hipStreamQuery_spt(PerThread);
}

/// Hooks waits for everything that the process has on the device: HIP has only one context there.
macro_rules! device_waits {
    ($list:ident: $class:ident; $($name:ident($($arg:ident)?);)*) => {
        $(
            unsafe extern "C" fn $name($($arg: *mut c_void)?) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                context_call::<Api>(real, Api::is_only(), || unsafe { function($($arg)?) })
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

device_waits! {
    DEVICE_WAITS: Sync;
    hipCtxSynchronize();
    hipDeviceSynchronize();
}

/// Waits for a part of a device.
unsafe extern "C" fn hipExecutionCtxSynchronize(ctx: *mut c_void) -> hipError_t {
    let (real, function) = real!(hipExecutionCtxSynchronize);
    // SAFETY: the caller's own argument.
    context_call::<Api>(real, false, || unsafe { function(ctx) })
}

unsafe extern "C" fn hipEventSynchronize(event: hipEvent_t) -> hipError_t {
    let (real, function) = real!(hipEventSynchronize);
    // SAFETY: the caller's own argument.
    event_call::<Api>(real, || unsafe { function(event) })
}

/// Runs at the end of a program or a library. The first of these calls waits for the device.
unsafe extern "C" fn __hipUnregisterFatBinary(modules: *mut c_void) {
    let real = behind(__hipUnregisterFatBinary::real(), || &__hipUnregisterFatBinary::HOOK);
    if real.is_null() {
        return;
    }
    // SAFETY: the address of the real function of this name; the caller's own argument.
    lending_call::<Api, _>(real, || unsafe {
        std::mem::transmute::<*mut c_void, sig::__hipUnregisterFatBinary>(real)(modules);
    });
}

hooks! { HIP, WAITS: Sync; hipExecutionCtxSynchronize hipEventSynchronize __hipUnregisterFatBinary }

macro_rules! lends {
    ($list:ident: $class:ident; $(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                lending_call::<Api, _>(real, || unsafe { function($($arg),*) })
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

/// Hooks functions that programs usually call first on a device; these register the program with the scheduler.
macro_rules! makes {
    ($list:ident: $class:ident; $(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                announce(real, lending_call::<Api, _>(real, || unsafe { function($($arg),*) }))
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

lends! {
    LENDS: Sync;
    fn hipArrayDestroy(array: *mut c_void);
    fn hipDeviceGraphMemTrim(device: c_int);
    fn hipDeviceSetLimit(limit: c_uint, value: usize);
    fn hipFreeMipmappedArray(mipmappedArray: *mut c_void);
    fn hipGetFuncBySymbol(functionPtr: *mut c_void, symbolPtr: *mut c_void);
    fn hipGraphExecDestroy(graphExec: hipGraphExec_t);
    fn hipGraphInstantiate(pGraphExec: *mut c_void, graph: *mut c_void, pErrorNode: *mut c_void, pLogBuffer: *mut c_void, bufferSize: usize);
    fn hipGraphInstantiateWithFlags(pGraphExec: *mut c_void, graph: *mut c_void, flags: u64);
    fn hipGraphInstantiateWithParams(pGraphExec: *mut c_void, graph: *mut c_void, instantiateParams: *mut c_void);
    fn hipIpcCloseMemHandle(devPtr: *mut c_void);
    fn hipKernelGetFunction(pFunc: *mut c_void, kernel: *mut c_void);
    fn hipLibraryEnumerateKernels(kernels: *mut c_void, numKernels: c_uint, library: *mut c_void);
    fn hipLibraryGetGlobal(dptr: *mut c_void, bytes: *mut c_void, library: *mut c_void, name: *mut c_void);
    fn hipLibraryGetKernel(pKernel: *mut c_void, library: *mut c_void, name: *mut c_void);
    fn hipLibraryGetKernelCount(count: *mut c_void, library: *mut c_void);
    fn hipLibraryGetManaged(dptr: *mut c_void, bytes: *mut c_void, library: *mut c_void, name: *mut c_void);
    fn hipLibraryUnload(library: *mut c_void);
    fn hipMemPoolDestroy(mem_pool: *mut c_void);
    fn hipMemPoolTrimTo(mem_pool: *mut c_void, min_bytes_to_hold: usize);
    fn hipMemUnmap(ptr: *mut c_void, size: usize);
    fn hipMipmappedArrayDestroy(hMipmappedArray: *mut c_void);
    fn hipModuleGetFunction(function: *mut c_void, module: *mut c_void, kname: *mut c_void);
    fn hipModuleUnload(module: *mut c_void);
}

makes! {
    MAKES: Sync;
    fn hipArray3DCreate(array: *mut c_void, pAllocateArray: *mut c_void);
    fn hipArrayCreate(pHandle: *mut c_void, pAllocateArray: *mut c_void);
    fn hipLibraryLoadData(library: *mut c_void, code: *mut c_void, jitOptions: *mut c_void, jitOptionsValues: *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_void, libraryOptionValues: *mut c_void, numLibraryOptions: c_uint);
    fn hipLibraryLoadFromFile(library: *mut c_void, fileName: *mut c_void, jitOptions: *mut c_void, jitOptionsValues: *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_void, libraryOptionValues: *mut c_void, numLibraryOptions: c_uint);
    fn hipMallocMipmappedArray(mipmappedArray: *mut c_void, desc: *mut c_void, extent: Words<3>, numLevels: c_uint, flags: c_uint);
    fn hipMipmappedArrayCreate(pHandle: *mut c_void, pMipmappedArrayDesc: *mut c_void, numMipmapLevels: c_uint);
    fn hipModuleLoad(module: *mut c_void, fname: *mut c_void);
    fn hipModuleLoadData(module: *mut c_void, image: *mut c_void);
    fn hipModuleLoadDataEx(module: *mut c_void, image: *mut c_void, numOptions: c_uint, options: *mut c_void, optionValues: *mut c_void);
    fn hipModuleLoadFatBinary(module: *mut c_void, fatbin: *mut c_void);
}
