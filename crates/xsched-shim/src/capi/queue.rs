//! An XQueue: its buffer and counts of commands, suspend and resume, and waits.
//!
//! Commands are numbered in the order of their launch. [`Mark`]s behind them show how far the device has come; a wait
//! for a command is a wait for the first mark at or behind it. The state is never locked during a call into the driver
//! or the program: such a thread may stay inside, with the driver's locks, until the queue is resumed.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use xsched_capi::types::{XResult, flag, state};
use xsched_core::{Hold, Runtime, XQueue};

use super::command::{Command, Stage, is_in_command};
use super::tables::Hardware;
use crate::platform::hal::{Mark, waiting};
use crate::process;

/// Default limits of commands in flight, and of commands launched as one batch.
const THRESHOLD: u64 = 16;
const BATCH: u64 = 8;
/// Interval at which a wait polls for a change that nothing signals.
const LOOK: Duration = Duration::from_millis(1);

/// State of a [`Queue`].
pub(super) struct State {
    pub(super) level: u8,
    pub(super) threshold: u64,
    pub(super) batch: u64,
    pub(super) buffer: VecDeque<Arc<Command>>,
    /// The last command that was submitted.
    last: Option<Arc<Command>>,
    /// Number of commands passed to the driver, and how many of these are complete.
    pub(super) launched: u64,
    completed: u64,
    /// Commands behind a device gate of this queue that they are not known to have passed.
    gates: VecDeque<u64>,
    /// Numbers of commands and the marks behind them.
    marks: VecDeque<(u64, Arc<dyn Mark>)>,
    suspended: bool,
    /// Set if the queue is held by its priority, `NOT_EXECUTED`.
    not_executed: bool,
    /// Set while a thread passes commands to the driver.
    pub(super) launching: bool,
    /// Set while the queue is being destroyed.
    pub(super) ending: bool,
    pub(super) worker: Option<std::thread::JoinHandle<()>>,
}

impl State {
    /// Reports whether nothing may be launched.
    pub(super) fn is_held(&self) -> bool {
        !self.ending && (self.suspended || self.not_executed)
    }

    /// Number of the last command that no gate holds if all gates close now, given the low half of the last number that
    /// the device reported as passed.
    fn unheld(&mut self, passed: u32) -> u64 {
        self.gates.retain(|gate| (*gate as u32).wrapping_sub(passed).cast_signed() > 0);
        self.gates.front().map_or(self.launched, |gate| gate - 1)
    }

    /// Counts commands up to this one as complete. Returns the marks that are obsolete, for the caller to drop after it
    /// has unlocked the state.
    fn reached(&mut self, number: u64) -> Vec<(u64, Arc<dyn Mark>)> {
        self.completed = self.completed.max(number);
        self.gates.retain(|gate| *gate > number);
        let behind = self.marks.iter().take_while(|(at, _)| *at <= number).count();
        self.marks.drain(..behind).collect()
    }

    /// Number of commands that were passed to the driver and are not known to be complete.
    pub(super) fn in_flight(&self) -> u64 {
        self.launched - self.completed
    }

    /// Reports whether this many more commands may be in flight. Without a mark to wait for, any number may.
    pub(super) fn has_room(&self, more: u64) -> bool {
        self.in_flight() + more <= self.threshold || self.marks.is_empty()
    }

    /// The oldest mark. Room is made when it is reached.
    pub(super) fn first_mark(&self) -> Option<(u64, Arc<dyn Mark>)> {
        self.marks.front().cloned()
    }

    /// First mark at or behind a command.
    fn mark_behind(&self, number: u64) -> Option<(u64, Arc<dyn Mark>)> {
        self.marks.iter().find(|(at, _)| *at >= number).cloned()
    }

    /// Records that a command of this number was passed to the driver, behind a gate or not.
    pub(super) fn launched(&mut self, number: u64, gated: bool) {
        self.launched = number;
        if gated {
            self.gates.push_back(number);
        }
    }

    /// Records a mark behind all commands launched so far.
    pub(super) fn marked(&mut self, mark: Arc<dyn Mark>) {
        self.marks.push_back((self.launched, mark));
    }
}

