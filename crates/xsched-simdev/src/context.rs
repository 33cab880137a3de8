//! A process's context on one device: the command ring, streams and events.

use crate::calls::Calls;
use crate::connect::greet;
use crate::error::{Error, Result};
use crate::handle::{Handle, Kind};
use crate::heap::Heap;
use crate::regions::Regions;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::thread::futex;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xsched_sim::command::{Action, Command, Place};
use xsched_sim::layout::{ARENA_BYTES, DEVICE_BYTES, EVENTS, RING, STREAM_DEPTH, STREAMS, Shared};
use xsched_sim::memory::{Mapping, now_ns};
use xsched_sim::wire::{self, Request, WORDS};

/// A stream's slot.
struct Stream {
    generation: u16,
    alive: bool,
    priority: i32,
    /// Commands given since the context began.
    given: u64,
}

/// An event's slot.
struct Event {
    generation: u16,
    alive: bool,
    /// Records of this slot so far; goes on when it is used for another event.
    record: u64,
    /// Where the last record is: it is complete when the stream has completed so many commands. `None` = never
    /// recorded.
    mark: Option<Mark>,
}

/// A point in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) slot: u32,
    pub(crate) count: u64,
}

/// What the ring's lock protects.
pub(crate) struct State {
    head: u64,
    streams: Vec<Stream>,
    events: Vec<Event>,
    dead_streams: Vec<u16>,
    dead_events: Vec<u16>,
}

/// Memory handed out from the arena.
pub(crate) struct Heaps {
    pub(crate) device: Heap,
    pub(crate) host: Heap,
}

/// One context. Never freed: a thread may still be inside when it is reset.
pub(crate) struct Context {
    pub(crate) device: u8,
    epoch: u8,
    shared: Mapping,
    arena: Mapping,
    socket: OwnedFd,
    doorbell: OwnedFd,
    lost: AtomicBool,
    state: Mutex<State>,
    pub(crate) heaps: Mutex<Heaps>,
    pub(crate) regions: Regions,
    request: Mutex<()>,
    pub(crate) calls: Calls,
}

