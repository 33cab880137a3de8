//! Programs that may prove themselves: the time that each has worked on a GPU without a fault, and the files that it consisted of
//! meanwhile. A change of any file starts anew.
//!
//! Kept in `proven.toml`; removing an entry makes a program start anew. A program is identified by its user, by its announced name and by
//! its executable, so that no user can vouch for another's program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xsched_engine::{DeviceShare, Proof, Standing};

use crate::Error;
use crate::files::read_kept;
use crate::tuning::{
    PROVEN_ALL_MAX, PROVEN_ALL_MAX_BYTES, PROVEN_INSIDE_PERCENT, PROVEN_MINUTE_NS, PROVEN_PROGRAMS_MAX,
    PROVEN_USER_MAX_BYTES, TRUST_FILES_MAX,
};

const HEAD: &str = "\
# Programs by user id, what was announced, and executable: seconds of work on a GPU without a fault, and the files that they were made of.
# Written by the daemon; remove an entry to have a program prove itself anew.\n";

/// A minute of work, in s.
const MINUTE_S: u64 = 60;

/// Files that a process runs, as they are on disk, each with a number that distinguishes it from another file at that path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Files {
    pub(crate) exe: String,
    pub(crate) scripts: Vec<String>,
    /// Version of NVIDIA's driver; empty on a machine without it.
    pub(crate) driver: String,
    /// Identities of files by path.
    pub(crate) all: BTreeMap<String, String>,
}

/// Work of a program, as the daemon measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Time of the measurement, in ns.
    pub(crate) at_ns: u64,
    /// True if the device worked for the program since the last measurement.
    pub(crate) has_worked: bool,
    /// Longest kernel of this run, in µs; 0 = unknown.
    pub(crate) longest_us: u64,
    /// Bursts of this run, if they are measured.
    pub(crate) bursts: Option<DeviceShare>,
    /// True for a program of a class above those that pools are made for.
    pub(crate) is_urgent: bool,
    /// True if the program is in a pool, where others stretch its kernels.
    pub(crate) is_pooled: bool,
}

/// Records of programs by name.
#[derive(Debug, Default)]
pub(crate) struct Proven {
    file: Option<PathBuf>,
    programs: BTreeMap<String, Record>,
    /// Number of the last use.
    last: u64,
    /// True if the file has other contents than this.
    pub(crate) is_news: bool,
    /// Reason for which the records of an earlier daemon are not used.
    pub(crate) failed: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Known {
    #[serde(default)]
    programs: BTreeMap<String, Record>,
}

#[derive(Serialize)]
struct Kept<'a> {
    programs: &'a BTreeMap<String, Record>,
}

/// Record of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// Time of work on a GPU without a fault, in s.
    seconds: u64,
    longest_us: u64,
    bursts: u64,
    /// Part of the bursts' time in which the device worked, in percent.
    percent: u32,
    urgent: bool,
    driver: String,
    /// Number of the record's last use: among records that prove nothing, the oldest is removed first.
    used: u64,
    exe: String,
    scripts: Vec<String>,
    files: BTreeMap<String, String>,
    /// Time at which a minute was last counted, in ns: several processes of one program at a time count as one.
    #[serde(skip)]
    counted_ns: Option<u64>,
}

/// Name of a program in the records. `program` is its [`crate::pool::unsuitable::key`].
pub(crate) fn key(program: &str, exe: &str) -> String {
    format!("{program} ({})", exe.replace(char::is_control, "?"))
}

/// Part of a name that identifies the user.
fn user_of(key: &str) -> &str {
    key.split(' ').next().unwrap_or_default()
}

impl Record {
    fn bytes(&self, key: &str) -> usize {
        // A file takes its path, its number, and the separators.
        key.len() + 256 + self.files.iter().map(|(path, id)| path.len() + id.len() + 8).sum::<usize>()
    }

    fn bursts(&self) -> DeviceShare {
        DeviceShare { bursts: self.bursts, percent: self.percent }
    }

    fn standing(&self, minutes: u32) -> Standing {
        let (done, of) = (self.seconds / MINUTE_S, u64::from(minutes));
        let proof = match minutes {
            0 => Proof::Waived,
            _ if done >= of => Proof::Proven { minutes: done },
            _ => Proof::Unproven { minutes: done, of },
        };
        Standing { proof, longest_us: self.longest_us, bursts: self.bursts() }
    }