/// An XQueue over a hardware queue.
pub(super) struct Queue {
    handle: u64,
    hardware: Arc<Hardware>,
    /// Commands are launched by the submitting threads, without a buffer.
    pub(super) is_blocking: bool,
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl Queue {
    pub(super) fn new(handle: u64, hardware: Arc<Hardware>, level: u8, flags: i64) -> Queue {
        // Numbers continue those of an earlier XQueue on the same stream.
        let slot = process::running().and_then(|rt| Some(rt.find(hardware.queue.key())?.slot(rt)));
        let first = u64::from(slot.map_or(0, |slot| slot.reached.load(Acquire)));
        let state = State {
            level,
            threshold: THRESHOLD,
            batch: BATCH,
            buffer: VecDeque::new(),
            last: None,
            launched: first,
            completed: first,
            gates: VecDeque::new(),
            marks: VecDeque::new(),
            suspended: false,
            not_executed: false,
            launching: false,
            ending: false,
            worker: None,
        };
        Queue {
            handle,
            hardware,
            is_blocking: flags & flag::BLOCKING_SUBMIT != 0,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(super) fn handle(&self) -> u64 {
        self.handle
    }

    pub(super) fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Counts commands up to this one as complete, and wakes waiting threads.
    pub(super) fn reach(&self, number: u64) {
        let useless = self.state().reached(number);
        drop(useless);
        self.changed.notify_all();
    }

    /// Polls the marks, oldest first, and counts commands as complete accordingly.
    pub(super) fn look(&self) {
        loop {
            let first = self.state().first_mark();
            match first {
                Some((number, mark)) if mark.is_reached() => self.reach(number),
                _ => return,
            }
        }
    }

    /// Waits until the state changes.
    pub(super) fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(|e| e.into_inner())
    }

    fn sleep_briefly<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, LOOK).unwrap_or_else(|e| e.into_inner()).0
    }

    /// XQueue of the launch path, if the hardware queue is scheduled.
    pub(super) fn scheduled(&self) -> Option<(&'static Runtime, &'static XQueue)> {
        let rt = process::running()?;
        Some((rt, rt.find(self.hardware.queue.key())?))
    }

    /// Runs a wait of the driver's in the queue's context. `all` is set if it waits for all commands of the queue.
    fn waits(&self, all: bool, wait: impl Fn() -> bool) -> bool {
        let mut done = false;
        let within = &mut || done = waiting(self.hardware.queue.key(), all, &wait);
        self.hardware.queue.within(within);
        done
    }

    /// Records that a command entered the buffer.
    pub(super) fn submitted(&self, state: &mut State, command: &Arc<Command>) {
        command.set_stage(Stage::Buffered(self.handle));
        state.last = Some(command.clone());
    }

    /// Waits until a command of this queue is complete or dropped.
    pub(super) fn wait(&self, command: &Command) -> Result<(), XResult> {
        if is_in_command() {
            return Err(XResult::NOT_ALLOWED);
        }
        self.look();
        let mut state = self.state();
        loop {
            let number = match command.stage() {
                Stage::Launched(queue, number) if queue == self.handle => number,
                Stage::Buffered(queue) if queue == self.handle => {
                    state = self.sleep(state);
                    continue;
                }
                Stage::Dropped(queue) if queue == self.handle => return Ok(()),
                _ => return Err(XResult::NOT_FOUND),
            };
            if state.completed >= number {
                return Ok(());
            }
            state = match state.mark_behind(number) {
                Some(mark) => {
                    drop(state);
                    self.wait_mark(mark)?;
                    self.state()
                }
                // The mark of this batch is still to come.
                None => self.sleep(state),
            };
        }
    }

    /// Waits for a mark, and counts the commands before it as complete.
    pub(super) fn wait_mark(&self, (number, mark): (u64, Arc<dyn Mark>)) -> Result<(), XResult> {
        if !self.waits(false, || mark.wait()) {
            return Err(XResult::HARDWARE);
        }
        self.reach(number);
        Ok(())
    }

    /// Waits for all commands submitted so far, and for the program's own launches on the hardware queue.
    pub(super) fn wait_all(&self) -> Result<(), XResult> {
        let last = self.state().last.clone();
        if let Some(last) = last {
            self.wait(&last)?;
        }
        self.synchronize()
    }

    /// Waits for all work that the driver has of this queue.
    pub(super) fn synchronize(&self) -> Result<(), XResult> {
        if is_in_command() {
            return Err(XResult::NOT_ALLOWED);
        }
        let done = self.waits(true, || self.hardware.queue.synchronize());
        if done { Ok(()) } else { Err(XResult::HARDWARE) }
    }

    /// Number of commands that were submitted and are not known to be complete.
    pub(super) fn count(&self) -> u64 {
        self.look();
        let state = self.state();
        state.buffer.len() as u64 + state.in_flight()
    }

    pub(super) fn query(&self) -> i32 {
        let mut idle = self.count() == 0;
        if idle {
            self.hardware.queue.within(&mut || idle = self.hardware.queue.is_idle());
        }
        if idle { state::IDLE } else { state::READY }
    }