/// Locks, whatever another thread died of while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub(crate) fn new(device: u8, epoch: u8) -> Result<&'static Self> {
        let greeting = greet(Request::Context { device: device.into() })?;
        let Ok([control, arena, doorbell]) = <[OwnedFd; 3]>::try_from(greeting.fds) else {
            return Err(Error::NoDevice);
        };
        let map = |fd, bytes| Mapping::new(fd, 0, bytes).map_err(|_| Error::OutOfMemory);
        let (device_end, end) = (DEVICE_BYTES as u64, ARENA_BYTES as u64);
        let default = Stream { generation: 0, alive: true, priority: 0, given: 0 };
        let context: &'static Self = Box::leak(Box::new(Self {
            device,
            epoch,
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
            request: Mutex::new(()),
            calls: Calls::default(),
        }));
        crate::calls::spawn("simdev-watch", || context.watch())?;
        Ok(context)
    }

    /// Descriptors that a forked child must not keep: while it did, the device would think this process alive.
    pub(crate) fn fds(&self) -> [RawFd; 2] {
        [self.socket.as_raw_fd(), self.doorbell.as_raw_fd()]
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the mapping has this size and page alignment, lives as long as `self`, and consists of atomics.
        unsafe { &*self.shared.base().cast::<Shared>() }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// Ends the context: the device drops what is pending, and all who wait return.
    pub(crate) fn close(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.lose();
        // The mapping stays, since somebody may be using it, but its pages need not.
        // SAFETY: the range is our own mapping of a memfd; its contents end with the context.
        let _ = unsafe { rustix::mm::madvise(self.arena.base().cast(), ARENA_BYTES, rustix::mm::Advice::LinuxRemove) };
    }

    /// Thread: notices the end of the device.
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

    /// Gives a command to a stream and returns its place. `action` is made under the ring's lock, so that what it
    /// stores has the order of the ring; it may decline by returning `None`.
    pub(crate) fn submit(
        &self,
        slot: Slot,
        action: impl Fn(&mut State, Mark) -> Result<Option<Action>>,
    ) -> Result<Mark> {
        let shared = self.shared();
        loop {
            if self.is_lost() {
                return Err(Error::DeviceLost);
            }
            let mut state = lock(&self.state);
            let number = slot.find(&state)?;
            let words = &shared.streams[number as usize];
            let given = state.streams[number as usize].given;
            if given - words.completed.load(Acquire) >= STREAM_DEPTH {
                drop(state);
                self.wait(Mark { slot: number, count: given + 1 - STREAM_DEPTH })?;
                continue;
            }
            let head = state.head;
            if head - shared.device.tail.load(Acquire) >= RING as u64 {
                drop(state);
                self.wait_for_room(head)?;
                continue;
            }
            let mark = Mark { slot: number, count: given + 1 };
            let Some(action) = action(&mut state, mark)? else { return Ok(Mark { slot: number, count: given }) };
            state.streams[number as usize].given = mark.count;
            self.push(&mut state, Command { stream: number, action });
            drop(state);
            // A stream that still has work is looked at again by the device when that work ends, and it looks at
            // the ring first. Pairs with the fence before its last look at the ring.
            fence(SeqCst);
            if words.completed.load(Relaxed) >= given {
                self.ring_bell();
            }
            return Ok(mark);
        }
    }

    /// Tells the device that the call blocking a stream has returned.
    pub(crate) fn returned(&self, slot: u32) -> Result<()> {
        let shared = self.shared();
        loop {
            if self.is_lost() {
                return Err(Error::DeviceLost);
            }
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
        if self.is_lost() { Err(Error::DeviceLost) } else { Ok(()) }
    }

    pub(crate) fn reached(&self, mark: Mark) -> bool {
        self.shared().streams[mark.slot as usize].completed.load(Acquire) >= mark.count
    }

    /// `Ok` if reached, else `NotReady` or `DeviceLost`.
    pub(crate) fn query(&self, mark: Mark) -> Result<()> {
        match (self.reached(mark), self.is_lost()) {
            (true, _) => Ok(()),
            (false, false) => Err(Error::NotReady),
            (false, true) => Err(Error::DeviceLost),
        }
    }

    pub(crate) fn wait(&self, mark: Mark) -> Result<()> {
        if self.reached(mark) {
            return Ok(());
        }
        let words = &self.shared().streams[mark.slot as usize];
        words.waiters.fetch_add(1, SeqCst);
        let result = loop {
            let seen = words.wake.load(Acquire);
            // Orders "waiting" before the look at what is complete; the device stores, then looks for waiters.
            fence(SeqCst);
            match self.query(mark) {
                Err(Error::NotReady) => sleep_on(&words.wake, seen),
                other => break other,
            }
        };
        words.waiters.fetch_sub(1, SeqCst);
        result
    }

    /// Waits for all that has been given so far.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let marks: Vec<Mark> = {
            let state = lock(&self.state);
            (0..).zip(&state.streams).map(|(slot, s)| Mark { slot, count: s.given }).collect()
        };
        marks.into_iter().try_for_each(|mark| self.wait(mark))
    }

    /// The end of a stream as it is now.
    pub(crate) fn end(&self, slot: Slot) -> Result<Mark> {
        let state = lock(&self.state);
        let number = slot.find(&state)?;
        Ok(Mark { slot: number, count: state.streams[number as usize].given })
    }

    pub(crate) fn create_stream(&self, priority: i32) -> Result<*mut c_void> {
        if self.is_lost() {
            return Err(Error::DeviceLost);
        }
        let state = &mut *lock(&self.state);
        let drained =
            |slot: u16| self.reached(Mark { slot: slot.into(), count: state.streams[usize::from(slot)].given });
        let slot = match state.dead_streams.iter().position(|&slot| drained(slot)) {
            Some(index) => state.dead_streams.swap_remove(index),
            None if state.streams.len() < STREAMS => {
                state.streams.push(Stream { generation: 0, alive: false, priority: 0, given: 0 });
                (state.streams.len() - 1) as u16
            }
            None => return Err(Error::OutOfMemory),
        };
        let stream = &mut state.streams[usize::from(slot)];
        stream.generation = stream.generation.wrapping_add(1);
        (stream.alive, stream.priority) = (true, priority);
        let generation = stream.generation;
        Ok(Handle { kind: Kind::Stream, device: self.device, epoch: self.epoch, generation, slot }.encode())
    }

    pub(crate) fn destroy_stream(&self, slot: Slot) -> Result<()> {
        let mut state = lock(&self.state);
        let number = slot.find(&state)?;
        if number == 0 {
            return Err(Error::InvalidHandle);
        }
        state.streams[number as usize].alive = false;
        state.dead_streams.push(number as u16);
        Ok(())
    }

    pub(crate) fn priority(&self, slot: Slot) -> Result<i32> {
        let state = lock(&self.state);
        Ok(state.streams[slot.find(&state)? as usize].priority)
    }

    pub(crate) fn create_event(&self) -> Result<*mut c_void> {
        if self.is_lost() {
            return Err(Error::DeviceLost);
        }
        let state = &mut *lock(&self.state);
        let done = |slot: u16| state.events[usize::from(slot)].mark.is_none_or(|mark| self.reached(mark));
        let slot = match state.dead_events.iter().position(|&slot| done(slot)) {
            Some(index) => state.dead_events.swap_remove(index),
            None if state.events.len() < EVENTS => {
                state.events.push(Event { generation: 0, alive: false, record: 0, mark: None });
                (state.events.len() - 1) as u16
            }
            None => return Err(Error::OutOfMemory),
        };
        let event = &mut state.events[usize::from(slot)];
        event.generation = event.generation.wrapping_add(1);
        (event.alive, event.mark) = (true, None);
        let generation = event.generation;
        Ok(Handle { kind: Kind::Event, device: self.device, epoch: self.epoch, generation, slot }.encode())
    }

    pub(crate) fn destroy_event(&self, handle: Handle) -> Result<()> {
        let mut state = lock(&self.state);
        self.event(&mut state, handle)?.alive = false;
        state.dead_events.push(handle.slot);
        Ok(())
    }

    fn event<'a>(&self, state: &'a mut State, handle: Handle) -> Result<&'a mut Event> {
        let event = state.events.get_mut(usize::from(handle.slot)).ok_or(Error::InvalidHandle)?;
        let same = event.alive && event.generation == handle.generation && self.epoch == handle.epoch;
        if same { Ok(event) } else { Err(Error::InvalidHandle) }
    }

    /// Where an event was last recorded; `None` if never.
    pub(crate) fn recorded(&self, handle: Handle) -> Result<Option<Mark>> {
        let mut state = lock(&self.state);
        Ok(self.event(&mut state, handle)?.mark)
    }

    pub(crate) fn record(&self, handle: Handle, slot: Slot) -> Result<()> {
        self.submit(slot, |state, mark| {
            let event = self.event(state, handle)?;
            event.record += 1;
            event.mark = Some(mark);
            Ok(Some(Action::Record { event: handle.slot.into(), record: event.record }))
        })?;
        Ok(())
    }

    /// Makes a stream wait for the last record of an event.
    pub(crate) fn wait_event(&self, slot: Slot, handle: Handle) -> Result<()> {
        self.submit(slot, |state, _| {
            let event = self.event(state, handle)?;
            Ok(event.mark.map(|Mark { slot: stream, count }| Action::WaitStream { stream, count }))
        })?;
        Ok(())
    }

    /// Device time of an event's last record, in ns.
    pub(crate) fn event_ns(&self, handle: Handle) -> Result<u64> {
        let mark = self.recorded(handle)?.ok_or(Error::InvalidHandle)?;
        self.query(mark)?;
        Ok(self.shared().events[usize::from(handle.slot)].at_ns.load(Acquire))
    }

    /// Checks a stream's handle.
    pub(crate) fn slot(&self, handle: Handle) -> Result<Slot> {
        if handle.epoch != self.epoch {
            return Err(Error::InvalidHandle);
        }
        Ok(Slot { number: handle.slot, generation: handle.generation })
    }

    /// Offset in the arena of a range that lies in it.
    pub(crate) fn offset(&self, pointer: *const c_void, bytes: usize) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.arena.base().addr())? as u64;
        self.arena.at(offset, bytes as u64).map(|_| offset)
    }

    /// Address of an offset in the arena.
    pub(crate) fn address(&self, offset: u64) -> *mut c_void {
        self.arena.base().wrapping_add(offset as usize).cast()
    }

    /// The word at this address, if the device can reach it.
    pub(crate) fn place(&self, pointer: *const c_void) -> Result<Place> {
        if !pointer.addr().is_multiple_of(4) {
            return Err(Error::InvalidValue);
        }
        let arena = self.offset(pointer, 4).map(|offset| Place { region: 0, offset });
        arena.or_else(|| self.regions.find(pointer)).ok_or(Error::InvalidValue)
    }

    /// Asks the device something and returns the words after the status.
    pub(crate) fn ask(&self, request: Request, fd: Option<&OwnedFd>) -> Result<[u64; WORDS - 1]> {
        use rustix::fd::AsFd;
        let _turn = lock(&self.request);
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        wire::send(&self.socket, request.encode(), &fds).map_err(|_| Error::DeviceLost)?;
        let ([status, rest @ ..], _) = wire::receive(&self.socket).map_err(|_| Error::DeviceLost)?;
        Error::check(status)?;
        Ok(rest)
    }

    /// Sets the time slice without waiting for anybody.
    pub(crate) fn set_timeslice_ns(&self, ns: u64) -> Result<()> {
        self.shared().client.timeslice_ns.store(ns, SeqCst);
        self.control_changed()
    }

    pub(crate) fn timeslice_ns(&self) -> u64 {
        self.shared().client.timeslice_ns.load(Relaxed)
    }

    /// Evicts or restores the context without waiting for anybody.
    pub(crate) fn set_runnable(&self, on: bool) -> Result<()> {
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

/// A stream's slot, if it is still the same stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    number: u16,
    generation: u16,
}

impl Slot {
    /// The default stream.
    pub(crate) const DEFAULT: Self = Self { number: 0, generation: 0 };

    fn find(self, state: &State) -> Result<u32> {
        match state.streams.get(usize::from(self.number)) {
            Some(stream) if stream.alive && stream.generation == self.generation => Ok(self.number.into()),
            _ => Err(Error::InvalidHandle),
        }
    }
}

/// Sleeps until `word` is no longer `seen`; may return early.
pub(crate) fn sleep_on(word: &AtomicU32, seen: u32) {
    let _ = futex::wait(word, futex::Flags::empty(), seen, None);
}
