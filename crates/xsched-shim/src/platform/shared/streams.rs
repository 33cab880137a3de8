//! Part of platforms with streams in the path of a command.

use std::ffi::c_void;
use std::marker::PhantomData;

use xsched_core::thread;
use xsched_core::{CompletionFence, Runtime, Work, XQueue};

use super::pipeline::{Missing, Pipeline};
use super::{DefaultStreamMode, Driver, Handle, Stream, late};

/// Pipeline of platforms with streams: a fence is a command of its own, behind the one that it follows.
pub(super) struct Streams<D>(PhantomData<D>);

impl<D: Driver> Pipeline for Streams<D> {
    const PLATFORM: u8 = D::PLATFORM;
    const MAY_THROW: bool = false;

    /// Address of the real function, the stream, and the meaning of a null stream.
    type Call = (*mut c_void, Stream, DefaultStreamMode);
    type Library = &'static D;
    type Target = (&'static D, Handle);
    type Command = Work;
    type Receipt = ();

    #[inline(always)]
    fn library((real, ..): Self::Call) -> Option<&'static D> {
        D::beside(real).filter(|api| !api.is_inner(thread::current().caller.get()))
    }

    #[inline(always)]
    fn target(api: &'static D, (_, stream, mode): Self::Call) -> Result<Self::Target, Missing> {
        match api.recording(stream, mode) {
            Some(false) => Ok((api, api.handle(stream, mode).ok_or(Missing::Untold)?)),
            Some(true) => Err(Missing::Recorded),
            None => Err(Missing::Untold),
        }
    }

    #[inline(always)]
    fn key((_, handle): Self::Target) -> usize {
        handle.key
    }

    fn is_scheduled(_: Self::Target) -> bool {
        !D::is_below_another(thread::current().caller.get())
    }

    fn first_use(rt: &'static Runtime, (api, handle): Self::Target, _: &Work) -> Option<&'static XQueue> {
        late::note(handle.which);
        rt.remember(handle.key, || api.describe(rt, handle))
    }

    #[inline(always)]
    fn work((api, _): Self::Target, _: &XQueue, work: &Work) -> Work {
        // Without reports of completion there is nothing to enforce a budget by.
        Work { unbounded: work.unbounded || api.has_no_fences(), ..*work }
    }

    #[inline(always)]
    fn gate((api, _): Self::Target, rt: &Runtime, queue: &XQueue) -> bool {
        api.gate(rt, queue)
    }

    fn place_fence(
        (api, _): Self::Target,
        rt: &'static Runtime,
        queue: &XQueue,
        fence: &CompletionFence,
        _: &Work,
        (): (),
    ) -> bool {
        api.place_fence(rt, queue, fence)
    }
}
