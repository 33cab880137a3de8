//! A context's client, as the server sees it.

use super::effect::{Regions, prepare};
use super::{Arrival, Input};
use crate::command::{Action, Fault};
use crate::layout::{ARENA_BYTES, MAX_TIMESLICE_US, RING, STREAM_DEPTH, STREAMS, Shared};
use crate::memory::{Mapping, sealed_memfd};
use crate::model::ContextId;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::SealFlags;
use rustix::thread::futex;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

/// Violation of the protocol, for which a client is dropped.
#[derive(Debug)]
pub(super) struct Violation;

pub(super) struct Client {
    pub(super) socket: OwnedFd,
    /// Becomes readable when the process has ended, even if a child of it holds the socket. `None` if unavailable.
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) doorbell: OwnedFd,
    pub(super) device: usize,
    pub(super) context: ContextId,
    /// Member of the context that the client is; 0 = its owner.
    pub(super) member: u32,
    /// ID of its process; 0 = unknown.
    pub(super) pid: u32,
    pub(super) regions: Regions,
    /// Number of kernels, copies and sets received, and of those that are complete.
    pub(super) launched: u64,
    pub(super) completed: u64,
    shared: Mapping,
    /// Memory file of its arena.
    pub(super) arena: Rc<OwnedFd>,
    /// Pages of other arenas in this one: offset → bytes.
    imports: BTreeMap<u64, u64>,
    tail: u64,
    last_stamp: u64,
    timeslice_ns: u64,
    runnable: u64,
    /// Number of commands received by stream, to drop a client that exceeds the depth of a stream.
    given: Vec<u64>,
    /// Streams with completions that waiting threads were not woken for yet.
    touched: Vec<u32>,
    calls_due: bool,
    /// Set if the client is gone: it is removed between these times, in ns.
    pub(super) leaves: Option<RangeInclusive<u64>>,
    /// Set if a kernel of its context has faulted: nothing more runs there.
    pub(super) faulted: Option<Fault>,
}

impl Client {
    /// A client, and the descriptors to send to it: control memory and arena (its doorbell is `self.doorbell`).
    pub(super) fn new(
        (pid, pidfd): (u32, Option<OwnedFd>),
        socket: OwnedFd,
        device: usize,
        (context, member): (ContextId, u32),
        timeslice_ns: u64,
    ) -> io::Result<(Self, [OwnedFd; 2])> {
        let control = sealed_memfd("simdev-control", size_of::<Shared>())?;
        let arena = sealed_memfd("simdev-arena", ARENA_BYTES)?;
        let client = Self {
            socket,
            pidfd,
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            device,
            context,
            member,
            pid,
            regions: Regions::from([(0, Rc::new(Mapping::new(&arena, 0, ARENA_BYTES)?))]),
            launched: 0,
            completed: 0,
            arena: Rc::new(rustix::io::fcntl_dupfd_cloexec(&arena, 3)?),
            imports: BTreeMap::new(),
            shared: Mapping::new(&control, 0, size_of::<Shared>())?,
            tail: 0,
            last_stamp: 0,
            timeslice_ns,
            runnable: 1,
            given: vec![0; STREAMS],
            touched: Vec::new(),
            calls_due: false,
            leaves: None,
            faulted: None,
        };
        client.shared().client.timeslice_ns.store(timeslice_ns, Relaxed);
        client.shared().client.runnable.store(1, Relaxed);
        Ok((client, [control, arena]))
    }

    pub(super) fn shared(&self) -> &Shared {
        // SAFETY: the mapping has this size and page alignment, lives as long as `self`, and consists of atomics.
        unsafe { &*self.shared.base().cast::<Shared>() }
    }

    /// Reports whether the client has stored anything that the server has not read.
    pub(super) fn has_news(&self) -> bool {
        let words = &self.shared().client;
        words.head.load(Acquire) != self.tail
            || words.runnable.load(Relaxed) != self.runnable
            || words.timeslice_ns.load(Relaxed) != self.timeslice_ns
    }

