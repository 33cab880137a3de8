//! Reading of the configuration while programs run: a disk or a directory of accounts may be slow, and decisions do not wait for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use xsched_policy::Choice;

use crate::Error;
use crate::config::Config;
use crate::config::sources::Sources;
use crate::guard::guarded;
use crate::identity::accounts::{self, Account};
use crate::services::worker::{Service, Spec, Worker};

pub(crate) enum Task {
    /// Reads all files.
    Read(Box<Sources>),
    /// Looks up accounts that were not known.
    Accounts(BTreeSet<String>),
}

pub(crate) enum Outcome {
    Read(Result<Box<(Config, Choice)>, Error>),
    /// Ids of the accounts that are known now.
    Accounts(BTreeMap<String, u32>),
}

/// The loop's side. Its thread is never replaced: a lookup that gets no answer is left behind by [`accounts`].
pub(crate) struct Configuration {
    pub(crate) worker: Worker<Task, Outcome>,
}

impl Configuration {
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new() -> rustix::io::Result<Configuration> {
        let make = || -> Box<dyn Service<Task, Outcome>> { Box::new(|task| Some(perform(task))) };
        Ok(Configuration { worker: Worker::new(Spec::named("xsched-config"), VecDeque::new(), make)? })
    }

    /// Has a task done. Without a thread it waits for the next attempt to start one.
    pub(crate) fn push(&self, task: Task) {
        self.worker.push_beyond(task);
    }

    /// Takes what was read.
    pub(crate) fn take(&self) -> Option<Outcome> {
        self.worker.take()
    }
}

fn perform(task: Task) -> Outcome {
    match task {
        Task::Read(sources) => {
            let read = guarded(format_args!("the configuration {}", sources.text()), || sources.read().map(Box::new));
            Outcome::Read(read.unwrap_or_else(|fault| Err(fault.noted().into())))
        }
        Task::Accounts(names) => {
            let found = accounts::look_up(names).into_iter();
            Outcome::Accounts(
                found
                    .filter_map(|(name, answer)| if let Account::Id(id) = answer { Some((name, id)) } else { None })
                    .collect(),
            )
        }
    }
}

impl AsFd for Configuration {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}
