//! The C API of `include/xsched`: XQueues that buffer commands and that the program itself suspends and resumes, and
//! hints.
//!
//! Programs link small libraries that get the [`Table`] from [`XSchedFunctions`] and forward to it, so that linking
//! them puts nothing between the program and its driver.
//!
//! - [`calls`]: the functions, one by one, with the checks of their arguments.
//! - [`tables`]: the objects behind handles. A handle is a number that is never used again.
//! - [`queue`]: an XQueue: its buffer, its state, waits; [`launch`]: its worker, and the launch of commands into the driver.
//! - [`hints`]: the program's wishes to the scheduler.
//!
//! Hardware queues, and launches on them, are defined in [`crate::platform::hal`].

mod calls;
mod command;
mod hints;
mod launch;
mod queue;
mod tables;

use xsched_capi::types::*;
use xsched_capi::{HalCuda, HalHip, HalOpenCl, Preempt, Table, VERSION};

use crate::process;

/// Abandons all handles, in a forked child: the parent's queues and their workers do not exist there.
pub(crate) fn forget() {
    tables::forget();
}

macro_rules! part {
    ($library:ident $part:ident; $(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case)] // published names
        mod $library {
            use std::ffi::c_void;

            use super::*;

            $(
                unsafe extern "C" fn $name($($argument: $type),*) -> XResult {
                    // SAFETY: the caller's own arguments, as the header wants them.
                    let call = || unsafe { calls::$name($($argument),*) };
                    process::guarded(concat!("in ", stringify!($name)), call).unwrap_or(XResult::UNKNOWN)
                }
            )*

            pub(super) const PART: $part = $part { $($name),* };
        }
    };
}

xsched_capi::preempt!(part);
xsched_capi::halcuda!(part);
xsched_capi::halhip!(part);
xsched_capi::halopencl!(part);

static TABLE: Table =
    Table { preempt: preempt::PART, halcuda: halcuda::PART, halhip: halhip::PART, halopencl: halopencl::PART };

// SAFETY: no pointers are taken.
#[unsafe(no_mangle)]
extern "C" fn XSchedFunctions(version: u32) -> *const Table {
    if version == VERSION { &raw const TABLE } else { std::ptr::null() }
}
