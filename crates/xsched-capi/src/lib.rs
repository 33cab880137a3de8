//! The C API, declared once for both of its sides: `libxsched.so`, which implements it, and the small libraries that
//! programs link (`libpreempt.so`, `libhalcuda.so`, `libhalhip.so`, `libhalopencl.so`), which forward to it.
//!
//! - [`preempt!`], [`halcuda!`], [`halhip!`], [`halopencl!`] list the functions of each library with their arguments.
//! - [`Table`] is built from these lists. It is all that passes between the two sides, requested by its [`VERSION`].
//! - [`forward!`] defines the exported functions of a library; [`find`] finds the libxsched of the process.
//! - [`types`]: handles, results and numbers, as in `include/xsched/types.h`.
//!
//! Names and values are those of XSched 1.2.0's public headers.

use std::ffi::c_void;

pub mod find;
pub mod types;

use types::*;

/// Calls a macro with the functions of `libpreempt.so`. Each returns an [`types::XResult`].
#[macro_export]
macro_rules! preempt {
    ($callback:ident) => {
        $callback! {
            preempt Preempt;
            fn XQueueCreate(xq: *mut XQueueHandle, hwq: HwQueueHandle, level: i64, flags: i64);
            fn XQueueDestroy(xq: XQueueHandle);
            fn XQueueGet(xq: *mut XQueueHandle, hwq: HwQueueHandle);
            fn XQueueSetPreemptLevel(xq: XQueueHandle, level: i64);
            fn XQueueSetLaunchConfig(xq: XQueueHandle, threshold: i64, batch_size: i64);
            fn XQueueSubmit(xq: XQueueHandle, command: HwCommandHandle);
            fn XQueueWait(xq: XQueueHandle, command: HwCommandHandle);
            fn XQueueWaitAll(xq: XQueueHandle);
            fn XQueueQuery(xq: XQueueHandle, state: *mut XQueueState);
            fn XQueueSuspend(xq: XQueueHandle, flags: i64);
            fn XQueueResume(xq: XQueueHandle, flags: i64);
            fn XQueueProfileHwCommandCount(xq: XQueueHandle, count: *mut i64);
            fn HwQueueDestroy(hwq: HwQueueHandle);
            fn HwQueueLaunch(hwq: HwQueueHandle, command: HwCommandHandle);
            fn HwQueueSynchronize(hwq: HwQueueHandle);
            fn HwCommandCreateCallback(command: *mut HwCommandHandle, callback: LaunchCallback, data: *mut c_void);
            fn HwCommandDestroy(command: HwCommandHandle);
            fn XHintSetScheduler(scheduler: XSchedulerType, policy: XPolicyType);
            fn XHintPriority(xq: XQueueHandle, priority: Priority);
            fn XHintUtilization(xq: XQueueHandle, utilization: Utilization);
            fn XHintTimeslice(timeslice: Timeslice);
            fn XHintLaxity(xq: XQueueHandle, laxity: Laxity, lax: Priority, critical: Priority);
            fn XHintDeadline(xq: XQueueHandle, deadline: Deadline);
            fn XHintKDeadline(k: usize);
        }
    };
}

/// Calls a macro with the functions of `libhalcuda.so`. Each returns an [`types::XResult`].
#[macro_export]
macro_rules! halcuda {
    ($callback:ident) => {
        $callback! {
            halcuda HalCuda;
            fn CudaQueueCreate(hwq: *mut HwQueueHandle, stream: *mut c_void);
            fn CudaQueueGet(hwq: *mut HwQueueHandle, stream: *mut c_void);
        }
    };
}

/// Calls a macro with the functions of `libhalhip.so`. Each returns an [`types::XResult`].
#[macro_export]
macro_rules! halhip {
    ($callback:ident) => {
        $callback! {
            halhip HalHip;
            fn HipQueueCreate(hwq: *mut HwQueueHandle, stream: *mut c_void);
        }
    };
}

/// Calls a macro with the functions of `libhalopencl.so`. Each returns an [`types::XResult`].
#[macro_export]
macro_rules! halopencl {
    ($callback:ident) => {
        $callback! {
            halopencl HalOpenCl;
            fn OclQueueCreate(hwq: *mut HwQueueHandle, queue: *mut c_void);
        }
    };
}

/// Version of the [`Table`], which changes with anything above.
pub const VERSION: u32 = 1;

/// Symbol of libxsched.so that returns the [`Table`]: an [`Entry`].
pub const ENTRY: &std::ffi::CStr = c"XSchedFunctions";

/// Returns the table for this [`VERSION`], and null for any other.
pub type Entry = unsafe extern "C" fn(u32) -> *const Table;

macro_rules! part {
    ($library:ident $part:ident; $(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        #[doc = concat!("Exports of `lib", stringify!($library), ".so`, each function under its name.")]
        #[repr(C)]
        #[allow(non_snake_case, missing_docs)] // published names
        pub struct $part {
            $(pub $name: unsafe extern "C" fn($($type),*) -> XResult,)*
        }

        impl $part {
            /// Names of the functions.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

preempt!(part);
halcuda!(part);
halhip!(part);
halopencl!(part);

/// All functions of the C API.
#[repr(C)]
pub struct Table {
    /// Functions of `libpreempt.so`.
    pub preempt: Preempt,
    /// Functions of `libhalcuda.so`.
    pub halcuda: HalCuda,
    /// Functions of `libhalhip.so`.
    pub halhip: HalHip,
    /// Functions of `libhalopencl.so`.
    pub halopencl: HalOpenCl,
}

/// Exports the functions of a library: `halcuda!(forward);`. If no libxsched is found they return
/// [`types::XResult::NOT_FOUND`].
#[macro_export]
macro_rules! forward {
    ($library:ident $part:ident; $(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        // The unwinder that is linked in calls this function of glibc 2.35, which would make 2.35 the oldest version
        // that the library loads with. No code here unwinds, so this one finds nothing.
        core::arch::global_asm!(
            ".hidden _dl_find_object",
            ".globl _dl_find_object",
            ".type _dl_find_object, @function",
            "_dl_find_object: mov eax, -1",
            "ret",
        );

        $(
            /// Forwards to libxsched; described in the header.
            ///
            /// # Safety
            /// The arguments must be as the header demands.
            // SAFETY: a name of the published interface, defined once.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::types::XResult {
                match $crate::find::table() {
                    // SAFETY: the caller's own arguments, for the function of this very name.
                    Some(table) => unsafe { (table.$library.$name)($($argument),*) },
                    None => $crate::types::XResult::NOT_FOUND,
                }
            }
        )*
    };
}
