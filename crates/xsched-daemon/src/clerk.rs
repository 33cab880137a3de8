//! Finds out whose a connection is, off the event loop: what is read of a stranger's process is read by a thread of its own, which
//! takes the users' connections in turn. A thread that one process keeps for too long is given up and replaced.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use xsched_policy::Level;

use crate::Error;
use crate::clock::now_ns;
use crate::container::{Place, record};
use crate::identity::{self, Process, User};
use crate::net::fair::FairQueue;
use crate::peer;
use crate::process::{ancestors, start_ticks};
use crate::standing;
use crate::tuning::{LOST_MAX, LOST_NS};

/// Whose a connection is.
pub(crate) struct Task {
    pub(crate) conn: u64,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// The process that has connected, where the kernel tells.
    pub(crate) process: Process,
    /// What a program has sent as its own pidfd.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// A process, as it was while it was known to be alive.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) user: User,
    pub(crate) exe: String,
    /// See [`peer::Peer::names`].
    pub(crate) names: Vec<String>,
    pub(crate) place: Place,
    /// It, and those that it was started by.
    pub(crate) ancestors: Vec<u32>,
    /// See [`start_ticks`].
    pub(crate) start: Option<u64>,
    /// The cgroups that it is in, the outermost first.
    pub(crate) cgroups: Vec<Level>,
    pub(crate) nice: i32,
}

#[cfg(test)]
impl Who {
    /// This process, as if it were another user's.
    pub(crate) fn pretended(uid: u32) -> Who {
        Who {
            user: crate::identity::pretended(uid),
            exe: String::new(),
            names: Vec::new(),
            place: Place::default(),
            ancestors: vec![std::process::id()],
            start: None,
            cgroups: Vec::new(),
            nice: 0,
        }
    }
}

/// A connection, and whose it is.
pub(crate) type Outcome = (u64, Result<Who, Error>);

/// The thread's other end.
pub(crate) struct Clerk {
    shared: Arc<Shared>,
    /// Counts outcomes.
    event: Arc<OwnedFd>,
    /// Where [records](crate::container_record) of containers are.
    containers: Arc<Path>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    /// The connections that wait, by the number that the kernel has told of their users.
    turns: Option<FairQueue<u32, u64>>,
    tasks: VecDeque<Task>,
    outcomes: VecDeque<Outcome>,
    /// The thread that works, counted from 1, and since when it has been at one task, ns.
    worker: usize,
    busy_ns: Option<u64>,
    lost: usize,
    ended: bool,
}

impl Shared {
    /// Held for some instructions only.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<Task> {
        let conn = self.turns.as_mut()?.pop()?;
        let at = self.tasks.iter().position(|task| task.conn == conn)?;
        self.tasks.remove(at)
    }
}

impl Clerk {
    /// Of the daemon of a socket.
    pub(crate) fn new(socket: &Path) -> rustix::io::Result<Clerk> {
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        let containers = record::folder(socket.parent().unwrap_or(Path::new("/")));
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Clerk { shared: Arc::default(), event: Arc::new(event), containers: containers.into() })
    }

    /// Has it found out. Its outcome comes by [`Clerk::take`].
    pub(crate) fn push(&self, task: Task) {
        let mut state = self.shared.lock();
        state.turns.get_or_insert_with(FairQueue::new).push(task.uid, task.conn);
        state.tasks.push_back(task);
        if state.worker == 0 {
            self.hire(&mut state);
        }
        self.shared.more.notify_all();
    }

    /// What is found out, a connection at a time.
    pub(crate) fn take(&self) -> Option<Outcome> {
        // Each outcome is counted after it is there.
        let _ = rustix::io::read(&*self.event, &mut [0u8; 8]);
        self.shared.lock().outcomes.pop_front()
    }

    /// Replaces a thread that has been at one task for too long. Returns when to look again, ns.
    pub(crate) fn tend(&self) -> Option<u64> {
        let mut state = self.shared.lock();
        let overdue = state.busy_ns? + LOST_NS;
        if now_ns() < overdue {
            return Some(overdue);
        }
        if state.lost < LOST_MAX {
            state.lost += 1;
            state.busy_ns = None;
            self.hire(&mut state);
        }
        None
    }

    fn hire(&self, state: &mut State) {
        state.worker += 1;
        let (number, shared, event) = (state.worker, self.shared.clone(), self.event.clone());
        let containers = self.containers.clone();
        let started = std::thread::Builder::new().name("xsched-clerk".into()).spawn(move || {
            work(number, &shared, &event, &containers);
        });
        if started.is_err() {
            // The next connection tries again; those that wait end when their time is over.
            state.worker -= 1;
        }
    }
}

