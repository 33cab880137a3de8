//! Ending of connections.

use std::collections::VecDeque;

use xsched_proto::wire::{self, DaemonMsg};

use super::conn::Conn;
use super::{Net, socket};
use crate::Error;

/// Connection that has ended. Its socket is closed after all of its resources are released.
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) conn: Conn,
    /// True if the process ended or hung up.
    pub(crate) by_itself: bool,
    /// Fault for which it was dropped.
    pub(crate) fault: Option<Error>,
}

impl Net {
    /// Removes the next connection that is marked for its end from the table, and returns it. While the engine works on the connection's
    /// command, the connection stays, unless the daemon ends.
    pub(crate) fn next_ended(&mut self, daemon_ends: bool) -> Option<Ended> {
        loop {
            let (id, fault) = self.doomed.pop()?;
            if !daemon_ends && self.goes_on_unheard(id) {
                continue;
            }
            let Some(conn) = self.conns.remove(&id) else { continue };
            if let Some(fault) = &fault
                && let Ok(packet) = wire::encode(&DaemonMsg::Refused(fault.clone()))
            {
                let _ = socket::send(&conn.socket, &packet, &[]);
            }
            // Other processes may hold these files too, so that closing the daemon's descriptors would not remove the entries.
            self.unwatch(&conn.socket);
            if let Some(wake) = &conn.wake {
                self.unwatch(&wake.eventfd);
            }
            let by_itself = conn.gone && fault.is_none();
            return Some(Ended { id, conn, by_itself, fault });
        }
    }

    /// Lets a command that changes programs finish though its connection is gone: it gets no message, and counts as one of its user's
    /// connections meanwhile.
    fn goes_on_unheard(&mut self, id: u64) -> bool {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_changing()) else { return false };
        conn.gone = true;
        if !std::mem::replace(&mut conn.unheard, true) {
            (conn.out, conn.out_bytes) = (VecDeque::new(), 0);
            let Some(conn) = self.conns.get(&id) else { return false };
            self.unwatch(&conn.socket);
        }
        self.enqueue(id);
        true
    }
}
