//! Models of the residency latch. The memory is a cell of loom's: an access beside the mover's move, or without an order between the
//! two, is an error there. A move that takes memory away leaves the cell empty, so that an access while it is away shows.

use loom::cell::UnsafeCell;

use super::*;
use crate::protocol::residency::{Inside, Latch, Moves, Place, Turn};

/// A process with memory on one device.
struct Memories<const WITHOUT: u8> {
    latch: Latch<Loom<WITHOUT>>,
    threads: [Inside<Loom<WITHOUT>>; 2],
    gate: GateWord<Loom<WITHOUT>>,
    place: UnsafeCell<Place>,
    /// Commands that the device has yet to execute. They touch memory.
    in_flight: loom::sync::atomic::AtomicU32,
    /// Captures that are active.
    captures: loom::sync::atomic::AtomicU32,
    /// The mover gives up instead of waiting for a thread.
    impatient: loom::sync::atomic::AtomicBool,
}

// SAFETY: the latch is to order all accesses to the cell; loom reports those that it does not.
unsafe impl<const WITHOUT: u8> Sync for Memories<WITHOUT> {}
// SAFETY: likewise.
unsafe impl<const WITHOUT: u8> Send for Memories<WITHOUT> {}

impl<const WITHOUT: u8> Memories<WITHOUT> {
    fn new() -> Arc<Self> {
        Arc::new(Memories {
            latch: Latch::default(),
            threads: [Inside::default(), Inside::default()],
            gate: GateWord::default(),
            place: UnsafeCell::new(Place::Device),
            in_flight: loom::sync::atomic::AtomicU32::new(0),
            captures: loom::sync::atomic::AtomicU32::new(0),
            impatient: loom::sync::atomic::AtomicBool::new(false),
        })
    }

    fn touch(&self) {
        // SAFETY: loom checks that no change happens beside it.
        self.place.with(|place| assert_ne!(unsafe { *place }, Place::Away, "touched while away"));
    }

    /// A thread enqueues a command that touches memory.
    fn enqueue(&self, thread: usize, mut wait: impl FnMut(&Self)) {
        let thread = &self.threads[thread];
        let entry = self.latch.enter(thread, |seen| {
            wait(self);
            self.latch.sleep(seen, 0);
        });
        self.touch();
        self.in_flight.fetch_add(1, Release);
        self.latch.leave(thread, entry);
    }

    fn turn(&self) -> Turn {
        self.latch.turn(&self.threads, &mut Carrier(self))
    }

    /// Mover: until memory must be reachable for good, and is. Each time that it is back, `leaves` more times, the daemon asks it away.
    fn serve(&self, mut leaves: u32) {
        loop {
            let Turn::Rests(goal) = self.turn() else { continue };
            if self.ends() {
                return;
            }
            if leaves != 0 && self.latch.place() == Place::Device {
                leaves -= 1;
                self.latch.ask_away();
                continue;
            }
            self.latch.sleep_for_goal(goal, 0);
        }
    }

    fn ends(&self) -> bool {
        self.gate.load().is_open() && self.latch.is_open()
    }

    /// The daemon is gone: the gate opens, and memory must be reachable.
    fn end(&self) {
        self.gate.detach();
        self.latch.open_for_good();
    }

    fn begin_away(&self) {
        self.latch.ask_away();
        assert_eq!(self.turn(), Turn::Moved(Place::Away));
    }
}

struct Carrier<'a, const WITHOUT: u8>(&'a Memories<WITHOUT>);

impl<const WITHOUT: u8> Moves for Carrier<'_, WITHOUT> {
    fn is_busy(&mut self) -> bool {
        self.0.captures.load(Acquire) != 0
    }

    fn drain(&mut self) -> bool {
        if self.0.in_flight.swap(0, AcqRel) != 0 {
            self.0.touch();
        }
        true
    }

    fn carry(&mut self, _: Place, to: Place) -> Place {
        assert_eq!(self.0.in_flight.load(Acquire), 0, "moved under commands in flight");
        // SAFETY: loom checks that no access happens beside it.
        self.0.place.with_mut(|place| unsafe { *place = to });
        to
    }

    fn gives_up(&mut self) -> bool {
        self.0.impatient.load(Relaxed)
    }
}

