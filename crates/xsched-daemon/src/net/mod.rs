//! Connections: bytes, users, and the order of turns. Nothing here knows of scheduling.
//!
//! [`Net`] has the sockets and the kernel's list of events. Work for connections waits in fair queues, by user; users other than root and
//! the daemon's own have rations of the loop's time ([`crate::services::fair`]). [`Net::serve`] takes one packet or sends kept messages,
//! and leaves the rest to the loop.

mod accepting;
mod appointments;
mod conn;
mod descriptors;
mod ending;
pub(crate) mod fd_reaper;
mod receiving;
pub(crate) mod rendezvous;
pub(crate) mod sending;
mod site;
pub(crate) mod socket;
mod token;
mod waking;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::Error;
use crate::identity::User;
use crate::services::fair::{FairQueue, Rationed};
use crate::tuning::{RATION_CREDIT_NS, RATION_TIMES};

use appointments::Appointments;
pub(crate) use conn::{Answering, Conn, Stage, Wake};
pub(crate) use ending::Ended;
pub(crate) use receiving::Served;
pub(crate) use token::{Own, Token};

use fd_reaper::FdReaper;
use socket::Listener;

/// Connections of the daemon, and work for them.
pub(crate) struct Net {
    /// Time of the current piece of work, in ns.
    pub(crate) now_ns: u64,
    epoll: OwnedFd,
    pub(crate) listener: Listener,
    pub(crate) conns: HashMap<u64, Conn>,
    pub(crate) rations: Rations,
    /// Work for connections of root and of the daemon's own user, and for connections that are gone.
    pub(crate) work: FairQueue<User, Work>,
    /// Connections to end after the current piece of work, and the reason if they are at fault.
    pub(crate) doomed: Vec<(u64, Option<Error>)>,
    pub(crate) reaper: FdReaper,
    /// Largest number of connections at a time.
    pub(crate) max_conns: usize,
    /// Last number given to a connection, or to another thing from the same sequence.
    last_id: u64,
    /// True while connections wait in the backlog until the reaper has caught up.
    deaf: bool,
    /// Descriptor that is given up to refuse a connection when none is left.
    spare: Option<OwnedFd>,
    /// Time of the next check for connections that do not read; perhaps too early.
    pub(crate) unread_at: Option<u64>,
    /// Time of the next check for connections that have sent nothing.
    pub(crate) silent_at: Option<u64>,
    /// Lines for the log, with the users who caused them; none = they are the daemon's own.
    lines: Vec<(Option<User>, String)>,
}

/// Work of users other than root and the daemon's own. Each user has a part of the loop's time.
pub(crate) struct Rations {
    /// Programs that have woken the daemon.
    pub(crate) wakes: Rationed<User, u64>,
    /// Programs whose counters have to be read.
    pub(crate) looks: Rationed<User, u64>,
    /// Commands for which there is work.
    pub(crate) commands: Rationed<User, u64>,
    /// Messages of programs, and of connections that have not opened yet: a user's commands do not delay that user's programs.
    pub(crate) messages: Rationed<User, Work>,
    /// Times at which refused programs ask again.
    appointments: Appointments,
}

/// Piece of work for a connection, of bounded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Sends messages that are kept for the connection; else continues its answer; else takes one packet.
    Serve(u64),
    /// Process the first message of a connection.
    Introduce(u64),
}

impl Rations {
    fn new() -> Rations {
        let of = || Rationed::new(RATION_TIMES, RATION_CREDIT_NS);
        let (messages, [wakes, looks, commands]) = (Rationed::new(RATION_TIMES, RATION_CREDIT_NS), [of(), of(), of()]);
        Rations { wakes, looks, commands, messages, appointments: Appointments::default() }
    }

    /// Time at which the first waiting piece may be done, in ns.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let all = [self.wakes.due_ns(), self.looks.due_ns(), self.commands.due_ns(), self.messages.due_ns()];
        all.into_iter().flatten().min()
    }
}

