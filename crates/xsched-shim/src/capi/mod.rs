//! The C API of `include/xsched`: XQueues that buffer commands, suspend and resume by the program itself, hints.
//!
//! Programs link small libraries that ask for the [`Table`] by [`XSchedFunctions`] and forward to it, so that linking them puts
//! nothing between the program and its driver.
//!
//! - [`calls`]: the functions, one by one: arguments are checked here.
//! - [`tables`]: what handles stand for. They are numbers that are never used again.
//! - [`queue`]: an XQueue: its buffer, its state, waits; [`launch`]: its worker, and how commands get into the driver.
//! - [`hints`]: what is said to the scheduler.
//!
//! What a queue of the hardware's is, and the way of a command into the driver, is [`crate::platform::hal`]'s.

mod calls;
mod command;
mod hints;
mod launch;
mod queue;
mod tables;

use xsched_capi::types::*;
use xsched_capi::{HalCuda, HalHip, HalOpenCl, Preempt, Table, VERSION};

use crate::process;

/// In a forked child: its parent's queues and their workers are not there.
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
