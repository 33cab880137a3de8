//! Commands of users, and their incomplete answers.

mod answers;
mod control;
mod listing;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use xsched_engine::Telling;
use xsched_policy::registry::Entry;
use xsched_proto::usage::UsageRow;
use xsched_proto::wire::Request;

use crate::identity::User;
use crate::net::Answering;
use crate::programs::client::Question;
use crate::services::identify::Who;

/// Commands by connection, with their unfinished answers.
#[derive(Default)]
pub(crate) struct Commands {
    /// Identities of commands' processes.
    pub(crate) who: HashMap<u64, Rc<Who>>,
    /// Incomplete answers.
    pub(crate) answers: HashMap<u64, Answer>,
    /// Questions passed on to programs.
    pub(crate) questions: Vec<Question>,
    /// Commands that wait for others to be answered, see [`Answer::Waits`].
    pub(crate) waiting: VecDeque<(User, u64)>,
    /// Readings of the configuration.
    pub(crate) readings: Readings,
}

/// Numbers of readings of the configuration.
#[derive(Default)]
pub(crate) struct Readings {
    /// Readings begun.
    pub(crate) begun: u64,
    /// Readings that ended, the first ones of those.
    pub(crate) done: u64,
}

/// Incomplete answer.
pub(crate) enum Answer {
    /// Request that is begun once others are answered: see `answers`.
    Waits(Box<Request>),
    /// The answer has one message for each of these policies.
    Policies(std::slice::Iter<'static, &'static Entry>),
    /// The answer lists groups, then records of their past.
    Trace(Box<Telling>),
    /// The answer has one message for each program that the engine changes.
    Changing,
    /// The answer is the outcome of an order to programs.
    OfPrograms,
    /// The answer is a program's description of itself.
    OfClient,
    /// The answer is a place in a pool, or the reason for none.
    OfPool,
    /// The answer is a snapshot for `ps`.
    OfTeller,
    /// The answer is records of usage, which are still being read.
    OfUsage,
    /// The answer is the outcome of the reading of the configuration with this number.
    OfReload(u64),
    /// The answer has one message for each of these rows.
    Usage(VecDeque<UsageRow>),
}

impl Answer {
    /// Stage of a command with this answer.
    pub(crate) fn stage(&self) -> Answering {
        match self {
            Answer::Waits(_)
            | Answer::OfClient
            | Answer::OfPrograms
            | Answer::OfPool
            | Answer::OfTeller
            | Answer::OfUsage
            | Answer::OfReload(_) => Answering::Waits,
            Answer::Changing => Answering::Changes,
            Answer::Policies(_) | Answer::Trace(_) | Answer::Usage(_) => Answering::Continues,
        }
    }

    /// Reports whether the answer needs memory for some time.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self, Answer::Trace(_) | Answer::Changing | Answer::OfUsage | Answer::Usage(_))
    }
}

impl Commands {
    /// Forgets the command of a connection.
    pub(crate) fn remove(&mut self, id: u64) {
        self.who.remove(&id);
        self.answers.remove(&id);
        self.questions.retain(|question| question.asker != id);
        self.waiting.retain(|(_, waiting)| *waiting != id);
    }
}
