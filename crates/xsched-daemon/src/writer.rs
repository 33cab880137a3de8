//! Writes what may take long to be written, on a thread of its own: the event log and the state file. A terminal that is stopped,
//! a full pipe or a slow disk delays no decision.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::tuning::{LINES_MAX, LOG_FILE_MAX_BYTES, WRITER_END_MS};

/// Where lines go.
pub(crate) enum Sink {
    Stderr,
    File(LogFile),
}

/// A log that is kept short: what was written before the last [`LOG_FILE_MAX_BYTES`] is in a file beside it, and before that gone.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// Makes a text on the thread that writes it.
pub(crate) type MakeText = Box<dyn FnOnce() -> String + Send>;

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    /// Lines for which there was no room.
    lost: u64,
    /// A file, and what makes the text that it is to hold.
    state: Option<(PathBuf, MakeText)>,
    end: bool,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    /// Held for some instructions only, and never while something is written.
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's other end.
pub(crate) struct Writer(Arc<Shared>);

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(crate) fn new(sink: Sink) -> Result<Writer, Error> {
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        std::thread::Builder::new()
            .name("xsched-log".into())
            .spawn(move || write_all(&its, sink))
            .map_err(|e| Error::Environment(format!("cannot start a thread: {e}")))?;
        Ok(Writer(shared))
    }

    /// Has a line written; one for which there is no room is counted.
    pub(crate) fn line(&self, line: String) {
        let mut waiting = self.0.lock();
        if waiting.lines.len() >= LINES_MAX {
            waiting.lost += 1;
        } else {
            waiting.lines.push_back(line);
        }
        self.0.changed.notify_all();
    }

    /// Has a file hold this text, and nothing that was to be in it before.
    pub(crate) fn state(&self, path: &Path, text: MakeText) {
        self.0.lock().state = Some((path.to_owned(), text));
        self.0.changed.notify_all();
    }
}

impl Drop for Writer {
    /// Waits until all is written, but not for ever.
    fn drop(&mut self) {
        self.0.lock().end = true;
        self.0.changed.notify_all();
        let most = Duration::from_millis(WRITER_END_MS);
        drop(self.0.changed.wait_timeout_while(self.0.lock(), most, |waiting| !waiting.ended));
    }
}

fn write_all(shared: &Shared, mut sink: Sink) {
    loop {
        let mut waiting = shared.lock();
        while waiting.lines.is_empty() && waiting.state.is_none() && !waiting.end {
            waiting = shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.lines.is_empty() && waiting.state.is_none() {
            waiting.ended = true;
            shared.changed.notify_all();
            return;
        }
        let (lines, lost) = (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.lost));
        let state = waiting.state.take();
        drop(waiting);
        lines.iter().for_each(|line| sink.write(line));
        if lost > 0 {
            sink.write(&format!("{lost} lines were left out: the log takes them too slowly"));
        }
        if let Some((path, text)) = state
            && let Err(e) = replace(&path, &text())
        {
            sink.write(&format!("cannot write {}: {e}", path.display()));
        }
    }
}

impl Sink {
    fn write(&mut self, line: &str) {
        match self {
            // A closed stderr is no reason to stop. In one call, so that lines of several processes stay whole.
            Sink::Stderr => drop(std::io::stderr().write_all(format!("xsched: {line}\n").as_bytes())),
            Sink::File(log) => log.write(line),
        }
    }
}

impl LogFile {
    /// Opens it to go on after what it holds.
    ///
    /// # Errors
    /// One line: it is no file, a link, or cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<LogFile, Error> {
        let fail = |why: &dyn std::fmt::Display| Error::Environment(format!("cannot log to {}: {why}", path.display()));
        // Opening a FIFO to write would wait for its reader.
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
                // Better an old line than a full disk.
                Err(_) => return,
            }
        }
        let line = format!("{} {line}\n", humantime::format_rfc3339_millis(SystemTime::now()));
        if self.file.write_all(line.as_bytes()).is_ok() {
            self.bytes += line.len() as u64;
        }
    }
}

/// Has a file hold this text: written elsewhere and moved, so that it is whole at any time. Its folder is made if need be.
///
/// # Errors
/// The system's.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    }
    let fresh = path.with_extension("toml.new");
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&fresh);
    open?.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)
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
