//! Programs that do not suit others of a pool: their kernels are so long that others wait for them, or their GPU faults have ended a pool
//! twice. A new fact about a program counts from the program's next start.
//!
//! Kept in `unsuitable.toml`; removing an entry lets the program try again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::files::read_kept;
use crate::tuning::{FAULTS_MAX, POOL_LONG_US, PROGRAM_MAX_BYTES, PROGRAMS_MAX, UNSUITABLE_MAX_BYTES};

const HEAD: &str = "\
# Programs that do not suit others of a pool (user id and program: longest kernel in us, GPU faults that ended a pool).
# `xsched run --share auto` gives them contexts of their own; remove an entry to let one try again.\n";

/// Known facts about unsuitable programs, and their file.
#[derive(Debug, Default)]
pub(crate) struct Unsuitable {
    file: Option<PathBuf>,
    known: Known,
    /// Reason for which the list of an earlier daemon is not used, or the present one is not on disk.
    pub(crate) failed: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Known {
    #[serde(default)]
    programs: BTreeMap<String, Record>,
}

/// Known facts about one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// Longest kernel of the program, in µs, where that is too long; 0 = none was.
    longest_us: u64,
    /// Number of GPU faults of the program that ended a pool.
    faults: u32,
}

/// Name under which a program is remembered, with its user, so that no user speaks for another.
pub(crate) fn key(uid: u32, program: &str) -> String {
    let mut key = format!("{uid} {}", program.replace(char::is_control, "?"));
    cut(&mut key);
    key
}

/// Cuts a name to the length that is kept.
pub(crate) fn cut(name: &mut String) {
    let at = (0..=name.len().min(PROGRAM_MAX_BYTES)).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    name.truncate(at);
    name.shrink_to_fit();
}

impl Unsuitable {
    /// Reads the list that an earlier daemon left in a folder. A file that cannot be read counts as none.
    pub(crate) fn read(folder: Option<&Path>) -> Unsuitable {
        let file = folder.map(|folder| folder.join("unsuitable.toml"));
        let (known, failed) =
            file.as_deref().map_or_else(Default::default, |file| read_kept(file, UNSUITABLE_MAX_BYTES));
        Unsuitable { file, known, failed }
    }

    /// Names of all known programs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.known.programs.keys()
    }

    /// Reason for which a program must not be in a pool, in one line; none = there is none.
    pub(crate) fn of(&self, key: &str) -> Option<String> {
        let record = self.known.programs.get(key)?;
        if record.faults >= FAULTS_MAX {
            return Some(format!("GPU faults of this program ended {} pools", record.faults));
        }
        let ms = record.longest_us as f64 / 1e3;
        (record.longest_us > 0)
            .then(|| format!("this program ran kernels of {ms:.1} ms in a pool, which others wait for"))
    }

    /// Notes a program's longest kernel, in µs.
    ///
    /// # Errors
    /// Returns one line if the record will be forgotten with this daemon.
    pub(crate) fn note_kernel(&mut self, key: &str, longest_us: u64) -> Result<(), Error> {
        let before = self.known.programs.get(key).map_or(0, |record| record.longest_us);
        // A slightly longer kernel than before is not worth a write.
        if longest_us <= POOL_LONG_US || longest_us < before.saturating_mul(2) {
            return Ok(());
        }
        self.change(key, |record| record.longest_us = longest_us)
    }

    /// Notes a GPU fault of a program that ended a pool.
    ///
    /// # Errors
    /// Fails as [`Self::note_kernel`] does.
    pub(crate) fn note_fault(&mut self, key: &str) -> Result<(), Error> {
        self.change(key, |record| record.faults = record.faults.saturating_add(1))
    }

    fn change(&mut self, key: &str, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
        let user = |key: &str| key.split(' ').next().map(str::to_owned);
        let of_user = self.known.programs.keys().filter(|other| user(other) == user(key)).count();
        if !self.known.programs.contains_key(key) && of_user >= PROGRAMS_MAX {
            return Ok(());
        }
        change(self.known.programs.entry(key.to_owned()).or_default());
        let Some(file) = &self.file else { return Ok(()) };
        let failed = self.write(file).err().map(|e| format!("cannot write {}: {e}", file.display()));
        self.failed.clone_from(&failed);
        failed.map_or(Ok(()), |why| Err(Error::environment(why)))
    }

    fn write(&self, file: &Path) -> std::io::Result<()> {
        let text = toml::to_string(&self.known).map_err(std::io::Error::other)?;
        crate::files::replace(file, &format!("{HEAD}{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_suit_is_remembered_by_the_next_daemon_until_its_entry_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (trains, serves) = (key(7, "/usr/bin/python3 /a \"b\".py"), key(7, "/bin/serve"));
        let mut first = Unsuitable::read(Some(&state));
        first.note_kernel(&serves, POOL_LONG_US).unwrap();
        assert!(!state.exists(), "nothing to remember");
        first.note_kernel(&trains, 123_450).unwrap();
        first.note_kernel(&trains, 124_000).unwrap();
        let second = Unsuitable::read(Some(&state));
        let why = "this program ran kernels of 123.5 ms in a pool, which others wait for";
        assert_eq!((second.of(&trains).as_deref(), second.of(&serves)), (Some(why), None));
        assert_eq!(second.of(&key(8, "/usr/bin/python3 /a \"b\".py")), None, "another user's");
        let file = state.join("unsuitable.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Programs"), "{text}");
        let kept: Vec<&str> = text.lines().filter(|line| !line.contains("123450")).collect();
        std::fs::write(&file, kept.join("\n")).unwrap();
        assert_eq!(Unsuitable::read(Some(&state)).of(&trains), None);
        std::fs::write(&file, "no toml [").unwrap();
        let unread = Unsuitable::read(Some(&state));
        assert_eq!(unread.of(&trains), None);
        assert!(unread.failed.is_some_and(|why| why.contains("unsuitable.toml is not used: ")));
    }

    #[test]
    fn one_fault_is_forgiven() {
        let mut known = Unsuitable::read(None);
        known.note_fault("7 p").unwrap();
        assert_eq!(known.of("7 p"), None);
        known.note_fault("7 p").unwrap();
        assert_eq!(known.of("7 p").as_deref(), Some("GPU faults of this program ended 2 pools"));
    }

    #[test]
    fn a_user_fills_a_list_of_its_own_only() {
        let mut known = Unsuitable::read(None);
        for n in 0..PROGRAMS_MAX {
            known.note_kernel(&key(7, &n.to_string()), 2 * POOL_LONG_US).unwrap();
        }
        let (one_more, other) = (key(7, "more"), key(8, "p"));
        known.note_kernel(&one_more, 2 * POOL_LONG_US).unwrap();
        known.note_kernel(&other, 2 * POOL_LONG_US).unwrap();
        assert!(known.of(&one_more).is_none() && known.of(&other).is_some());
    }

    #[test]
    fn names_are_one_line_and_not_endless() {
        assert_eq!(key(0, "a\nb"), "0 a?b");
        assert!(key(0, &"ä".repeat(5_000)).len() <= PROGRAM_MAX_BYTES);
    }
}
