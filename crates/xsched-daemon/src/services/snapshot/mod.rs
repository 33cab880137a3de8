//! Snapshots for `ps`. The loop takes one in pieces ([`Sight`], [`Seen`]); the thread makes the messages of it, once for all commands that
//! have asked ([`sheet`]), and sends them as they are read.
//!
//! A snapshot is never older than the request, so that clients see their own changes. Requests that come while one is taken share the next.
//! Snapshots take a bounded part of the loop's time, however many ask.

mod seen;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub(crate) use self::seen::{Seen, SeenGroup, SeenQueue, SeenYielding};
pub(crate) use self::sheet::Sight;
use self::sheet::{Place, Sheet};
use crate::identity::User;
use crate::net::socket;
use crate::server::clock::now_ns;
use crate::services::fair::FairQueue;
use crate::services::worker::epochs::Epochs;
use crate::services::worker::{Next, Service, Spec, Worker, timespec};
use crate::tuning::{SIGHT_REST, SIGHT_REST_MAX_NS, TOLD_AT_A_TIME, UNREAD_NS};

/// The loop's side.
pub(crate) struct Snapshots {
    pub(crate) worker: Worker<Task, Outcome>,
    /// Answers that have not ended, by connection.
    epochs: Epochs<u64>,
    /// Connections that wait for the next snapshot, and whether they ask for programs that ended, too.
    pub(crate) waiting: Vec<(u64, bool)>,
    /// Snapshot that is being taken.
    pub(crate) looking: Option<Looking>,
    /// The next one begins no sooner, ns.
    rest_until_ns: u64,
    /// Number of snapshots that were taken.
    pub(crate) looks: u64,
}

/// Snapshot, and the commands that it was taken for.
pub(crate) struct Task {
    sight: Sight,
    askers: Vec<Asker>,
}

pub(crate) enum Outcome {
    /// The messages of a snapshot are made: there may be another.
    Made,
    Told(Told),
}

/// Snapshot that is being taken.
pub(crate) struct Looking {
    pub(crate) sight: Sight,
    /// Connections that it is for.
    pub(crate) askers: Vec<(u64, bool)>,
    /// Clients that are still to be collected, and the next slot of queues of the last of them.
    pub(crate) clients: Vec<u64>,
    pub(crate) from: u16,
    /// Processor time that the snapshot has taken, in ns.
    pub(crate) took_ns: u64,
}

/// Command that has asked.
pub(crate) struct Asker {
    pub(crate) conn: u64,
    /// Number of the request, which [`Snapshots::deliver`] gives.
    pub(crate) epoch: u64,
    pub(crate) user: User,
    /// With programs that ended lately.
    pub(crate) all: bool,
    pub(crate) socket: OwnedFd,
}

/// End of an answer: its connection, the descriptor it had, and why it is not complete.
pub(crate) struct Told {
    pub(crate) conn: u64,
    epoch: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) failed: Option<Failed>,
}

/// Reason for which an answer is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The command has hung up.
    Gone,
    /// The command takes nothing.
    Unread,
}

impl Snapshots {
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new() -> rustix::io::Result<Snapshots> {
        let make = || -> Box<dyn Service<Task, Outcome>> { Box::new(Answers::default()) };
        Ok(Snapshots {
            worker: Worker::new(Spec::named("xsched-snapshot"), VecDeque::new(), make)?,
            epochs: Epochs::default(),
            waiting: Vec::new(),
            looking: None,
            rest_until_ns: 0,
            looks: 0,
        })
    }

    /// Tells whether a piece of a snapshot is to be taken.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.looking.is_some() || self.deadline_ns().is_some_and(|at| at <= now_ns)
    }

    /// Time at which the next snapshot begins; none = none is asked for, or the last one is not made into messages yet.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let wanted = !self.waiting.is_empty() && self.looking.is_none();
        (wanted && !self.worker.is_busy()).then_some(self.rest_until_ns)
    }

    /// Hands over a snapshot, with the commands it was taken for. Each [`Told`] comes by [`Snapshots::take`].
    ///
    /// # Errors
    /// Gives the commands back if there is no thread.
    pub(crate) fn deliver(&mut self, sight: Sight, mut askers: Vec<Asker>, took_ns: u64) -> Result<(), Vec<Asker>> {
        self.looks += 1;
        self.rest_until_ns = now_ns() + (took_ns * SIGHT_REST).min(SIGHT_REST_MAX_NS);
        if self.worker.start().is_err() {
            return Err(askers);
        }
        askers.iter_mut().for_each(|asker| asker.epoch = self.epochs.begin(asker.conn));
        self.worker.push_beyond(Task { sight, askers });
        Ok(())
    }

    /// Takes an answer that has ended.
    pub(crate) fn take(&self) -> Option<Told> {
        loop {
            if let Outcome::Told(told) = self.worker.take()? {
                return Some(told);
            }
        }
    }

    /// Accepts the end of an answer. False = it is of a request that counts no more.
    pub(crate) fn accept(&mut self, told: &Told) -> bool {
        self.epochs.accept(&told.conn, told.epoch)
    }

    /// Ends the wait for an answer to a connection that has gone.
    pub(crate) fn forget(&mut self, conn: u64) {
        self.epochs.forget(&conn);
    }
}

#[cfg(test)]
impl Snapshots {
    /// Number of answers that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.epochs.len()
    }
}

