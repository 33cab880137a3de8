//! The old context functions. As in the real runtime, a context is the same as its device.

use crate::result::{Error, Result};
use crate::runtime::{choose, current_number, given, runtime};
use fakecuda::Out;
use std::cell::RefCell;
use std::ffi::{c_int, c_uint};
use std::mem::ManuallyDrop;

thread_local! {
    /// Never dropped, since exit handlers call these functions, too.
    static STACK: ManuallyDrop<RefCell<Vec<usize>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

fn stack<T>(body: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK.with(|stack| body(&mut stack.borrow_mut()))
}

/// Handle of a device's context: the address of the device.
fn handle(number: usize) -> Result<usize> {
    Ok(std::ptr::from_ref(&runtime()?.devices[number]).expose_provenance())
}

/// Number of the device whose context has this handle.
pub(crate) fn number(context: usize) -> Result<usize> {
    let devices = 0..runtime()?.devices.len();
    devices.into_iter().find(|&n| handle(n) == Ok(context)).ok_or(Error::INVALID_CONTEXT)
}

pub(crate) fn create(out: Out<usize>, _: c_uint, device: c_int) -> Result<()> {
    let (out, device) = (out.required()?, given(device)?);
    push(handle(device.number)?)?;
    Ok(out.put(handle(device.number)?)?)
}

pub(crate) fn destroy(context: usize) -> Result<()> {
    number(context)?;
    stack(|stack| {
        if stack.last() == Some(&context) {
            stack.pop();
        }
    });
    Ok(())
}

pub(crate) fn push(context: usize) -> Result<()> {
    choose(number(context)?)?;
    stack(|stack| stack.push(context));
    Ok(())
}

pub(crate) fn pop(out: Out<usize>) -> Result<()> {
    let context = stack(Vec::pop).ok_or(Error::INVALID_CONTEXT)?;
    out.maybe(context);
    if let Some(below) = stack(|stack| stack.last().copied()) {
        choose(number(below)?)?;
    }
    Ok(())
}

pub(crate) fn set_current(context: usize) -> Result<()> {
    stack(|stack| stack.pop());
    if context == 0 { Ok(()) } else { push(context) }
}

pub(crate) fn get_current(out: Out<usize>) -> Result<()> {
    Ok(out.put(handle(current_number())?)?)
}

pub(crate) fn get_device(out: Out<c_int>) -> Result<()> {
    Ok(out.put(current_number() as c_int)?)
}

pub(crate) fn api_version(_: usize, out: Out<c_int>) -> Result<()> {
    Ok(out.put(4)?)
}

pub(crate) fn get_flags(out: Out<c_uint>) -> Result<()> {
    Ok(out.put(0)?)
}

pub(crate) fn primary_retain(out: Out<usize>, device: c_int) -> Result<()> {
    let (out, device) = (out.required()?, given(device)?);
    device.context()?;
    Ok(out.put(handle(device.number)?)?)
}

pub(crate) fn primary_release(device: c_int) -> Result<()> {
    given(device).map(drop)
}

pub(crate) fn primary_reset(device: c_int) -> Result<()> {
    given(device).map(drop)
}

pub(crate) fn primary_set_flags(device: c_int, _: c_uint) -> Result<()> {
    given(device)?;
    Err(Error::SET_ON_ACTIVE_PROCESS)
}

pub(crate) fn primary_state(device: c_int, flags: Out<c_uint>, active: Out<c_int>) -> Result<()> {
    flags.put(0)?;
    Ok(active.put(given(device)?.is_active().into())?)
}
