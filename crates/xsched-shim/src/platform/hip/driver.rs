//! HIP for the code that platforms with streams share.

use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_agent::say_once;
use xsched_core::{CompletionFence, QueueSpec, Runtime, XQueue};
use xsched_proto::gate::Gate;
use xsched_proto::settings::Log;

use super::api::{Api, COPIES};
use super::stream::{self, CAPTURES};
use super::types::*;
use crate::enabled::HIP;
use crate::interpose::near;
use crate::platform::shared::{DefaultStreamMode, Driver, Handle, StreamKind};

/// Query of a stream with a number as the answer.
type StreamQuestion = unsafe extern "C" fn(hipStream_t, *mut c_int) -> hipError_t;

impl Driver for Api {
    const PLATFORM: u8 = HIP;

    #[inline(always)]
    fn beside(real: *mut c_void) -> Option<&'static Api> {
        let known = near!(COPIES)[0].load(Acquire);
        // SAFETY: leaked when published, never freed.
        match unsafe { known.as_ref() } {
            Some(first) if first.holds(real as usize) => Some(first),
            _ => Api::other(real as usize),
        }
    }

    #[inline(always)]
    fn is_inner(&self, caller: usize) -> bool {
        self.holds(caller)
    }

    #[inline(always)]
    fn which(stream: hipStream_t, mode: DefaultStreamMode) -> StreamKind {
        stream::which(stream, mode)
    }

    fn is_blocking(&self, handle: Handle) -> bool {
        let mut flags = 0;
        // If the runtime does not say, the stream counts as blocking.
        let asks = |ask: unsafe extern "C" fn(hipStream_t, *mut c_uint) -> hipError_t| {
            // SAFETY: a stream that cannot be destroyed meanwhile; pointer to a local.
            self.quietly(|| unsafe { ask(handle.stream, &mut flags) })
        };
        handle.which != StreamKind::Own
            || !self.functions.stream_flags.is_some_and(asks)
            || flags & STREAM_NON_BLOCKING == 0
    }

    fn some_capture(&self) -> bool {
        CAPTURES.is_active()
    }

    #[inline(always)]
    fn recording(&self, stream: hipStream_t, mode: DefaultStreamMode) -> Option<bool> {
        stream::recording(self, stream, mode)
    }

    #[inline(always)]
    fn handle(&self, stream: hipStream_t, mode: DefaultStreamMode) -> Option<Handle> {
        stream::handle(self, stream, mode)
    }

    fn describe(&self, _rt: &Runtime, handle: Handle) -> Option<QueueSpec> {
        let mut priority = 0;
        if handle.which == StreamKind::Own {
            // ROCm 5.2 follows any handle that it is given in the query below; in this query it checks the handle
            // first.
            let mut status = CAPTURE_NONE;
            // SAFETY: the application's stream; pointers to locals.
            let is_one = self
                .functions
                .stream_capturing
                .is_none_or(|ask| self.quietly(|| unsafe { ask(handle.stream, &mut status) }));
            // SAFETY: as above.
            let asks = |ask: StreamQuestion| self.quietly(|| unsafe { ask(handle.stream, &mut priority) });
            if !is_one || !self.functions.stream_priority.is_none_or(asks) {
                return None;
            }
        }
        let device = self.device_key(self.device_of(handle)?)?;
        // The runtime counts downwards: -1 is more urgent than 0.
        Some(QueueSpec {
            handle: handle.stream.cast(),
            platform: HIP,
            device,
            priority_steps: -priority,
            in_order: true,
        })
    }

    fn place_fence(&self, rt: &Runtime, queue: &XQueue, fence: &CompletionFence) -> bool {
        let word = queue.slot(rt).completed_word.as_ptr() as usize;
        let (Some(at), Some(write)) = (self.seen(rt, word), self.functions.write_value) else { return false };
        // SAFETY: a word of the registered segment; the stream is the one whose command was just taken.
        self.quietly(|| unsafe { write(queue.handle().cast(), at, fence.number, 0) })
    }

    fn gate(&self, rt: &Runtime, queue: &XQueue) -> bool {
        static SAID: AtomicBool = AtomicBool::new(false);
        let group = usize::from(queue.group(rt).index());
        let word = rt.segment().groups[group].gate.as_ptr() as usize;
        let (Some(at), Some(wait)) = (self.seen(rt, word), self.functions.wait_value) else { return false };
        let stream = queue.handle().cast();
        // SAFETY: a word of the registered segment. A refusal leaves the host gate.
        let taken =
            self.quietly(|| unsafe { wait(stream, at, Gate::DEVICE_OPEN.bits(), WAIT_AND, Gate::DEVICE_OPEN.bits()) });
        if !taken {
            say_once(
                &SAID,
                Log::Info,
                Log::Info,
                "the HIP runtime refuses gates on the device: the host's gate is used",
            );
        }
        taken
    }

    fn has_no_fences(&self) -> bool {
        self.has_no_fences.load(Relaxed)
    }

    fn current_device_key(&self) -> Option<String> {
        self.device_key(self.device()?)
    }
}