    /// Suspends the queue; see `XQueueSuspend`.
    pub(super) fn suspend(&self, flags: i64) -> Result<(), XResult> {
        if self.state().suspended {
            return Ok(());
        }
        let waits = flags & (flag::WAIT_IDLE | flag::WAIT_ALL | flag::SYNC_HW_QUEUE) != 0;
        if waits && is_in_command() {
            return Err(XResult::NOT_ALLOWED);
        }
        let until_idle = flags & flag::WAIT_IDLE != 0;
        let mut state = loop {
            if until_idle || flags & flag::WAIT_ALL != 0 {
                self.wait_all()?;
            }
            self.look();
            let state = self.state();
            if !until_idle || state.buffer.is_empty() && !state.launching && state.in_flight() == 0 {
                break state;
            }
        };
        if std::mem::replace(&mut state.suspended, true) {
            return Ok(());
        }
        // A command that waits at the scheduler's gate is not launched yet, so it is not waited for. A callback cannot
        // wait for the thread that it runs on.
        while state.launching && !is_in_command() && !self.is_gate_closed() {
            state = self.sleep_briefly(state);
        }
        drop(state);
        self.look();
        let has_gates = !self.state().gates.is_empty();
        if let Some((rt, queue)) = self.scheduled() {
            queue.hold(rt, Hold::Suspended, true);
        }
        match flags & flag::SYNC_HW_QUEUE != 0 {
            true if has_gates => self.sync_unheld(),
            true => self.synchronize(),
            false => Ok(()),
        }
    }

    fn is_gate_closed(&self) -> bool {
        self.scheduled().is_some_and(|(rt, queue)| {
            let group = usize::from(queue.group(rt).index());
            !rt.segment().groups[group].gate.load().is_open()
        })
    }

    /// Waits for the last command that has passed its gate on the device. A wait for the whole queue would not end
    /// before it is resumed.
    fn sync_unheld(&self) -> Result<(), XResult> {
        let Some((rt, queue)) = self.scheduled() else { return self.synchronize() };
        let reached = || queue.slot(rt).reached.load(Acquire);
        loop {
            let passed = reached();
            self.look();
            let mut state = self.state();
            let number = state.unheld(passed);
            if state.completed < number {
                match state.mark_behind(number) {
                    Some(mark) => {
                        drop(state);
                        self.wait_mark(mark)?;
                    }
                    None => drop(self.sleep_briefly(state)),
                }
                continue;
            }
            // The device may have passed a gate just as it closed, and not have reported it yet.
            drop(self.sleep_briefly(state));
            if reached() == passed && self.state().completed >= number {
                return Ok(());
            }
        }
    }

    /// Resumes the queue; see `XQueueResume`.
    pub(super) fn resume(&self, flags: i64) {
        let mut state = self.state();
        if !state.suspended {
            return;
        }
        state.suspended = false;
        if flags & flag::DROP_COMMANDS != 0 && state.level >= 2 {
            for command in state.buffer.drain(..) {
                command.set_stage(Stage::Dropped(self.handle));
            }
        }
        drop(state);
        if let Some((rt, queue)) = self.scheduled() {
            queue.hold(rt, Hold::Suspended, false);
        }
        self.changed.notify_all();
    }

    /// Holds or releases the queue by its priority, which may say that it is not to be executed.
    pub(super) fn set_not_executed(&self, on: bool) {
        self.state().not_executed = on;
        if let Some((rt, queue)) = self.scheduled() {
            queue.hold(rt, Hold::NotExecuted, on);
        }
        self.changed.notify_all();
    }

    /// Launches the rest of the buffer and ends the worker. The device may still be running commands afterwards, but
    /// none with a gate.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ending = true;
        (state.suspended, state.not_executed) = (false, false);
        let worker = state.worker.take();
        drop(state);
        if let Some((rt, queue)) = self.scheduled() {
            queue.hold(rt, Hold::Suspended, false);
            queue.hold(rt, Hold::NotExecuted, false);
        }
        self.changed.notify_all();
        if let Some(worker) = worker {
            // The worker cannot have panicked: its work runs guarded.
            let _ = worker.join();
        }
        self.look();
        let gated = self.state().gates.back().copied();
        if let Some(mark) = gated.and_then(|last| self.state().mark_behind(last)) {
            // The device would report further numbers, and a later XQueue on this stream would take them for its own.
            let _ = self.wait_mark(mark);
        }
        if let Some((rt, queue)) = self.scheduled() {
            rt.put_back(queue);
        }
    }
}