impl AsFd for Clerk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.more.notify_all();
    }
}

fn work(number: usize, shared: &Shared, event: &OwnedFd, containers: &Path) {
    let mut state = shared.lock();
    loop {
        if state.ended || state.worker != number {
            if state.worker != number {
                state.lost -= 1;
            }
            return;
        }
        let Some(task) = state.next() else {
            state = shared.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.busy_ns = Some(now_ns());
        drop(state);
        let conn = task.conn;
        let outcome = find_out(task, containers);
        state = shared.lock();
        state.outcomes.push_back((conn, outcome));
        if state.worker == number {
            state.busy_ns = None;
        }
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    }
}

fn find_out(task: Task, containers: &Path) -> Result<Who, Error> {
    let Task { pid, uid, process, pidfd, .. } = task;
    if let Some(pidfd) = &pidfd {
        peer::check(pid, pidfd)?;
    }
    let user = identity::user_of(pid, uid);
    let (exe, names, lines) = peer::look(pid);
    let place = Place::of(&lines, containers, user);
    let who = Who {
        user,
        ancestors: ancestors(pid),
        start: start_ticks(pid),
        cgroups: standing::cgroups(&place.cgroup),
        nice: standing::nice(pid),
        exe,
        names,
        place,
    };
    // Alive after the reading: then it was the one read about, for a pid is not given away while its process lives.
    let is_alive = |pidfd: &OwnedFd| crate::process::alive(pidfd);
    match (&process, &pidfd) {
        (Process::Ended, _) => Err(Error::environment("its process has ended")),
        (Process::Known(pidfd), _) | (_, Some(pidfd)) if !is_alive(pidfd) => {
            Err(Error::environment("its process has ended"))
        }
        _ => Ok(who),
    }
}

/// The process at the other end of a socket, to be found out about.
pub(crate) fn task(conn: u64, socket: BorrowedFd<'_>, pid: u32, uid: u32, pidfd: Option<&OwnedFd>) -> Task {
    let pidfd = pidfd.and_then(|pidfd| pidfd.try_clone().ok());
    Task { conn, pid, uid, process: identity::process(socket), pidfd }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;

    fn outcome(clerk: &Clerk) -> Outcome {
        let until = now_ns() + 20_000_000_000;
        loop {
            if let Some(outcome) = clerk.take() {
                return outcome;
            }
            assert!(now_ns() < until, "no outcome");
            let mut fds = [rustix::event::PollFd::new(clerk, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 }));
        }
    }

    #[test]
    fn it_finds_out_whose_a_connection_is() {
        let clerk = Clerk::new(Path::new("/nowhere")).unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        clerk.push(task(7, one.as_fd(), pid, uid, None));
        let (conn, who) = outcome(&clerk);
        let who = who.unwrap();
        assert_eq!((conn, who.user, who.ancestors[0]), (7, crate::identity::pretended(uid), pid));
        assert_eq!(std::path::PathBuf::from(&who.exe), std::env::current_exe().unwrap());
        assert_eq!(who.start, start_ticks(pid));
        assert_eq!(clerk.tend(), None, "it is not busy");
    }

    #[test]
    fn a_process_that_has_ended_or_sends_the_pidfd_of_another_is_refused() {
        let clerk = Clerk::new(Path::new("/nowhere")).unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let raw = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty()).unwrap();
        clerk.push(task(1, one.as_fd(), std::process::id(), 0, Some(&pidfd)));
        assert!(outcome(&clerk).1.unwrap_err().line().contains("is another's"));
        child.kill().unwrap();
        child.wait().unwrap();
        clerk.push(task(2, one.as_fd(), child.id(), 0, Some(&pidfd)));
        assert!(outcome(&clerk).1.is_err());
    }
}
