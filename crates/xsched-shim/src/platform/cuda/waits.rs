//! Calls that wait for the device, or may; those that allocate and free memory are in `memory/`. The queues waited for are not
//! idle meanwhile, and inherit the waiting thread's priority.

use super::api::Api;
use super::types::*;
use super::{pool, real, sig};
use crate::interpose::hooks;
use crate::platform::shared::Driver;
use crate::platform::shared::StreamKind;
use crate::platform::shared::waits::{event_call, loading_call, stream_call, stream_question, unloading_call};

/// Waits for a whole context.
fn context_call(real: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    // A process may have several contexts on the device. If this one is drained, the others may not be.
    let alone = Api::beside(real).is_some_and(Api::has_one_context);
    crate::platform::shared::waits::context_call::<Api>(real, alone, call)
}

/// Hooks calls that may wait for the device, listed by the function that handles such a wait.
macro_rules! may_wait {
    ($list:ident: $class:ident; $([$call:ident] $(fn $name:ident($($arg:ident: $ty:ty),*);)*)*) => {
        $($(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                pool::noting($call::<Api, _>(real, || unsafe { function($($arg),*) }))
            }
        )*)*
        hooks! { CUDA, $list: $class; $($($name)*)* }
    };
}

macro_rules! stream_waits {
    ($list:ident: $class:ident; $([$call:ident] $(fn $name:ident($mode:ident);)*)*) => {
        $($(
            unsafe extern "C" fn $name(stream: CUstream) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own argument.
                pool::noting($call::<Api>(real, stream, StreamKind::$mode, || unsafe { function(stream) }))
            }
        )*)*
        hooks! { CUDA, $list: $class; $($($name)*)* }
    };
}

stream_waits! {
    STREAM_WAITS: Sync;
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
    pool::noting(context_call(real, || unsafe { function() }))
}

unsafe extern "C" fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult {
    let (real, function) = real!(cuCtxSynchronize_v2);
    // SAFETY: the caller's own argument.
    pool::noting(context_call(real, || unsafe { function(context) }))
}

unsafe extern "C" fn cuEventSynchronize(event: CUevent) -> CUresult {
    let (real, function) = real!(cuEventSynchronize);
    // SAFETY: the caller's own argument.
    pool::noting(event_call::<Api>(real, || unsafe { function(event) }))
}

hooks! { CUDA, WAITS: Sync; cuCtxSynchronize cuCtxSynchronize_v2 cuEventSynchronize }

may_wait! {
    MAY_WAIT: Sync;
    [unloading_call]
    fn cuLibraryUnload(library: *mut c_void);
    fn cuModuleUnload(hmod: *mut c_void);
}

macro_rules! loads {
    ($list:ident: $class:ident; $(fn $name:ident($($arg:ident: $ty:ty),*) [$what:expr];)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                loading_call::<Api, _>(real, $what, || unsafe { function($($arg),*) })
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

// In brackets: the handle whose code is loaded at the first use, if there is one.
loads! {
    LOADS: Sync;
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
