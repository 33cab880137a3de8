//! Answers to commands: one message at a time, each once the command has taken the one before.

use std::collections::HashMap;

use xsched_proto::wire::DaemonMsg;

use crate::commands::Answer;
use crate::identity::User;
use crate::net::{Answering, Stage};
use crate::server::Server;
use crate::tuning::{ANSWERS_MAX, USER_ANSWERS_MAX};

impl Server {
    /// Sets the answer of a command, or notes that the command has none.
    pub(crate) fn set_answer(&mut self, id: u64, answer: Option<Answer>) {
        let stage = answer.as_ref().map_or(Answering::Nothing, Answer::stage);
        match answer.filter(|_| self.net.conns.contains_key(&id)) {
            Some(answer) => _ = self.commands.answers.insert(id, answer),
            None => _ = self.commands.answers.remove(&id),
        }
        self.net.set_stage(id, Stage::Command(stage));
    }

    /// Sends the last message of an answer that took some time. The next request may come then.
    pub(crate) fn finish(&mut self, id: u64, last: &DaemonMsg) {
        self.net.send(id, last, &[]);
        self.set_answer(id, None);
    }

    /// Counts the long answers of each user that are under way.
    pub(crate) fn long_answers(&self) -> HashMap<User, usize> {
        let mut answers = HashMap::new();
        for (id, _) in self.commands.answers.iter().filter(|(_, answer)| answer.is_long()) {
            if let Some(conn) = self.net.conns.get(id) {
                *answers.entry(conn.user).or_default() += 1;
            }
        }
        answers
    }

    /// Reports whether a user may have a further long answer. Each takes up to half a MiB, for as long as its command takes to read it.
    pub(crate) fn has_room(&self, user: User, answers: &HashMap<User, usize>) -> bool {
        let of_others = || answers.iter().filter(|(user, _)| !user.is_own()).map(|(_, n)| n).sum::<usize>();
        let theirs = answers.get(&user).copied().unwrap_or(0);
        user.is_own() || theirs < USER_ANSWERS_MAX && of_others() < ANSWERS_MAX
    }
}
