//! Memory that can leave the device, in programs with `XSCHED_MEMORY=swap`; others have nothing of this but one check when a function
//! is found.
//!
//! - [`latched`]: a function of this library before each of the driver's that hooks call in the end, whatever let the call through. It
//!   passes the residency latch ([`xsched_core::residency`]).
//! - [`movable`]: the latch, and the state behind it.
//! - [`chunks`]: memory of `cuMemAlloc` from 2 MiB on, as chunks behind addresses of this library's.
//! - [`calls`]: the driver's calls that make and move chunks.
//! - [`mover`]: the thread that moves them, as the daemon orders; at random with `XSCHED_MEMORY_MOVES`.
//!
//! Memory of the first context that allocates moves, on machines with one device. All other memory is the driver's own.

mod calls;
mod chunks;
mod counts;
#[allow(non_snake_case)] // vendor names
mod latched;
mod movable;
mod mover;

use std::ffi::c_void;
use std::sync::OnceLock;

use xsched_proto::variables;

pub(super) use self::counts::counts;
use self::movable::MOVABLE;
pub(super) use self::movable::{forget_all, order};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::Hook;
use crate::interpose::beneath::{self, Beneath};

/// Reports whether this program's memory is to be movable.
pub(super) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| variables::text("XSCHED_MEMORY").as_deref() == Some("swap") && platform_enabled(CUDA))
}

/// Constructor, run when this library is loaded: hooks call what lies here before the driver's functions.
#[used]
#[unsafe(link_section = ".init_array")]
static LIE_BENEATH: extern "C" fn() = {
    extern "C" fn lie_beneath() {
        beneath::put(&Beneath { before: under, behind: driver_function });
    }
    lie_beneath
};

/// Function for calls of a hook instead of the driver's: the latched one in a program whose memory is movable.
#[cold]
fn under(hook: &Hook, real: *mut c_void) -> *mut c_void {
    if hook.platform != CUDA || real.is_null() || !is_wanted() { real } else { latched::before(hook, real) }
}

/// The driver's function behind a latched one; any other address as it is.
#[cold]
fn driver_function(address: usize) -> usize {
    if MOVABLE.get().is_none() && !latched::is_used() { address } else { latched::behind(address) }
}
