//! Segments of processes that are no programs any more. Pages that the daemon was the first to touch count as the daemon's memory for as
//! long as any process keeps the file open. So the segment's memory is released when its process has ended, whichever process keeps the
//! file, and until then the segment counts as a program of its user.

use crate::identity::User;
use crate::identity::process::alive;
use crate::programs::client::{Abandoned, Client};
use crate::programs::memory::{FileId, discard};
use crate::server::Server;

impl Server {
    /// Handles the leave of the program that had this connection.
    pub(crate) fn abandon(&mut self, conn: u64, client: Client) {
        let Some(pidfd) = client.pidfd else { return };
        let user = client.peer.user;
        if !alive(&pidfd) {
            self.net.unwatch(&pidfd);
            return client.segment.discard();
        }
        match client.segment.file() {
            // The loop watches for its end already.
            Ok((file, id)) if !user.is_own() => {
                self.programs.abandoned.insert(conn, Abandoned { user, id, file, pidfd });
            }
            _ => self.net.unwatch(&pidfd),
        }
    }

    /// Handles the end of the process that had this connection.
    pub(crate) fn abandoned_process_ended(&mut self, conn: u64) {
        if let Some(abandoned) = self.programs.abandoned.remove(&conn) {
            self.net.unwatch(&abandoned.pidfd);
            discard(&abandoned.file);
        }
    }

    /// Takes a segment off the list when a user attaches with it.
    pub(crate) fn adopt_segment(&mut self, user: User, id: FileId) {
        self.programs.abandoned.retain(|_, abandoned| {
            let is_other = abandoned.user != user || abandoned.id != id;
            if !is_other {
                self.net.unwatch(&abandoned.pidfd);
            }
            is_other
        });
    }
}
