//! Trust in programs: the files that a process runs are compared with those of its earlier runs, which may take long, and new facts are
//! kept ([`crate::pool::proven`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xsched_engine::Standing;
use xsched_proto::program;

use crate::identity::process::start_ticks;
use crate::pool::proven::{Files, Proven, Work};
use crate::server::clock::now_ns;
use crate::services::worker::epochs::Epochs;
use crate::services::worker::{ByUser, End, Next, Service, Spec, Worker, readable};
use crate::tuning::{
    LOST_MAX, PROVEN_WRITE_NS, TRUST_COMMAND_MAX_BYTES, TRUST_FILES_MAX, TRUST_MAPS_MAX_BYTES, TRUST_PATHS_MAX_BYTES,
    TRUST_QUEUE, WRITER_END_MS,
};

/// Process of a program that may prove itself.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// See [`start_ticks`].
    pub(crate) start: Option<u64>,
    /// Name of the program, see [`crate::pool::proven::key`].
    pub(crate) key: String,
    /// Paths in the announcement of the process.
    pub(crate) announced: Vec<String>,
}

pub(crate) enum Task {
    /// Comparison of a process that would join a pool: the process, its connection, the number of the request, and the minutes of a proof.
    Join(Process, u64, u64, u32),
    /// Work of a process in the last minute.
    Minute(Process, Work),
    /// Work of a process that has ended.
    Ended(Process, Work),
    /// A program of a user had a GPU fault; see [`crate::pool::unsuitable::key`].
    Fault(u32, String),
    /// Write of all records, since the daemon ends.
    Write,
}

pub(crate) enum Outcome {
    Known {
        conn: u64,
        epoch: u64,
        known: Known,
    },
    /// Lines for the log, about programs of a user.
    Lines(u32, Vec<String>),
    /// End of a write of the records; the reason if it failed.
    Written(Option<String>),
}

#[cfg(test)]
impl Outcome {
    /// Makes a second outcome of the same request.
    pub(crate) fn again(&self) -> Outcome {
        match self {
            Outcome::Known { conn, epoch, known } => {
                Outcome::Known { conn: *conn, epoch: *epoch, known: known.clone() }
            }
            Outcome::Lines(uid, lines) => Outcome::Lines(*uid, lines.clone()),
            Outcome::Written(failed) => Outcome::Written(failed.clone()),
        }
    }
}

/// Knowledge about a program that would join a pool.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) standing: Standing,
    /// True if the user has an urgent program that belongs in the inner pool.
    pub(crate) has_urgent: bool,
}

impl Known {
    /// Makes facts that say nothing about the program, with the reason.
    pub(crate) fn nothing(why: &str) -> Known {
        Known { standing: Standing::unknown(why), has_urgent: false }
    }
}

/// Interface of the service for the loop.
pub(crate) struct Trust {
    pub(crate) worker: Worker<Task, Outcome>,
    epochs: Epochs<u64>,
    /// True once the daemon is ending.
    ends: Arc<AtomicBool>,
    /// Reason for which the records are not those on disk.
    pub(crate) failed: Option<String>,
}

impl Trust {
    /// The worker, with the records that an earlier daemon left in a folder.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new(folder: Option<&Path>) -> rustix::io::Result<Trust> {
        let proven = Proven::read(folder);
        let failed = proven.failed.clone();
        let proven = Arc::new(Mutex::new(proven));
        let end = End::Drained(Duration::from_millis(WRITER_END_MS));
        let spec = Spec { lost_max: LOST_MAX, queued_max: TRUST_QUEUE, end, ..Spec::named("xsched-trust") };
        let user = |task: &Task| match task {
            Task::Join(process, ..) | Task::Minute(process, _) | Task::Ended(process, _) => process.uid,
            Task::Fault(uid, _) => *uid,
            Task::Write => 0,
        };
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = ends.clone();
        let worker = Worker::new(spec, ByUser::new(user), move || -> Box<dyn Service<Task, Outcome>> {
            Box::new(Thread { proven: proven.clone(), ends: its_ends.clone(), written_ns: now_ns() })
        });
        Ok(Trust { worker: worker?, epochs: Epochs::default(), ends, failed })
    }

    /// Compares a process that would join a pool with the records. Returns false if that is impossible now.
    pub(crate) fn join(&mut self, conn: u64, process: Process, minutes: u32) -> bool {
        let epoch = self.epochs.begin(conn);
        let is_begun = self.push(Task::Join(process, conn, epoch, minutes));
        if !is_begun {
            self.forget(conn);
        }
        is_begun
    }

    /// Hands a task to the thread. Returns false if there are too many tasks, or if a process of the same user keeps a thread.
    pub(crate) fn push(&self, task: Task) -> bool {
        match &task {
            Task::Join(process, ..) | Task::Minute(process, _) if !self.worker.may_risk(process.uid) => false,
            _ => self.worker.push(task).is_ok(),
        }
    }

    /// Notes a GPU fault, even if there are too many tasks.
    pub(crate) fn fault(&self, uid: u32, program: String) {
        self.worker.push_beyond(Task::Fault(uid, program));
    }

    /// Takes the next outcome that counts.
    pub(crate) fn take(&mut self) -> Option<Outcome> {
        loop {
            let outcome = self.worker.take()?;
            match &outcome {
                Outcome::Known { conn, epoch, .. } if !self.epochs.accept(conn, *epoch) => (),
                Outcome::Written(failed) => self.failed.clone_from(failed),
                _ => return Some(outcome),
            }
        }
    }

    /// Stops waiting for an outcome, since the connection has ended or no longer waits.
    pub(crate) fn forget(&mut self, conn: u64) {
        self.epochs.forget(&conn);
    }

    /// Replaces the thread if it is busy with one process for too long. Returns the time of the next call, in ns.
    pub(crate) fn tend(&self, now_ns: u64) -> Option<u64> {
        self.worker.tend(now_ns)
    }
}

