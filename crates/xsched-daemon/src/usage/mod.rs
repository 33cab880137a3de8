//! Time on devices, kept beyond the end of programs and of the daemon: [`record`] is what is kept, [`file`] and [`folder`] where, [`sum`] what is told
//! of it; [`programs`] is what records are made of. All of it is written and read by one thread of its own.

mod file;
mod folder;
mod programs;
mod record;
mod sum;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use xsched_proto::usage::{UsageBy, UsageRow};

use crate::Error;
use crate::tuning::{USAGE_QUEUE, WRITER_END_MS};

use self::folder::Folder;
pub(crate) use self::programs::{Accounting, Sweep};
pub(crate) use self::record::{Identity, Record};

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// Connection of the command that asks.
    pub(crate) conn: u64,
    /// Whose records; none = all.
    pub(crate) of_user: Option<String>,
    pub(crate) since_ms: u64,
    pub(crate) by: UsageBy,
}

/// An answer, and whose it is.
pub(crate) type Answered = (u64, Result<Vec<UsageRow>, Error>);

enum Task {
    Keep(Vec<Record>),
    Tell(Query),
}

/// The thread's other end.
pub(crate) struct UsageBooks {
    path: Option<PathBuf>,
    thread: Option<Thread>,
    outcomes: Arc<Mutex<VecDeque<Answered>>>,
    /// Counts outcomes.
    event: Arc<OwnedFd>,
}

struct Thread {
    tasks: SyncSender<Task>,
    ended: Receiver<()>,
}

impl UsageBooks {
    /// Of a daemon of this socket, in a folder; none = nothing is kept.
    pub(crate) fn new(folder: Option<&Path>, socket: &Path) -> rustix::io::Result<UsageBooks> {
        let name = socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(UsageBooks {
            path: folder.map(|folder| folder.join(format!("usage-{name}"))),
            thread: None,
            outcomes: Arc::default(),
            event: Arc::new(event),
        })
    }

    /// Has records written. Returns whether they will be: where not, they are to be told again with what comes.
    pub(crate) fn keep(&mut self, records: Vec<Record>) -> bool {
        records.is_empty() || self.path.is_none() || self.push(Task::Keep(records)).is_ok()
    }

    /// Has the records looked at. The answer comes by [`UsageBooks::take`].
    ///
    /// # Errors
    /// Nothing is kept, or too much is asked at a time.
    pub(crate) fn ask(&mut self, query: Query) -> Result<(), Error> {
        if self.path.is_none() {
            let line = "this daemon keeps no records: it was started without HOME and XDG_STATE_HOME";
            return Err(Error::environment(line));
        }
        let busy = |_| Error::environment("too many ask for usage at this moment: try again");
        self.push(Task::Tell(query)).map_err(busy)
    }

    /// An answer that is there.
    pub(crate) fn take(&self) -> Option<Answered> {
        let _ = rustix::io::read(&*self.event, &mut [0u8; 8]);
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn push(&mut self, task: Task) -> Result<(), ()> {
        let Some(path) = &self.path else { return Err(()) };
        if self.thread.is_none() {
            let (tasks, from) = sync_channel(USAGE_QUEUE);
            let (alive, ended) = sync_channel(0);
            let (files, outcomes, event) = (Folder::new(path), self.outcomes.clone(), self.event.clone());
            let work = move || {
                work(&from, files, &outcomes, &event);
                drop(alive);
            };
            std::thread::Builder::new().name("xsched-usage".into()).spawn(work).map_err(drop)?;
            self.thread = Some(Thread { tasks, ended });
        }
        let Some(thread) = &self.thread else { return Err(()) };
        thread.tasks.try_send(task).map_err(|e: TrySendError<Task>| drop(e))
    }
}

impl AsFd for UsageBooks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for UsageBooks {
    /// Waits until all is written, but not for ever.
    fn drop(&mut self) {
        let Some(Thread { tasks, ended }) = self.thread.take() else { return };
        drop(tasks);
        // It says nothing and ends.
        let _: Result<(), RecvTimeoutError> = ended.recv_timeout(Duration::from_millis(WRITER_END_MS));
    }
}

fn work(tasks: &Receiver<Task>, mut files: Folder, outcomes: &Mutex<VecDeque<Answered>>, event: &OwnedFd) {
    while let Ok(task) = tasks.recv() {
        match task {
            // A disk that takes nothing loses records, and programs nothing.
            Task::Keep(records) => drop(files.append(&records)),
            Task::Tell(query) => {
                let answer = sum::rows(&files, &query);
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push_back((query.conn, answer));
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
        }
    }
}
