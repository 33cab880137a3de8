//! Closes what strangers sent, off the event loop.
//!
//! Closing a descriptor can take as long as its sender likes: a socket lingers over unsent data, a file system in user space
//! never answers. A unix socket hides such descriptors in its receive buffer, and closing it releases them.
//!
//! One thread closes them in turn. A release that sleeps is nudged by a signal, which ends the wait for a lingering socket.
//! A thread that sleeps all the same is given up and replaced, [`LOST_MAX`] times at most. No descriptors are received meanwhile
//! from the user whose descriptor it was (see [`Closer::admits`]): released in a receive buffer, a file is not flushed, which is
//! what its file system could refuse to answer.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};

use crate::clock::now_ns;
use crate::tuning::{CLOSER_NICE, LOST_MAX, LOST_NS, NUDGE_NS, QUEUED_MAX};

/// Descriptors that the kernel lets a packet carry (`SCM_MAX_FD`). There is room to receive them all: those for which there is
/// none the kernel releases on the receiving thread.
pub(crate) const MAX_FDS: usize = 253;

/// The signal that nudges. Ignored by default, so that a late one does no harm.
const NUDGE: libc::c_int = libc::SIGURG;

/// A handle; its clones share one thread.
#[derive(Clone)]
pub(crate) struct Closer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Chore>,
    workers: Vec<Worker>,
    last_id: u64,
    ended: bool,
}

/// Something to close.
struct Chore {
    /// A descriptor that was received from this user, or, without one, a connection.
    from: Option<u32>,
    fd: OwnedFd,
}

struct Worker {
    id: u64,
    thread: JoinHandle<()>,
    /// Since when it closes something, and whose it is if that was received.
    busy: Option<(u64, Option<u32>)>,
    lost: bool,
}

impl State {
    fn lost(&self) -> usize {
        self.workers.iter().filter(|w| w.lost).count()
    }

    /// Whether another thread may be risked for what this user sent.
    fn may_risk(&self, uid: u32) -> bool {
        let costly = |w: &Worker| w.lost && w.busy.is_some_and(|(_, from)| from == Some(uid));
        self.lost() < LOST_MAX && !self.workers.iter().any(costly)
    }

    /// All connections, as far as one packet holds them; else the first received descriptor that may be closed.
    fn next(&mut self) -> Option<(Option<u32>, Vec<OwnedFd>)> {
        let mut connections = Vec::new();
        while connections.len() < MAX_FDS {
            let Some(at) = self.queue.iter().position(|c| c.from.is_none()) else { break };
            connections.extend(self.queue.remove(at).map(|c| c.fd));
        }
        if !connections.is_empty() {
            return Some((None, connections));
        }
        let at = self.queue.iter().position(|c| c.from.is_some_and(|uid| self.may_risk(uid)))?;
        self.queue.remove(at).map(|c| (c.from, vec![c.fd]))
    }
}

impl Closer {
    pub(crate) fn new() -> Closer {
        Closer(Arc::new(Shared { state: Mutex::default(), more: Condvar::new() }))
    }

    /// Ends a connection and closes its socket, whose receive buffer may hold descriptors.
    pub(crate) fn close_socket(&self, socket: OwnedFd) {
        // What was sent can still be read at the other end.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        self.push(Chore { from: None, fd: socket });
    }

    /// Closes a descriptor that was received from a user.
    pub(crate) fn close_received(&self, fd: OwnedFd, uid: u32) {
        self.push(Chore { from: Some(uid), fd });
    }

    fn push(&self, chore: Chore) {
        let mut state = self.0.lock();
        state.queue.push_back(chore);
        self.hire(&mut state);
        self.0.more.notify_one();
    }

    /// Whether descriptors of this user may be received.
    pub(crate) fn admits(&self, uid: u32, trusted: bool) -> bool {
        let state = self.0.lock();
        state.queue.len() < QUEUED_MAX && (trusted || state.may_risk(uid))
    }

