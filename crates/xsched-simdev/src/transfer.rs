//! Memory: freeing it, and synchronous copies between any two places.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::{contexts, current};
use std::ffi::{c_int, c_void};
use xsched_sim::client::{Heap, Heaps, Slot, lock};
use xsched_sim::command::{Action, KernelOp, transfer_ns};

/// Waits for the context, then frees a block of one of its heaps. Null is ignored.
pub(crate) fn free(pointer: *mut c_void, heap: impl Fn(&mut Heaps) -> &mut Heap) -> Result<()> {
    if pointer.is_null() {
        return Ok(());
    }
    let (context, offset) = contexts().find_map(|c| Some((c, c.offset(pointer, 0)?))).ok_or(Error::InvalidValue)?;
    if !heap(&mut lock(&context.heaps)).is_block(offset) {
        return Err(Error::InvalidValue);
    }
    context.synchronize()?;
    context.release(offset, heap)
}

/// Builds a set command, after a check of its range.
pub(crate) fn memset_action(context: &Context, pointer: *mut c_void, value: c_int, bytes: usize) -> Result<Action> {
    let dst = context.offset(pointer, bytes).ok_or(Error::InvalidValue)?;
    Ok(Action::set(dst, value as u8, bytes as u64))
}

/// Copies between any two places, in the order of the default stream. Memory that the device does not know is copied
/// through a block that it does.
///
/// # Safety
/// `size` bytes at `src` are readable, and writable at `dst`.
pub(crate) unsafe fn memcpy(dst: *mut c_void, src: *const c_void, size: usize) -> Result<()> {
    if dst.is_null() || src.is_null() {
        return Err(Error::InvalidValue);
    }
    let owner = |pointer| contexts().find(|c| c.offset(pointer, size).is_some());
    let (to, from) = (owner(dst), owner(src));
    let context = match to.or(from) {
        Some(context) => context,
        None => current()?,
    };
    if let Some(other) = from.filter(|other| !std::ptr::eq(*other, context)) {
        other.wait(other.end(Slot::DEFAULT)?)?;
    }
    let copy = |action| context.wait(context.submit(Slot::DEFAULT, |_, _| Ok(Some(action)))?);
    let bytes = size as u64;
    let stage = || lock(&context.heaps).host.alloc(bytes).ok_or(Error::OutOfMemory);
    match (context.offset(dst, size), context.offset(src, size)) {
        (Some(dst), Some(src)) => copy(Action::copy(dst, src, bytes)),
        (Some(dst), None) => {
            let stage = stage()?;
            // SAFETY: a block of this size of our own, and the source as the caller says.
            unsafe { std::ptr::copy(src.cast::<u8>(), context.address(stage).cast(), size) };
            let done = copy(Action::copy(dst, stage, bytes));
            context.release(stage, |heaps| &mut heaps.host)?;
            done
        }
        (None, Some(src)) => {
            let stage = stage()?;
            let done = copy(Action::copy(stage, src, bytes));
            if done.is_ok() {
                // SAFETY: as above, the other way.
                unsafe { std::ptr::copy(context.address(stage).cast::<u8>(), dst.cast(), size) };
            }
            context.release(stage, |heaps| &mut heaps.host)?;
            done
        }
        (None, None) => {
            let duration_ns = transfer_ns(bytes);
            copy(Action::Kernel { op: KernelOp::Nop, count: 0, duration_ns, x: 0, y: 0, a: 0.0 })?;
            // SAFETY: as the caller says.
            unsafe { std::ptr::copy(src.cast::<u8>(), dst.cast(), size) };
            Ok(())
        }
    }
}
