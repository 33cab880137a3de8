//! Snapshots for `ps`. The loop takes one in pieces ([`Sight`], [`Seen`]); the thread makes the messages of it, once for all commands that
//! have asked ([`sheet`]), and sends them as they are read.
//!
//! A snapshot is never older than the request, so that clients see their own changes. Each is for one user, and has what that user may see:
//! requests of a user that come while one is taken share the user's next. Snapshots of a user take a bounded part of the loop's and the
//! thread's time, and those of all users too, however many ask. The user that has used least is next, so that one that asks now and then
//! does not wait for those that ask all the time.

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
use crate::services::fair::{FairQueue, Rationed};
use crate::services::worker::epochs::Epochs;
use crate::services::worker::{Next, Service, Spec, Worker, timespec};
use crate::tuning::{SIGHT_ALL_TIMES, SIGHT_REST, SIGHT_REST_MAX_NS, SIGHT_THREAD_PART, TOLD_AT_A_TIME, UNREAD_NS};

/// The loop's side.
pub(crate) struct Snapshots {
    pub(crate) worker: Worker<Task, Outcome>,
    /// Answers that have not ended, by connection.
    epochs: Epochs<u64>,
    /// Connections that wait for the next snapshot of their user, and whether they ask for programs that ended, too.
    waiting: HashMap<User, Vec<(u64, bool)>>,
    /// Users whose connections wait, each with its part of the time.
    rations: Rationed<User, User>,
    /// Snapshot that is being taken.
    pub(crate) looking: Option<Looking>,
    /// Number of snapshots that were taken.
    pub(crate) looks: u64,
}

/// Snapshot for a user, and the commands that it was taken for.
pub(crate) struct Task {
    user: User,
    sight: Sight,
    askers: Vec<Asker>,
}

pub(crate) enum Outcome {
    /// The messages of a snapshot for a user are made, in this time: there may be another.
    Made(User, u64),
    Told(Told),
}

/// Snapshot that is being taken.
pub(crate) struct Looking {
    /// User that it is for.
    pub(crate) user: User,
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
            waiting: HashMap::new(),
            rations: Rationed::with_all(SIGHT_REST + 1, SIGHT_ALL_TIMES, 0),
            looking: None,
            looks: 0,
        })
    }

    /// Registers a connection for the next snapshot of its user. `all` = with programs that ended lately.
    pub(crate) fn ask(&mut self, user: User, conn: u64, all: bool) {
        self.waiting.entry(user).or_default().push((conn, all));
        self.rations.push(user, user);
    }

    /// Tells whether a piece of a snapshot is to be taken.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.looking.is_some() || self.deadline_ns().is_some_and(|at| at <= now_ns)
    }

    /// Time at which the next snapshot begins; none = none is asked for, or the last one is not made into messages yet.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.rations.due_ns().filter(|_| self.looking.is_none() && !self.worker.is_busy())
    }

    /// Takes the user whose snapshot is next, with the connections that it is for.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<(User, Vec<(u64, bool)>)> {
        let (user, _) = self.rations.pop(now_ns)?;
        Some((user, self.waiting.remove(&user).unwrap_or_default()))
    }

    /// Has the next snapshot of a user wait for a multiple of the time that the last one has taken, and those of all users for a smaller one.
    fn charge(&mut self, user: User, took_ns: u64) {
        self.rations.charge(user, now_ns(), took_ns.min(SIGHT_REST_MAX_NS / (SIGHT_REST + 1)));
    }

    /// Hands over a snapshot, with the commands it was taken for. Each [`Told`] comes by [`Snapshots::take`].
    ///
    /// # Errors
    /// Gives the commands back if there is no thread.
    pub(crate) fn deliver(
        &mut self,
        user: User,
        sight: Sight,
        mut askers: Vec<Asker>,
        took_ns: u64,
    ) -> Result<(), Vec<Asker>> {
        self.looks += 1;
        self.charge(user, took_ns);
        if self.worker.start().is_err() {
            return Err(askers);
        }
        askers.iter_mut().for_each(|asker| asker.epoch = self.epochs.begin(asker.conn));
        self.worker.push_beyond(Task { user, sight, askers });
        Ok(())
    }

    /// Takes an answer that has ended.
    pub(crate) fn take(&mut self) -> Option<Told> {
        loop {
            match self.worker.take()? {
                Outcome::Told(told) => return Some(told),
                Outcome::Made(user, took_ns) => self.charge(user, took_ns / SIGHT_THREAD_PART),
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
            Outcome::Made(user, took_ns) => Outcome::Made(*user, *took_ns),
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
    /// Messages of the last snapshot for each user, while there is an answer.
    sheets: HashMap<User, Sheet>,
}

impl Service<Task, Outcome> for Answers {
    fn perform(&mut self, Task { user, sight, askers }: Task, outcomes: &mut Vec<Outcome>) {
        let began_ns = now_ns();
        self.begin(user, Sheet::new(sight, user), askers);
        outcomes.push(Outcome::Made(user, now_ns() - began_ns));
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
    fn begin(&mut self, user: User, sheet: Sheet, askers: Vec<Asker>) {
        if !askers.is_empty() {
            self.sheets.insert(user, sheet);
        }
        for asker in askers {
            self.ready.push(user, asker.conn);
            self.all.insert(asker.conn, Answer { asker, told: Place::Begin, since_ns: now_ns() });
        }
    }

    /// Sends some messages, one for each user in turn. Returns the answers that have ended.
    fn go_on(&mut self) -> Vec<Told> {
        let mut ended = Vec::new();
        for _ in 0..TOLD_AT_A_TIME {
            let Some(conn) = self.ready.pop() else { break };
            let Some(answer) = self.all.get_mut(&conn) else { continue };
            let user = answer.asker.user;
            let Some(sheet) = self.sheets.get(&user) else { continue };
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
        let Asker { epoch, user, socket, .. } = answer.asker;
        if self.all.values().all(|other| other.asker.user != user) {
            self.sheets.remove(&user);
        }
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
