//! Memory that can leave the device, in programs with `XSCHED_MEMORY=swap`; others have nothing of this but one check when a function
//! is found.
//!
//! - [`latched`]: a function of this library before each of the driver's that hooks call in the end, whatever let the call through. It
//!   passes the residency latch ([`xsched_core::residency`]).
//! - [`movable`]: the latch, and the state behind it.
//! - [`chunks`]: memory of `cuMemAlloc` from 2 MiB on, as chunks behind addresses of this library's; [`pools`]: memory in the order of
//!   streams, in such chunks; [`virtuals`]: memory that a program maps itself, behind handles of this library's.
//! - [`touches`]: addresses that launches name, by which it is chosen what moves.
//! - [`answers`]: what a program is told about all of these; [`hooked`]: hooks for that; [`pins`], [`held`]: what does not move, and when; [`stays`],
//!   [`hardware`]: reasons for that; [`hosted`]: new memory
//!   for which the device has no room; [`tickets`]:
//!   memory that other processes open, [`giver`]: of which process.
//! - [`calls`]: the driver's calls that make and move chunks.
//! - [`mover`]: the thread that moves them, as the daemon orders; at random with `XSCHED_MEMORY_MOVES`. [`passage`]: room on the device for
//!   one move. [`drainer`]: the thread that
//!   waits for the device before; [`quiet`]: how both are started.
//!
//! Memory of the first context that allocates moves. All other memory is the driver's own.

mod answers;
mod calls;
mod chunks;
mod counts;
mod drainer;
mod giver;
mod hardware;
mod held;
#[allow(non_snake_case)] // vendor names
pub(super) mod hooked;
mod hosted;
#[allow(non_snake_case)] // vendor names
mod latched;
mod movable;
mod mover;
mod passage;
mod pins;
mod pools;
mod quiet;
mod stays;
mod tickets;
mod touches;
mod virtuals;
mod wanted;

use std::ffi::c_void;

use self::movable::MOVABLE;
pub(super) use self::movable::{capturing, order};
pub(super) use self::wanted::is_wanted;
use super::memory::instead::{self, Served};
use super::stats;
use crate::enabled::{CUDA, MOVING};
use crate::interpose::Hook;
use crate::interpose::beneath::{self, Beneath};

/// Constructor, run when this library is loaded: hooks call what lies here before the driver's functions.
#[used]
#[unsafe(link_section = ".init_array")]
static LIE_BENEATH: extern "C" fn() = {
    extern "C" fn lie_beneath() {
        beneath::put(&Beneath { before: under, behind: driver_function });
        stats::add_moves(moves);
        instead::put(&Served {
            range: answers::range,
            pool_figures: pools::figures,
            trim_pool: pools::trim,
            may_use_host: hosted::may,
            on_host: hosted::on_host,
        });
    }
    lie_beneath
};

/// Counts of moves of memory, and what does not move in bytes, as a further JSON member of the statistics; empty if none can move.
fn moves() -> String {
    let Some((moves, failed)) = counts::counts() else { return String::new() };
    let pinned: Vec<String> = pins::pins().iter().map(|(why, bytes)| format!("\"{why}\":{bytes}")).collect();
    let reasons: Vec<String> = counts::reasons().iter().map(|(why, count)| format!("\"{why}\":{count}")).collect();
    let (pinned, reasons) = (pinned.join(","), reasons.join(","));
    let [beside, bytes, us] = counts::beside();
    let beside = format!("{{\"moves\":{beside},\"bytes\":{bytes},\"us\":{us}}}");
    let numbers = format!("\"moves\":{moves},\"beside\":{beside},\"failed\":{failed},\"why\":{{{reasons}}}");
    format!(",\"residency\":{{{numbers},\"pinned\":{{{pinned}}}}}")
}

/// Function for calls of a hook instead of the driver's: the latched one in a program whose memory is movable.
#[cold]
fn under(hook: &Hook, real: *mut c_void) -> *mut c_void {
    if ![CUDA, MOVING].contains(&hook.platform) || real.is_null() || !is_wanted() {
        real
    } else {
        latched::before(hook, real)
    }
}

/// The driver's function behind a latched one; any other address as it is.
#[cold]
fn driver_function(address: usize) -> usize {
    if MOVABLE.get().is_none() && !latched::is_used() { address } else { latched::behind(address) }
}

/// Ends everything here, in a forked child.
pub(super) fn forget_all() {
    movable::forget_all();
    pins::forget_all();
}
