//! The thread that waits for the device: a wait for commands cannot be broken off, and the mover's patience ends.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use xsched_proto::memory::{Hardware, Memory, Sleepers};

use super::movable::Movable;
use super::quiet::quietly;

/// Nobody waits for the device.
const IDLE: u32 = 0;
/// The mover has asked, and the thread has not begun.
const ASKED: u32 = 1;
/// The thread is in the driver, or about to be.
const WAITS: u32 = 2;
/// Longest wait of a capture for a wait of which nobody needs the end, since a command may need something of the capturing thread.
const STALE: Duration = Duration::from_secs(1);

/// State of the wait for the device. A capture that is active while it reaches the driver would become invalid.
#[derive(Default)]
pub(super) struct Drain(AtomicU32);

impl Drain {
    fn change(&self, from: u32, to: u32) -> bool {
        let is_changed = self.0.compare_exchange(from, to, AcqRel, Acquire).is_ok();
        if is_changed {
            Hardware::wake(&self.0, Sleepers::Own);
        }
        is_changed
    }

    /// Waits for the end of a wait that the mover gave up. Called inside the latch: the mover begins no other meanwhile.
    pub(super) fn wait_for_stale(&self) {
        let until = Instant::now() + STALE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.0.load(Acquire) != WAITS || left.is_zero() {
                return;
            }
            Hardware::sleep(&self.0, WAITS, Sleepers::Own, left.as_nanos() as u64);
        }
    }
}

/// The mover's end of the thread.
pub(super) struct Drainer {
    movable: &'static Movable,
    ask: Sender<()>,
    done: Receiver<bool>,
    /// A wait is under way that was given up.
    is_stale: bool,
}

impl Drainer {
    /// Starts the thread. None: it could not be.
    pub(super) fn new(movable: &'static Movable) -> Option<Self> {
        let (ask, asked) = channel();
        let (tell, done) = channel();
        let work = move || {
            movable.calls.enter_context();
            for () in asked {
                if !movable.drain.change(ASKED, WAITS) {
                    // Taken back.
                    continue;
                }
                let is_drained = movable.calls.synchronize().is_ok();
                movable.drain.change(WAITS, IDLE);
                if tell.send(is_drained).is_err() {
                    return;
                }
            }
        };
        quietly("xsched-drainer", work).then_some(Drainer { movable, ask, done, is_stale: false })
    }

    /// Waits for all commands, up to a time. A wait that began before the last commands says nothing about them.
    pub(super) fn drain(&mut self, until: Instant) -> bool {
        loop {
            let was_stale = self.is_stale;
            let asks = was_stale || self.movable.drain.change(IDLE, ASKED) && self.ask.send(()).is_ok();
            if !asks {
                return false;
            }
            match self.done.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    self.is_stale = was_stale || !self.movable.drain.change(ASKED, IDLE);
                    return false;
                }
                Err(RecvTimeoutError::Disconnected) | Ok(false) => {
                    self.is_stale = false;
                    return false;
                }
                Ok(true) => self.is_stale = false,
            }
            if !was_stale {
                return true;
            }
        }
    }
}
