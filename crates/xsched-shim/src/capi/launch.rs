//! Launch of commands from the buffer of an XQueue into the driver, by its worker or by the submitting thread.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

use xsched_capi::types::XResult;

use super::command::{Command, Stage, is_in_command};
use super::queue::{Queue, State};
use super::tables::Hardware;
use crate::process;

/// Passes a command to the driver, in the context of its queue. Returns whether it succeeded.
pub(super) fn launch(hardware: &Hardware, command: &Command) -> bool {
    if is_in_command() {
        // A launch within a callback is part of the command that is being launched.
        return command.run(hardware.handle);
    }
    let enter = || if command.run(hardware.handle) { 0 } else { 1 };
    hardware.queue.launch(command.kind(), &enter) == 0
}

/// Submits a command: buffers it, or launches it at once if the queue is blocking.
pub(super) fn submit(queue: &Arc<Queue>, command: Arc<Command>) -> Result<(), XResult> {
    if queue.is_blocking && is_in_command() {
        return Err(XResult::NOT_ALLOWED);
    }
    let mut state = queue.state();
    if state.ending {
        return Err(XResult::NOT_FOUND);
    }
    if matches!(command.stage(), Stage::Buffered(_)) {
        return Err(XResult::NOT_ALLOWED);
    }
    if queue.is_blocking {
        queue.submitted(&mut state, &command);
        loop {
            while state.launching || state.is_held() {
                state = queue.sleep(state);
            }
            if state.has_room(1) {
                break;
            }
            // The lock is free during the wait: another thread may launch meanwhile, or the queue may be held.
            drop(state);
            wait_first(queue);
            state = queue.state();
        }
        launch_all(queue, state, VecDeque::from([command.clone()]));
        return match command.result() {
            XResult::SUCCESS => Ok(()),
            other => Err(other),
        };
    }
    if state.worker.is_none() {
        let own = queue.clone();
        state.worker = Some(start(move || work(&own)).ok_or(XResult::HARDWARE)?);
    }
    queue.submitted(&mut state, &command);
    state.buffer.push_back(command);
    drop(state);
    queue.changed.notify_all();
    Ok(())
}

/// Starts a thread with all signals blocked: signal handlers run on the program's own threads.
fn start(work: impl FnOnce() + Send + 'static) -> Option<std::thread::JoinHandle<()>> {
    // SAFETY: sigset_t is plain data; the functions fill it and change this thread's mask only, which is restored.
    let mut old: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
    }
    let started = std::thread::Builder::new().name("xsched-queue".into()).spawn(work);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    started.ok()
}

/// Body of the worker: launches buffered commands in batches until the queue ends.
fn work(queue: &Arc<Queue>) {
    loop {
        let done = process::guarded("in the worker of an XQueue", || {
            let mut state = queue.state();
            while (state.buffer.is_empty() || state.is_held()) && !state.ending {
                state = queue.sleep(state);
            }
            if state.buffer.is_empty() {
                return true;
            }
            let wanted = state.batch.min(state.threshold).min(state.buffer.len() as u64);
            if state.has_room(wanted) {
                let batch = (0..wanted).map_while(|_| state.buffer.pop_front()).collect();
                launch_all(queue, state, batch);
            } else {
                // The lock is free during the wait: the queue may be held meanwhile, or commands be dropped.
                drop(state);
                wait_first(queue);
            }
            false
        });
        if done != Some(false) {
            return;
        }
    }
}

/// Waits for the first mark, which makes room. If the driver cannot wait for it, the commands before it count as
/// complete.
fn wait_first(queue: &Queue) {
    let first = queue.state().first_mark();
    if let Some(mark) = first {
        let number = mark.0;
        if queue.wait_mark(mark).is_err() {
            queue.reach(number);
        }
    }
}

/// Passes commands to the driver, with a mark behind the last; at level 2 and above, with a gate before and a mark
/// behind each. If the queue is held meanwhile, the commands not yet passed return to the buffer.
fn launch_all(queue: &Queue, mut state: MutexGuard<'_, State>, mut batch: VecDeque<Arc<Command>>) {
    state.launching = true;
    let gated = state.level >= 2;
    let mut number = state.launched;
    drop(state);
    let hardware = queue.hardware();
    hardware.queue.within(&mut || {
        while let Some(command) = batch.pop_front() {
            number += 1;
            let held = gated && queue.scheduled().is_some_and(|(rt, xq)| hardware.queue.gate(rt, xq, number as u32));
            launch(hardware, &command);
            let ends = gated || batch.is_empty() || queue.state().is_held();
            let mark = if ends { hardware.queue.mark() } else { None };
            let unmarked = ends && mark.is_none();
            if unmarked {
                // The driver placed no mark. All commands are complete after a wait for the queue.
                hardware.queue.synchronize();
            }
            let mut state = queue.state();
            state.launched(number, held);
            command.set_stage(Stage::Launched(queue.handle(), number));
            if let Some(mark) = mark {
                state.marked(mark);
            }
            if ends && state.is_held() {
                while let Some(command) = batch.pop_back() {
                    state.buffer.push_front(command);
                }
            }
            drop(state);
            if unmarked {
                queue.reach(number);
            } else if ends {
                queue.changed.notify_all();
            }
        }
    });
    queue.state().launching = false;
    queue.changed.notify_all();
}
