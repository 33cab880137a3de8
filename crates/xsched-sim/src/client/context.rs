//! A process's context on one device: the command ring, streams and events.

use super::account::Account;
use super::calls::Calls;
use super::connect::greet;
use super::error::{Error, Result};
use super::heap::Heap;
use super::imports::Imports;
use super::regions::Regions;
use super::thread::spawn;
use super::wait::{lock, sleep_on};
use crate::command::{Action, Command, Fault};
use crate::layout::{ARENA_BYTES, DEVICE_BYTES, EVENTS, RING, STREAM_DEPTH, STREAMS, Shared};
use crate::memory::{Mapping, now_ns};
use crate::wire::{self, Request, WORDS};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::thread::futex;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

/// Smallest block whose pages are returned to the system when it is freed, in bytes.
pub(super) const LARGE: u64 = 64 << 10;

/// Order of a stream's commands relative to other streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Independent of all other streams.
    Free,
    /// A command waits for the barrier stream's earlier commands.
    Blocking,
    /// For the default stream only, as CUDA's legacy one: a command waits for the earlier commands of all blocking
    /// streams.
    Barrier,
}

/// State of a stream's slot.
struct Stream {
    generation: u16,
    alive: bool,
    priority: i32,
    ordering: Ordering,
    /// Number of commands submitted since the context began.
    given: u64,
    /// Of a blocking stream: number of the barrier stream's commands that it has waited for. `barred` has the reverse.
    seen: u64,
    /// Number of this stream's commands that the barrier stream has waited for.
    barred: u64,
}

impl Stream {
    fn new(priority: i32, ordering: Ordering) -> Self {
        Self { generation: 0, alive: false, priority, ordering, given: 0, seen: 0, barred: 0 }
    }
}

/// State of an event's slot.
struct Event {
    generation: u16,
    alive: bool,
    /// Number of records of this slot so far; continues when the slot is used for another event.
    record: u64,
    /// Place of the last record, which is complete when the stream has completed this many commands. `None` = never
    /// recorded.
    mark: Option<Mark>,
}

/// A point in a stream.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Slot of the stream.
    pub slot: u32,
    /// Number of the stream's commands that must be complete for the mark to be reached.
    pub count: u64,
}

/// Invitation by which another client joins a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Number of the invitation at the device.
    pub number: u64,
    /// Secret, which a client must know to join.
    pub secret: u64,
}

/// State of the context, under the ring's lock.
pub struct State {
    head: u64,
    streams: Vec<Stream>,
    events: Vec<Event>,
    dead_streams: Vec<u16>,
    dead_events: Vec<u16>,
}

/// Memory of the arena in use.
pub struct Heaps {
    /// Stand-in for device memory.
    pub device: Heap,
    /// Host memory that the device can reach.
    pub host: Heap,
}

/// One context. Never freed: a thread may still be inside when it is reset.
pub struct Context {
    shared: Mapping,
    arena: Mapping,
    socket: OwnedFd,
    doorbell: OwnedFd,
    lost: AtomicBool,
    state: Mutex<State>,
    /// Memory of the arena in use.
    pub heaps: Mutex<Heaps>,
    /// The program's own memory that is registered with the device.
    pub regions: Regions,
    pub(super) imports: Imports,
    pub(super) account: Account,
    request: Mutex<()>,
    pub(super) calls: Calls,
}

