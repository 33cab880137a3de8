//! Walk up the stack, from a call to the first frame outside of a vendor's runtime.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::names::Kind;
use super::objects::{self, Object};

/// Upper limit of frames visited: deeper than any runtime.
const FRAMES: usize = 48;

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, data: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// The code that called a runtime.
pub(super) struct Caller {
    /// Object that it belongs to.
    pub(super) object: Arc<Object>,
    /// Place of its return address on the stack.
    pub(super) at: usize,
}

struct Walk {
    /// Return address at which the walk begins; `None` = at the first frame outside of this library.
    from: Option<usize>,
    frames: usize,
    begun: bool,
    found: Option<Caller>,
}

/// First caller outside of any runtime, above the call that returns to `from`. `None` if the stack cannot be followed.
#[cold]
#[inline(never)]
pub(super) fn caller_beyond(from: usize) -> Option<Caller> {
    walk(Some(from))
}

/// First caller outside of this library and of any runtime.
pub(super) fn caller() -> Option<Caller> {
    walk(None)
}

fn walk(from: Option<usize>) -> Option<Caller> {
    let mut walk = Walk { from, frames: 0, begun: false, found: None };
    // SAFETY: the callback gets `walk` back and is done with it when the call returns; the unwinder only reads.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.found
}

unsafe extern "C" fn visit(context: *mut c_void, data: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const STOP: c_int = 5;
    // SAFETY: what `caller_beyond` passed, and the unwinder's own context.
    let (walk, ip, cfa) = unsafe { (&mut *data.cast::<Walk>(), _Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    walk.frames += 1;
    if walk.frames > FRAMES {
        return STOP;
    }
    if let Some(from) = walk.from.filter(|_| !walk.begun) {
        walk.begun = ip == from;
        return GO_ON;
    }
    let Some(object) = objects::of(ip) else { return STOP };
    if !walk.begun && (object.start..object.end).contains(&(visit as *const () as usize)) {
        return GO_ON;
    }
    walk.begun = true;
    if object.kind == Kind::Runtime {
        return GO_ON;
    }
    let at = cfa.wrapping_sub(size_of::<usize>());
    // SAFETY: a frame's canonical address is just above the return address into it, on this very stack.
    if unsafe { (at as *const usize).read_volatile() } == ip {
        walk.found = Some(Caller { object, at });
    }
    STOP
}