    /// Part that has changed. `on_disk` has the files of this record that exist now.
    fn change(&self, now: &Files, on_disk: &BTreeMap<String, String>) -> Option<Change> {
        if self.driver != now.driver {
            let named = |version: &str| if version.is_empty() { "none".to_owned() } else { version.to_owned() };
            let why = format!("the driver is {} and was {}", named(&now.driver), named(&self.driver));
            return Some(Change { why, is_program: false });
        }
        let changed = |(path, id): &(&String, &String)| {
            let is = now.all.get(*path).or_else(|| on_disk.get(*path));
            is.is_some_and(|is| is != *id)
        };
        let program = |path: &String| *path == self.exe || self.scripts.contains(path);
        let changes = || self.files.iter().filter(changed).map(|(path, _)| path);
        if let Some(path) = changes().find(|path| program(path)).or_else(|| changes().next()) {
            let what = if *path == self.exe {
                "its executable"
            } else if self.scripts.contains(path) {
                "its script"
            } else {
                "its library"
            };
            return Some(Change { why: format!("{what} {path} has changed"), is_program: program(path) });
        }
        let new = now.all.keys().find(|path| !self.files.contains_key(*path))?;
        Some(Change { why: format!("{new} is new to it"), is_program: false })
    }
}

/// Change of a program's files, driver or executable.
struct Change {
    why: String,
    /// True for the executable or a script: the record then belongs to another program.
    is_program: bool,
}

impl Proven {
    /// Reads the records that an earlier daemon left in a folder. A file that cannot be read counts as none.
    pub(crate) fn read(folder: Option<&Path>) -> Proven {
        let file = folder.map(|folder| folder.join("proven.toml"));
        let max_bytes = 2 * PROVEN_ALL_MAX_BYTES as u64;
        let (Known { mut programs }, failed) =
            file.as_deref().map_or_else(Default::default, |file| read_kept(file, max_bytes));
        // A daemon never writes more.
        if programs.len() > PROVEN_ALL_MAX {
            programs.clear();
        }
        let last = programs.values().map(|record| record.used).max().unwrap_or(0);
        let mut proven = Proven { file, programs, last, is_news: false, failed };
        proven.make_room();
        proven
    }

