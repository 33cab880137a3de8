//! Attached processes, announced ones, and questions to them, as the daemon keeps them. Decisions about them are the engine's.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use xsched_engine::{Seat, Wishes, check_hint, check_name};
use xsched_proto::program;
use xsched_proto::wire::ProgramOptions;

use crate::Error;
use crate::identity::User;
use crate::identity::peer::{self, Peer};
use crate::programs::memory::{ClientSegment, FileId};

/// Attached process: its identity, and the descriptors that it shares with the daemon.
pub(crate) struct Client {
    pub(crate) peer: Arc<Peer>,
    pub(crate) segment: Arc<ClientSegment>,
    pub(crate) pidfd: Option<OwnedFd>,
    /// Command line of the process at its start, as it reported it.
    pub(crate) command: Arc<[String]>,
    /// Title of the process, where it has one that differs from the command line.
    pub(crate) title: Option<Arc<str>>,
    /// Time at which the process attached, in ns.
    pub(crate) attached_ns: u64,
    /// Place of the process in a pool, once it has a context there.
    pub(crate) seat: Option<Seat>,
    /// Reason for the program's place in a pool or outside, known once the program has a context.
    pub(crate) place_why: Option<Arc<str>>,
}

/// Wishes of a program for the engine, out of all options that it attaches with.
pub(crate) fn wishes(options: &ProgramOptions) -> Wishes {
    Wishes {
        priority: options.priority,
        hints: options.hints,
        level: options.level,
        threshold: options.threshold,
        batch: options.batch,
        job: options.job.clone(),
        domains: options.domains,
        memory_limit: options.memory_limit,
        memory_reserve: options.memory_reserve,
        memory_swap: options.memory_swap,
        memory_idle_s: options.memory_idle_s,
    }
}

/// Options of a program with its texts cut to the lengths that are kept: a thousand may wait until their users are known.
///
/// # Errors
/// Fails if it asks for something that does not exist.
pub(crate) fn bounded(options: ProgramOptions) -> Result<ProgramOptions, Error> {
    check_hint(options.priority, &options.hints, options.level)?;
    if let Some(job) = &options.job {
        check_name(job, "job")?;
    }
    let cut = |text: String| program::cut(vec![text]).pop();
    let (command, title) = (program::cut(options.command), options.title.and_then(cut));
    Ok(ProgramOptions { command, title, exe: peer::cut(options.exe), ..options })
}

/// Segment of a process that is not attached any more, and has not ended.
pub(crate) struct Abandoned {
    pub(crate) user: User,
    pub(crate) id: FileId,
    pub(crate) file: OwnedFd,
    pub(crate) pidfd: OwnedFd,
}

/// Question that was passed on to a client.
pub(crate) struct Question {
    pub(crate) token: u64,
    /// Connection of the command that asked.
    pub(crate) asker: u64,
    /// Connection of the client that was asked.
    pub(crate) asked: u64,
    pub(crate) pid: u32,
    pub(crate) until_ns: u64,
}

/// Announced program.
pub(crate) struct Expected {
    pub(crate) pid: u32,
    pub(crate) user: User,
    /// Job with the user's id in front; none for a program that was not started by `xsched run`.
    pub(crate) job: Option<String>,
    pub(crate) pidfd: OwnedFd,
    /// True if the process has ended, while others of its job are still attached.
    pub(crate) ended: bool,
    /// Key of the facts learned about it, where `xsched run` started it.
    pub(crate) program: Option<String>,
    /// File name of the program that the process was announced to run.
    pub(crate) name: Option<String>,
    /// Number of the pool in which it has a place.
    pub(crate) pool: Option<u64>,
    /// Reason for the program's place in a pool or outside, known once the program has asked.
    pub(crate) why: Option<Arc<str>>,
    /// True for an urgent program in the inner pool.
    pub(crate) is_urgent: bool,
}

impl Expected {
    /// Gives back its place in a pool.
    pub(crate) fn leave_pool(&mut self) {
        self.pool = None;
        self.is_urgent = false;
    }
}
