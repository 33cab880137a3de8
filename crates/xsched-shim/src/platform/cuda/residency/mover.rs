//! The thread that moves chunks.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use xsched_core::residency::{Moves, Place, Residents, Turn};
use xsched_proto::account::Residency;
use xsched_proto::variables;
use xsched_proto::wire::MemoryOrder;

use super::super::api::Api;
use super::super::memory::moved;
use super::calls::Handle;
use super::chunks::LARGEST;
use super::drainer::Drainer;
use super::movable::Movable;
use super::passage::Passage;
use super::quiet::quietly;
use super::virtuals::NO_MEMORY;
use super::{counts, held, touches};
use crate::platform::shared::Driver as _;
use crate::process;

/// Longest wait for threads and the device before a move is put off: a command may wait for a thread that waits at the latch.
const PATIENCE: Duration = Duration::from_millis(200);
/// Longest time in which an order of the daemon may begin: a capture or a long command may be in the way.
const ORDER: Duration = Duration::from_secs(10);
/// Time that memory is mapped to the host for a thread that must not wait, while a daemon wants it away.
const PASS: Duration = Duration::from_millis(100);
/// First and longest time until memory that is on the host for want of room is tried to be brought back.
const ROOMLESS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// First and longest time until memory that a program has lent is tried to be brought back.
const LENT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Most memory that changes places with colder memory at once, in bytes: the program stands still for about a second.
const EXCHANGE: u64 = 2 << 30;
/// Pause after a move that was put off or ended with an error.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest sleep without a goal, in ns.
const SLEEP_NS: u64 = 1_000_000_000;

/// Starts the thread. False: it could not be.
pub(super) fn start(movable: &'static Movable) -> bool {
    quietly("xsched-mover", move || serve(movable))
}

/// Order of the daemon that is being carried out.
struct Pending {
    number: u32,
    order: MemoryOrder,
    until: Instant,
}

/// Part of the memory that is to move while the program goes on.
enum Part {
    /// So many bytes go to the host.
    Lend(u64),
    /// So many bytes on the host come back, which are claimed for that.
    Return(u64),
    /// So many bytes of the memory on the host, at most, change places with colder memory.
    Exchange(u64),
}

struct Mover {
    movable: &'static Movable,
    drainer: Drainer,
    until: Instant,
    pending: Option<Pending>,
    /// Reason for which the last turn did not reach its place.
    why: Option<String>,
    /// End of a time in which memory is reachable on the host, and the length of the next such time for want of room.
    reachable_until: Option<Instant>,
    roomless: Duration,
    part: Option<Part>,
    /// Time at which lent memory is tried to be brought back, and the length of the next such time.
    lent_until: Option<Instant>,
    lent: Duration,
    /// The driver had no room when memory was last to come back.
    is_full: bool,
}

/// Chunks that are with the mover, also while it unwinds.
struct Taken(&'static Movable, Residents<Handle>);

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.residents.lock() = std::mem::take(&mut self.1);
    }
}

impl Moves for Mover {
    fn is_busy(&mut self) -> bool {
        self.movable.is_over() || super::held::is_held() || Api::known().is_some_and(|api| api.some_capture())
    }

    fn drain(&mut self) -> bool {
        self.drainer.drain(self.until)
    }

    fn moves_part(&mut self) -> bool {
        self.part.is_some()
    }

    fn carry(&mut self, from: Place, to: Place) -> Place {
        let movable = self.movable;
        counts::begins();
        if let Some(part) = self.part.take() {
            if from == to {
                return self.carry_part(part, from);
            }
            self.give_claim_back(&part);
        }
        let mut passage = match self.passage(to) {
            Ok(passage) => passage,
            Err(why) => {
                // A wait that was given up for something else is no failure.
                if !movable.stops_waiting() {
                    counts::failed(if self.is_full { "no room, the driver had none" } else { "no room" });
                }
                // The driver is asked again next time: others than the daemon's programs may have had the room.
                self.is_full = false;
                self.why = Some(why);
                return from;
            }
        };
        if let Some(slot) = movable.slot() {
            moved::begins(slot);
        }
        // No thread touches the chunks now: all are outside the latch. So no lock is held while the driver is called.
        let chunks = std::mem::take(&mut *movable.residents.lock());
        let mut taken = Taken(movable, chunks);
        let (is_empty, bytes) = (taken.1.chunks.is_empty(), taken.1.away_bytes());
        let result = taken.1.carry(&mut &movable.calls, &mut passage, to);
        drop(taken);
        if let Some(slot) = movable.slot() {
            moved::unclaim(slot, passage.claimed);
        }
        movable.recount();
        if passage.gave_up {
            // The daemon is asked anew for all of it.
            return result.place;
        }
        if result.error.is_none() {
            passage.count(bytes);
        }
        let was_full = std::mem::replace(&mut self.is_full, result.error == Some(NO_MEMORY) && to == Place::Device);
        if self.is_full && !was_full && is_arbitrated() {
            // The daemon is asked for room, now that the driver has none.
            return result.place;
        }
        if let Some(error) = result.error {
            if error != NO_MEMORY && movable.is_lost() {
                return Place::Device;
            }
            let why = why(error, to);
            counts::failed(&why);
            self.why = Some(why);
        }
        if is_empty { to } else { result.place }
    }

