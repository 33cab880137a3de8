//! Programs whose kernels are too long for spatial sharing: under MPS a kernel that was started holds its part of the
//! GPU until it ends, whatever waits. What is learned of a program counts from its next start.
//!
//! Kept in `long-kernels.toml`; removing a line lets the program try again.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::tuning::{LONG_US, PROGRAM_MAX_BYTES, PROGRAMS_MAX};

const HEAD: &str = "\
# Programs whose kernels are too long to share a GPU by MPS (user id and program: longest kernel, µs).
# `xsched run --share auto` starts them in time sharing; remove a line to let one try again.\n";

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct LongKernels {
    file: Option<PathBuf>,
    known: Known,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Known {
    #[serde(default)]
    longest_us: BTreeMap<String, u64>,
}

/// The name under which a program is remembered: users do not speak for each other.
pub(crate) fn key(uid: u32, program: &str) -> String {
    let mut key = format!("{uid} {}", program.replace(char::is_control, "?"));
    let at = (0..=key.len().min(PROGRAM_MAX_BYTES)).rev().find(|&at| key.is_char_boundary(at)).unwrap_or(0);
    key.truncate(at);
    key
}

impl LongKernels {
    /// What an earlier daemon left in a folder. A file that cannot be read counts as none.
    pub(crate) fn read(folder: Option<&Path>) -> LongKernels {
        let file = folder.map(|folder| folder.join("long-kernels.toml"));
        let text = file.as_deref().and_then(|file| std::fs::read_to_string(file).ok());
        let known = text.and_then(|text| toml::from_str(&text).ok()).unwrap_or_default();
        LongKernels { file, known }
    }

    /// The longest kernel of a program that is known for long ones, in µs.
    pub(crate) fn of(&self, key: &str) -> Option<u64> {
        self.known.longest_us.get(key).copied()
    }

    /// Takes note of a program's longest kernel.
    ///
    /// # Errors
    /// When it will be forgotten with this daemon, in one line.
    pub(crate) fn note(&mut self, key: &str, longest_us: u64) -> Result<(), Error> {
        let known = self.of(key);
        let full = known.is_none() && self.known.longest_us.len() >= PROGRAMS_MAX;
        // A little longer than before is no news.
        if longest_us <= LONG_US || full || known.is_some_and(|before| longest_us < before.saturating_mul(2)) {
            return Ok(());
        }
        self.known.longest_us.insert(key.to_owned(), longest_us);
        let Some(file) = &self.file else { return Ok(()) };
        self.write(file).map_err(|e| Error::environment(format!("cannot write {}: {e}", file.display())))
    }

    fn write(&self, file: &Path) -> std::io::Result<()> {
        let text = toml::to_string(&self.known).map_err(std::io::Error::other)?;
        if let Some(folder) = file.parent() {
            std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        }
        // Written elsewhere and moved, so that it is whole at any time.
        let fresh = file.with_extension("toml.new");
        let mut out = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        out.write_all(HEAD.as_bytes())?;
        out.write_all(text.as_bytes())?;
        std::fs::rename(&fresh, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_kernels_are_remembered_by_the_next_daemon_until_their_line_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (trains, serves) = (key(7, "/usr/bin/python3 /a \"b\".py"), key(7, "/bin/serve"));
        let mut first = LongKernels::read(Some(&state));
        first.note(&serves, LONG_US).unwrap();
        assert!(!state.exists(), "nothing to remember");
        first.note(&trains, 12_345).unwrap();
        first.note(&trains, 12_400).unwrap();
        let second = LongKernels::read(Some(&state));
        assert_eq!((second.of(&trains), second.of(&serves)), (Some(12_345), None));
        assert_eq!(second.of(&key(8, "/usr/bin/python3 /a \"b\".py")), None, "another user's");
        let file = state.join("long-kernels.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Programs"), "{text}");
        let kept: Vec<&str> = text.lines().filter(|line| !line.contains("12345")).collect();
        std::fs::write(&file, kept.join("\n")).unwrap();
        assert_eq!(LongKernels::read(Some(&state)).of(&trains), None);
        std::fs::write(&file, "no toml [").unwrap();
        assert_eq!(LongKernels::read(Some(&state)).of(&trains), None);
    }

    #[test]
    fn names_are_one_line_and_not_endless() {
        assert_eq!(key(0, "a\nb"), "0 a?b");
        assert!(key(0, &"ä".repeat(5_000)).len() <= PROGRAM_MAX_BYTES);
    }

    #[test]
    fn without_a_folder_it_is_known_as_long_as_the_daemon_lives() {
        let mut known = LongKernels::read(None);
        known.note("p", 3_000).unwrap();
        assert_eq!(known.of("p"), Some(3_000));
    }
}
