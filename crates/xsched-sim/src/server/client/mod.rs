//! A context's client, as the server sees it.

mod input;
mod memory;
mod wake;

use super::Arrival;
use crate::command::Fault;
use crate::layout::Shared;
use crate::memory::{Mapping, sealed_memfd};
use crate::model::ContextId;
use crate::wire;
use input::{Reader, Violation};
use memory::Memory;
pub(super) use memory::held;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use wake::wake;

/// Process at the other end of a connection.
pub(super) struct Peer {
    pub(super) socket: OwnedFd,
    /// Becomes readable when the process has ended, even if a child of it holds the socket. `None` if unavailable.
    pub(super) pidfd: Option<OwnedFd>,
    /// ID of the process; 0 = unknown.
    pub(super) pid: u32,
}

impl Peer {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else {
            return Self { socket, pidfd: None, pid: 0 };
        };
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        Self { socket, pidfd: pidfd_open(peer.pid, PidfdFlags::NONBLOCK).ok(), pid }
    }

    /// Reports whether the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Answers a request with a status and four values.
    pub(super) fn reply(&self, status: u64, [a, b, c, d]: [u64; 4]) -> io::Result<()> {
        wire::send(&self.socket, [status, a, b, c, d, 0, 0, 0], &[])
    }
}

/// Place of a client on the server's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) device: usize,
    pub(super) context: ContextId,
    /// Member of the context that the client is; 0 = its owner.
    pub(super) member: u32,
}

/// Events that waiting threads were not woken for yet.
#[derive(Default)]
struct Due {
    /// Streams with completions.
    streams: Vec<u32>,
    /// Set if a call is due.
    calls: bool,
}

pub(super) struct Client {
    pub(super) peer: Peer,
    pub(super) doorbell: OwnedFd,
    pub(super) seat: Seat,
    pub(super) memory: Memory,
    shared: Mapping,
    reader: Reader,
    /// Number of kernels, copies and sets that are complete.
    pub(super) completed: u64,
    due: Due,
    /// Set if the client is gone: it is removed between these times, in ns.
    pub(super) leaves: Option<RangeInclusive<u64>>,
    /// Set if a kernel of its context has faulted: nothing more runs there.
    pub(super) faulted: Option<Fault>,
}

impl Client {
    /// A client, and the descriptors to send to it: control memory and arena (its doorbell is `self.doorbell`).
    pub(super) fn new(peer: Peer, seat: Seat, timeslice_ns: u64) -> io::Result<(Self, [OwnedFd; 2])> {
        let control = sealed_memfd("simdev-control", size_of::<Shared>())?;
        let (memory, arena) = Memory::new()?;
        let shared = Mapping::new(&control, 0, size_of::<Shared>())?;
        let client = Self {
            peer,
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            seat,
            memory,
            reader: Reader::new(words(&shared), timeslice_ns),
            shared,
            completed: 0,
            due: Due::default(),
            leaves: None,
            faulted: None,
        };
        Ok((client, [control, arena]))
    }

    pub(super) fn shared(&self) -> &Shared {
        words(&self.shared)
    }

    /// Reports whether the client has stored anything that the server has not read.
    pub(super) fn has_news(&self) -> bool {
        self.reader.has_news(self.shared())
    }

    /// Reads everything that the client has stored. Each arrival carries the time at which it was stored.
    pub(super) fn drain(&mut self, key: u64, now: u64, arrivals: &mut Vec<Arrival>) -> Result<(), Violation> {
        self.reader.drain((words(&self.shared), &self.memory), (key, now), arrivals)
    }

    /// Number of kernels, copies and sets received.
    pub(super) fn launched(&self) -> u64 {
        self.reader.launched()
    }

    /// Marks command number `count` of a stream as complete.
    pub(super) fn completed(&mut self, stream: u32, count: u64) {
        self.shared().streams[stream as usize].completed.store(count, Release);
        self.due.streams.push(stream);
    }

    /// Marks command number `count` of a stream, a call, as due.
    pub(super) fn call_due(&mut self, stream: u32, count: u64) {
        self.shared().streams[stream as usize].called.store(count, Release);
        self.due.calls = true;
    }

    /// Wakes the client's threads that wait for anything that has happened since the last time.
    pub(super) fn tell(&mut self) {
        let shared = words(&self.shared);
        if std::mem::take(&mut self.due.calls) {
            wake(&shared.device.calls);
        }
        if self.due.streams.is_empty() {
            return;
        }
        self.due.streams.sort_unstable();
        self.due.streams.dedup();
        // Orders the completions before the read of the waiters, which raise their count before they read.
        fence(SeqCst);
        for stream in self.due.streams.drain(..) {
            let slot = &shared.streams[stream as usize];
            if slot.waiters.load(Relaxed) != 0 {
                wake(&slot.wake);
            }
        }
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
}

/// Control memory of a client.
fn words(mapping: &Mapping) -> &Shared {
    // SAFETY: every caller passes the mapping of control memory, which has this size and page alignment and consists of
    // atomics; the borrow keeps it mapped.
    unsafe { &*mapping.base().cast::<Shared>() }
}
