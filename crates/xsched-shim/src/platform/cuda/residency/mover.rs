//! The thread that moves chunks.

use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use xsched_core::residency::{Moves, Place, Turn};
use xsched_proto::variables;

use super::super::api::Api;
use super::Movable;
use crate::platform::shared::Driver as _;

/// Longest wait for threads and the device before a move is put off: a command may wait for a thread that waits at the latch.
const PATIENCE: Duration = Duration::from_millis(200);
/// Pause after a move that was put off or ended with an error.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest sleep without a goal, in ns.
const SLEEP_NS: u64 = 1_000_000_000;

/// Starts the thread. False: it could not be.
pub(super) fn start(movable: &'static Movable) -> bool {
    quietly("xsched-mover", move || serve(movable))
}

/// Starts a thread that takes no signals.
pub(super) fn quietly(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: signal sets on the stack.
    unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let started = std::thread::Builder::new().name(name.into()).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        started.is_ok()
    }
}

/// The thread that waits for the device: a wait for commands cannot be broken off.
struct Drainer {
    ask: Sender<()>,
    done: Receiver<bool>,
    /// A wait is under way that was given up.
    waits: bool,
}

impl Drainer {
    fn new(movable: &'static Movable) -> Option<Self> {
        let (ask, asked) = channel();
        let (tell, done) = channel();
        let work = move || {
            movable.calls.enter_context();
            for () in asked {
                if tell.send(movable.calls.synchronize().is_ok()).is_err() {
                    return;
                }
            }
        };
        quietly("xsched-drainer", work).then_some(Drainer { ask, done, waits: false })
    }

    /// Waits for all commands, up to a time. A wait that began before the last commands says nothing about them.
    fn drain(&mut self, until: Instant) -> bool {
        loop {
            let stale = self.waits;
            if !stale && self.ask.send(()).is_err() {
                return false;
            }
            self.waits = true;
            match self.done.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) | Ok(false) => {
                    self.waits = false;
                    return false;
                }
                Ok(true) => self.waits = false,
            }
            if !stale {
                return true;
            }
        }
    }
}

struct Mover {
    movable: &'static Movable,
    drainer: Drainer,
    until: Instant,
}

impl Moves for Mover {
    fn is_busy(&mut self) -> bool {
        self.movable.over.load(Acquire) || super::pins::is_held() || Api::known().is_some_and(|api| api.some_capture())
    }

    fn drain(&mut self) -> bool {
        self.drainer.drain(self.until)
    }

    fn carry(&mut self, _: Place, to: Place) -> Place {
        // No thread touches the chunks now: all are outside the latch. So no lock is held while the driver is called.
        let mut residents = std::mem::take(&mut *self.movable.residents.lock());
        let moved = residents.carry(&mut &self.movable.calls, to);
        *self.movable.residents.lock() = residents;
        self.movable.moves.fetch_add(1, Relaxed);
        if moved.error.is_some() {
            self.movable.failures.fetch_add(1, Relaxed);
        }
        moved.place
    }

    fn gives_up(&mut self) -> bool {
        Instant::now() >= self.until
    }
}

fn serve(movable: &'static Movable) {
    if !movable.calls.enter_context() {
        return;
    }
    let Some(drainer) = Drainer::new(movable) else { return };
    let mut mover = Mover { movable, drainer, until: Instant::now() };
    let mut random = Random::of_environment();
    while !movable.over.load(Acquire) {
        mover.until = Instant::now() + PATIENCE;
        // Read once the latch is closed: a thread that comes later finds it so.
        let threads = std::iter::once_with(|| movable.threads.lock().clone()).flatten();
        let before = movable.failures.load(Relaxed);
        match movable.latch.turn(threads, &mut mover) {
            Turn::Rests(goal) => match &mut random {
                Some(random) => random.go_on(movable),
                None => movable.latch.sleep_for_goal(goal, SLEEP_NS),
            },
            Turn::Moved(_) if movable.failures.load(Relaxed) == before => {}
            Turn::Moved(_) | Turn::Refused => std::thread::sleep(PAUSE),
        }
    }
}

/// Moves at random times, by the seed in `XSCHED_MEMORY_MOVES`.
struct Random(u64);

impl Random {
    fn of_environment() -> Option<Self> {
        variables::text("XSCHED_MEMORY_MOVES")?.parse().ok().map(Random)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % most
    }

    /// Waits up to 4 ms, then has memory leave, come back, or be reachable on the host. Of memory that leaves, some comes back as soon
    /// as a thread asks for it, and some stays away until the next call.
    fn go_on(&mut self, movable: &Movable) {
        std::thread::sleep(Duration::from_micros(self.below(4_000)));
        let latch = &movable.latch;
        if latch.place() == Place::Away && self.below(2) == 0 {
            latch.open_for_good();
            return;
        }
        latch.arbitrated();
        match (latch.place(), self.below(3)) {
            (Place::Device, 0) => latch.ask_away(),
            (Place::Device, _) | (Place::Host, 0) => latch.freeze(),
            (Place::Away | Place::Host, _) => latch.thaw(),
        }
    }
}
