//! Writer of the event log and of the state file. A terminal that is stopped, a full pipe or a slow disk delays no decision.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::files::replace;
use crate::guard::Fault;
use crate::services::worker::{End, Service, Spec, Worker};
use crate::tuning::{LINES_MAX, LOG_FILE_MAX_BYTES, WRITER_END_MS};

/// Destination of lines.
pub(crate) enum Sink {
    Stderr,
    File(LogFile),
}

/// Log of limited size: at [`LOG_FILE_MAX_BYTES`] the file is renamed to a second one, which replaces an older one.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// Function that makes a text, on the thread that writes it.
pub(crate) type MakeText = Box<dyn FnOnce() -> String + Send>;

/// Task of the thread. [`Kept`] has the content of the tasks that carry none.
pub(crate) enum Task {
    Line(String),
    /// Report about lines that were left out, in their place.
    LeftOut,
    State,
}

/// A task has no outcome.
pub(crate) enum Nothing {}

/// Content of waiting tasks. Each kind of task waits once, however often its content changes meanwhile.
#[derive(Default)]
struct Kept {
    /// Number of lines that were left out.
    left_out: u64,
    /// File, and the function that makes its text.
    state: Option<(PathBuf, MakeText)>,
    /// Reason for which the last state could not be written; none = it is written.
    unwritten: Option<String>,
}

/// Interface of the service for the loop. The thread is never replaced, since two would write to the same files.
pub(crate) struct Writer {
    worker: Worker<Task, Nothing>,
    kept: Arc<Mutex<Kept>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub(crate) fn new(sink: Sink) -> Result<Writer, Error> {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (its, sink) = (kept.clone(), Arc::new(Mutex::new(sink)));
        let end = End::Drained(Duration::from_millis(WRITER_END_MS));
        let spec = Spec { queued_max: LINES_MAX, end, ..Spec::named("xsched-log") };
        let worker = Worker::new(spec, VecDeque::new(), move || -> Box<dyn Service<Task, Nothing>> {
            let (kept, sink) = (its.clone(), sink.clone());
            Box::new(move |task| {
                write(task, &kept, &mut locked(&sink));
                None
            })
        });
        let worker = worker.map_err(|e| Error::environment(format!("cannot make an event descriptor: {e}")))?;
        worker.start().map_err(|e| Error::environment(format!("cannot start a thread: {e}")))?;
        Ok(Writer { worker, kept })
    }

    /// Writes a line. If there are too many, the line is counted as left out.
    pub(crate) fn line(&self, line: String) {
        if self.worker.push(Task::Line(line)).is_err() {
            let mut kept = locked(&self.kept);
            kept.left_out += 1;
            if kept.left_out == 1 {
                self.worker.push_beyond(Task::LeftOut);
            }
        }
    }

    /// Reason for which the last state could not be written; none = it is written.
    pub(crate) fn unwritten(&self) -> Option<String> {
        locked(&self.kept).unwritten.clone()
    }

    /// Takes the faults of the thread.
    pub(crate) fn take_faults(&self) -> Vec<Fault> {
        self.worker.take_faults()
    }

    /// Replaces a file's content. A waiting replacement is dropped.
    pub(crate) fn state(&self, path: &Path, text: MakeText) {
        if locked(&self.kept).state.replace((path.to_owned(), text)).is_none() {
            self.worker.push_beyond(Task::State);
        }
    }
}

/// Locks a mutex. The mutex of the content is held for a few instructions only, and never during a write. The mutex of the sink is used by
/// the thread alone.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(task: Task, kept: &Mutex<Kept>, sink: &mut Sink) {
    match task {
        Task::Line(line) => sink.write(&line),
        Task::LeftOut => {
            let count = std::mem::take(&mut locked(kept).left_out);
            sink.write(&format!("{count} lines were left out: the log takes them too slowly"));
        }
        Task::State => {
            let state = locked(kept).state.take();
            if let Some((path, text)) = state {
                let failed = replace(&path, &text()).err();
                locked(kept).unwritten = failed.map(|e| format!("cannot write {}: {e}", path.display()));
            }
        }
    }
}

