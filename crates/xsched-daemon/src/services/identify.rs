//! Identification of the process behind a connection: its user, program, container and ancestors, read from `/proc`. A process can make the
//! reader of such a file wait as long as it likes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use xsched_policy::Level;

use crate::Error;
use crate::guard::guarded;
use crate::identity::container::{Place, record};
use crate::identity::peer;
use crate::identity::process::{ancestors, start_ticks};
use crate::identity::standing;
use crate::identity::{self, Process, User};
use crate::services::worker::epochs::Epochs;
use crate::services::worker::{ByUser, Spec, Worker};
use crate::tuning::LOST_MAX;

/// Process at the other end of a connection.
pub(crate) struct Task {
    pub(crate) conn: u64,
    /// Number of the request.
    epoch: u64,
    pub(crate) pid: u32,
    /// User id from the kernel. A container's user may be another.
    pub(crate) uid: u32,
    /// Process that has connected, where the kernel reports it.
    pub(crate) process: Process,
    /// Descriptor that the program sent as a pidfd of its own process.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// Identity of a process, read while the process was alive.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) user: User,
    pub(crate) exe: String,
    /// See [`peer::Peer::names`].
    pub(crate) names: Vec<String>,
    pub(crate) place: Place,
    /// Process id, and those of its ancestors.
    pub(crate) ancestors: Vec<u32>,
    /// See [`start_ticks`].
    pub(crate) start: Option<u64>,
    /// Cgroups of the process, the outermost first.
    pub(crate) cgroups: Vec<Level>,
    pub(crate) nice: i32,
}

#[cfg(test)]
impl Who {
    /// Identity of this process, as if it were another user's.
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

/// Result of a [`Task`].
pub(crate) struct Outcome {
    conn: u64,
    epoch: u64,
    who: Result<Who, Error>,
}

/// Interface of the service for the loop.
pub(crate) struct Identify {
    pub(crate) worker: Worker<Task, Outcome>,
    epochs: Epochs<u64>,
}

impl Identify {
    /// Identification for the daemon of a socket.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new(socket: &Path) -> rustix::io::Result<Identify> {
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        // Folder of containers' records (`container_record`).
        let containers: Arc<Path> = record::folder(socket.parent().unwrap_or(Path::new("/"))).into();
        let spec = Spec { lost_max: LOST_MAX, ..Spec::named("xsched-identify") };
        let worker = Worker::new(spec, ByUser::new(|task: &Task| task.uid), move || {
            let containers = containers.clone();
            Box::new(move |task: Task| {
                let (conn, epoch) = (task.conn, task.epoch);
                let (pid, uid) = (task.pid, task.uid);
                let who = guarded(format_args!("the identification of process {pid} of user {uid}"), || {
                    identify(task, &containers)
                });
                Some(Outcome { conn, epoch, who: who.unwrap_or_else(|fault| Err(fault.noted().into())) })
            })
        });
        Ok(Identify { worker: worker?, epochs: Epochs::default() })
    }

    /// Identifies a process; the result comes by [`Identify::take`]. The number of connections bounds that of tasks.
    pub(crate) fn push(&mut self, task: Task) {
        let epoch = self.epochs.begin(task.conn);
        // Where no thread can be started, the next connection tries again; waiting connections end when their time is over.
        self.worker.push_beyond(Task { epoch, ..task });
    }

    /// Takes an identified connection, or the reason why its process cannot be identified.
    pub(crate) fn take(&mut self) -> Option<(u64, Result<Who, Error>)> {
        loop {
            let Outcome { conn, epoch, who } = self.worker.take()?;
            if self.epochs.accept(&conn, epoch) {
                return Some((conn, who));
            }
        }
    }

    /// Stops waiting for the result of a connection that has ended.
    pub(crate) fn forget(&mut self, conn: u64) {
        self.epochs.forget(&conn);
    }

    /// Replaces the thread if it is busy with one process for too long. Returns the time of the next call, in ns.
    pub(crate) fn tend(&self, now_ns: u64) -> Option<u64> {
        self.worker.tend(now_ns)
    }

    /// Number of connections that wait to be identified.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.epochs.len()
    }
}

#[cfg(test)]
impl Outcome {
    /// Makes a second outcome of the same request, about a process of user 1.
    pub(crate) fn again(&self) -> Outcome {
        Outcome { conn: self.conn, epoch: self.epoch, who: Ok(Who::pretended(1)) }
    }
}

impl AsFd for Identify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}

fn identify(task: Task, containers: &Path) -> Result<Who, Error> {
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
    // A process that is still alive after the reading is the one that was read about, since no other can get its pid while it lives.
    let is_alive = |pidfd: &OwnedFd| crate::identity::process::alive(pidfd);
    match (&process, &pidfd) {
        (Process::Ended, _) => Err(Error::environment("its process has ended")),
        (Process::Known(pidfd), _) | (_, Some(pidfd)) if !is_alive(pidfd) => {
            Err(Error::environment("its process has ended"))
        }
        _ => Ok(who),
    }
}

/// Task for the process at the other end of a socket.
pub(crate) fn task(conn: u64, socket: BorrowedFd<'_>, pid: u32, uid: u32, pidfd: Option<&OwnedFd>) -> Task {
    let pidfd = pidfd.and_then(|pidfd| pidfd.try_clone().ok());
    Task { conn, epoch: 0, pid, uid, process: identity::process(socket), pidfd }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::clock::now_ns;

    fn outcome(identify: &mut Identify) -> (u64, Result<Who, Error>) {
        let until = now_ns() + 20_000_000_000;
        loop {
            if let Some(outcome) = identify.take() {
                return outcome;
            }
            assert!(now_ns() < until, "no outcome");
            let mut fds = [rustix::event::PollFd::new(identify, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 }));
        }
    }

    #[test]
    fn the_process_of_a_connection_is_identified() {
        let mut identify = Identify::new(Path::new("/nowhere")).unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        identify.push(task(7, one.as_fd(), pid, uid, None));
        let (conn, who) = outcome(&mut identify);
        let who = who.unwrap();
        assert_eq!((conn, who.user, who.ancestors[0]), (7, crate::identity::pretended(uid), pid));
        assert_eq!(std::path::PathBuf::from(&who.exe), std::env::current_exe().unwrap());
        assert_eq!(who.start, start_ticks(pid));
        assert_eq!(identify.tend(now_ns()), None, "it is not busy");
    }

    #[test]
    fn a_process_that_has_ended_or_sends_the_pidfd_of_another_is_refused() {
        let mut identify = Identify::new(Path::new("/nowhere")).unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let raw = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty()).unwrap();
        identify.push(task(1, one.as_fd(), std::process::id(), 0, Some(&pidfd)));
        assert!(outcome(&mut identify).1.unwrap_err().line().contains("is another's"));
        child.kill().unwrap();
        child.wait().unwrap();
        identify.push(task(2, one.as_fd(), child.id(), 0, Some(&pidfd)));
        assert!(outcome(&mut identify).1.is_err());
    }
}
