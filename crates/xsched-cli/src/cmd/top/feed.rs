//! Snapshots from the daemon, on a connection that is kept.

use std::path::PathBuf;

use xsched_proto::wire::{DaemonMsg, Request};

use super::app::Change;
use super::model::{Snapshot, WINDOW_US};
use crate::client::Connection;
use crate::failure::Result;

/// Connection to the daemon, and the number of records read so far.
pub(super) struct Feed {
    socket: Option<PathBuf>,
    connection: Option<Connection>,
    /// Number of the next record; none = no record was read yet.
    next: Option<u64>,
}

impl Feed {
    pub(super) fn open(socket: Option<PathBuf>) -> Result<Feed> {
        let connection = Some(Connection::open(socket.as_deref())?);
        Ok(Feed { socket, connection, next: None })
    }

    /// Asks for the present state. After a failure the next call connects anew.
    pub(super) fn snapshot(&mut self, now_us: u64) -> Result<Snapshot> {
        let since_us = now_us.saturating_sub(WINDOW_US);
        self.connect()?;
        let mut snapshot = Snapshot { fresh: self.next.is_none(), ..Snapshot::default() };
        let mut next = None;
        // Records are asked for last: they then include all groups that are listed.
        let from = self.next.unwrap_or(0);
        let parts = [self.ask(Request::Ps)?, self.ask(Request::Trace { from, since_us })?];
        for part in parts.into_iter().flatten() {
            match part {
                DaemonMsg::Daemon(info) => snapshot.daemon = Some(info),
                DaemonMsg::Device(info) => snapshot.devices.push(*info),
                DaemonMsg::Program(info) => snapshot.programs.push(*info),
                DaemonMsg::TraceHead(head) => {
                    (snapshot.at_us, snapshot.whole_since_us) = (head.now_us, head.whole_since_us);
                    next = Some(head.next);
                }
                DaemonMsg::TraceGroups(groups) => snapshot.groups.extend(groups),
                DaemonMsg::TraceRecords(records) => snapshot.records.extend(records),
                _ => {}
            }
        }
        self.next = next;
        Ok(snapshot)
    }

    /// Asks the daemon for a change, and returns the daemon's notes about it.
    pub(super) fn change(&mut self, change: &Change) -> Result<Vec<String>> {
        let note = |part| match part {
            DaemonMsg::Note { text } => Some(text),
            _ => None,
        };
        Ok(self.ask(change.request())?.into_iter().filter_map(note).collect())
    }

    fn ask(&mut self, request: Request) -> Result<Vec<DaemonMsg>> {
        let answer = self.connect()?.ask(request);
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    /// Returns the connection; after a new one, everything is asked for again.
    fn connect(&mut self) -> Result<&Connection> {
        if self.connection.is_none() {
            self.next = None;
        }
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(Connection::open(self.socket.as_deref())?)),
        }
    }
}
