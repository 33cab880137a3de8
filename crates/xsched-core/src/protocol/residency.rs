//! Residency latch: threads that touch the memory of one process on one device, against the mover that takes this memory away.
//!
//! The latch is apart from the gate word, since gates open by themselves (a daemon that is gone, a signal, an exit): a thread passes the
//! latch last, right before the driver, whatever opened its gate. A thread that is about to touch device memory says so in a word of its
//! own ([`Inside`]) and then reads the latch. The mover closes the latch and then reads those words. The barriers between make one of the
//! two see the other. Only the mover stores the latch's state; any thread may change the goal, for which the mover sleeps.

use core::sync::atomic::Ordering::*;

use xsched_proto::memory::{Memory, Sleepers, Woken, Word};

/// Place of a process's memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Backed by the device's memory, as without this library. A part may be backed by host memory, for want of room.
    Device,
    /// Backed by host memory at the same addresses: slow, and no part of the device's room.
    Host,
    /// Not mapped: an access would end the context.
    Away,
}

/// The latch's state: the place, *closed*, and a count of the states so far. The count makes a thread that slept through several moves
/// look again, and with it ask again.
const PLACE: u32 = 0x3;
const DEVICE: u32 = 0;
const HOST: u32 = 1;
const AWAY: u32 = 2;
/// The mover waits for threads, or moves memory.
const CLOSED: u32 = 4;
const ONE_STATE: u32 = 8;

/// Goal: memory gives its room to others until a thread or a grant asks for it.
const LEAVE: u32 = 1;
/// Goal: memory stays away whatever threads ask for, until it is thawed.
const FROZEN: u32 = 2;
/// Goal: nothing arbitrates any more. Memory must be reachable, host memory is good enough.
const REACHABLE: u32 = 4;
/// No goal: [`Latch::wake_mover`] was called.
const LOOK: u32 = 8;

/// A thread asks whether it may touch memory.
const ASKS: u32 = 1;
/// A thread may touch memory, and does.
const TOUCHES: u32 = 2;

/// A thread's word: true from before it reads the latch until it touches memory no more. One for each thread and latch.
pub struct Inside<M: Memory>(M::U32);

impl<M: Memory> Default for Inside<M> {
    fn default() -> Self {
        Inside(M::U32::new(0))
    }
}

/// Proof that a thread may touch memory, to be given to [`Latch::leave`].
#[must_use]
pub struct Entry {
    /// The thread's word before: a call inside another one changes nothing, and a signal handler restores what it interrupted.
    before: u32,
}

/// State of a closed latch, as a thread read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u32);

impl Seen {
    /// True: memory is away, and not on its way.
    pub fn is_away(self) -> bool {
        self.0 & (PLACE | CLOSED) == AWAY
    }
}

/// Moves of the memory behind a latch. All calls come from the mover's thread.
pub trait Moves {
    /// Checks, once no thread is inside, for a reason against moving now: a capture that is active.
    fn is_busy(&mut self) -> bool;
    /// Waits until the device has executed all that touches memory. False: not in reasonable time.
    fn drain(&mut self) -> bool;
    /// Checks whether a part of the memory is to move, while the place as a whole is right.
    fn moves_part(&mut self) -> bool {
        false
    }
    /// Moves all memory, or a part of it if the places are equal. Returns the place that was reached: `from` if that failed, or another
    /// one.
    fn carry(&mut self, from: Place, to: Place) -> Place;
    /// Checks, each time that a wait for a thread ends or took [`LOOK_NS`], whether to wait on: a thread inside a call may wait for
    /// a thread that waits at the latch.
    fn gives_up(&mut self) -> bool;
}

/// Result of a mover's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Memory is where it should be.
    Rests(Goal),
    /// A move was made, with this result.
    Moved(Place),
    /// The move must be tried again later: memory is in use, or the goal has changed.
    Refused,
}

/// The goal as the mover read it, for [`Latch::sleep_for_goal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal(u32);

impl Goal {
    /// True after [`Latch::open_for_good`].
    pub fn is_reachable(self) -> bool {
        self.0 & REACHABLE != 0
    }

    /// True after [`Latch::freeze`].
    pub fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Place to move to from `place`; `place` itself if memory may stay.
    fn target(self, place: Place) -> Place {
        match place {
            Place::Away if self.0 & REACHABLE != 0 => Place::Host,
            _ if self.0 & REACHABLE != 0 => place,
            _ if self.0 & (LEAVE | FROZEN) != 0 => Place::Away,
            _ => Place::Device,
        }
    }
}

/// Longest sleep of a mover that waits for a thread, in ns.
pub const LOOK_NS: u64 = 1_000_000;

/// Latch of one process's memory on one device.
pub struct Latch<M: Memory> {
    state: M::U32,
    goal: M::U32,
}

impl<M: Memory> Default for Latch<M> {
    fn default() -> Self {
        Latch { state: M::U32::new(DEVICE), goal: M::U32::new(0) }
    }
}

impl<M: Memory> Latch<M> {
    /// Waits until this thread may touch memory. While the latch is closed, calls `wait` with the state that was seen; it may sleep by
    /// [`Latch::sleep`], ask by [`Latch::ask_back`], and wait at a gate that has closed meanwhile. Within a call of the same thread that
    /// touches memory already, it always may: the mover waits for that one.
    #[inline]
    pub fn enter(&self, thread: &Inside<M>, mut wait: impl FnMut(Seen)) -> Entry {
        let before = thread.0.load(Relaxed);
        if before == TOUCHES {
            return Entry { before };
        }
        loop {
            thread.0.store(ASKS, Relaxed);
            M::light_barrier();
            let state = self.state.load(Acquire);
            if state & (CLOSED | AWAY) == 0 {
                thread.0.store(TOUCHES, Relaxed);
                return Entry { before };
            }
            self.leave(thread, Entry { before: 0 });
            wait(Seen(state));
        }
    }