/// Runs a program's thread beside the mover's, with so many preemptions, then checks the result.
fn check<const WITHOUT: u8>(
    preemptions: usize,
    begin: fn(&Memories<WITHOUT>),
    mover: fn(&Memories<WITHOUT>),
    program: fn(&Memories<WITHOUT>),
    end: fn(&Memories<WITHOUT>),
) {
    let mut builder = loom::model::Builder::new();
    builder.log = false;
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let world = Memories::<WITHOUT>::new();
        begin(&world);
        let other = world.clone();
        let other = loom::thread::spawn(move || mover(&other));
        program(&world);
        other.join().unwrap();
        end(&world);
    });
}

// No access while memory is away: the mover takes it away and brings it back beside a thread that enqueues.

fn away_and_back<const WITHOUT: u8>() {
    check::<WITHOUT>(
        PREEMPTIONS,
        |world| world.latch.ask_away(),
        |world| {
            world.turn();
            world.latch.ask_back();
            while !matches!(world.turn(), Turn::Rests(_)) {}
        },
        |world| {
            world.enqueue(0, |_| ());
            world.enqueue(0, |_| ());
        },
        |world| assert_eq!(world.latch.place(), Place::Device),
    );
}

#[test]
fn no_thread_touches_memory_that_is_away_or_on_its_way() {
    away_and_back::<NOTHING>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_mover_is_stuck_without_the_light_barrier_behind_a_leave() {
    away_and_back::<LIGHT>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn neither_side_goes_on_without_wake_ups() {
    away_and_back::<WAKE>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn nor_if_sleeps_begin_whatever_the_word_is() {
    away_and_back::<COMPARE>();
}

// Again, with a mover that gives up instead of waiting for a thread: no lost wake-up hides an access.

fn away_or_given_up<const WITHOUT: u8>() {
    check::<WITHOUT>(
        PREEMPTIONS,
        |world| {
            world.impatient.store(true, Relaxed);
            world.latch.ask_away();
        },
        |world| {
            world.turn();
            world.latch.ask_back();
            while !matches!(world.turn(), Turn::Rests(_)) {}
        },
        |world| world.enqueue(0, |_| ()),
        |world| assert_eq!(world.latch.place(), Place::Device),
    );
}

#[test]
fn nor_where_the_mover_gives_up() {
    away_or_given_up::<NOTHING>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn not_without_the_light_barrier_before_the_look_at_the_latch() {
    away_or_given_up::<LIGHT>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn not_without_the_heavy_barrier_behind_the_closed_latch() {
    away_or_given_up::<HEAVY>();
}

// A thread asks for what is away, and gets it, however often the daemon has it leave again meanwhile.

fn asked_for<const WITHOUT: u8>() {
    check::<WITHOUT>(
        PREEMPTIONS - 1,
        |world| world.begin_away(),
        |world| world.serve(1),
        |world| {
            world.enqueue(0, |world| world.latch.ask_back());
            world.end();
        },
        |world| assert!(world.latch.is_open()),
    );
}

#[test]
fn a_thread_that_asks_gets_memory_that_leaves_again_and_again() {
    asked_for::<NOTHING>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn it_is_stuck_without_the_movers_wake_up() {
    asked_for::<WAKE>();
}

// Ways in which a gate opens by itself. The thread asks for nothing: it waits until memory is reachable.

#[test]
fn a_gate_that_opens_by_itself_leads_to_reachable_memory() {
    check::<NOTHING>(
        PREEMPTIONS,
        |world| world.begin_away(),
        |world| world.serve(0),
        |world| {
            world.end();
            assert_eq!(park::at_gate(&world.gate, 0, || false, || true), Left::Open);
            world.enqueue(0, |_| ());
        },
        |world| assert_eq!(world.latch.place(), Place::Host),
    );
}

/// The daemon is gone while memory leaves: it stays or is mapped on the host, and the thread goes on.
#[test]
fn a_daemon_that_is_gone_during_a_move_leaves_memory_reachable() {
    check::<NOTHING>(
        PREEMPTIONS,
        |world| world.latch.ask_away(),
        |world| world.serve(0),
        |world| {
            world.end();
            world.enqueue(0, |_| ());
        },
        |world| assert!(world.latch.is_open() && world.latch.place() != Place::Away),
    );
}

/// The control of the two above: a thread that takes an open gate for reachable memory.
#[test]
#[should_panic(expected = "touched while away")]
fn an_open_gate_alone_says_nothing_about_memory() {
    check::<NOTHING>(
        PREEMPTIONS,
        |world| world.begin_away(),
        |world| world.serve(0),
        |world| {
            world.end();
            assert_eq!(park::at_gate(&world.gate, 0, || false, || true), Left::Open);
            world.touch();
        },
        |_| (),
    );
}

// Frozen memory.

#[test]
fn frozen_memory_comes_back_when_thawed_and_not_when_asked_for() {
    check::<NOTHING>(
        PREEMPTIONS,
        |world| {
            world.latch.freeze();
            assert_eq!(world.turn(), Turn::Moved(Place::Away));
        },
        |world| {
            // A thread asks, and nothing moves.
            world.latch.ask_back();
            assert!(matches!(world.turn(), Turn::Rests(_)));
            assert_eq!(world.latch.place(), Place::Away);
            world.latch.thaw();
            assert_eq!(world.turn(), Turn::Moved(Place::Device));
        },
        |world| world.enqueue(0, |world| world.latch.ask_back()),
        |world| assert_eq!(world.latch.place(), Place::Device),
    );
}

// Calls inside calls: a thread that is inside must not wait for the mover, which waits for the thread.

#[test]
fn a_call_inside_another_one_passes_a_closed_latch() {
    check::<NOTHING>(
        PREEMPTIONS,
        |world| world.latch.ask_away(),
        |world| {
            world.turn();
            world.latch.ask_back();
            while !matches!(world.turn(), Turn::Rests(_)) {}
        },
        |world| {
            let thread = &world.threads[0];
            let entry = world.latch.enter(thread, |seen| _ = world.latch.sleep(seen, 0));
            world.touch();
            world.enqueue(0, |_| unreachable!("the thread is inside"));
            world.touch();
            world.latch.leave(thread, entry);
        },
        |_| (),
    );
}

// Captures: memory does not move while one is active. A capture begins inside the latch.

#[test]
fn memory_stays_while_a_capture_is_active() {
    check::<NOTHING>(
        PREEMPTIONS,
        |world| world.latch.ask_away(),
        |world| {
            world.turn();
            world.latch.ask_back();
            while !matches!(world.turn(), Turn::Rests(_)) {}
        },
        |world| {
            let thread = &world.threads[0];
            let entry = world.latch.enter(thread, |seen| _ = world.latch.sleep(seen, 0));
            world.captures.fetch_add(1, AcqRel);
            world.latch.leave(thread, entry);
            // Recorded calls find memory at its place without entering.
            world.touch();
            world.captures.fetch_sub(1, AcqRel);
        },
        |_| (),
    );
}

// Two threads of a program, one of which is inside when the mover looks.

#[test]
fn the_mover_waits_for_every_thread() {
    let mut builder = loom::model::Builder::new();
    builder.log = false;
    builder.preemption_bound = Some(PREEMPTIONS - 1);
    builder.check(|| {
        let world = Memories::<NOTHING>::new();
        world.latch.ask_away();
        let (mover, second) = (world.clone(), world.clone());
        let mover = loom::thread::spawn(move || {
            mover.turn();
            mover.latch.ask_back();
            while !matches!(mover.turn(), Turn::Rests(_)) {}
        });
        let second = loom::thread::spawn(move || second.enqueue(1, |_| ()));
        world.enqueue(0, |_| ());
        mover.join().unwrap();
        second.join().unwrap();
    });
}

/// A signal handler that enqueues while its thread asks waits with that thread's word cleared, and then restores it.
#[test]
fn a_call_that_interrupts_an_asking_thread_waits_for_itself() {
    loom::model(|| {
        let world = Memories::<NOTHING>::new();
        world.begin_away();
        let mut interrupted = false;
        let thread = &world.threads[0];
        let entry = world.latch.enter(thread, |_| {
            assert!(!interrupted, "asked twice: the latch is open now");
            interrupted = true;
            world.enqueue(0, |world| {
                world.latch.ask_back();
                assert_eq!(world.turn(), Turn::Moved(Place::Device));
            });
        });
        world.touch();
        world.latch.leave(thread, entry);
        assert!(interrupted);
        world.latch.ask_away();
        assert_eq!(world.turn(), Turn::Moved(Place::Away), "no thread counts as inside");
    });
}