    /// Names of all programs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.programs.keys()
    }

    /// Paths of a program's known files.
    pub(crate) fn paths(&self, key: &str) -> Vec<String> {
        self.programs.get(key).map_or_else(Vec::new, |record| record.files.keys().cloned().collect())
    }

    /// Standing of a program, where `minutes` of work are a proof.
    pub(crate) fn standing(&self, key: &str, minutes: u32) -> Standing {
        self.programs.get(key).map_or_else(|| Record::default().standing(minutes), |record| record.standing(minutes))
    }

    /// Reports whether some urgent program of a user belongs into the inner pool.
    pub(crate) fn has_urgent(&self, uid: u32, minutes: u32) -> bool {
        let uid = uid.to_string();
        let theirs = self.programs.iter().filter(|(key, record)| user_of(key) == uid && record.urgent);
        theirs.into_iter().any(|(_, record)| record.standing(minutes).belongs_inside())
    }

    /// Compares a program with its record, which starts anew where the program has changed. Returns a line if that is a loss.
    pub(crate) fn compare(&mut self, key: &str, now: &Files, on_disk: &BTreeMap<String, String>) -> Option<String> {
        self.last += 1;
        let used = self.last;
        let Some(record) = self.programs.get_mut(key) else {
            let record = Record {
                driver: now.driver.clone(),
                used,
                exe: now.exe.clone(),
                scripts: now.scripts.clone(),
                files: now.all.clone(),
                ..Record::default()
            };
            self.programs.insert(key.to_owned(), record);
            self.is_news = true;
            self.make_room();
            return None;
        };
        record.used = used;
        let change = record.change(now, on_disk)?;
        let lost = std::mem::take(&mut record.seconds);
        if change.is_program {
            (record.longest_us, record.bursts, record.percent) = (0, 0, 0);
        }
        (record.driver, record.exe, record.scripts) = (now.driver.clone(), now.exe.clone(), now.scripts.clone());
        // Files that the program does not run now may be mapped later in the run.
        let mut files = on_disk.clone();
        files.extend(now.all.clone());
        record.files = if files.len() <= TRUST_FILES_MAX { files } else { now.all.clone() };
        self.is_news = true;
        self.make_room();
        let minutes = lost / MINUTE_S;
        (lost > 0).then(|| format!("{key} has to prove itself anew, after {minutes} min: {}", change.why))
    }

    /// Adds a minute of work of a program that has not changed.
    pub(crate) fn count(&mut self, key: &str, work: Work) {
        if let Some(record) = self.programs.get_mut(key)
            && work.has_worked
            && record.counted_ns.is_none_or(|at_ns| work.at_ns.saturating_sub(at_ns) >= PROVEN_MINUTE_NS)
        {
            record.counted_ns = Some(work.at_ns);
            record.seconds = record.seconds.saturating_add(MINUTE_S);
            self.is_news = true;
        }
    }

    /// Notes the figures of a run of a program.
    pub(crate) fn note(&mut self, key: &str, work: Work) {
        let Some(record) = self.programs.get_mut(key) else { return };
        let before = record.clone();
        record.longest_us = record.longest_us.max(work.longest_us);
        record.urgent = work.is_urgent;
        if let Some(now) = work.bursts {
            let known = record.bursts();
            // Others stretch its kernels in a pool: a figure from there replaces the record only if it differs much.
            let replaces = now.bursts >= xsched_engine::tuning::HOST_BOUND_BURSTS
                && (!work.is_pooled || now.percent < known.percent || now.percent > PROVEN_INSIDE_PERCENT);
            if replaces || now.bursts > known.bursts && known.bursts < xsched_engine::tuning::HOST_BOUND_BURSTS {
                (record.bursts, record.percent) = (now.bursts, now.percent);
            }
        }
        self.is_news |= *record != before;
    }

    /// Cancels a program's proof after a GPU fault. `program` is its [`crate::pool::unsuitable::key`]. Returns lines on the loss.
    pub(crate) fn fault(&mut self, program: &str) -> Vec<String> {
        let begin = format!("{program} (");
        let mut lines = Vec::new();
        self.programs.retain(|key, record| {
            let is_faulty = key.starts_with(&begin);
            if is_faulty {
                let minutes = record.seconds / MINUTE_S;
                lines.push(format!("{key} has to prove itself anew, after {minutes} min: it had a GPU fault"));
            }
            !is_faulty
        });
        self.is_news |= !lines.is_empty();
        lines
    }

    /// Keeps each user's records within limits, and all together: records that prove nothing go first, among these the ones that were not
    /// used for longest.
    fn make_room(&mut self) {
        while let Some(user) = self.user_beyond() {
            let theirs = self.programs.iter().filter(|(key, _)| user_of(key) == user);
            let first = theirs.min_by_key(|(_, record)| (record.seconds > 0, record.used)).map(|(key, _)| key.clone());
            let Some(key) = first else { return };
            self.programs.remove(&key);
        }
    }

    /// A user with more records than one may have, or with most where all together have too many.
    fn user_beyond(&self) -> Option<String> {
        let mut of_users: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (key, record) in &self.programs {
            let (count, bytes) = of_users.entry(user_of(key)).or_default();
            *count += 1;
            *bytes += record.bytes(key);
        }
        let all: usize = of_users.values().map(|(_, bytes)| bytes).sum();
        let is_too_much = all > PROVEN_ALL_MAX_BYTES || self.programs.len() > PROVEN_ALL_MAX;
        let beyond = of_users
            .iter()
            .find(|(_, (count, bytes))| *count > PROVEN_PROGRAMS_MAX || *bytes > PROVEN_USER_MAX_BYTES)
            .or_else(|| of_users.iter().max_by_key(|(_, (_, bytes))| *bytes).filter(|_| is_too_much));
        beyond.map(|(user, _)| (*user).to_owned())
    }

    /// Writes the file, if its contents have changed.
    ///
    /// # Errors
    /// Returns one line if the records will be forgotten with this daemon.
    pub(crate) fn write(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_news) {
            return Ok(());
        }
        let Some(file) = &self.file else { return Ok(()) };
        let text = toml::to_string(&Kept { programs: &self.programs }).map_err(std::io::Error::other);
        let written = text.and_then(|text| crate::files::replace(file, &format!("{HEAD}{text}")));
        written.map_err(|e| Error::environment(format!("cannot write {}: {e}", file.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKED: Work =
        Work { at_ns: 0, has_worked: true, longest_us: 0, bursts: None, is_urgent: false, is_pooled: false };
    const HOST_BOUND: DeviceShare = DeviceShare { bursts: 60, percent: 12 };

    fn files(driver: &str, all: &[(&str, &str)]) -> Files {
        let all: BTreeMap<String, String> = all.iter().map(|(p, id)| ((*p).to_owned(), (*id).to_owned())).collect();
        Files { exe: "/bin/py".into(), scripts: vec!["/a.py".into()], driver: driver.into(), all }
    }

    fn usual() -> Files {
        files("580", &[("/bin/py", "1"), ("/a.py", "2"), ("/lib/x.so", "3")])
    }

    /// Records `minutes` minutes of work of a program.
    fn worked(proven: &mut Proven, key: &str, minutes: u64) {
        assert_eq!(proven.compare(key, &usual(), &BTreeMap::new()), None);
        (1..=minutes).for_each(|minute| proven.count(key, Work { at_ns: minute * PROVEN_MINUTE_NS, ..WORKED }));
    }

    fn minutes(proven: &Proven, key: &str) -> u64 {
        match proven.standing(key, 10).proof {
            Proof::Proven { minutes } | Proof::Unproven { minutes, .. } => minutes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn minutes_of_work_make_a_proof_that_the_next_daemon_knows() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let mut first = Proven::read(Some(&state));
        let (one, other) = (key("7 py /a.py", "/bin/py"), key("8 py /a.py", "/bin/py"));
        worked(&mut first, &one, 9);
        assert_eq!(first.standing(&one, 10).proof, Proof::Unproven { minutes: 9, of: 10 });
        first.count(&one, Work { at_ns: 10 * PROVEN_MINUTE_NS, has_worked: false, ..WORKED });
        assert_eq!(minutes(&first, &one), 9, "it has done nothing");
        first.count(&one, Work { at_ns: 10 * PROVEN_MINUTE_NS, ..WORKED });
        first.count(&one, Work { at_ns: 10 * PROVEN_MINUTE_NS + 1, ..WORKED });
        assert_eq!(first.standing(&one, 10).proof, Proof::Proven { minutes: 10 }, "a second process adds nothing");
        first.note(&one, Work { longest_us: 300, bursts: Some(HOST_BOUND), is_urgent: true, ..WORKED });
        first.write().unwrap();
        let second = Proven::read(Some(&state));
        let standing = Standing { proof: Proof::Proven { minutes: 10 }, longest_us: 300, bursts: HOST_BOUND };
        assert_eq!(second.standing(&one, 10), standing);
        assert_eq!(second.standing(&one, 11).proof, Proof::Unproven { minutes: 10, of: 11 });
        assert_eq!(minutes(&second, &other), 0, "another user's");
        assert_eq!([7, 8, 70].map(|uid| second.has_urgent(uid, 10)), [true, false, false]);
        assert_eq!((second.standing(&other, 0).proof, second.has_urgent(7, 11)), (Proof::Waived, false));
        let file = state.join("proven.toml");
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("# Programs"));
        for text in ["no toml [", "programs = 3", "[programs.x]\nseconds = -1"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(minutes(&Proven::read(Some(&state)), &one), 0, "{text}");
        }
    }

    #[test]
    fn a_change_of_any_part_starts_anew_and_names_it() {
        let key = key("7 py /a.py", "/bin/py");
        let with = |path: &str, id: &str| {
            let mut changed = usual();
            changed.all.insert(path.into(), id.into());
            changed
        };
        let without = files("580", &[("/bin/py", "1"), ("/a.py", "2")]);
        let on_disk = |id: &str| BTreeMap::from([("/lib/x.so".to_owned(), id.to_owned())]);
        let nothing = BTreeMap::new();
        for (now, there, why) in [
            (with("/bin/py", "9"), &nothing, Some("its executable /bin/py has changed")),
            (with("/a.py", "9"), &nothing, Some("its script /a.py has changed")),
            (with("/lib/x.so", "9"), &nothing, Some("its library /lib/x.so has changed")),
            (with("/lib/y.so", "4"), &nothing, Some("/lib/y.so is new to it")),
            (files("590", &[]), &nothing, Some("the driver is 590 and was 580")),
            (files("", &[]), &nothing, Some("the driver is none and was 580")),
            // The program does not map this library yet.
            (without.clone(), &on_disk("9"), Some("its library /lib/x.so has changed")),
            (without.clone(), &on_disk("3"), None),
            (without, &nothing, None),
            (usual(), &nothing, None),
        ] {
            let mut proven = Proven::read(None);
            worked(&mut proven, &key, 12);
            proven.note(&key, Work { longest_us: 500, bursts: Some(HOST_BOUND), ..WORKED });
            let line = why.map(|why| format!("7 py /a.py (/bin/py) has to prove itself anew, after 12 min: {why}"));
            assert_eq!(proven.compare(&key, &now, there), line);
            assert_eq!(minutes(&proven, &key), if why.is_some() { 0 } else { 12 }, "{why:?}");
            let is_another = why.is_some_and(|why| why.contains("executable") || why.contains("script"));
            assert_eq!(proven.standing(&key, 10).longest_us, if is_another { 0 } else { 500 }, "{why:?}");
            // In its present form it may prove itself.
            assert_eq!(proven.compare(&key, &now, there), None, "{why:?}");
            proven.count(&key, Work { at_ns: 100 * PROVEN_MINUTE_NS, ..WORKED });
            assert_eq!(minutes(&proven, &key), if why.is_some() { 1 } else { 13 }, "{why:?}");
        }
    }

    #[test]
    fn a_fault_takes_the_proof_of_its_program_and_no_other() {
        let mut proven = Proven::read(None);
        let keys = [key("7 a", "/x"), key("7 a", "/y"), key("7 ab", "/x"), key("8 a", "/x")];
        keys.iter().for_each(|key| worked(&mut proven, key, 10));
        let lines = proven.fault("7 a");
        assert_eq!(lines[0], "7 a (/x) has to prove itself anew, after 10 min: it had a GPU fault");
        assert_eq!(keys.map(|key| minutes(&proven, &key)), [0, 0, 10, 10]);
        assert_eq!((lines.len(), proven.fault("7 a").len()), (2, 0));
    }

    #[test]
    fn bursts_beside_others_replace_those_alone_only_where_they_are_far_off() {
        let mut proven = Proven::read(None);
        let key = key("7 a", "/x");
        worked(&mut proven, &key, 1);
        let mut note = |bursts, percent, is_pooled| {
            let bursts = Some(DeviceShare { bursts, percent });
            proven.note(&key, Work { bursts, is_pooled, ..WORKED });
            let known = proven.standing(&key, 10).bursts;
            (known.bursts, known.percent)
        };
        assert_eq!(note(20, 30, false), (20, 30), "few are better than none");
        assert_eq!(note(10, 90, false), (20, 30));
        assert_eq!(note(60, 40, false), (60, 40));
        assert_eq!(note(90, 60, true), (60, 40), "others stretch its kernels");
        assert_eq!(note(90, 20, true), (90, 20));
        assert_eq!(note(80, 90, true), (80, 90), "the device is its bottleneck now");
        assert_eq!(note(80, 55, false), (80, 55));
    }

    #[test]
    fn a_user_has_so_many_entries_and_what_proves_nothing_goes_first() {
        let mut proven = Proven::read(None);
        let good = key("7 good", "/x");
        worked(&mut proven, &good, 1);
        worked(&mut proven, &key("8 other", "/x"), 1);
        for n in 0..2 * PROVEN_PROGRAMS_MAX {
            proven.compare(&key(&format!("7 {n}"), "/x"), &usual(), &BTreeMap::new());
        }
        assert_eq!(proven.programs.len(), PROVEN_PROGRAMS_MAX + 1);
        assert_eq!((minutes(&proven, &good), minutes(&proven, &key("8 other", "/x"))), (1, 1));
        // Long paths count by their length.
        let long = |n: usize| (format!("/{n}/{}", "x".repeat(1_000)), "1".to_owned());
        let all: BTreeMap<String, String> = (0..TRUST_FILES_MAX).map(long).collect();
        for n in 0..10 {
            proven.compare(
                &key(&format!("7 long {n}"), "/x"),
                &Files { all: all.clone(), ..usual() },
                &BTreeMap::new(),
            );
        }
        let bytes: usize = proven.programs.iter().map(|(key, record)| record.bytes(key)).sum();
        assert!(bytes < PROVEN_USER_MAX_BYTES + 100_000, "{bytes}");
        for n in 0..100 {
            proven.compare(&key(&format!("{n} long"), "/x"), &Files { all: all.clone(), ..usual() }, &BTreeMap::new());
        }
        let bytes: usize = proven.programs.iter().map(|(key, record)| record.bytes(key)).sum();
        assert!(bytes <= PROVEN_ALL_MAX_BYTES, "{bytes}");
        // A file with this many entries is not from a daemon.
        let folder = tempfile::tempdir().unwrap();
        let entry = |n: usize| format!("[programs.\"{n} p (/x)\"]\nseconds = 60\n");
        for (count, is_read) in [(PROVEN_ALL_MAX, true), (PROVEN_ALL_MAX + 1, false)] {
            let text: String = (0..count).map(entry).collect();
            std::fs::write(folder.path().join("proven.toml"), text).unwrap();
            assert_eq!(Proven::read(Some(folder.path())).names().count(), if is_read { count } else { 0 });
        }
    }
}
