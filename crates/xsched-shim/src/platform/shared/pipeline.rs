//! The way of every command into a driver, the same for all platforms.
//!
//! [`enqueue`] is the fast path: it finds the queue, counts, looks at the gate word and calls the driver. Whatever needs a
//! closer look goes by `rest` and `slow_path`: first use, admission, gate on the device, the call, fence. What differs is
//! a platform's [`Pipeline`]; all of it is compiled anew for each platform, so that the fast path is straight code.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_agent::say_once;
use xsched_core::fast_path::{self, Entered, Held};
use xsched_core::thread::{Inside, Place};
use xsched_core::{Admission, CompletionFence, Runtime, Work, XQueue};
use xsched_proto::segment::Counter;
use xsched_proto::settings::Log;

use super::SUCCESS;
use crate::enabled::platform_enabled;
use crate::interpose::resolve;
use crate::platform::start::runtime;
use crate::process;

/// Why no queue is known that a command enters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The command is only recorded.
    Recorded,
    /// There is no such queue, or the vendor's library does not tell.
    Untold,
}

/// A platform's part in the way of a command.
pub(crate) trait Pipeline: 'static {
    /// Index in [`crate::platform::PLATFORMS`].
    const PLATFORM: u8;

    /// A callback of the application's may throw through the driver's call, or its thread be cancelled there: then nothing
    /// is counted that the end of the call would have to take back.
    const MAY_THROW: bool;

    /// What the arguments of a call say of its queue.
    type Call: Copy;
    /// The copy of the vendor's library that the call is for.
    type Library: Copy;
    /// The queue, as far as the fast path must know it.
    type Target: Copy;
    /// What else the arguments say of the command: only the slow path asks. It is never dropped.
    type Command;
    /// Where the driver leaves something by which a command can be followed; `()` if a fence is a command of its own.
    type Receipt: Copy;

    /// The library. `None`: the call is its own business.
    fn library(call: Self::Call) -> Option<Self::Library>;

    /// The queue that the call means.
    fn target(library: Self::Library, call: Self::Call) -> Result<Self::Target, Missing>;

    /// Key of the queue's XQueue.
    fn key(target: Self::Target) -> usize;

    /// Whether a queue that is met for the first time is scheduled at all.
    fn is_scheduled(target: Self::Target) -> bool;

    /// The XQueue of a queue that the calling thread has not used lately.
    fn first_use(rt: &'static Runtime, target: Self::Target, command: &Self::Command) -> Option<&'static XQueue>;

    /// What the core must know of the command.
    fn work(target: Self::Target, queue: &XQueue, command: &Self::Command) -> Work;

    /// Whether the completion of the queue's commands can be followed.
    #[inline(always)]
    fn can_follow(_queue: &XQueue) -> bool {
        true
    }

    /// Lets the device wait at the group's gate. False: refused, or there are no such gates.
    #[inline(always)]
    fn gate(_target: Self::Target, _rt: &Runtime, _queue: &XQueue) -> bool {
        false
    }

    /// Where the receipt of a command that is to be followed goes; `asked` is where the application wants it.
    #[inline(always)]
    fn receipt(_command: &Self::Command, asked: Self::Receipt) -> Self::Receipt {
        asked
    }

    /// Lets a fence be completed when the command is. False: refused.
    fn place_fence(
        target: Self::Target,
        rt: &'static Runtime,
        queue: &XQueue,
        fence: &CompletionFence,
        command: &Self::Command,
        receipt: Self::Receipt,
    ) -> bool;

    /// Whether the end of the call is what tells that the queue is complete, and nothing else does.
    #[inline(always)]
    fn tells(_command: impl Fn() -> Self::Command) -> bool {
        false
    }

    /// The driver took the command.
    #[inline(always)]
    fn accepted(_rt: &'static Runtime, _queue: &XQueue, _command: &Self::Command) {}
}

/// Takes a command into the driver. `enter` calls the real function; `command` says more of the command where that is
/// needed; `receipt` is where the application wants its receipt.
#[inline(always)]
pub(crate) fn enqueue<P: Pipeline>(
    call: P::Call,
    receipt: P::Receipt,
    // Both are copied on the slow path only, so that arguments stay in registers on the fast one. Nothing that is copied
    // needs clean-up either.
    command: impl Fn() -> P::Command + Copy,
    enter: impl Fn(P::Receipt) -> c_int + Copy,
) -> c_int {
    // Nothing waits to be dropped while the driver runs, for a callback of the application's may throw through this
    // frame: a frame without clean-up is passed by any unwinder, while ours, which is linked in, cannot be mixed with
    // the application's. A mark left behind is recognised, as after longjmp.
    let place = Place::new();
    let Some(library) = P::library(call) else { return enter(receipt) };
    // Inside a driver call already: not the application's command.
    let Some(inside) = Inside::enter(&place, resolve::same_object).map(ManuallyDrop::new) else {
        return enter(receipt);
    };
    let rc = match P::target(library, call) {
        Err(Missing::Recorded) => enter(receipt),
        Err(Missing::Untold) => untold(P::PLATFORM, enter(receipt)),
        Ok(target) => match fast_path::pass(P::key(target)) {
            Ok(counted) => {
                let rc = enter(receipt);
                counted.done(rc == SUCCESS);
                rc
            }
            Err(held) => {
                // Copies: only they have their addresses taken.
                #[allow(clippy::redundant_locals)]
                let (command, enter) = (command, enter);
                rest::<P>(held, target, receipt, &command, &enter)
            }
        },
    };
    drop(ManuallyDrop::into_inner(inside));
    rc
}

/// Whatever needs a closer look, out of the way of what does not.
#[cold]
#[inline(never)]
fn rest<P: Pipeline>(
    held: Held,
    target: P::Target,
    receipt: P::Receipt,
    command: &impl Fn() -> P::Command,
    enter: &impl Fn(P::Receipt) -> c_int,
) -> c_int {
    match held.look(P::key(target), P::tells(command)) {
        Entered::Fast(counted) => {
            let rc = enter(receipt);
            counted.done(rc == SUCCESS);
            rc
        }
        entered => {
            // Without clean-up, see `enqueue`: the compiler makes some for a type that it does not know yet.
            let command = ManuallyDrop::new(command());
            slow_path::<P>(entered, target, receipt, &command, enter)
        }
    }
}

#[cold]
#[inline(never)]
fn slow_path<P: Pipeline>(
    entered: Entered,
    target: P::Target,
    receipt: P::Receipt,
    command: &P::Command,
    enter: &dyn Fn(P::Receipt) -> c_int,
) -> c_int {
    let Some((rt, xqueue, counter)) = (match entered {
        Entered::Slow(xqueue, counter) => process::running().map(|rt| (rt, xqueue, counter)),
        _ => match process::guarded("before a queue's first command", || first_use::<P>(target, command)) {
            Some(Ok(met)) => Some(met),
            Some(Err(NotMet::Unknown)) => return untold(P::PLATFORM, enter(receipt)),
            Some(Err(NotMet::NotOurs)) | None => None,
        },
    }) else {
        return enter(receipt);
    };
    let work = P::work(target, xqueue, command);
    let mut admission = Admission::default();
    let admitted = process::guarded("before a command", || {
        xqueue.admit(rt, work, counter, &mut admission);
        admission.fenced &= P::can_follow(xqueue);
        if admission.device_gate {
            if admission.untold_gate {
                let fence = xqueue.fence_before_gate(rt, &admission);
                if !P::place_fence(target, rt, xqueue, &fence, command, receipt) {
                    xqueue.withdraw(rt, &fence);
                }
            }
            if !P::gate(target, rt, xqueue) && admission.prequeued {
                xqueue.wait_turn(rt);
            }
        }
        if admission.loads {
            rt.begin_load();
        }
    });
    if admitted.is_none() {
        return enter(receipt);
    }
    let receipt = if admission.fenced { P::receipt(command, receipt) } else { receipt };
    let rc = if work.blocking && !P::MAY_THROW { rt.wait_for_some(|| enter(receipt)) } else { enter(receipt) };
    process::guarded("after a command", || {
        if admission.loads {
            rt.end_load();
        }
        if let Some(fence) = xqueue.commit(rt, &admission, rc == SUCCESS, counter)
            && !P::place_fence(target, rt, xqueue, &fence, command, receipt)
        {
            xqueue.withdraw(rt, &fence);
        }
        if rc == SUCCESS {
            P::accepted(rt, xqueue, command);
        }
    });
    rc
}

/// Why a queue was not met.
enum NotMet {
    /// It is not to be scheduled.
    NotOurs,
    /// There is no such queue, the vendor's library does not tell of it, or there is no room for it.
    Unknown,
}

/// The queue of a thread that has not used it lately, counted.
fn first_use<P: Pipeline>(
    target: P::Target,
    command: &P::Command,
) -> Result<(&'static Runtime, &'static XQueue, &'static Counter), NotMet> {
    if !platform_enabled(P::PLATFORM) || !P::is_scheduled(target) {
        return Err(NotMet::NotOurs);
    }
    let rt = runtime().ok_or(NotMet::NotOurs)?;
    process::watch_thread();
    let unmet = || if rt.makes_queues() { NotMet::Unknown } else { NotMet::NotOurs };
    let xqueue = P::first_use(rt, target, command).ok_or_else(unmet)?;
    let counter = rt.counter(xqueue);
    counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), SeqCst);
    Ok((rt, xqueue, counter))
}

/// A command entered the driver though no queue is known that it went to. If the driver refused it, that was the reason; else
/// it went by unscheduled.
#[cold]
#[inline(never)]
fn untold(platform: u8, rc: c_int) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    if rc == SUCCESS && platform_enabled(platform) {
        process::guarded("after a command of an unknown queue", || {
            let Some(rt) = process::running().filter(|rt| rt.makes_queues()) else { return };
            rt.note_unscheduled();
            let text = "runs partly unscheduled: the driver does not tell what queue a command is for, or there are too many queues; \
                        such commands are counted as `error`";
            say_once(&SAID, Log::Error, Log::Error, text);
        });
    }
    rc
}

/// Puts a fence after all that a queue was given, if there is none yet. `place` answers false where it is refused.
pub(crate) fn fence_suffix(rt: &Runtime, queue: &XQueue, place: impl FnOnce(&CompletionFence) -> bool) {
    if let Some(fence) = queue.fence_suffix(rt)
        && !place(&fence)
    {
        queue.withdraw(rt, &fence);
    }
}