#[cfg(test)]
impl Outcome {
    /// A further outcome of the same request.
    pub(crate) fn again(&self) -> Outcome {
        match self {
            Outcome::Made => Outcome::Made,
            Outcome::Told(Told { conn, epoch, socket, failed }) => {
                let socket = socket.try_clone().expect("a descriptor");
                Outcome::Told(Told { conn: *conn, epoch: *epoch, socket, failed: *failed })
            }
        }
    }
}

impl AsFd for Snapshots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}

/// Answer under way.
struct Answer {
    asker: Asker,
    /// Place of the last message, and when it was sent, ns.
    told: Place,
    since_ns: u64,
}

/// Answers under way.
#[derive(Default)]
struct Answers {
    all: HashMap<u64, Answer>,
    /// Answers that go on, and answers whose socket is full.
    ready: FairQueue<User, u64>,
    full: Vec<u64>,
    /// Messages of the last snapshot, while there is an answer.
    sheet: Option<Sheet>,
}

impl Service<Task, Outcome> for Answers {
    fn perform(&mut self, Task { sight, askers }: Task, outcomes: &mut Vec<Outcome>) {
        self.begin(Sheet::new(sight), askers);
        outcomes.push(Outcome::Made);
    }

    fn wait(&mut self, more: BorrowedFd<'_>, outcomes: &mut Vec<Outcome>) -> Next {
        let ended = self.go_on();
        // Ended answers are reported to the loop before any wait.
        let ended = if ended.is_empty() { self.wait_for_room(more) } else { ended };
        outcomes.extend(ended.into_iter().map(Outcome::Told));
        Next::GoOn
    }
}

impl Answers {
    fn begin(&mut self, sheet: Sheet, askers: Vec<Asker>) {
        self.sheet = Some(sheet);
        for asker in askers {
            self.ready.push(asker.user, asker.conn);
            self.all.insert(asker.conn, Answer { asker, told: Place::Begin, since_ns: now_ns() });
        }
    }

    /// Sends some messages, one for each user in turn. Returns the answers that have ended.
    fn go_on(&mut self) -> Vec<Told> {
        let mut ended = Vec::new();
        for _ in 0..TOLD_AT_A_TIME {
            let Some(conn) = self.ready.pop() else { break };
            let (Some(answer), Some(sheet)) = (self.all.get_mut(&conn), &self.sheet) else { continue };
            let user = answer.asker.user;
            match answer.send_next(sheet) {
                Sent::One => self.ready.push(user, conn),
                Sent::Full => self.full.push(conn),
                Sent::All => ended.extend(self.end(conn, None)),
                Sent::Gone => ended.extend(self.end(conn, Some(Failed::Gone))),
            }
        }
        ended
    }

    /// Waits until something can go on. Returns answers that nothing is taken of.
    fn wait_for_room(&mut self, more: BorrowedFd<'_>) -> Vec<Told> {
        let timeout = if self.ready.is_empty() {
            let answers = self.full.iter().filter_map(|conn| self.all.get(conn));
            let now_ns = now_ns();
            answers.map(|answer| (answer.since_ns + UNREAD_NS).saturating_sub(now_ns)).min()
        } else {
            Some(0)
        };
        let timeout = timeout.map(timespec);
        let full = std::mem::take(&mut self.full);
        let mut fds = vec![PollFd::new(&more, PollFlags::IN)];
        let sockets = full.iter().filter_map(|conn| Some((*conn, self.all.get(conn)?)));
        let (conns, sockets): (Vec<u64>, Vec<_>) = sockets.unzip();
        fds.extend(sockets.iter().map(|answer| PollFd::new(&answer.asker.socket, PollFlags::OUT)));
        // Interrupted is as good as nothing to be had.
        let _ = poll(&mut fds, timeout.as_ref());
        let changed: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = Vec::new();
        for (conn, changed) in conns.into_iter().zip(changed) {
            match self.all.get(&conn) {
                Some(answer) if changed => self.ready.push(answer.asker.user, conn),
                // Only now: making the messages of a snapshot may have taken longer than that, and the socket has room since.
                Some(answer) if answer.since_ns + UNREAD_NS <= now_ns() => {
                    ended.extend(self.end(conn, Some(Failed::Unread)));
                }
                _ => self.full.push(conn),
            }
        }
        ended
    }

    fn end(&mut self, conn: u64, failed: Option<Failed>) -> Option<Told> {
        let answer = self.all.remove(&conn)?;
        if self.all.is_empty() {
            self.sheet = None;
        }
        let Asker { epoch, socket, .. } = answer.asker;
        Some(Told { conn, epoch, socket, failed })
    }
}

enum Sent {
    One,
    /// The last message was sent.
    All,
    /// The socket has no room.
    Full,
    Gone,
}

impl Answer {
    fn send_next(&mut self, sheet: &Sheet) -> Sent {
        let Asker { user, all, socket, .. } = &self.asker;
        let (place, packet) = match sheet.after(&self.told, *user, *all) {
            Ok(Some(next)) => next,
            Ok(None) => return Sent::All,
            Err(_) => return Sent::Gone,
        };
        match socket::send(socket, &packet, &[]) {
            Ok(()) => {
                let is_last = place == Place::End;
                (self.told, self.since_ns) = (place, now_ns());
                if is_last { Sent::All } else { Sent::One }
            }
            Err(Errno::AGAIN) => Sent::Full,
            Err(_) => Sent::Gone,
        }
    }
}