impl Context {
    /// Creates a context on a device, which is started if need be. `ordering` is that of its default stream.
    pub fn new(device: u8, ordering: Ordering) -> Result<&'static Self> {
        Self::greeted(Request::Context { device: device.into() }, ordering)
    }

    /// Joins another client's context, with streams and memory of its own. Its kernels take `width` thousandths of the
    /// device; those of other clients in the context run beside them if there is room. `below` = below normal priority.
    pub fn join(invitation: Invitation, width: u32, below: bool, ordering: Ordering) -> Result<&'static Self> {
        let Invitation { number, secret } = invitation;
        Self::greeted(Request::Join { number, secret, width, below }, ordering)
    }

    fn greeted(request: Request, ordering: Ordering) -> Result<&'static Self> {
        let greeting = greet(request)?;
        let Ok([control, arena, doorbell]) = <[OwnedFd; 3]>::try_from(greeting.fds) else {
            return Err(Error::NoDevice);
        };
        let map = |fd, bytes| Mapping::new(fd, 0, bytes).map_err(|_| Error::OutOfMemory);
        let (device_end, end) = (DEVICE_BYTES as u64, ARENA_BYTES as u64);
        let default = Stream { alive: true, ..Stream::new(0, ordering) };
        let context: &'static Self = Box::leak(Box::new(Self {
            shared: map(control, size_of::<Shared>())?,
            arena: map(arena, ARENA_BYTES)?,
            socket: greeting.socket,
            doorbell,
            lost: AtomicBool::new(false),
            state: Mutex::new(State {
                head: 0,
                streams: vec![default],
                events: Vec::new(),
                dead_streams: Vec::new(),
                dead_events: Vec::new(),
            }),
            heaps: Mutex::new(Heaps { device: Heap::new(0..device_end), host: Heap::new(device_end..end) }),
            regions: Regions::default(),
            imports: Imports::default(),
            account: Account::default(),
            request: Mutex::new(()),
            calls: Calls::default(),
        }));
        spawn("simdev-watch", || context.watch())?;
        Ok(context)
    }

    pub(super) fn arena(&self) -> &Mapping {
        &self.arena
    }

    /// Descriptors that a forked child must not keep: as long as it did, the device would consider this process alive.
    pub fn fds(&self) -> [RawFd; 2] {
        [self.socket.as_raw_fd(), self.doorbell.as_raw_fd()]
    }

    /// Memory shared with the device.
    pub fn shared(&self) -> &Shared {
        // SAFETY: the mapping has this size and page alignment, lives as long as `self`, and consists of atomics.
        unsafe { &*self.shared.base().cast::<Shared>() }
    }

    /// Reports whether the device or the context has ended.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// Ends the context: the device drops all pending commands, and all waiting threads return.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.lose();
        // The mapping stays, since it may be in use, but its pages are released.
        for (start, bytes) in self.imports.gaps() {
            // SAFETY: the range is our own mapping of our own memfd; its contents end with the context.
            let _ =
                unsafe { rustix::mm::madvise(self.address(start), bytes as usize, rustix::mm::Advice::LinuxRemove) };
        }
    }

    /// Body of a thread: notices the end of the device.
    fn watch(&self) {
        let mut fds = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::RDHUP)];
        while !matches!(rustix::event::poll(&mut fds, None), Ok(n) if n > 0) {}
        self.lose();
    }

    fn lose(&self) {
        self.lost.store(true, SeqCst);
        let shared = self.shared();
        let streams = shared.streams.iter().map(|s| &s.wake);
        for word in streams.chain([&shared.device.room, &shared.device.calls]) {
            word.fetch_add(1, Release);
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Submits a command to a stream, and returns its mark. `action` is called under the ring's lock, so that its own
    /// stores have the order of the ring; it may decline by returning `None`. Waits that the stream's [`Ordering`]
    /// demands are submitted before the command.
    pub fn submit(&self, slot: Slot, action: impl Fn(&mut State, Mark) -> Result<Option<Action>>) -> Result<Mark> {
        let shared = self.shared();
        loop {
            self.alive()?;
            let mut state = lock(&self.state);
            let number = slot.find(&state)?;
            let words = &shared.streams[number as usize];
            let waits = self.waits(&state, number);
            let (given, more) = (state.streams[number as usize].given, waits.len() as u64 + 1);
            if given + more > STREAM_DEPTH + words.completed.load(Acquire) {
                drop(state);
                self.wait(Mark { slot: number, count: (given + more).saturating_sub(STREAM_DEPTH).min(given) })?;
                continue;
            }
            let head = state.head;
            if head + more > RING as u64 + shared.device.tail.load(Acquire) {
                drop(state);
                self.wait_for_room(head + more - 1)?;
                continue;
            }
            let mark = Mark { slot: number, count: given + more };
            let Some(action) = action(&mut state, mark)? else { return Ok(Mark { slot: number, count: given }) };
            state.streams[number as usize].given = mark.count;
            for Mark { slot: stream, count } in waits {
                self.push(&mut state, Command { stream: number, action: Action::WaitStream { stream, count } });
                match state.streams[number as usize].ordering {
                    Ordering::Barrier => state.streams[stream as usize].barred = count,
                    _ => state.streams[number as usize].seen = count,
                }
            }
            self.push(&mut state, Command { stream: number, action });
            drop(state);
            // If the stream still has work, the device handles it again when that work ends, and reads the ring first.
            // Pairs with the fence before the device's last read of the ring.
            fence(SeqCst);
            if words.completed.load(Relaxed) >= given {
                self.ring_bell();
            }
            return Ok(mark);
        }
    }

    /// Marks that the next command of a stream must wait for, by the order of the streams.
    fn waits(&self, state: &State, number: u32) -> Vec<Mark> {
        let stream = &state.streams[number as usize];
        match stream.ordering {
            Ordering::Free => Vec::new(),
            Ordering::Blocking => {
                let mark = Mark { slot: 0, count: state.streams[0].given };
                if stream.seen == mark.count || self.reached(mark) { Vec::new() } else { vec![mark] }
            }
            Ordering::Barrier => (0..)
                .zip(&state.streams)
                .filter(|(_, other)| other.ordering == Ordering::Blocking && other.barred != other.given)
                .map(|(slot, other)| Mark { slot, count: other.given })
                .filter(|&mark| !self.reached(mark))
                .collect(),
        }
    }

    /// Checks that nothing has ended the context.
    fn alive(&self) -> Result<()> {
        match (self.has_faulted(), self.is_lost()) {
            (true, _) => Err(Error::Faulted),
            (false, true) => Err(Error::DeviceLost),
            (false, false) => Ok(()),
        }
    }

    /// Reports whether a kernel of the context has faulted.
    pub fn has_faulted(&self) -> bool {
        self.fault().is_some()
    }

    /// Kind of the fault, if a kernel of the context has faulted.
    pub fn fault(&self) -> Option<Fault> {
        match self.shared().device.faulted.load(Acquire) {
            0 => None,
            word if word == Fault::Assert as u32 => Some(Fault::Assert),
            _ => Some(Fault::Address),
        }
    }

    /// ID of the process whose kernel has faulted.
    pub fn culprit(&self) -> u32 {
        self.shared().device.culprit.load(Relaxed)
    }

    /// Returns once a kernel of the context has faulted, or the context or the device has ended.
    pub fn outlast(&self) {
        let _ = self.wait(Mark { slot: 0, count: u64::MAX });
    }

    /// Lets one more client join this context.
    pub fn invite(&self) -> Result<Invitation> {
        let [number, secret, ..] = self.ask(Request::Invite, None)?;
        Ok(Invitation { number, secret })
    }

    /// Ends the membership of the client that joined by this invitation: at once, or when the device executes nothing
    /// more of it.
    pub fn expel(&self, number: u64, at_once: bool) -> Result<()> {
        self.ask(Request::Expel { number, at_once }, None).map(drop)
    }

    /// Reports to the device that the call blocking a stream has returned.
    pub(super) fn returned(&self, slot: u32) -> Result<()> {
        let shared = self.shared();
        loop {
            self.alive()?;
            let mut state = lock(&self.state);
            let head = state.head;
            if head - shared.device.tail.load(Acquire) < RING as u64 {
                self.push(&mut state, Command { stream: slot, action: Action::Returned });
                drop(state);
                fence(SeqCst);
                self.ring_bell();
                return Ok(());
            }
            drop(state);
            self.wait_for_room(head)?;
        }
    }

    fn push(&self, state: &mut State, command: Command) {
        let shared = self.shared();
        shared.ring[state.head as usize % RING].put(now_ns(), &command);
        state.head += 1;
        shared.client.head.store(state.head, Release);
    }

    /// Wakes the device if it sleeps.
    fn ring_bell(&self) {
        let asleep = &self.shared().device.asleep;
        if asleep.load(Relaxed) != 0 && asleep.swap(0, AcqRel) != 0 {
            let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
        }
    }

    fn wait_for_room(&self, head: u64) -> Result<()> {
        let (device, client) = (&self.shared().device, &self.shared().client);
        client.room_waiters.fetch_add(1, SeqCst);
        let seen = device.room.load(Acquire);
        fence(SeqCst);
        if head - device.tail.load(Acquire) >= RING as u64 && !self.is_lost() {
            self.ring_bell();
            sleep_on(&device.room, seen);
        }
        client.room_waiters.fetch_sub(1, SeqCst);
        self.alive()
    }

    /// Reports whether a mark was reached.
    pub fn reached(&self, mark: Mark) -> bool {
        self.shared().streams[mark.slot as usize].completed.load(Acquire) >= mark.count
    }

    /// `Ok` if the mark was reached; else `NotReady`, or the reason why it never will be.
    pub fn query(&self, mark: Mark) -> Result<()> {
        if self.reached(mark) {
            return Ok(());
        }
        self.alive()?;
        Err(Error::NotReady)
    }

    /// Waits until a mark is reached.
    pub fn wait(&self, mark: Mark) -> Result<()> {
        if self.reached(mark) {
            return Ok(());
        }
        let words = &self.shared().streams[mark.slot as usize];
        words.waiters.fetch_add(1, SeqCst);
        let result = loop {
            let seen = words.wake.load(Acquire);
            // Orders the waiter's count before the read of completions; the device stores completions, then reads the
            // count.
            fence(SeqCst);
            match self.query(mark) {
                Err(Error::NotReady) => sleep_on(&words.wake, seen),
                other => break other,
            }
        };
        words.waiters.fetch_sub(1, SeqCst);
        result
    }

    /// Waits for all commands submitted so far.
    pub fn synchronize(&self) -> Result<()> {
        let marks: Vec<Mark> = {
            let state = lock(&self.state);
            (0..).zip(&state.streams).map(|(slot, s)| Mark { slot, count: s.given }).collect()
        };
        marks.into_iter().try_for_each(|mark| self.wait(mark))
    }

    /// Mark at the current end of a stream.
    pub fn end(&self, slot: Slot) -> Result<Mark> {
        let state = lock(&self.state);
        let number = slot.find(&state)?;
        Ok(Mark { slot: number, count: state.streams[number as usize].given })
    }

    /// Marks that must be reached for a stream to be complete: its own end, and for the barrier stream the ends of the
    /// blocking ones.
    pub fn ends(&self, slot: Slot) -> Result<Vec<Mark>> {
        let state = lock(&self.state);
        let number = slot.find(&state)?;
        let mut marks = Vec::new();
        if state.streams[number as usize].ordering == Ordering::Barrier {
            let blocking = (0..).zip(&state.streams).filter(|(_, other)| other.ordering == Ordering::Blocking);
            marks.extend(blocking.map(|(slot, other)| Mark { slot, count: other.given }));
        }
        marks.push(Mark { slot: number, count: state.streams[number as usize].given });
        Ok(marks)
    }

    /// Creates a stream.
    pub fn create_stream(&self, priority: i32, ordering: Ordering) -> Result<Slot> {
        self.alive()?;
        let state = &mut *lock(&self.state);
        let drained =
            |slot: u16| self.reached(Mark { slot: slot.into(), count: state.streams[usize::from(slot)].given });
        let number = match state.dead_streams.iter().position(|&slot| drained(slot)) {
            Some(index) => state.dead_streams.swap_remove(index),
            None if state.streams.len() < STREAMS => {
                state.streams.push(Stream::new(priority, ordering));
                (state.streams.len() - 1) as u16
            }
            None => return Err(Error::OutOfMemory),
        };
        let stream = &mut state.streams[usize::from(number)];
        stream.generation = stream.generation.wrapping_add(1);
        (stream.alive, stream.priority, stream.ordering) = (true, priority, ordering);
        // None of its commands is pending, so the barrier stream need not wait; and it has waited for none of that
        // one's.
        (stream.seen, stream.barred) = (0, stream.given);
        Ok(Slot { number, generation: stream.generation })
    }

    /// Destroys a stream. Commands already submitted still run.
    pub fn destroy_stream(&self, slot: Slot) -> Result<()> {
        let mut state = lock(&self.state);
        let number = slot.find(&state)?;
        if number == 0 {
            return Err(Error::InvalidHandle);
        }
        state.streams[number as usize].alive = false;
        state.dead_streams.push(number as u16);
        Ok(())
    }

    /// Priority of a stream, as it was given.
    pub fn priority(&self, slot: Slot) -> Result<i32> {
        let state = lock(&self.state);
        Ok(state.streams[slot.find(&state)? as usize].priority)
    }

    /// Creates an event, not yet recorded.
    pub fn create_event(&self) -> Result<EventSlot> {
        self.alive()?;
        let state = &mut *lock(&self.state);
        let done = |slot: u16| state.events[usize::from(slot)].mark.is_none_or(|mark| self.reached(mark));
        let number = match state.dead_events.iter().position(|&slot| done(slot)) {
            Some(index) => state.dead_events.swap_remove(index),
            None if state.events.len() < EVENTS => {
                state.events.push(Event { generation: 0, alive: false, record: 0, mark: None });
                (state.events.len() - 1) as u16
            }
            None => return Err(Error::OutOfMemory),
        };
        let event = &mut state.events[usize::from(number)];
        event.generation = event.generation.wrapping_add(1);
        (event.alive, event.mark) = (true, None);
        Ok(EventSlot { number, generation: event.generation })
    }

    /// Destroys an event.
    pub fn destroy_event(&self, event: EventSlot) -> Result<()> {
        let mut state = lock(&self.state);
        event.find(&mut state)?.alive = false;
        state.dead_events.push(event.number);
        Ok(())
    }

    /// Mark of an event's last record; `None` if it was never recorded.
    pub fn recorded(&self, event: EventSlot) -> Result<Option<Mark>> {
        Ok(event.find(&mut lock(&self.state))?.mark)
    }

    /// Records an event in a stream.
    pub fn record(&self, event: EventSlot, slot: Slot) -> Result<Mark> {
        self.submit(slot, |state, mark| {
            let found = event.find(state)?;
            found.record += 1;
            found.mark = Some(mark);
            Ok(Some(Action::Record { event: event.number.into(), record: found.record }))
        })
    }

    /// Makes a stream wait for the last record of an event.
    pub fn wait_event(&self, slot: Slot, event: EventSlot) -> Result<()> {
        self.submit(slot, |state, _| {
            let mark = event.find(state)?.mark;
            Ok(mark.map(|Mark { slot: stream, count }| Action::WaitStream { stream, count }))
        })?;
        Ok(())
    }

    /// Device time of an event's last record, in ns.
    pub fn event_ns(&self, event: EventSlot) -> Result<u64> {
        let mark = self.recorded(event)?.ok_or(Error::InvalidHandle)?;
        self.query(mark)?;
        Ok(self.shared().events[usize::from(event.number)].at_ns.load(Acquire))
    }

    /// Offset in the arena of a range, if it lies inside.
    pub fn offset(&self, pointer: *const c_void, bytes: usize) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.arena.base().addr())? as u64;
        self.arena.at(offset, bytes as u64).map(|_| offset)
    }

    /// Address of an offset in the arena.
    pub fn address(&self, offset: u64) -> *mut c_void {
        self.arena.base().wrapping_add(offset as usize).cast()
    }

    /// Sends a request to the device, and returns the words after the status.
    pub fn ask(&self, request: Request, fd: Option<&OwnedFd>) -> Result<[u64; WORDS - 1]> {
        self.request(request, fd).map(|(words, _)| words)
    }

    /// Sends a request as [`Self::ask`] does, and also returns the descriptors in the reply.
    pub(super) fn request(&self, request: Request, fd: Option<&OwnedFd>) -> Result<([u64; WORDS - 1], Vec<OwnedFd>)> {
        use rustix::fd::AsFd;
        let _turn = lock(&self.request);
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        wire::send(&self.socket, request.encode(), &fds).map_err(|_| Error::DeviceLost)?;
        let ([status, rest @ ..], fds) = wire::receive(&self.socket).map_err(|_| Error::DeviceLost)?;
        Error::check(status)?;
        Ok((rest, fds))
    }

    /// Sets the time slice in ns, without waiting.
    pub fn set_timeslice_ns(&self, ns: u64) -> Result<()> {
        self.shared().client.timeslice_ns.store(ns, SeqCst);
        self.control_changed()
    }

    /// Time slice of the context, in ns.
    pub fn timeslice_ns(&self) -> u64 {
        self.shared().client.timeslice_ns.load(Relaxed)
    }

    /// Evicts or restores the context, without waiting.
    pub fn set_runnable(&self, on: bool) -> Result<()> {
        self.shared().client.runnable.store(now_ns() << 1 | u64::from(on), SeqCst);
        self.control_changed()
    }

    fn control_changed(&self) -> Result<()> {
        if self.is_lost() {
            return Err(Error::DeviceLost);
        }
        fence(SeqCst);
        self.ring_bell();
        Ok(())
    }
}

/// Identity of a stream: its slot, and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the slot.
    pub number: u16,
    /// Generation, different each time that the slot is reused.
    pub generation: u16,
}

impl Slot {
    /// The default stream.
    pub const DEFAULT: Self = Self { number: 0, generation: 0 };

    fn find(self, state: &State) -> Result<u32> {
        match state.streams.get(usize::from(self.number)) {
            Some(stream) if stream.alive && stream.generation == self.generation => Ok(self.number.into()),
            _ => Err(Error::InvalidHandle),
        }
    }
}

/// Identity of an event: its slot, and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSlot {
    /// Number of the slot.
    pub number: u16,
    /// Generation, different each time that the slot is reused.
    pub generation: u16,
}

impl EventSlot {
    fn find(self, state: &mut State) -> Result<&mut Event> {
        match state.events.get_mut(usize::from(self.number)) {
            Some(event) if event.alive && event.generation == self.generation => Ok(event),
            _ => Err(Error::InvalidHandle),
        }
    }
}