impl Drop for Trust {
    fn drop(&mut self) {
        // Tasks may follow the last one, since they are ordered by user. Each of them then writes the records.
        self.ends.store(true, Relaxed);
        if self.worker.has_thread() {
            self.worker.push_beyond(Task::Write);
        }
    }
}

impl AsFd for Trust {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.as_fd()
    }
}

/// State of the thread. The lock on the known facts is held only during a comparison or a write, not while a process is read.
struct Thread {
    proven: Arc<Mutex<Proven>>,
    ends: Arc<AtomicBool>,
    written_ns: u64,
}

impl Thread {
    fn proven(&self) -> MutexGuard<'_, Proven> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares a process with its record.
    fn compare(&self, process: &Process) -> Result<Option<String>, String> {
        let files = files_of(process)?;
        let known = self.proven().paths(&process.key);
        let root = root_of(process.pid);
        let others = known.into_iter().filter(|path| !files.all.contains_key(path));
        let on_disk: BTreeMap<String, String> =
            others.filter_map(|path| Some((path.clone(), id_of(&root, &path)?))).collect();
        if start_ticks(process.pid) != process.start || process.start.is_none() {
            return Err("it has ended".to_owned());
        }
        Ok(self.proven().compare(&process.key, &files, &on_disk))
    }

    fn write(&mut self) -> Option<String> {
        self.written_ns = now_ns();
        self.proven().write().err().map(|why| why.to_string())
    }
}

impl Service<Task, Outcome> for Thread {
    fn perform(&mut self, task: Task, outcomes: &mut Vec<Outcome>) {
        let (uid, lines) = match task {
            Task::Join(process, conn, epoch, minutes) => {
                let compared = self.compare(&process);
                let proven = self.proven();
                let has_urgent = proven.has_urgent(process.uid, minutes);
                let mut standing = proven.standing(&process.key, minutes);
                drop(proven);
                let line = match compared {
                    Ok(line) => line,
                    Err(why) => {
                        if minutes > 0 {
                            standing.proof = xsched_engine::Proof::Unknown(why);
                        }
                        None
                    }
                };
                outcomes.push(Outcome::Known { conn, epoch, known: Known { standing, has_urgent } });
                (process.uid, line.into_iter().collect())
            }
            Task::Minute(process, work) => {
                let compared = self.compare(&process);
                let mut proven = self.proven();
                // If the program has changed, its work counts from the next minute on.
                if compared == Ok(None) {
                    proven.count(&process.key, work);
                }
                proven.note(&process.key, work);
                (process.uid, compared.ok().flatten().into_iter().collect())
            }
            Task::Ended(process, work) => {
                self.proven().note(&process.key, work);
                (process.uid, Vec::new())
            }
            Task::Fault(uid, program) => {
                let lines = self.proven().fault(&program);
                if !lines.is_empty() {
                    outcomes.push(Outcome::Written(self.write()));
                }
                (uid, lines)
            }
            Task::Write => (0, Vec::new()),
        };
        if self.ends.load(Relaxed) {
            // An error has no receiver any more.
            let _ = self.write();
        }
        if !lines.is_empty() {
            outcomes.push(Outcome::Lines(uid, lines));
        }
    }

    fn wait(&mut self, more: BorrowedFd<'_>, outcomes: &mut Vec<Outcome>) -> Next {
        let is_news = self.proven().is_news;
        let due_ns = (self.written_ns + PROVEN_WRITE_NS).saturating_sub(now_ns());
        if is_news && due_ns == 0 {
            outcomes.push(Outcome::Written(self.write()));
        } else {
            readable(more, is_news.then_some(due_ns));
        }
        Next::GoOn
    }
}