impl Sink {
    fn write(&mut self, line: &str) {
        match self {
            // A closed stderr is no reason to stop. The line is written in one call, so that lines of several processes do not mix.
            Sink::Stderr => drop(std::io::stderr().write_all(format!("xsched: {line}\n").as_bytes())),
            Sink::File(log) => log.write(line),
        }
    }
}

impl LogFile {
    /// Opens the log to append to it.
    ///
    /// # Errors
    /// One line: the path is a link or no file, or cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<LogFile, Error> {
        let fail = |why: &dyn std::fmt::Display| Error::Environment(format!("cannot log to {}: {why}", path.display()));
        // Without O_NONBLOCK, opening a FIFO for writing would wait for a reader.
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let open = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
        let file = open.map_err(|e| fail(&e))?;
        let meta = file.metadata().map_err(|e| fail(&e))?;
        if !meta.is_file() {
            return Err(fail(&"it is no file"));
        }
        Ok(LogFile { path: path.to_owned(), file, bytes: meta.len() })
    }

    fn write(&mut self, line: &str) {
        if self.bytes >= LOG_FILE_MAX_BYTES {
            let mut before = self.path.as_os_str().to_owned();
            before.push(".1");
            let moved = std::fs::rename(&self.path, &before);
            match moved.map_err(|e| Error::environment(e.to_string())).and_then(|()| LogFile::open(&self.path)) {
                Ok(fresh) => *self = fresh,
                // Losing this line is better than filling the disk.
                Err(_) => return,
            }
        }
        let line = format!("{} {line}\n", humantime::format_rfc3339_millis(SystemTime::now()));
        if self.file.write_all(line.as_bytes()).is_ok() {
            self.bytes += line.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_kept_short_and_begins_again_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "before\n").unwrap();
        let line = "x".repeat(1_000);
        let mut log = LogFile::open(&path).unwrap();
        for _ in 0..LOG_FILE_MAX_BYTES / 1_000 + 10 {
            log.write(&line);
        }
        let [now, earlier] = [path.clone(), folder.path().join("log.1")].map(|p| std::fs::read_to_string(p).unwrap());
        assert!(earlier.starts_with("before\n") && earlier.len() as u64 >= LOG_FILE_MAX_BYTES);
        assert!((earlier.len() as u64) < LOG_FILE_MAX_BYTES + 2_000, "{}", earlier.len());
        assert!(!now.is_empty() && now.lines().all(|l| l.ends_with(&line)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_file_is_no_log() {
        let folder = tempfile::tempdir().unwrap();
        let (link, fifo) = (folder.path().join("link"), folder.path().join("fifo"));
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        for path in [link, fifo, folder.path().to_owned()] {
            assert!(LogFile::open(&path).is_err(), "{path:?}");
        }
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn lines_for_which_there_is_no_room_are_counted_where_they_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let [log, state] = ["log", "state.toml"].map(|name| folder.path().join(name));
        let writer = Writer::new(Sink::File(LogFile::open(&log).unwrap())).unwrap();
        let (begin, begun) = std::sync::mpsc::channel();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let slow = move || {
            let _ = begin.send(());
            let _ = gate.recv();
            String::new()
        };
        writer.state(&state, Box::new(slow));
        begun.recv().unwrap();
        (0..LINES_MAX + 7).for_each(|n| writer.line(format!("line {n}")));
        go_on.send(()).unwrap();
        let text = || std::fs::read_to_string(&log).unwrap();
        xsched_testkit::until("they are told of", || text().contains("were left out"));
        writer.line("after".into());
        drop(writer);
        let text = text();
        let lines: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
        assert_eq!(lines.len(), LINES_MAX + 2);
        assert_eq!(
            lines[LINES_MAX - 1..],
            ["line 1023", "7 lines were left out: the log takes them too slowly", "after"]
        );
    }

    #[test]
    fn all_is_written_before_the_end_and_of_a_state_only_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let [log, state] = ["log", "s/state.toml"].map(|name| folder.path().join(name));
        let writer = Writer::new(Sink::File(LogFile::open(&log).unwrap())).unwrap();
        for n in 0..100 {
            writer.line(format!("line {n}"));
            writer.state(&state, Box::new(move || format!("{n}")));
        }
        drop(writer);
        assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 100);
        assert_eq!(std::fs::read_to_string(&state).unwrap(), "99");
    }
}
