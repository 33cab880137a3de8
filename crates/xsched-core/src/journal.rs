//! The journal of a process: the questions to the models and their answers, written to a file if that was asked for.
//!
//! A journal that is off costs one load wherever a model is asked, and nothing where a launch finds the gate open: no model is asked
//! there.

use core::sync::atomic::{AtomicBool, Ordering::*};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use xsched_flow::journal::{MAGIC, Record, encode};
use xsched_proto::{files, writing};

/// Size at which a journal ends, in bytes: enough for seconds of a busy program, and small enough to be kept.
const MOST_BYTES: usize = 3 << 20;
/// Size of the pieces in which a journal is written, in bytes.
const PIECE_BYTES: usize = 16 << 10;

static ON: AtomicBool = AtomicBool::new(false);
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

struct Writer {
    file: File,
    piece: Vec<u8>,
    written: usize,
}

/// True: the process writes a journal.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Begins a journal in a folder: `PID.xsj`.
///
/// # Errors
/// When the file cannot be made.
pub fn start(folder: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let file = files::to_write(&folder.join(format!("{}.xsj", std::process::id())), &mut options)?;
    let mut writer = WRITER.lock().unwrap_or_else(|e| e.into_inner());
    *writer = Some(Writer { file, piece: MAGIC.to_vec(), written: 0 });
    ON.store(true, Release);
    Ok(())
}

/// Adds a record, if the process writes a journal.
#[inline]
pub fn record(record: impl FnOnce() -> Record) {
    if is_on() {
        write(&record());
    }
}

#[cold]
#[inline(never)]
fn write(record: &Record) {
    let mut writer = WRITER.lock().unwrap_or_else(|e| e.into_inner());
    let Some(open) = writer.as_mut() else { return };
    encode(record, &mut open.piece);
    if open.piece.len() >= PIECE_BYTES {
        open.flush();
        if open.written >= MOST_BYTES {
            ON.store(false, Relaxed);
            *writer = None;
        }
    }
}

impl Writer {
    fn flush(&mut self) {
        // A full disk, or the file-size limit, ends the journal early; a replay sees that.
        let _ = writing::without_signals(|| self.file.write_all(&self.piece));
        self.written += self.piece.len();
        self.piece.clear();
    }
}

/// Writes the records that are left; to be called when the process ends.
pub fn end() {
    if ON.swap(false, AcqRel)
        && let Ok(mut writer) = WRITER.try_lock()
        && let Some(open) = writer.as_mut()
    {
        open.flush();
    }
}

/// Ends the journal in a forked child: the file is the parent's.
pub fn forget() {
    ON.store(false, Release);
}