    /// Ends what [`Latch::enter`] began.
    #[inline]
    pub fn leave(&self, thread: &Inside<M>, entry: Entry) {
        if entry.before == TOUCHES {
            return;
        }
        thread.0.store(entry.before, Release);
        M::light_barrier();
        if self.state.load(Relaxed) & CLOSED != 0 {
            M::wake(&thread.0, Sleepers::Own);
        }
    }

    /// Sleeps until the state is another than `seen`, for `most_ns` at most. True: a signal ended the sleep.
    pub fn sleep(&self, seen: Seen, most_ns: u64) -> bool {
        M::sleep(&self.state, seen.0, Sleepers::Own, most_ns) == Woken::Signal
    }

    /// The goal now.
    pub fn goal(&self) -> Goal {
        Goal(self.goal.load(Acquire))
    }

    /// Place of the memory now; while it moves, the place that it comes from.
    pub fn place(&self) -> Place {
        place_of(self.state.load(Acquire))
    }

    /// True: threads may touch memory.
    pub fn is_open(&self) -> bool {
        self.state.load(Acquire) & (CLOSED | AWAY) == 0
    }

    /// Asks for memory that left to make room for others: by a thread at the latch, and by a grant. Frozen memory stays away.
    pub fn ask_back(&self) {
        self.change_goal(LEAVE, 0);
    }

    /// Asks memory to leave.
    pub fn ask_away(&self) {
        self.change_goal(0, LEAVE);
    }

    /// Has memory stay away until [`Latch::thaw`].
    pub fn freeze(&self) {
        self.change_goal(0, FROZEN);
    }

    /// Ends [`Latch::freeze`].
    pub fn thaw(&self) {
        self.change_goal(FROZEN | LEAVE, 0);
    }

    /// Memory must be reachable until [`Latch::arbitrated`]: no daemon arbitrates, or a thread that must not wait is at the latch.
    pub fn open_for_good(&self) {
        self.change_goal(0, REACHABLE);
    }

    /// Ends [`Latch::open_for_good`].
    pub fn arbitrated(&self) {
        self.change_goal(REACHABLE, 0);
    }

    /// Wakes the mover from [`Latch::sleep_for_goal`], which looks at more than the goal.
    pub fn wake_mover(&self) {
        self.goal.fetch_or(LOOK, AcqRel);
        M::wake(&self.goal, Sleepers::Own);
    }

    fn change_goal(&self, without: u32, with: u32) {
        if without != 0 {
            self.goal.fetch_and(!without, AcqRel);
        }
        if with != 0 {
            self.goal.fetch_or(with, AcqRel);
        }
        M::wake(&self.goal, Sleepers::Own);
    }

    /// Mover: one turn towards the goal. `threads` are the words of all threads that may enter; one that is made later must be made
    /// under a lock that this iterator takes too.
    pub fn turn<'a>(&self, threads: impl IntoIterator<Item = &'a Inside<M>>, moves: &mut impl Moves) -> Turn
    where
        M: 'a,
    {
        let goal = Goal(self.goal.load(Acquire));
        let from = self.place();
        let to = goal.target(from);
        if from == to && (from == Place::Away || !moves.moves_part()) {
            return Turn::Rests(goal);
        }
        self.store(from, CLOSED);
        M::heavy_barrier();
        if from != Place::Away {
            let quiet = self.wait_for(threads, moves) && !moves.is_busy() && moves.drain();
            if !quiet || Goal(self.goal.load(Acquire)).target(from) != to {
                self.open(from);
                return Turn::Refused;
            }
        }
        let reached = moves.carry(from, to);
        self.open(reached);
        Turn::Moved(reached)
    }

    /// Mover: opens the latch after a turn that ended by a panic, with memory at this place.
    pub fn recover(&self, place: Place) {
        self.open(place);
    }

    /// Mover: sleeps until the goal is another than `seen`, for `most_ns` at most.
    pub fn sleep_for_goal(&self, seen: Goal, most_ns: u64) {
        M::sleep(&self.goal, seen.0, Sleepers::Own, most_ns);
        self.goal.fetch_and(!LOOK, AcqRel);
    }

    /// Waits until no thread is inside. False: given up.
    fn wait_for<'a>(&self, threads: impl IntoIterator<Item = &'a Inside<M>>, moves: &mut impl Moves) -> bool
    where
        M: 'a,
    {
        for thread in threads {
            loop {
                let seen = thread.0.load(Acquire);
                if seen == 0 {
                    break;
                }
                if moves.gives_up() {
                    return false;
                }
                M::sleep(&thread.0, seen, Sleepers::Own, LOOK_NS);
            }
        }
        true
    }

    /// Stores the state and wakes the threads at the latch.
    fn open(&self, place: Place) {
        self.store(place, 0);
        M::wake(&self.state, Sleepers::Own);
    }

    fn store(&self, place: Place, closed: u32) {
        let place = match place {
            Place::Device => DEVICE,
            Place::Host => HOST,
            Place::Away => AWAY,
        };
        let count = (self.state.load(Relaxed) & !(PLACE | CLOSED)).wrapping_add(ONE_STATE);
        self.state.store(count | place | closed, Release);
    }
}

fn place_of(state: u32) -> Place {
    match state & PLACE {
        DEVICE => Place::Device,
        HOST => Place::Host,
        _ => Place::Away,
    }
}