fn root_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

/// Number for the present version of a file, from its device, inode, size and time of change. None if there is no such file.
fn id_of(root: &Path, path: &str) -> Option<String> {
    let meta = std::fs::symlink_metadata(root.join(path.trim_start_matches('/'))).ok()?;
    meta.is_file().then(|| id(&meta))
}

fn id(meta: &Metadata) -> String {
    let parts = [meta.dev(), meta.ino(), meta.size(), meta.mtime().cast_unsigned(), meta.mtime_nsec().cast_unsigned()];
    // The hash is FNV-1a, which is equal in each build of the daemon.
    let bytes = parts.into_iter().flat_map(u64::to_le_bytes);
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// Files that a process runs: its executable, its scripts, and its mappings that can be executed.
///
/// # Errors
/// Returns one line if not all files can be found out.
fn files_of(process: &Process) -> Result<Files, String> {
    let unseen = |_| "its files cannot be seen from here".to_owned();
    let proc = PathBuf::from(format!("/proc/{}", process.pid));
    let root = root_of(process.pid);
    let mut maps = Vec::new();
    let file = File::open(proc.join("maps")).map_err(unseen)?;
    file.take(TRUST_MAPS_MAX_BYTES + 1).read_to_end(&mut maps).map_err(unseen)?;
    if maps.len() as u64 > TRUST_MAPS_MAX_BYTES {
        return Err("it maps more than is looked through".to_owned());
    }
    let mut paths = mapped(&String::from_utf8_lossy(&maps))?;
    let exe = std::fs::read_link(proc.join("exe")).map_err(unseen)?.to_string_lossy().into_owned();
    paths.insert(exe.clone());
    let mut scripts: Vec<String> = process.announced.iter().filter(|path| **path != exe).cloned().collect();
    scripts.extend(script_of(&proc));
    scripts.retain(|path| id_of(&root, path).is_some());
    paths.extend(scripts.iter().cloned());
    let bytes: usize = paths.iter().map(String::len).sum();
    if paths.len() > TRUST_FILES_MAX || bytes > TRUST_PATHS_MAX_BYTES {
        return Err(format!("it is made of more than {TRUST_FILES_MAX} files"));
    }
    let mut all = BTreeMap::new();
    for path in paths {
        let id = id_of(&root, &path).ok_or_else(|| format!("{path} is not there any more"))?;
        all.insert(path, id);
    }
    Ok(Files { exe, scripts, driver: driver(), all })
}

/// Paths of the executable mappings of a process, from the lines of its `maps` (proc(5)).
///
/// # Errors
/// One of the files was removed.
fn mapped(maps: &str) -> Result<BTreeSet<String>, String> {
    let mut paths = BTreeSet::new();
    for line in maps.lines() {
        let Some((fields, path)) = line.find('/').map(|at| line.split_at(at)) else { continue };
        let is_code = fields.split_ascii_whitespace().nth(1).is_some_and(|rights| rights.contains('x'));
        // Memory in the form of a file; devices; shared memory.
        let is_none =
            ["/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "/proc/"].iter().any(|begin| path.starts_with(begin));
        if !is_code || is_none {
            continue;
        }
        if path.ends_with(" (deleted)") {
            return Err(format!("{} was removed", path.trim_end_matches(" (deleted)")));
        }
        paths.insert(path.to_owned());
    }
    Ok(paths)
}

/// Path of the script that a process's interpreter runs.
fn script_of(proc: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(proc.join("cmdline")).ok()?.take(TRUST_COMMAND_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let words: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let name = program::script(&words)?;
    let word = words.iter().skip(1).find(|word| program::file_name(word) == name)?;
    let folder = std::fs::read_link(proc.join("cwd")).ok()?;
    let path = folder.join(word);
    // Links are resolved as far as they can be from here.
    Some(path.canonicalize().unwrap_or(path).to_string_lossy().into_owned())
}

/// Version of NVIDIA's driver, from the kernel module; empty on a machine without it.
fn driver() -> String {
    let module = std::fs::read_to_string("/sys/module/nvidia/version");
    let text = module.or_else(|_| std::fs::read_to_string("/proc/driver/nvidia/version")).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns this process as one of a program.
    fn own(key: &str, announced: &[&str]) -> Process {
        let pid = std::process::id();
        let announced = announced.iter().map(|path| (*path).to_owned()).collect();
        Process { pid, uid: 7, start: start_ticks(pid), key: key.to_owned(), announced }
    }

    #[test]
    fn code_that_comes_from_files_is_found_and_what_cannot_be_told_is_refused() {
        let line = |rights: &str, path: &str| format!("7f00-7f01 {rights} 00000000 fe:01 1234      {path}\n");
        let maps = [
            line("r-xp", "/usr/lib/a b.so"),
            line("r--p", "/usr/lib/data"),
            line("rwxs", "/dev/nvidia0"),
            line("r-xp", "/memfd:jit (deleted)"),
            line("r-xp", "[vdso]"),
            line("rwxp", ""),
        ]
        .concat();
        assert_eq!(mapped(&maps).unwrap().into_iter().collect::<Vec<_>>(), ["/usr/lib/a b.so"]);
        let removed = maps + &line("r-xp", "/tmp/x.so (deleted)");
        assert_eq!(mapped(&removed).unwrap_err(), "/tmp/x.so was removed");
    }

    #[test]
    fn a_process_is_made_of_its_executable_its_libraries_and_what_was_announced() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.py");
        std::fs::write(&script, "1").unwrap();
        let script = script.to_str().unwrap();
        let first = files_of(&own("k", &[script, "/no/such"])).unwrap();
        let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        assert_eq!((&first.exe, &first.scripts), (&exe, &vec![script.to_owned()]));
        assert!(first.all.contains_key(&exe) && first.all.keys().any(|path| path.contains("libc")), "{:?}", first.all);
        assert_eq!(files_of(&own("k", &[script])).unwrap(), first, "nothing has changed");
        std::fs::write(script, "22").unwrap();
        let second = files_of(&own("k", &[script])).unwrap();
        let changed: Vec<&String> = first.all.iter().filter(|(p, id)| second.all[*p] != **id).map(|(p, _)| p).collect();
        assert_eq!(changed, [script]);
    }

    #[test]
    fn a_process_that_has_ended_or_is_made_of_too_many_files_is_not_proven() {
        let (proven, ends) = (Arc::new(Mutex::new(Proven::read(None))), Arc::new(AtomicBool::new(false)));
        let thread = Thread { proven, ends, written_ns: 0 };
        let another = Process { start: Some(1), ..own("k", &[]) };
        assert_eq!(thread.compare(&another), Err("it has ended".to_owned()));
        let gone = Process { pid: u32::MAX / 4, ..own("k", &[]) };
        assert_eq!(thread.compare(&gone), Err("its files cannot be seen from here".to_owned()));
        let folder = tempfile::tempdir().unwrap();
        let many: Vec<String> = (0..=TRUST_FILES_MAX)
            .map(|n| {
                let path = folder.path().join(n.to_string());
                std::fs::write(&path, "").unwrap();
                path.to_str().unwrap().to_owned()
            })
            .collect();
        let many = Process { announced: many, ..own("k", &[]) };
        assert_eq!(thread.compare(&many), Err(format!("it is made of more than {TRUST_FILES_MAX} files")));
        assert_eq!(thread.compare(&own("k", &[])), Ok(None));
    }

    #[test]
    fn a_user_whose_process_keeps_a_thread_is_not_compared_and_others_are() {
        let mut trust = Trust::new(None).unwrap();
        trust.worker.pretend_lost([7]);
        assert!(!trust.join(1, own("7 p (/x)", &[]), 10));
        assert!(!trust.push(Task::Minute(own("7 p (/x)", &[]), Work::default())));
        assert!(trust.join(2, Process { uid: 8, ..own("8 p (/x)", &[]) }, 10));
        let mut known = None;
        xsched_testkit::until("the other is known", || {
            known = known.take().or_else(|| trust.take());
            known.is_some()
        });
        assert!(matches!(known, Some(Outcome::Known { conn: 2, .. })));
        trust.worker.forget_lost();
    }

    #[test]
    fn what_is_learned_is_written_at_the_end_and_a_fault_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proven.toml");
        let text = || std::fs::read_to_string(&file).unwrap_or_default();
        let mut trust = Trust::new(Some(folder.path())).unwrap();
        assert!(trust.join(1, own("7 p (/x)", &[]), 10));
        let mut known = None;
        xsched_testkit::until("it is known", || {
            known = known.take().or_else(|| trust.take());
            known.is_some()
        });
        let Some(Outcome::Known { conn: 1, known, .. }) = known else { panic!("another") };
        assert_eq!(known.standing.proof, xsched_engine::Proof::Unproven { minutes: 0, of: 10 });
        let work = Work { has_worked: true, ..Work::default() };
        assert!(trust.push(Task::Minute(own("7 p (/x)", &[]), work)));
        drop(trust);
        assert!(text().contains("[programs.\"7 p (/x)\"]\nseconds = 60"), "{}", text());
        let trust = Trust::new(Some(folder.path())).unwrap();
        trust.fault(7, "7 p".to_owned());
        xsched_testkit::until("it is forgotten", || !text().contains("7 p"));
    }
}