    /// Whether nothing more should be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().queue.len() >= QUEUED_MAX
    }

    /// Looks after the thread. Returns when to do so again.
    pub(crate) fn tend(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = now_ns();
        let room = LOST_MAX - state.lost();
        let mut lost = false;
        for worker in &mut state.workers {
            let Some((since, _)) = worker.busy else { continue };
            if now.saturating_sub(since) >= NUDGE_NS {
                // SAFETY: the thread has not ended: it takes itself off the list first, under the lock held here.
                unsafe { libc::pthread_kill(worker.thread.as_pthread_t(), NUDGE) };
            }
            if !worker.lost && room > 0 && now.saturating_sub(since) >= LOST_NS {
                worker.lost = true;
                lost = true;
            }
        }
        if lost || !state.queue.is_empty() {
            self.hire(&mut state);
        }
        let busy = !state.queue.is_empty() || state.workers.iter().any(|w| w.busy.is_some());
        busy.then_some(now + NUDGE_NS)
    }

    /// Makes sure that a thread is at it. Without one the queue stays as it is until the next attempt.
    fn hire(&self, state: &mut State) {
        if state.workers.iter().any(|w| !w.lost) {
            return;
        }
        catch_nudges();
        state.last_id += 1;
        let (id, shared) = (state.last_id, self.0.clone());
        let thread = std::thread::Builder::new().name("xsched-closer".into()).stack_size(64 << 10);
        if let Ok(thread) = thread.spawn(move || shared.work(id)) {
            state.workers.push(Worker { id, thread, busy: None, lost: false });
        }
    }

    /// The thread ends once its queue is empty.
    pub(crate) fn end(&self) {
        self.0.lock().ended = true;
        self.0.more.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn work(&self, id: u64) {
        // Nobody waits for it, and decisions are made on the same processors. Less urgent one may always be.
        let _ = rustix::process::nice(CLOSER_NICE);
        let mut state = self.lock();
        loop {
            let Some(at) = state.workers.iter().position(|w| w.id == id) else { return };
            state.workers[at].busy = None;
            let next = if state.workers[at].lost { None } else { state.next() };
            match next {
                Some((from, fds)) => {
                    state.workers[at].busy = Some((now_ns(), from));
                    drop(state);
                    let carrier = match from {
                        Some(_) => {
                            fds.iter().for_each(no_lingering);
                            None
                        }
                        None => gather(&fds).ok(),
                    };
                    drop(fds);
                    drop(carrier);
                    state = self.lock();
                }
                None if state.workers[at].lost || state.ended => {
                    // One less is lost: what waited for that goes on.
                    state.workers.swap_remove(at);
                    self.more.notify_all();
                    return;
                }
                None => state = self.more.wait(state).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }
}

/// A socket that was received need not linger.
fn no_lingering(fd: &OwnedFd) {
    // Anything else is no socket, which the kernel says without asking it.
    let _ = rustix::net::sockopt::set_socket_linger(fd, None);
}

/// Puts all connections into the receive buffer of a socket. Its end releases them by one system call, in which one nudge ends
/// every wait; closed by themselves each would need one of its own.
fn gather(fds: &[OwnedFd]) -> rustix::io::Result<OwnedFd> {
    let (from, to) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(&from, &[IoSlice::new(&[0])], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(to)
}

/// A signal without a handler would not end a wait, nor one that is blocked: the new thread inherits the caller's mask.
fn catch_nudges() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: both structures are plain data, for which zeros are valid; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(NUDGE, &raw const action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, NUDGE);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> OwnedFd {
        std::io::pipe().unwrap().0.into()
    }

    fn worker(id: u64, from: u32) -> Worker {
        Worker { id, thread: std::thread::spawn(|| ()), busy: Some((0, Some(from))), lost: true }
    }

    #[test]
    fn threads_are_risked_for_no_user_twice_and_connections_are_closed_all_the_same() {
        let mut state = State::default();
        let chores = [Some(7), Some(8), None, Some(7), None];
        state.queue.extend(chores.map(|from| Chore { from, fd: fd() }));
        state.workers.push(worker(1, 7));
        let mut of = || state.next().map(|(from, fds)| (from, fds.len()));
        assert_eq!([of(), of(), of()], [Some((None, 2)), Some((Some(8), 1)), None]);
        let closer = Closer(Arc::new(Shared { state: Mutex::new(state), more: Condvar::new() }));
        assert!(!closer.admits(7, false) && closer.admits(8, false) && closer.admits(7, true));
        let mut state = closer.0.lock();
        state.workers.extend((2..=LOST_MAX as u64).map(|id| worker(id, 100)));
        drop(state);
        assert!(!closer.admits(8, false) && closer.admits(8, true));
        closer.0.lock().workers.clear();
        assert!(closer.admits(7, false));
    }
}
