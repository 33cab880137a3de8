//! The folder of records: each user has files of its own, so that one with many programs ends its own history only.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Record;
use super::file::Files;
use crate::tuning::{USAGE_ALL_MAX_BYTES, USAGE_USERS_MAX};

/// Name of the files of users without files of their own.
const OTHERS: &str = "others";

/// Folder of the records.
pub(crate) struct Folder {
    path: PathBuf,
    /// Names with files, once the folder has been read; none = not yet.
    names: Option<HashSet<String>>,
    max_bytes: u64,
    max_users: usize,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Folder {
        Folder { path: path.to_owned(), names: None, max_bytes: USAGE_ALL_MAX_BYTES, max_users: USAGE_USERS_MAX }
    }

    /// Appends records, each to the files of its user.
    ///
    /// # Errors
    /// Returns the system's error, or fails if a file is not the daemon's own. The records of other users are written all the same.
    pub(crate) fn append(&mut self, records: &[Record]) -> std::io::Result<()> {
        let mut by_name: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
        for record in records {
            by_name.entry(self.name_of(&record.identity.user)).or_default().push(record);
        }
        let (mut done, mut grew) = (Ok(()), false);
        for (name, records) in by_name {
            match self.files(&name).append(&records) {
                Ok(aside) => grew |= aside,
                Err(e) => done = Err(e),
            }
        }
        if grew { done.and(self.keep_bound()) } else { done }
    }

    /// Calls for each record of a user, or of all, that ends after a time, in ms since 1970.
    ///
    /// # Errors
    /// Returns the system's error, or fails if a file is not the daemon's own.
    pub(crate) fn each(&self, user: Option<&str>, since_ms: u64, mut take: impl FnMut(Record)) -> std::io::Result<()> {
        let names = match user {
            Some(user) => vec![file_name(user), OTHERS.to_owned()],
            None => names(&self.path)?.into_iter().collect(),
        };
        names.iter().try_for_each(|name| self.files(name).each(since_ms, &mut take))
    }

    fn files(&self, name: &str) -> Files {
        Files::new(&self.path.join(format!("{name}.jsonl")))
    }

    /// Name of the files that the records of a user go to.
    fn name_of(&mut self, user: &str) -> String {
        let name = file_name(user);
        let known = self.names.get_or_insert_with(|| names(&self.path).unwrap_or_default());
        if known.contains(&name) {
            return name;
        }
        if known.len() >= self.max_users {
            return OTHERS.into();
        }
        known.insert(name.clone());
        name
    }

    /// Removes what was put aside longest ago of the users with most, until all files together are within their bound.
    fn keep_bound(&mut self) -> std::io::Result<()> {
        let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
        for name in names(&self.path)? {
            let of_user = self.files(&name).bytes();
            bytes.insert(name, of_user);
        }
        while bytes.values().sum::<u64>() > self.max_bytes {
            let Some((name, most)) = bytes.iter().max_by_key(|(_, bytes)| **bytes).map(|(n, b)| (n.clone(), *b)) else {
                break;
            };
            let less = self.files(&name).remove_oldest()?;
            if less == 0 {
                // The file that grows is left: its size is limited by itself.
                bytes.remove(&name);
            } else {
                bytes.insert(name, most.saturating_sub(less));
            }
        }
        Ok(())
    }
}

/// Name of a user's files: its number, or that with the number of its container.
fn file_name(user: &str) -> String {
    user.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Names with files in a folder.
fn names(folder: &Path) -> std::io::Result<HashSet<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(HashSet::new()),
        entries => entries?,
    };
    let name = |path: PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str)?;
        Some(name.split_once(".jsonl")?.0.to_owned())
    };
    Ok(entries.flatten().filter_map(|entry| name(entry.path())).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Identity;
    use super::super::file::tests::record;
    use super::*;

    fn of_user(user: &str, pid: u32) -> Record {
        let plain = record(1);
        let identity = Identity { user: user.into(), pid, ..(*plain.identity).clone() };
        Record { identity: Arc::new(identity), to_ms: u64::from(pid) + 1, ..plain }
    }

    fn count(folder: &Folder, user: Option<&str>) -> usize {
        let mut n = 0;
        folder.each(user, 0, |_| n += 1).expect("readable");
        n
    }

    #[test]
    fn one_user_with_very_many_programs_ends_its_own_history_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = Folder { max_bytes: 2 << 20, ..Folder::new(&folder.path().join("usage")) };
        all.append(&[of_user("7", 1), of_user("0 of container 5", 2)]).expect("written");
        // Twelve thousand programs.
        let mut written = 0_u64;
        for chunk in 0..60_u32 {
            let records: Vec<Record> = (0..200).map(|n| of_user("8", 10 + chunk * 200 + n)).collect();
            written += records.len() as u64;
            all.append(&records).expect("written");
        }
        assert_eq!((count(&all, Some("7")), count(&all, Some("0 of container 5"))), (1, 1));
        let kept = count(&all, Some("8")) as u64;
        assert!(kept > 1_000 && kept < written, "{kept} of {written}");
        let bytes: u64 = std::fs::read_dir(folder.path().join("usage"))
            .expect("there")
            .flatten()
            .filter_map(|f| f.metadata().ok())
            .map(|m| m.len())
            .sum();
        assert!(bytes <= 4 << 20, "{bytes}");
    }

    #[test]
    fn users_without_room_share_one_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = Folder { max_users: 2, ..Folder::new(folder.path()) };
        for user in ["1", "2", "3", "4"] {
            all.append(&[of_user(user, 1)]).expect("written");
        }
        let of_3: Vec<String> = {
            let mut users = Vec::new();
            all.each(Some("3"), 0, |record| users.push(record.identity.user.clone())).expect("readable");
            users
        };
        // The reader keeps its own.
        assert_eq!(of_3, ["3", "4"]);
        assert_eq!(count(&all, None), 4);
    }
}