    fn gives_up(&mut self) -> bool {
        Instant::now() >= self.until
    }
}

/// Addresses and sizes of chunks, in bytes.
fn places_of(residents: &Residents<Handle>) -> Vec<(u64, u64)> {
    residents.chunks.iter().map(|chunk| (chunk.at(), chunk.bytes())).collect()
}

/// Reason for which memory did not reach a place.
fn why(error: i32, to: Place) -> String {
    match (error, to) {
        (NO_MEMORY, Place::Device) => "the device has no room for it".to_owned(),
        (NO_MEMORY, _) => "the host has no memory for it".to_owned(),
        _ => format!("the driver returned error {error}"),
    }
}

impl Mover {
    fn new(movable: &'static Movable) -> Option<Mover> {
        let now = Instant::now();
        let drainer = Drainer::new(movable)?;
        Some(Mover {
            movable,
            drainer,
            until: now,
            pending: None,
            why: None,
            reachable_until: None,
            roomless: ROOMLESS.0,
            part: None,
            lent_until: None,
            lent: LENT.0,
            is_full: false,
        })
    }

    /// Moves a part of the memory, of which all can be reached before and after.
    fn carry_part(&mut self, part: Part, place: Place) -> Place {
        let movable = self.movable;
        let mut taken = Taken(movable, std::mem::take(&mut *movable.residents.lock()));
        let (driver, heat) = (&mut &movable.calls, touches::heat_of(&places_of(&taken.1)));
        let result = match part {
            Part::Lend(bytes) => taken.1.lend(driver, bytes, &heat),
            Part::Return(bytes) => taken.1.take_back(driver, bytes, &heat),
            Part::Exchange(bytes) => taken.1.exchange(driver, bytes, &heat),
        };
        drop(taken);
        self.give_claim_back(&part);
        movable.recount();
        let has_failed = result.error.is_some();
        if let Some(error) = result.error {
            if error != NO_MEMORY && movable.is_lost() {
                return Place::Device;
            }
            let why = why(error, if matches!(part, Part::Return(_)) { Place::Device } else { Place::Host });
            counts::failed(&why);
            self.why = Some(why);
        }
        match (result.place, &part) {
            (Place::Away, _) => Place::Away,
            (Place::Device, Part::Return(_)) => {
                (self.lent, self.lent_until) = (LENT.0, None);
                Place::Device
            }
            (_, Part::Exchange(_)) if !has_failed => {
                self.lent = LENT.0;
                self.lend_on();
                place
            }
            _ => {
                self.lend_on();
                place
            }
        }
    }

    /// Counts out what was claimed for a part: it is counted as a move has left it.
    fn give_claim_back(&self, part: &Part) {
        if let (Part::Return(claimed), Some(slot)) = (part, self.movable.slot()) {
            moved::unclaim(slot, *claimed);
        }
    }

    /// Sets the time at which lent memory is tried to be brought back.
    fn lend_on(&mut self) {
        self.lent_until = Some(Instant::now() + self.lent);
        self.lent = (self.lent * 2).min(LENT.1);
    }

    /// Has lent memory come back, once there is room.
    fn look_for_room(&mut self) {
        let movable = self.movable;
        let is_open = movable.latch.place() == Place::Device && self.part.is_none();
        let hosted = movable.residents.lock().hosted_bytes();
        if !is_open || hosted == 0 {
            self.lent_until = None;
            return;
        }
        let Some(until) = self.lent_until else { return self.lend_on() };
        if until > Instant::now() || !is_arbitrated() {
            return;
        }
        let room = [hosted, hosted / 2, hosted / 4].into_iter().find(|bytes| {
            *bytes >= LARGEST.min(hosted) && movable.slot().is_none_or(|slot| moved::claim_part(slot, *bytes))
        });
        self.part = match room {
            Some(bytes) => Some(Part::Return(bytes)),
            None => {
                let places = places_of(&movable.residents.lock());
                let heat = touches::heat_of(&places);
                movable.residents.lock().has_exchange(&heat).then_some(Part::Exchange(EXCHANGE))
            }
        };
        if self.part.is_none() {
            self.lend_on();
        }
    }

