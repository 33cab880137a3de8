//! Ends of contexts, with everything in them.

use crate::capture;
use crate::context::{CONTEXTS, Ctx, find, primary, stack, top};
use crate::event::EVENTS;
use crate::graph_memory;
use crate::memory::forget_registered;
use crate::module::{FUNCTIONS, MODULES};
use crate::process::device;
use crate::result::{Error, Result};
use crate::stream::{STREAMS, forget_of};
use crate::vmm;
use std::ffi::c_int;
use std::sync::Weak;
use std::sync::atomic::Ordering::Release;

/// Ends a context and everything in it. Pending commands are dropped.
fn end(ctx: &Ctx) {
    let mine = |owner: &Weak<Ctx>| owner.as_ptr() == std::ptr::from_ref(ctx);
    STREAMS.all().iter().filter(|stream| mine(&stream.ctx)).for_each(|stream| stream.ends());
    ctx.alive.store(false, Release);
    ctx.home.leave();
    ctx.sim.close();
    capture::end_of(ctx.id);
    forget_of(ctx);
    EVENTS.remove_if(|event| mine(&event.ctx));
    MODULES.remove_if(|module| module.ctx.as_ref().is_some_and(mine));
    FUNCTIONS.remove_if(|function| function.ctx.as_ref().is_some_and(mine));
    forget_registered(ctx);
    vmm::forget(ctx);
    graph_memory::forget(ctx);
    ctx.memory.unpool_all();
    ctx.synchronized();
    CONTEXTS.remove(ctx.handle);
}

pub(crate) fn primary_release(number: c_int) -> Result<()> {
    let mut primary = primary(device(number)?)?;
    if primary.references == 0 {
        return Err(Error::INVALID_CONTEXT);
    }
    primary.references -= 1;
    if primary.references == 0
        && let Some(context) = primary.context.take()
    {
        end(&context);
    }
    Ok(())
}

/// Resets a device's primary context. The next retain creates a new one. A reset releases nothing: each retain before it
/// still has its release, as NVIDIA documents and driver 580 does.
pub(crate) fn primary_reset(number: c_int) -> Result<()> {
    let mut primary = primary(device(number)?)?;
    if let Some(context) = primary.context.take() {
        primary.fault = primary.fault.or(context.sim.fault());
        end(&context);
    }
    Ok(())
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    let context = find(handle)?;
    if context.primary {
        return Err(Error::INVALID_CONTEXT);
    }
    if top() == handle {
        stack(|stack| stack.pop());
    }
    end(&context);
    Ok(())
}
