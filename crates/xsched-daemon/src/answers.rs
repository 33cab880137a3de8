//! Answers to commands: a message at a time, each once the one before is taken.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use xsched_engine::Telling;
use xsched_policy::registry::Entry;
use xsched_proto::usage::UsageRow;
use xsched_proto::wire::{DaemonMsg, Request};

use crate::client::Question;
use crate::identity::User;
use crate::net::{Answering, Stage};
use crate::server::Server;
use crate::services::identify::Who;
use crate::tuning::{ANSWERS_MAX, USER_ANSWERS_MAX};

/// Commands, by connection.
#[derive(Default)]
pub(crate) struct Commands {
    /// Owners of commands, as they were identified.
    pub(crate) who: HashMap<u64, Rc<Who>>,
    /// Answers that are not complete.
    pub(crate) answers: HashMap<u64, Answer>,
    /// Questions passed on to programs.
    pub(crate) questions: Vec<Question>,
    /// Commands that wait for others to be answered, see [`Answer::Waits`].
    pub(crate) waiting: VecDeque<(User, u64)>,
}

/// An answer that is not complete.
pub(crate) enum Answer {
    /// The request is begun once others are answered: see [`Server::has_room`].
    Waits(Box<Request>),
    /// One message for each of these policies.
    Policies(std::slice::Iter<'static, &'static Entry>),
    /// Groups, then records of what happened to them.
    Trace(Box<Telling>),
    /// One message for each program that is changed, by the engine.
    Changing,
    /// A program's description of itself.
    OfClient,
    /// A place in a pool, or the reason for none.
    OfPool,
    /// A snapshot for `ps`.
    OfTeller,
    /// Records of usage.
    OfUsage,
    /// One message for each of these rows.
    Usage(VecDeque<UsageRow>),
}

impl Answer {
    fn stage(&self) -> Answering {
        match self {
            Answer::Waits(_) | Answer::OfClient | Answer::OfPool | Answer::OfTeller | Answer::OfUsage => {
                Answering::Waits
            }
            Answer::Changing => Answering::Changes,
            Answer::Policies(_) | Answer::Trace(_) | Answer::Usage(_) => Answering::Continues,
        }
    }

    /// Returns true if memory is kept for the answer for some time.
    fn is_long(&self) -> bool {
        matches!(self, Answer::Trace(_) | Answer::Changing | Answer::OfUsage | Answer::Usage(_))
    }
}

impl Commands {
    /// Forgets a connection.
    pub(crate) fn remove(&mut self, id: u64) {
        self.who.remove(&id);
        self.answers.remove(&id);
        self.questions.retain(|question| question.asker != id);
        self.waiting.retain(|(_, waiting)| *waiting != id);
    }
}

impl Server {
    /// Sets the answer of a command, or notes that there is none.
    pub(crate) fn set_answer(&mut self, id: u64, answer: Option<Answer>) {
        let stage = answer.as_ref().map_or(Answering::Nothing, Answer::stage);
        match answer.filter(|_| self.net.conns.contains_key(&id)) {
            Some(answer) => _ = self.commands.answers.insert(id, answer),
            None => _ = self.commands.answers.remove(&id),
        }
        self.net.set_stage(id, Stage::Command(stage));
    }

    /// Sends the last message of an answer that took some time: the next request may come.
    pub(crate) fn finish(&mut self, id: u64, last: &DaemonMsg) {
        self.net.send(id, last, &[]);
        self.set_answer(id, None);
    }

    /// The number of long answers that each user has under way.
    pub(crate) fn long_answers(&self) -> HashMap<User, usize> {
        let mut answers = HashMap::new();
        for (id, _) in self.commands.answers.iter().filter(|(_, answer)| answer.is_long()) {
            if let Some(conn) = self.net.conns.get(id) {
                *answers.entry(conn.user).or_default() += 1;
            }
        }
        answers
    }

    /// Returns true if a user may have a further long answer. Each takes up to half a MiB, for as long as its command takes to read it.
    pub(crate) fn has_room(&self, user: User, answers: &HashMap<User, usize>) -> bool {
        let of_others = || answers.iter().filter(|(user, _)| !user.is_own()).map(|(_, n)| n).sum::<usize>();
        let theirs = answers.get(&user).copied().unwrap_or(0);
        user.is_own() || theirs < USER_ANSWERS_MAX && of_others() < ANSWERS_MAX
    }
}
