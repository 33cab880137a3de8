//! Details that the event log has in addition for an investigation (`XSCHED_LOG=debug`).

use xsched_proto::wire::ProgramInfo;

use crate::identity::User;
use crate::server::Server;

impl Server {
    /// Writes a line about an event that a user has caused.
    fn detail(&mut self, user: User, line: impl FnOnce(&Server) -> String) {
        if self.services.events.has_details {
            let line = format!("debug: {}", line(self));
            self.record(user, &line);
        }
    }

    /// Writes a line about the daemon itself.
    pub(crate) fn detail_of_own(&self, line: impl FnOnce() -> String) {
        if self.services.events.has_details {
            self.say(&format!("debug: {}", line()));
        }
    }

    /// Writes the figures of a program's groups when the program has left.
    pub(crate) fn detail_left(&mut self, user: User, program: &ProgramInfo) {
        for group in &program.groups {
            self.detail(user, |_| {
                format!(
                    "{} of process {} ends: {} launches, gate closed {} times, {} waits of {} ms in all, {} ms on {}",
                    group.id,
                    program.pid,
                    group.launches,
                    group.suspensions,
                    group.waits.count,
                    group.wait_us / 1000,
                    group.device_us / 1000,
                    group.device
                )
            });
        }
    }
}