    /// Reads everything that the client has stored. Each arrival carries the time at which it was stored.
    pub(super) fn drain(&mut self, key: u64, now: u64, arrivals: &mut Vec<Arrival>) -> Result<(), Violation> {
        // Read before the other words, so that a store that precedes a command is seen no later than the command.
        let head = self.shared().client.head.load(Acquire);
        let timeslice_ns = self.shared().client.timeslice_ns.load(Relaxed);
        if timeslice_ns != self.timeslice_ns {
            if !(1..=MAX_TIMESLICE_US * 1000).contains(&timeslice_ns) {
                return Err(Violation);
            }
            self.timeslice_ns = timeslice_ns;
            arrivals.push(Arrival { stamp: now, key, input: Input::Timeslice(timeslice_ns) });
        }
        let runnable = self.shared().client.runnable.load(Relaxed);
        if runnable != self.runnable {
            self.runnable = runnable;
            arrivals.push(Arrival { stamp: runnable >> 1, key, input: Input::Runnable(runnable & 1 != 0) });
        }
        if head == self.tail {
            return Ok(());
        }
        if head.wrapping_sub(self.tail) > RING as u64 {
            return Err(Violation);
        }
        while self.tail != head {
            let (stamp, command) = self.shared().ring[self.tail as usize % RING].get().ok_or(Violation)?;
            self.tail += 1;
            // Keeps a client's own commands in order, whatever it writes into the time stamps.
            self.last_stamp = self.last_stamp.max(stamp);
            let slot = self.shared().streams.get(command.stream as usize).ok_or(Violation)?;
            let input = if command.action == Action::Returned {
                Input::Returned(command.stream)
            } else {
                let (work, effect) = prepare(command.action, &self.regions).ok_or(Violation)?;
                let given = self.given[command.stream as usize] + 1;
                if given - slot.completed.load(Relaxed).min(given) > 2 * STREAM_DEPTH {
                    return Err(Violation);
                }
                self.given[command.stream as usize] = given;
                let counted = matches!(
                    command.action,
                    Action::Kernel { .. } | Action::Stamp { .. } | Action::Copy { .. } | Action::Set { .. }
                );
                self.launched += u64::from(counted);
                Input::Command(command.stream, work, effect, counted)
            };
            arrivals.push(Arrival { stamp: self.last_stamp, key, input });
        }
        self.shared().device.tail.store(self.tail, Release);
        fence(SeqCst);
        if self.shared().client.room_waiters.load(Relaxed) != 0 {
            wake(&self.shared().device.room);
        }
        Ok(())
    }

    /// Marks command number `count` of a stream as complete.
    pub(super) fn completed(&mut self, stream: u32, count: u64) {
        self.shared().streams[stream as usize].completed.store(count, Release);
        self.touched.push(stream);
    }

    /// Marks command number `count` of a stream, a call, as due.
    pub(super) fn call_due(&mut self, stream: u32, count: u64) {
        self.shared().streams[stream as usize].called.store(count, Release);
        self.calls_due = true;
    }

    /// Wakes the client's threads that wait for anything that has happened since the last time.
    pub(super) fn tell(&mut self) {
        if std::mem::take(&mut self.calls_due) {
            wake(&self.shared().device.calls);
        }
        if self.touched.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        // Orders the completions before the read of the waiters, which raise their count before they read.
        fence(SeqCst);
        for stream in touched.drain(..) {
            let slot = &self.shared().streams[stream as usize];
            if slot.waiters.load(Relaxed) != 0 {
                wake(&slot.wake);
            }
        }
        self.touched = touched;
    }

    /// Marks the context as faulted by a kernel of the process `culprit`.
    pub(super) fn fault(&mut self, fault: Fault, culprit: u32) {
        self.faulted = Some(fault);
        self.shared().device.culprit.store(culprit, Relaxed);
        self.shared().device.faulted.store(fault as u32, Release);
    }

    /// Wakes all waiting threads, which then find the fault.
    pub(super) fn tell_of_fault(&self) {
        fence(SeqCst);
        let shared = self.shared();
        shared.streams.iter().filter(|slot| slot.waiters.load(Relaxed) != 0).for_each(|slot| wake(&slot.wake));
        wake(&shared.device.room);
    }

    /// Reports whether these pages may be exported, or replaced by an import: not if they are imported themselves.
    pub(super) fn may_export(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes).filter(|&end| end <= ARENA_BYTES as u64 && bytes > 0);
        let whole = offset.is_multiple_of(4096) && bytes.is_multiple_of(4096);
        whole && end.is_some_and(|end| self.imported(offset, end).is_none())
    }

    /// Offset of an import that overlaps a range.
    fn imported(&self, start: u64, end: u64) -> Option<u64> {
        self.imports.iter().find(|&(&at, &bytes)| at < end && start < at + bytes).map(|(&at, _)| at)
    }

    /// Puts pages of another arena in place of some of its own.
    pub(super) fn import(&mut self, at: u64, fd: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
        let refused = !self.may_export(at, bytes) || self.imports.len() >= 1024;
        let arena = self.regions.get(&0).filter(|_| !refused).ok_or(io::ErrorKind::InvalidInput)?;
        arena.replace(at, fd, offset, bytes)?;
        self.imports.insert(at, bytes);
        Ok(())
    }

    /// Puts its own pages back in place of imported ones.
    pub(super) fn restore(&mut self, at: u64) -> io::Result<()> {
        let arena = self.regions.get(&0).ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = *self.imports.get(&at).ok_or(io::ErrorKind::InvalidInput)?;
        arena.replace(at, &self.arena, at, bytes)?;
        self.imports.remove(&at);
        Ok(())
    }

    /// Adds a region of the client's own memory.
    pub(super) fn register(&mut self, region: u32, fd: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return refuse("memory that may shrink");
        }
        let size = rustix::fs::fstat(fd)?.st_size.cast_unsigned();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= size.next_multiple_of(4096));
        if bytes == 0 || !offset.is_multiple_of(4096) || !inside || self.regions.len() > 1024 {
            return refuse("a range outside the file");
        }
        let Ok(length) = usize::try_from(bytes) else { return refuse("too long") };
        if region == 0 || self.regions.contains_key(&region) {
            return refuse("a number in use");
        }
        self.regions.insert(region, Rc::new(Mapping::new(fd, offset, length)?));
        Ok(())
    }
}

fn wake(word: &AtomicU32) {
    word.fetch_add(1, Release);
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
