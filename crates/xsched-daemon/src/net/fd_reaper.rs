//! Closing of descriptors that others sent, off the event loop.
//!
//! Closing a descriptor can take as long as its sender likes: a socket lingers over unsent data, a file system in user space never answers.
//! A unix socket hides such descriptors in its receive buffer, and closing the socket releases them.
//!
//! One thread closes them in turn. A release that sleeps is nudged by a signal, which ends the wait for a lingering socket.
//! A thread that sleeps all the same is given up and replaced, [`LOST_MAX`] times at most. No descriptors are received meanwhile
//! from the user whose descriptor it was (see [`FdReaper::admits`]): released in a receive buffer, a file is not flushed, which is
//! what its file system could refuse to answer.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};

use crate::guard::Fault;
use crate::services::worker::{End, Queue, Service, Spec, Worker};
use crate::tuning::{CLOSER_NICE, LOST_MAX, QUEUED_MAX};

/// Largest number of descriptors in a packet, by the kernel (`SCM_MAX_FD`). There is room to receive them all: the kernel would release
/// those without room on the receiving thread.
pub(crate) const MAX_FDS: usize = 253;

/// Descriptors to be closed.
enum Task {
    Connections(Vec<OwnedFd>),
    /// Descriptor that was received from a user.
    Received(u32, OwnedFd),
}

/// A task has no outcome.
enum Nothing {}

/// Order of tasks: first all connections, as far as one packet holds them; then received descriptors, in the order of arrival.
#[derive(Default)]
struct Waiting {
    connections: VecDeque<OwnedFd>,
    received: VecDeque<(u32, OwnedFd)>,
}

impl Queue<Task> for Waiting {
    fn put(&mut self, task: Task) {
        match task {
            Task::Connections(sockets) => self.connections.extend(sockets),
            Task::Received(user, fd) => self.received.push_back((user, fd)),
        }
    }

    fn next_task(&mut self, may_risk: &dyn Fn(u32) -> bool) -> Option<Task> {
        if !self.connections.is_empty() {
            let some = self.connections.len().min(MAX_FDS);
            return Some(Task::Connections(self.connections.drain(..some).collect()));
        }
        let at = self.received.iter().position(|(user, _)| may_risk(*user))?;
        self.received.remove(at).map(|(user, fd)| Task::Received(user, fd))
    }

    fn waiting(&self) -> usize {
        self.connections.len() + self.received.len()
    }

    fn user(&self, task: &Task) -> Option<u32> {
        match task {
            Task::Connections(_) => None,
            Task::Received(user, _) => Some(*user),
        }
    }
}

/// Handle of the reaper; its clones share one thread.
#[derive(Clone)]
pub(crate) struct FdReaper(Arc<Worker<Task, Nothing>>);

impl FdReaper {
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new() -> rustix::io::Result<FdReaper> {
        let spec = Spec {
            lost_max: LOST_MAX,
            nudges: true,
            // Nothing waits for this thread, and decisions are made on the same processors.
            nice: CLOSER_NICE,
            stack_bytes: Some(64 << 10),
            end: End::Drained(Duration::ZERO),
            ..Spec::named("xsched-closer")
        };
        let worker = Worker::new(spec, Waiting::default(), || -> Box<dyn Service<Task, Nothing>> {
            Box::new(|task| {
                close(task);
                None
            })
        });
        Ok(FdReaper(Arc::new(worker?)))
    }

    /// Ends a connection, and closes its socket: there may be descriptors in its receive buffer.
    pub(crate) fn close_socket(&self, socket: OwnedFd) {
        // Data that was sent can still be read at the other end.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        self.0.push_beyond(Task::Connections(vec![socket]));
    }

    /// Closes a descriptor that was received from a user.
    pub(crate) fn close_received(&self, fd: OwnedFd, uid: u32) {
        self.0.push_beyond(Task::Received(uid, fd));
    }

    /// Reports whether descriptors of this user may be received.
    pub(crate) fn admits(&self, uid: u32, trusted: bool) -> bool {
        !self.is_full() && (trusted || self.0.may_risk(uid))
    }

    /// Reports whether nothing more should be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.0.queued() >= QUEUED_MAX
    }

    /// Takes the faults of the thread.
    pub(crate) fn take_faults(&self) -> Vec<Fault> {
        self.0.take_faults()
    }

    /// Nudges and replaces the thread. Returns the time of the next call, in ns.
    pub(crate) fn tend(&self, now_ns: u64) -> Option<u64> {
        self.0.tend(now_ns)
    }

    /// Makes the thread end once its queue is empty.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}

fn close(task: Task) {
    match task {
        Task::Connections(sockets) => {
            let carrier = gather(&sockets);
            drop(sockets);
            drop(carrier);
        }
        Task::Received(_, fd) => {
            no_lingering(&fd);
            drop(fd);
        }
    }
}

/// Switches lingering off for a received socket, which does not need it.
fn no_lingering(fd: &OwnedFd) {
    // For other descriptors the kernel fails by itself, without asking their file system.
    let _ = rustix::net::sockopt::set_socket_linger(fd, None);
}

/// Puts all connections into the receive buffer of a socket. Closing that socket releases them by one system call, in which one nudge ends
/// every wait; closed one by one, each would need a nudge of its own.
fn gather(fds: &[OwnedFd]) -> rustix::io::Result<OwnedFd> {
    let (from, to) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(&from, &[IoSlice::new(&[0])], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> OwnedFd {
        std::io::pipe().unwrap().0.into()
    }

    #[test]
    fn threads_are_risked_for_no_user_twice_and_connections_are_closed_all_the_same() {
        let reaper = FdReaper::new().unwrap();
        reaper.0.pretend_lost([7]);
        let mut waiting = Waiting::default();
        for from in [Some(7), Some(8), None, Some(7), None] {
            waiting.put(from.map_or_else(|| Task::Connections(vec![fd()]), |uid| Task::Received(uid, fd())));
        }
        let mut of = || {
            let task = waiting.next_task(&|uid| reaper.0.may_risk(uid))?;
            let count = if let Task::Connections(sockets) = &task { sockets.len() } else { 1 };
            Some((waiting.user(&task), count))
        };
        assert_eq!([of(), of(), of()], [Some((None, 2)), Some((Some(8), 1)), None]);
        assert!(!reaper.admits(7, false) && reaper.admits(8, false) && reaper.admits(7, true));
        reaper.0.pretend_lost((2..=LOST_MAX).map(|_| 100));
        assert!(!reaper.admits(8, false) && reaper.admits(8, true));
        reaper.0.forget_lost();
        assert!(reaper.admits(7, false));
    }

    #[test]
    fn what_waits_for_a_lost_thread_is_closed_once_that_has_come_back() {
        let reaper = FdReaper::new().unwrap();
        reaper.0.pretend_lost([7]);
        let (reader, kept) = std::io::pipe().unwrap();
        let (other, kept_too) = std::io::pipe().unwrap();
        reaper.close_received(kept.into(), 7);
        reaper.close_received(kept_too.into(), 8);
        // A pipe reports its end when its last writer is gone.
        xsched_testkit::until("that of another user is closed", || {
            crate::services::worker::readable(other.as_fd(), Some(0))
        });
        assert!(!crate::services::worker::readable(reader.as_fd(), Some(0)));
        reaper.0.forget_lost();
        reaper.end();
        xsched_testkit::until("it is closed", || crate::services::worker::readable(reader.as_fd(), Some(0)));
    }
}
