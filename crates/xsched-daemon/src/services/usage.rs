//! Records of usage: written and summed up beside the loop. A disk that takes nothing loses records, and programs nothing.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xsched_proto::usage::UsageRow;

use crate::Error;
use crate::guard::guarded;
use crate::services::worker::epochs::Epochs;
use crate::services::worker::{End, Spec, Worker};
use crate::tuning::{USAGE_QUEUE, WRITER_END_MS};
use crate::usage::{Folder, Query, Record, folder_of, rows};

pub(crate) enum Task {
    Keep(Vec<Record>),
    /// A question, with the number of the request.
    Tell(u64, Query),
}

pub(crate) enum Outcome {
    Told(Told),
    /// End of a write; the reason if it failed.
    Kept(Option<String>),
}

/// Answer to a question.
pub(crate) struct Told {
    conn: u64,
    epoch: u64,
    rows: Result<Vec<UsageRow>, Error>,
}

/// The loop's side. Its thread is never replaced: two would write the same files.
pub(crate) struct UsageBooks {
    pub(crate) worker: Worker<Task, Outcome>,
    /// Questions without an answer, by connection.
    epochs: Epochs<u64>,
    keeps: bool,
    /// Reason for which the last records are lost; none = they are written.
    pub(crate) failed: Option<String>,
}

impl UsageBooks {
    /// Records of the daemon of this socket, in a folder; none = nothing is kept.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new(folder: Option<&Path>, socket: &Path) -> rustix::io::Result<UsageBooks> {
        let path = folder.map(|folder| folder_of(folder, socket));
        let keeps = path.is_some();
        let end = End::Drained(Duration::from_millis(WRITER_END_MS));
        let spec = Spec { queued_max: USAGE_QUEUE, end, ..Spec::named("xsched-usage") };
        let worker = Worker::new(spec, VecDeque::new(), move || {
            let path = path.clone().unwrap_or_else(|| PathBuf::from("/"));
            let mut files = Folder::new(&path);
            Box::new(move |task| match task {
                Task::Keep(records) => {
                    let failed = files.append(&records).err();
                    let line = |e| format!("records are lost: cannot write to {}: {e}", path.display());
                    Some(Outcome::Kept(failed.map(line)))
                }
                Task::Tell(epoch, query) => {
                    let answer = || rows(&files, &query);
                    let rows = guarded(format_args!("an answer on usage from {}", path.display()), answer);
                    let rows = rows.unwrap_or_else(|fault| Err(fault.noted().into()));
                    Some(Outcome::Told(Told { conn: query.conn, epoch, rows }))
                }
            })
        });
        Ok(UsageBooks { worker: worker?, epochs: Epochs::default(), keeps, failed: None })
    }

    /// Has records written. Returns whether they will be: where not, they are to be handed over again with what comes.
    pub(crate) fn keep(&mut self, records: Vec<Record>) -> bool {
        records.is_empty() || !self.keeps || self.push(Task::Keep(records)).is_ok()
    }

    /// Asks for the sum of records. The answer comes by [`UsageBooks::take`].
    ///
    /// # Errors
    /// Nothing is kept, or too much is asked at a time.
    pub(crate) fn ask(&mut self, query: Query) -> Result<(), Error> {
        if !self.keeps {
            let line = "this daemon keeps no records: it was started without HOME and XDG_STATE_HOME";
            return Err(Error::environment(line));
        }
        let conn = query.conn;
        let epoch = self.epochs.begin(conn);
        self.push(Task::Tell(epoch, query)).map_err(|()| {
            self.epochs.forget(&conn);
            Error::environment("too many ask for usage at this moment: try again")
        })
    }

    /// Takes an answer, with its connection.
    pub(crate) fn take(&mut self) -> Option<(u64, Result<Vec<UsageRow>, Error>)> {
        loop {
            match self.worker.take()? {
                Outcome::Told(Told { conn, epoch, rows }) if self.epochs.accept(&conn, epoch) => {
                    return Some((conn, rows));
                }
                Outcome::Told(_) => (),
                Outcome::Kept(failed) => self.failed = failed,
            }
        }
    }

    /// Ends the wait for an answer to a connection that has gone.
    pub(crate) fn forget(&mut self, conn: u64) {
        self.epochs.forget(&conn);
    }

    fn push(&self, task: Task) -> Result<(), ()> {
        self.worker.start().map_err(drop)?;
        self.worker.push(task).map_err(drop)
    }
}

impl AsFd for UsageBooks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}

#[cfg(test)]
impl UsageBooks {
    /// Number of questions without an answer.
    pub(crate) fn open(&self) -> usize {
        self.epochs.len()
    }
}

#[cfg(test)]
impl Outcome {
    /// A further outcome of the same request.
    pub(crate) fn again(&self) -> Outcome {
        match self {
            Outcome::Told(Told { conn, epoch, rows }) => {
                Outcome::Told(Told { conn: *conn, epoch: *epoch, rows: rows.clone() })
            }
            Outcome::Kept(failed) => Outcome::Kept(failed.clone()),
        }
    }
}
