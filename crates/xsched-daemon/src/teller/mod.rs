//! Answers `ps` beside the loop. The loop looks around in pieces ([`Sight`], [`Seen`]); a thread of its own makes the messages of that,
//! once for all that have asked ([`sheet`]), and sends them as they are taken.
//!
//! What is told is never older than the question, so that what was changed before it is seen. Those that ask while the loop looks around
//! share the next look. Looks take a bounded part of the loop's time, however many ask.

mod seen;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

pub(crate) use self::seen::{Seen, SeenGroup, SeenQueue};
pub(crate) use self::sheet::Sight;
use self::sheet::{Place, Sheet};
use crate::clock::now_ns;
use crate::identity::User;
use crate::net::fair::FairQueue;
use crate::net::socket;
use crate::tuning::{SIGHT_REST, SIGHT_REST_MAX_NS, TOLD_AT_A_TIME, UNREAD_NS};

/// The loop's end.
pub(crate) struct Teller {
    shared: Arc<Shared>,
    has_thread: bool,
    /// Connections that wait for the next look, and whether they ask for programs that ended, too.
    pub(crate) waiting: Vec<(u64, bool)>,
    /// The look that is being taken.
    pub(crate) looking: Option<Looking>,
    /// The next one begins no sooner, ns.
    rest_until_ns: u64,
    /// Looks that were taken.
    pub(crate) looks: u64,
}

/// A look that is being taken.
pub(crate) struct Looking {
    pub(crate) sight: Sight,
    /// For these connections.
    pub(crate) askers: Vec<(u64, bool)>,
    /// Clients that are still to be looked at, and which place of queues of the last one comes next.
    pub(crate) clients: Vec<u64>,
    pub(crate) from: u16,
    /// What it has taken of a processor, ns.
    pub(crate) took_ns: u64,
}

/// A command that is to be told.
pub(crate) struct Asker {
    pub(crate) conn: u64,
    pub(crate) user: User,
    /// With programs that ended lately.
    pub(crate) all: bool,
    pub(crate) socket: OwnedFd,
}

/// How an answer has ended: its connection, the descriptor it had, and why it is not complete.
pub(crate) struct Told {
    pub(crate) conn: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) failed: Option<Failed>,
}

/// Why a command is not told all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// It has hung up.
    Gone,
    /// It takes nothing.
    Unread,
}

struct Shared {
    state: Mutex<State>,
    /// Tells the loop that something has ended, or that there is room for another look.
    done: OwnedFd,
    /// Tells the thread that there is something to do.
    more: OwnedFd,
}

#[derive(Default)]
struct State {
    looks: VecDeque<(Sight, Vec<Asker>)>,
    /// The thread makes messages of a look.
    busy: bool,
    told: VecDeque<Told>,
    ended: bool,
}

impl Shared {
    /// Held for some instructions only.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Teller {
    pub(crate) fn new() -> rustix::io::Result<Teller> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Teller {
            shared: Arc::new(Shared { state: Mutex::default(), done: event()?, more: event()? }),
            has_thread: false,
            waiting: Vec::new(),
            looking: None,
            rest_until_ns: 0,
            looks: 0,
        })
    }

    /// Whether a piece of a look is to be taken.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.looking.is_some() || self.deadline_ns().is_some_and(|at| at <= now_ns)
    }

    /// When the next look begins; none = none is asked for, or the last one is not made into messages yet.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let wanted = !self.waiting.is_empty() && self.looking.is_none();
        (wanted && !self.shared.lock().busy).then_some(self.rest_until_ns)
    }

    /// Gives a look away, with those it was taken for.
    ///
    /// # Errors
    /// There is no thread: those who ask are given back.
    pub(crate) fn deliver(&mut self, sight: Sight, askers: Vec<Asker>, took_ns: u64) -> Result<(), Vec<Asker>> {
        self.looks += 1;
        self.rest_until_ns = now_ns() + (took_ns * SIGHT_REST).min(SIGHT_REST_MAX_NS);
        if !self.has_thread {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name("xsched-teller".into()).spawn(move || work(&shared));
            if started.is_err() {
                return Err(askers);
            }
            self.has_thread = true;
        }
        let mut state = self.shared.lock();
        state.looks.push_back((sight, askers));
        state.busy = true;
        drop(state);
        wake(&self.shared.more);
        Ok(())
    }

    /// An answer that has ended.
    pub(crate) fn take(&self) -> Option<Told> {
        let _ = rustix::io::read(&self.shared.done, &mut [0u8; 8]);
        self.shared.lock().told.pop_front()
    }
}

impl AsFd for Teller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        wake(&self.shared.more);
    }
}

fn wake(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// An answer under way.
struct Answer {
    asker: Asker,
    /// What it was told last, and when, ns.
    told: Place,
    since_ns: u64,
}

/// The answers under way.
struct Answers {
    all: HashMap<u64, Answer>,
    /// Those that go on, and those whose socket is full.
    ready: FairQueue<User, u64>,
    full: Vec<u64>,
    /// The last look, while there is an answer.
    sheet: Option<Sheet>,
}

fn work(shared: &Shared) {
    let mut answers = Answers { all: HashMap::new(), ready: FairQueue::new(), full: Vec::new(), sheet: None };
    loop {
        let _ = rustix::io::read(&shared.more, &mut [0u8; 8]);
        let next = {
            let mut state = shared.lock();
            if state.ended {
                return;
            }
            state.looks.pop_front()
        };
        if let Some((sight, askers)) = next {
            answers.begin(Sheet::new(sight), askers);
            let mut state = shared.lock();
            state.busy = !state.looks.is_empty();
            drop(state);
            wake(&shared.done);
        }
        let ended = answers.go_on();
        if !ended.is_empty() {
            shared.lock().told.extend(ended);
            wake(&shared.done);
        }
        let ended = answers.wait(&shared.more);
        if !ended.is_empty() {
            shared.lock().told.extend(ended);
            wake(&shared.done);
        }
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
    fn wait(&mut self, more: &OwnedFd) -> Vec<Told> {
        let timeout = if self.ready.is_empty() {
            let answers = self.full.iter().filter_map(|conn| self.all.get(conn));
            let now_ns = now_ns();
            answers.map(|answer| (answer.since_ns + UNREAD_NS).saturating_sub(now_ns)).min()
        } else {
            Some(0)
        };
        let timeout =
            timeout.map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        let full = std::mem::take(&mut self.full);
        let mut fds = vec![PollFd::new(more, PollFlags::IN)];
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
                // Only now: making the messages of a look may have taken longer than that, and the socket has room since.
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
        Some(Told { conn, socket: answer.asker.socket, failed })
    }
}

enum Sent {
    One,
    /// That was the last one.
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
