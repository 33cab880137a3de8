//! Refusal of programs over a limit.

use crate::Error;
use crate::identity::User;
use crate::net::Stage;
use crate::server::Server;

impl Server {
    /// Refuses a program: it gets the reason and runs unscheduled, and so do those who ask about it.
    pub(crate) fn refuse_program(&mut self, id: u64, why: Error) {
        if let Some((pid, user)) = self.net.conns.get(&id).map(|conn| (conn.pid, conn.user)) {
            let name = self.engine.programs().get(&id).map(|program| program.name.clone());
            self.note_refusal(pid, user, &name.unwrap_or_default(), why.line());
        }
        self.net.refuse_for_now(id, why);
        self.net.doom(id, None);
    }

    /// Notes the refusal of a process, and logs it the first time.
    pub(crate) fn note_refusal(&mut self, pid: u32, user: User, name: &str, why: &str) {
        if self.history.refusals.note(self.now_ns, pid, user, name, why) {
            self.record(user, &format!("refused process {pid} of user {user}: {why}"));
        }
    }

    /// Forgets the refusal of a process that has a group now.
    pub(crate) fn accept_program(&mut self, id: u64) {
        if let Some(pid) = self.net.conns.get(&id).map(|conn| conn.pid) {
            self.history.refusals.take(pid);
        }
    }

    /// Number of a user's attached programs, without commands.
    pub(crate) fn programs_of(&self, user: User) -> usize {
        self.net.conns.values().filter(|conn| conn.user == user && conn.stage == Stage::Program).count()
    }
}