impl Net {
    /// Makes the connections of these sockets.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn new(listener: Listener, now_ns: u64) -> Result<Net, Error> {
        let fail = |e| Error::Environment(format!("cannot make an epoll instance: {e}"));
        let net = Net {
            now_ns,
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(fail)?,
            listener,
            conns: HashMap::new(),
            rations: Rations::new(),
            work: FairQueue::new(),
            doomed: Vec::new(),
            reaper: FdReaper::new().map_err(|e| Error::Environment(format!("cannot make an event descriptor: {e}")))?,
            max_conns: descriptors::max_conns(descriptors::raise_descriptor_limit() as usize),
            last_id: 0,
            deaf: false,
            spare: descriptors::spare(),
            unread_at: None,
            silent_at: None,
            lines: Vec::new(),
        };
        for socket in net.listener.sockets() {
            net.watch_own(socket, Own::Listener)?;
        }
        net.watch_own(&net.listener.rendezvous().as_fd(), Own::Sites)?;
        Ok(net)
    }

    /// Number that nothing else has.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Waits for events, or takes the present ones without waiting (`at_once`).
    ///
    /// # Errors
    /// Returns the system's error, interruptions included.
    pub(crate) fn wait(&self, events: &mut Vec<epoll::Event>, at_once: bool) -> rustix::io::Result<()> {
        events.clear();
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), at_once.then_some(&none)).map(|_| ())
    }

    /// Begins to wait for a descriptor.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token.bits()), flags)
    }

    /// Begins to wait for a descriptor of the daemon's own.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn watch_own(&self, fd: &impl AsFd, own: Own) -> Result<(), Error> {
        let flags = if own == Own::Timer { EventFlags::IN | EventFlags::ET } else { EventFlags::IN };
        let fail = |e| Error::environment(format!("cannot make an epoll entry: {e}"));
        self.watch(fd, Token::Own(own), flags).map_err(fail)
    }

    /// Ends the wait for a descriptor. It may be gone already.
    pub(crate) fn unwatch(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn rewatch(&self, fd: BorrowedFd<'_>, token: Token, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(token.bits()), flags)
    }

    /// Sets the stage of a connection.
    pub(crate) fn set_stage(&mut self, id: u64, stage: Stage) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.stage = stage;
        }
        self.watch_socket(id);
    }

    /// Marks a connection to be ended, with the fault, if any.
    pub(crate) fn doom(&mut self, id: u64, fault: Option<Error>) {
        self.doomed.push((id, fault));
    }

    /// Puts one piece of work for a connection into its user's queue.
    pub(crate) fn enqueue(&mut self, id: u64) {
        let now_ns = self.now_ns;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if !conn.is_rationed() {
            return self.work.push(conn.user, Work::Serve(id));
        }
        let has_time = match conn.stage {
            Stage::Command(_) => {
                self.rations.commands.push(conn.user, id);
                self.rations.commands.has_time(conn.user, now_ns)
            }
            _ => {
                self.rations.messages.push(conn.user, Work::Serve(id));
                self.rations.messages.has_time(conn.user, now_ns)
            }
        };
        // Work that is put off must not keep the loop awake: neither what is there, nor each further packet.
        conn.is_put_off = !has_time;
        self.watch_socket(id);
    }

    /// Queues the introduction of a connection whose user is identified.
    pub(crate) fn enqueue_introduction(&mut self, id: u64) {
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.is_rationed() {
            self.rations.messages.push(conn.user, Work::Introduce(id));
        } else {
            self.work.push(conn.user, Work::Introduce(id));
        }
    }

    /// Takes the lines for the log.
    pub(crate) fn lines(&mut self) -> Vec<(Option<User>, String)> {
        std::mem::take(&mut self.lines)
    }

    /// Waits on a socket for events that can be acted on: a command that is being answered is not read from.
    pub(crate) fn watch_socket(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.unheard) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, !conn.is_answered() && !conn.is_put_off);
        flags.set(EventFlags::OUT, !conn.out.is_empty());
        // The kernel always reports a hang-up. Edge-triggered, it does so once: that is enough while the loop can do nothing about it, or
        // puts the work off.
        flags.set(EventFlags::ET, conn.stage == Stage::Opening || conn.is_rationed());
        if std::mem::replace(&mut conn.flags, flags) == flags {
            return;
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if self.rewatch(conn.socket.as_fd(), Token::Socket(id), flags).is_err() {
            self.doomed.push((id, None));
        }
    }
}
