//! CUDA for the code that platforms with streams share.

use std::sync::atomic::Ordering::*;

use xsched_core::{CompletionFence, QueueSpec, Runtime, XQueue};
use xsched_proto::gate::Gate;

use super::api::{Api, NO_FENCES, note_queue};
use super::hot::hot;
use super::stream;
use super::types::*;
use crate::enabled::CUDA;
use crate::platform;
use crate::platform::shared::{DefaultStreamMode, Driver, Handle, StreamKind};

impl Driver for Api {
    const PLATFORM: u8 = CUDA;

    /// A process has one driver.
    #[inline(always)]
    fn beside(real: *mut c_void) -> Option<&'static Api> {
        let known = hot().api.load(Acquire);
        if known.is_null() {
            return Api::first(real);
        }
        // SAFETY: leaked when published, never freed.
        Some(unsafe { &*known })
    }

    /// A runtime's commands were counted already when they entered the runtime.
    #[cold]
    fn is_below_another(caller: usize) -> bool {
        platform::is_scheduled_runtime(caller)
    }

    #[inline(always)]
    fn which(stream: CUstream, mode: DefaultStreamMode) -> StreamKind {
        stream::which(stream, mode)
    }

    fn is_blocking(&self, handle: Handle) -> bool {
        let mut flags = 0;
        // If the driver does not say, the stream counts as blocking.
        handle.which != StreamKind::Own
            // SAFETY: a stream that cannot be destroyed meanwhile; pointer to a local.
            || unsafe { (self.stream_flags)(handle.stream, &mut flags) } != SUCCESS
            || flags & STREAM_NON_BLOCKING == 0
    }

    fn some_capture(&self) -> bool {
        hot().captures.is_active()
    }

    #[inline(always)]
    fn recording(&self, stream: CUstream, _: DefaultStreamMode) -> Option<bool> {
        stream::recording(self, stream)
    }

    #[inline(always)]
    fn handle(&self, stream: CUstream, mode: DefaultStreamMode) -> Option<Handle> {
        stream::handle(self, stream, mode)
    }

    fn has_no_fences(&self) -> bool {
        NO_FENCES.load(Relaxed)
    }

    fn current_device_key(&self) -> Option<String> {
        self.device_key(self.device()?)
    }

    fn describe(&self, _rt: &Runtime, handle: Handle) -> Option<QueueSpec> {
        let device = self.device_key(self.device()?)?;
        let mut priority = 0;
        if handle.which == StreamKind::Own {
            // SAFETY: the application's stream; pointer to a local.
            let rc = unsafe { (self.stream_priority)(handle.stream, &mut priority) };
            if rc != SUCCESS {
                return None;
            }
        }
        let mut context = self.context();
        if handle.which == StreamKind::Own {
            // SAFETY: as above; a failure leaves the thread's own.
            unsafe { (self.stream_context)(handle.stream, &mut context) };
        }
        note_queue(handle.key, context as usize);
        // The driver counts downwards: -1 is more urgent than 0.
        Some(QueueSpec {
            handle: handle.stream.cast(),
            platform: CUDA,
            device,
            priority_steps: -priority,
            in_order: true,
        })
    }

    fn place_fence(&self, rt: &Runtime, queue: &XQueue, fence: &CompletionFence) -> bool {
        let word = queue.slot(rt).completed_word.as_ptr() as usize;
        let Some(at) = self.seen(rt, word) else { return false };
        // SAFETY: a word of the registered segment; the stream is the one whose command was just taken.
        let placed = unsafe { (self.write_value)(queue.handle().cast(), at, fence.number, 0) == SUCCESS };
        if placed && let Some(place) = queue.published_place(rt, fence.number) {
            self.publish(rt, queue, place as usize, fence.number);
        }
        placed
    }

    fn gate(&self, rt: &Runtime, queue: &XQueue) -> bool {
        let group = usize::from(queue.group(rt).index());
        let word = rt.segment().groups[group].gate.as_ptr() as usize;
        let Some(at) = self.seen(rt, word) else { return false };
        // SAFETY: a word of the registered segment. A refusal leaves the host gate.
        unsafe { (self.wait_value)(queue.handle().cast(), at, Gate::DEVICE_OPEN.bits(), WAIT_AND) == SUCCESS }
    }
}