    /// Room for a move.
    ///
    /// # Errors
    /// The daemon refuses the room.
    fn passage(&self, to: Place) -> Result<Passage, String> {
        let order = self.pending.as_ref().map(|pending| pending.number);
        match to {
            Place::Device => Passage::back(self.movable, self.movable.residents.lock().away_bytes(), self.is_full),
            Place::Away | Place::Host => Ok(Passage::away(self.movable, order)),
        }
    }

    /// Takes the daemon's order, unless something prevents it.
    fn take_order(&mut self) {
        let Some((number, order)) = self.movable.take_order() else { return };
        let latch = &self.movable.latch;
        self.pending = Some(Pending { number, order, until: Instant::now() + ORDER });
        let must_stay = order != MemoryOrder::Thaw && !held::may_leave();
        self.publish();
        match order {
            _ if must_stay => {
                let why = self.prevented().unwrap_or_else(|| "its memory must stay".to_owned());
                self.report(Some(why));
            }
            MemoryOrder::Freeze => match self.prevented() {
                Some(why) => self.report(Some(why)),
                None => latch.freeze(),
            },
            MemoryOrder::Thaw => {
                latch.thaw();
                self.return_now();
            }
            MemoryOrder::Leave => latch.ask_away(),
            MemoryOrder::Lend { bytes } => {
                if let Some(part) = self.part.replace(Part::Lend(bytes)) {
                    self.give_claim_back(&part);
                }
            }
        }
    }

    /// Use of the memory for which it must stay, in words.
    fn prevented(&self) -> Option<String> {
        let is_empty = || self.movable.residents.lock().chunks.is_empty();
        let none = || is_empty().then(|| "none of its memory can leave the device".to_owned());
        self.movable.slot().and_then(moved::prevented).or_else(none)
    }

    /// Ends a time in which memory is on the host for want of room.
    fn return_now(&mut self) {
        if self.reachable_until.is_some() && is_arbitrated() {
            self.movable.latch.arbitrated();
            self.reachable_until = None;
        }
    }

    /// Ends the time in which memory is reachable on the host, once a daemon decides and the thread that wanted it has had its call.
    fn follow_daemon(&mut self) {
        let now = Instant::now();
        if !self.movable.latch.goal().is_reachable() {
            self.reachable_until = None;
        } else if *self.reachable_until.get_or_insert(now + PASS) <= now && is_arbitrated() {
            self.movable.latch.arbitrated();
            self.reachable_until = None;
        }
    }

    /// Reports an order that is carried out, and gives up one that is late. True: the goal has changed.
    fn follow_order(&mut self, has_failed: bool) -> bool {
        let latch = &self.movable.latch;
        let (goal, place) = (latch.goal(), latch.place());
        if place == Place::Device {
            self.roomless = ROOMLESS.0;
        }
        let Some(pending) = &self.pending else { return false };
        let is_done = match pending.order {
            MemoryOrder::Freeze => goal.is_frozen() && place == Place::Away,
            MemoryOrder::Thaw => !goal.is_frozen() && place == Place::Device,
            MemoryOrder::Leave => place != Place::Device,
            // Memory that leaves as a whole, or has, leaves that room, too.
            MemoryOrder::Lend { .. } => place == Place::Away || (self.part.is_none() && !has_failed),
        };
        if is_done {
            self.report(None);
        } else if pending.until <= Instant::now() {
            self.cancel(format!("its memory is in use for more than {} s", ORDER.as_secs()));
            return true;
        }
        false
    }

    /// A move has failed, and was undone as far as the driver allows.
    fn failed(&mut self, why: String) {
        let latch = &self.movable.latch;
        if self.pending.is_some() {
            self.cancel(why);
        } else if !latch.goal().is_frozen() && latch.place() != Place::Device {
            // No room: the program goes on with memory of the host, and its memory comes back when there is some.
            self.reachable_until = Some(Instant::now() + self.roomless);
            self.roomless = (self.roomless * 2).min(ROOMLESS.1);
            latch.open_for_good();
        }
    }

    /// Gives an order up: memory is to be as before.
    fn cancel(&mut self, why: String) {
        match self.pending.as_ref().map(|pending| pending.order) {
            Some(MemoryOrder::Freeze) => self.movable.latch.thaw(),
            Some(MemoryOrder::Thaw) => self.movable.latch.freeze(),
            Some(MemoryOrder::Leave) => self.movable.latch.ask_back(),
            Some(MemoryOrder::Lend { .. }) => self.part = None,
            None => return,
        }
        self.report(Some(why));
    }

