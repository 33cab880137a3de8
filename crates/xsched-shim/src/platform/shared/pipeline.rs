//! The path of every command into a driver, common to all platforms.
//!
//! [`enqueue`] is the fast path: it finds the queue, counts the command, reads the gate word and calls the driver. A
//! command that needs more goes through `slow_path_entry` and `slow_path`: first use, admission, device gate, the call, fence. The
//! differences between platforms are in [`Pipeline`]; all of this is compiled anew for each platform, so that the fast
//! path is straight code.

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

/// Reason why the queue of a command is unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The command is only recorded, not enqueued.
    Recorded,
    /// There is no such queue, or the vendor's library does not name it.
    Untold,
}

/// A platform's part in the path of a command.
pub(crate) trait Pipeline: 'static {
    /// Index in [`crate::platform::PLATFORMS`].
    const PLATFORM: u8;

    /// Set if an application's callback may throw through the driver's call, or its thread be cancelled there. Then
    /// nothing is counted that the end of the call would have to undo.
    const MAY_THROW: bool;

    /// Arguments of a call that identify its queue.
    type Call: Copy;
    /// The copy of the vendor's library that the call is for.
    type Library: Copy;
    /// The queue, with as much as the fast path needs of it.
    type Target: Copy;
    /// Further arguments of the command, which only the slow path reads. Never dropped.
    type Command;
    /// Place where the driver stores a handle by which a command can be followed; `()` if a fence is a command of its
    /// own.
    type Receipt: Copy;

    /// The library of a call; `None` if the call is the library's own business.
    fn library(call: Self::Call) -> Option<Self::Library>;

    /// The queue that a call refers to.
    fn target(library: Self::Library, call: Self::Call) -> Result<Self::Target, Missing>;

    /// Key of the queue's XQueue.
    fn key(target: Self::Target) -> usize;

    /// Reports whether a queue that is used for the first time is to be scheduled.
    fn is_scheduled(target: Self::Target) -> bool;

    /// The XQueue of a queue that the calling thread has not used lately; creates it if need be.
    fn first_use(rt: &'static Runtime, target: Self::Target, command: &Self::Command) -> Option<&'static XQueue>;

    /// Description of the command for the core.
    fn work(target: Self::Target, queue: &XQueue, command: &Self::Command) -> Work;

    /// Reports whether completion of the queue's commands can be observed.
    #[inline(always)]
    fn can_follow(_queue: &XQueue) -> bool {
        true
    }

    /// Makes the device wait at the group's gate. Returns false if the driver refused, or has no such gates.
    #[inline(always)]
    fn gate(_target: Self::Target, _rt: &Runtime, _queue: &XQueue) -> bool {
        false
    }

    /// Place for the receipt of a command that gets a fence; `asked` is the place that the application passed.
    #[inline(always)]
    fn receipt(_command: &Self::Command, asked: Self::Receipt) -> Self::Receipt {
        asked
    }

    /// Completes a fence when the command completes. Returns false if the driver refused.
    fn place_fence(
        target: Self::Target,
        rt: &'static Runtime,
        queue: &XQueue,
        fence: &CompletionFence,
        command: &Self::Command,
        receipt: Self::Receipt,
    ) -> bool;

    /// Reports whether the return of the call is the only sign that the queue is complete.
    #[inline(always)]
    fn tells(_command: impl Fn() -> Self::Command) -> bool {
        false
    }

    /// Called after the driver accepted the command.
    #[inline(always)]
    fn accepted(_rt: &'static Runtime, _queue: &XQueue, _command: &Self::Command) {}
}

/// Passes a command to the driver. `enter` calls the real function; `command` describes the command, and is called only
/// on the slow path; `receipt` is the place where the application wants its receipt.
#[inline(always)]
pub(crate) fn enqueue<P: Pipeline>(
    call: P::Call,
    receipt: P::Receipt,
    // Both closures are copied on the slow path only, so that their captures stay in registers on the fast path. Copied
    // values need no clean-up either.
    command: impl Fn() -> P::Command + Copy,
    enter: impl Fn(P::Receipt) -> c_int + Copy,
) -> c_int {
    // No value waits to be dropped while the driver runs, since an application's callback may throw through this frame.
    // Any unwinder can pass a frame without clean-up; but our unwinder, which is linked in, cannot be mixed with the
    // application's. A mark that an exception leaves behind is recognised, as after longjmp.
    let place = Place::new();
    let Some(library) = P::library(call) else { return enter(receipt) };
    // A call from within a driver call is the driver's, not the application's.
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
                // Copies, so that only these have their addresses taken.
                #[allow(clippy::redundant_locals)]
                let (command, enter) = (command, enter);
                slow_path_entry::<P>(held, target, receipt, &command, &enter)
            }
        },
    };
    drop(ManuallyDrop::into_inner(inside));
    rc
}

/// Cold continuation of `enqueue`, kept out of line so that the fast path stays small.
#[cold]
#[inline(never)]
fn slow_path_entry<P: Pipeline>(
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
            // Without clean-up, see `enqueue`: the compiler adds some for a type that it does not know yet.
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

/// Reason why a queue has no XQueue.
enum NotMet {
    /// The queue is not to be scheduled.
    NotOurs,
    /// There is no such queue, the vendor's library does not name it, or there is no room for it.
    Unknown,
}

/// Finds or creates the XQueue of a queue that the calling thread has not used lately, with the thread's counter.
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

/// Handles a command that entered the driver for an unknown queue. If the driver refused it, the queue does not exist;
/// else the command ran unscheduled, which is counted and logged once.
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