    /// Reports to the daemon that an order is carried out, or the reason why it is not.
    fn report(&mut self, why: Option<String>) {
        self.publish();
        let (Some(pending), Some(slot)) = (self.pending.take(), self.movable.slot()) else { return };
        if let Some(rt) = process::running() {
            rt.memory_moved(slot, pending.number, why);
        }
    }

    /// Publishes the state of the memory, for the daemon and for a later one.
    fn publish(&self) {
        let Some(slot) = self.movable.slot() else { return };
        let is_frozen = self.movable.latch.goal().is_frozen();
        let state = held::state().with(Residency::FROZEN, is_frozen);
        moved::publish(slot, state);
    }

    /// Time until something is to be done that nothing announces, in ns.
    fn sleep_ns(&self) -> u64 {
        let times = [self.pending.as_ref().map(|pending| pending.until), self.reachable_until, self.lent_until];
        let first = times.into_iter().flatten().min().map(|at| at.saturating_duration_since(Instant::now()));
        first.map_or(SLEEP_NS, |time| (time.as_nanos() as u64).clamp(1_000_000, SLEEP_NS))
    }
}

fn is_arbitrated() -> bool {
    process::running().is_some_and(|rt| rt.memory_is_arbitrated())
}

/// Moves memory until its context ends. A part that fails ends scheduling; memory is then mapped to the host.
fn serve(movable: &'static Movable) {
    if movable.calls.enter_context() {
        for _ in 0..2 {
            let Some(mut mover) = Mover::new(movable) else { break };
            if process::guarded("while memory was moved", || mover.work()).is_some() {
                break;
            }
            movable.latch.recover(movable.residents.lock().place());
        }
    }
    movable.mover_ended.store(true, Release);
}

impl Mover {
    fn work(&mut self) {
        let movable = self.movable;
        let mut random = Random::of_environment();
        while !movable.is_over() {
            if movable.stays() {
                if movable.latch.is_open() {
                    break;
                }
                random = None;
                movable.latch.open_for_good();
            } else {
                self.take_order();
            }
            if random.is_none() && !movable.stays() {
                self.follow_daemon();
                self.look_for_room();
            }
            touches::cool();
            self.until = Instant::now() + PATIENCE;
            // Read once the latch is closed: a thread that comes later finds it so.
            let threads = std::iter::once_with(|| movable.threads.lock().clone()).flatten();
            let turn = movable.latch.turn(threads, self);
            self.publish();
            let why = self.why.take();
            let is_news = self.follow_order(why.is_some());
            match (turn, why) {
                (Turn::Rests(_), _) if is_news => {}
                (Turn::Rests(goal), _) => match &mut random {
                    Some(random) => self.part = random.go_on(movable),
                    None => movable.latch.sleep_for_goal(goal, self.sleep_ns()),
                },
                (Turn::Moved(_), None) => {}
                (Turn::Moved(_), Some(why)) => {
                    if random.is_none() {
                        self.failed(why);
                    }
                    std::thread::sleep(PAUSE);
                }
                (Turn::Refused, _) => std::thread::sleep(PAUSE),
            }
        }
        if let Some(part) = self.part.take() {
            self.give_claim_back(&part);
        }
        self.report(Some("its context has ended, or its process is about to".to_owned()));
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

    /// Waits up to 4 ms, then has memory leave, come back, or be reachable on the host, or returns a part of it that is to move. Of memory
    /// that leaves, some comes back as soon as a thread asks for it, and some stays away until the next call.
    fn go_on(&mut self, movable: &Movable) -> Option<Part> {
        std::thread::sleep(Duration::from_micros(self.below(4_000)));
        let latch = &movable.latch;
        if latch.place() == Place::Away && self.below(2) == 0 {
            latch.open_for_good();
            return None;
        }
        latch.arbitrated();
        let hosted = movable.residents.lock().hosted_bytes();
        match (latch.place(), self.below(6)) {
            (Place::Device, 0) => latch.ask_away(),
            (Place::Device, 1 | 2) => return Some(Part::Lend(self.below(64 << 20))),
            (Place::Device, 3) if hosted > 0 && self.below(2) == 0 => return Some(Part::Exchange(hosted)),
            (Place::Device, 3) if hosted > 0 => {
                return movable.slot().filter(|slot| moved::claim_part(*slot, hosted)).map(|_| Part::Return(hosted));
            }
            (Place::Device, _) | (Place::Host, 0 | 1) => latch.freeze(),
            (Place::Away | Place::Host, _) => latch.thaw(),
        }
        None
    }
}
