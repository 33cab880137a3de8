//! Folder of a pool: what its user may do there is bounded, and it can be removed whatever the user has put there.
//!
//! The user owns the folder, since MPS runs as that user. The folder lies in a file system that others need, too (`/run`), so the keeper looks
//! at it now and then ([`excess`]), and clears it once there is more in it than MPS leaves there.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::{Errno, Result};

use crate::tuning::{POOL_FOLDER_ENTRIES_MAX, POOL_FOLDER_LEVELS_MAX, POOL_FOLDER_MAX_BYTES, POOL_REMOVAL_MS};

/// Opens a folder; a link is none.
fn open(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd> {
    rustix::fs::openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())
}

/// Some names in a folder.
fn names(folder: &OwnedFd, most: usize) -> Result<Vec<CString>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if ![&b"."[..], b".."].contains(&entry.file_name().to_bytes()) {
            found.push(entry.file_name().to_owned());
            if found.len() == most {
                break;
            }
        }
    }
    Ok(found)
}

/// Reason for which a pool's folder holds too much; none = it holds no more than MPS leaves there. Reads a bounded number of entries.
pub(super) fn excess(folder: &Path) -> Option<String> {
    let mut folders = vec![(open(CWD, folder).ok()?, 0)];
    let (mut entries, mut bytes) = (0, 0);
    while let Some((folder, level)) = folders.pop() {
        for name in names(&folder, POOL_FOLDER_ENTRIES_MAX + 1).unwrap_or_default() {
            entries += 1;
            if entries > POOL_FOLDER_ENTRIES_MAX {
                return Some(format!("more than {POOL_FOLDER_ENTRIES_MAX} files"));
            }
            let Ok(found) = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
            if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
                continue;
            }
            if level == POOL_FOLDER_LEVELS_MAX {
                return Some(format!("folders more than {POOL_FOLDER_LEVELS_MAX} deep"));
            }
            folders.extend(open(folder.as_fd(), &name).ok().map(|inner| (inner, level + 1)));
        }
    }
    (bytes > POOL_FOLDER_MAX_BYTES).then(|| format!("more than {} MiB", POOL_FOLDER_MAX_BYTES >> 20))
}

/// Removes a folder and all that is in it, for [`POOL_REMOVAL_MS`] at most.
///
/// # Errors
/// Fails if something cannot be removed, such as a place where a file system is mounted, or if there is more.
pub(super) fn remove(folder: &Path) -> Result<()> {
    clear(folder)?;
    rustix::fs::unlinkat(CWD, folder, AtFlags::REMOVEDIR)
}

/// Removes all that is in a folder, see [`remove`].
pub(super) fn clear(folder: &Path) -> Result<()> {
    let until = Instant::now() + Duration::from_millis(POOL_REMOVAL_MS);
    let mut removal = Removal { top: open(CWD, folder)?, lifted: 0, until };
    take(&removal.top);
    removal.clear_top()
}

/// Makes a folder this process's own: its user can put nothing there any more, and the sticky bit protects nothing there. Without the right
/// to do so it may be this process's already.
fn take(folder: &OwnedFd) {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let _ = rustix::fs::fchown(folder, Some(Uid::from_raw(uid.as_raw())), Some(Gid::from_raw(gid.as_raw())));
    let _ = rustix::fs::fchmod(folder, Mode::RWXU);
}

/// Largest number of folders in one another that are open at a time.
const OPEN_MAX: usize = 64;
/// Number of names that are read at a time.
const NAMES: usize = 128;

/// Removal of a tree. Folders that are deeper than [`OPEN_MAX`] are moved to the top before they are emptied. So the tree may be deeper than
/// a stack, the number of open files or the longest path allow, and no step ever goes back up: `..` of a folder that its user has moved would
/// lead elsewhere.
struct Removal {
    top: OwnedFd,
    /// Number of the last folder that was moved to the top.
    lifted: u64,
    until: Instant,
}

/// Folder that is being emptied, by its name in the one around it.
struct Emptied {
    folder: OwnedFd,
    name: CString,
    /// Names of entries that are still there.
    names: Vec<CString>,
}

impl Removal {
    fn clear_top(&mut self) -> Result<()> {
        loop {
            let found = names(&self.top, NAMES)?;
            if found.is_empty() {
                return Ok(());
            }
            for name in found {
                if !self.remove_simple(None, &name)? {
                    self.empty(name)?;
                }
            }
        }
    }

    /// Removes a file or an empty folder in the folder, or at the top. Returns false for another folder.
    fn remove_simple(&self, folder: Option<&OwnedFd>, name: &CString) -> Result<bool> {
        if Instant::now() > self.until {
            return Err(Errno::TIMEDOUT);
        }
        let folder = folder.unwrap_or(&self.top);
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(Errno::ISDIR) => {}
            Err(why) => return Err(why),
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Empties a folder at the top, and removes it.
    fn empty(&mut self, name: CString) -> Result<()> {
        let mut open = vec![Emptied::open(&self.top, name)?];
        while let Some(last) = open.last_mut() {
            if last.names.is_empty() {
                last.names = names(&last.folder, NAMES)?;
            }
            let Some(name) = last.names.pop() else {
                let around = open.len().checked_sub(2).map_or(&self.top, |at| &open[at].folder);
                match open.last().map(|done| rustix::fs::unlinkat(around, &done.name, AtFlags::REMOVEDIR)) {
                    Some(Err(why)) if why != Errno::NOENT => return Err(why),
                    _ => drop(open.pop()),
                }
                continue;
            };
            if self.remove_simple(Some(&last.folder), &name)? {
                continue;
            }
            let inner = Emptied::open(&last.folder, name)?;
            if open.len() < OPEN_MAX {
                open.push(inner);
            } else if let Some(last) = open.last() {
                self.lift(&last.folder, &inner.name)?;
            }
        }
        Ok(())
    }

    /// Moves a folder in a folder to the top.
    fn lift(&mut self, folder: &OwnedFd, name: &CString) -> Result<()> {
        loop {
            self.lifted += 1;
            match rustix::fs::renameat(folder, name, &self.top, format!(".{}", self.lifted)) {
                // The user had this name first.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(Errno::NOENT) => return Ok(()),
                moved => return moved,
            }
        }
    }
}

impl Emptied {
    /// Opens a folder that is to be emptied, and takes it from its user.
    fn open(around: &OwnedFd, name: CString) -> Result<Emptied> {
        let folder = match open(around.as_fd(), &name) {
            Err(Errno::ACCESS) => {
                // Without rights over others' files, the folder is of this process's user, and so is a link in its place.
                rustix::fs::chmodat(around, &name, Mode::RWXU, AtFlags::empty())?;
                open(around.as_fd(), &name)?
            }
            opened => opened?,
        };
        take(&folder);
        Ok(Emptied { folder, name, names: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Makes folders in one another, each with a file, without a path that long.
    fn deep(at: &Path, levels: usize) {
        let mut folder = open(CWD, at).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = open(folder.as_fd(), "d").unwrap();
            let flags = OFlags::CREATE | OFlags::CLOEXEC | OFlags::WRONLY;
            rustix::fs::openat(&folder, "f", flags, Mode::RUSR).unwrap();
        }
    }

    #[test]
    fn a_folder_is_removed_however_deep_it_is_on_a_small_stack_with_few_descriptors() {
        // In memory, as in use: a disk takes long to make them.
        let work = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (pool, beside) = (work.path().join("pool"), work.path().join("beside"));
        std::fs::create_dir(&pool).unwrap();
        std::fs::write(&beside, "kept").unwrap();
        deep(&pool, 30_000);
        std::os::unix::fs::symlink(work.path(), pool.join("link")).unwrap();
        std::fs::create_dir(pool.join(".1")).unwrap();
        std::fs::write(pool.join(".1/taken"), "").unwrap();
        let path = pool.clone();
        let removed = move || loop {
            match remove(&path) {
                Err(Errno::TIMEDOUT) => {}
                done => break done,
            }
        };
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(removed).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(()));
        assert!(!pool.exists() && std::fs::read_to_string(&beside).unwrap() == "kept");
    }

    #[test]
    fn folders_without_rights_and_with_the_sticky_bit_are_removed_too() {
        let work = tempfile::tempdir().unwrap();
        let pool = work.path().join("pool");
        for name in ["closed/inner/innermost", "sticky/inner/innermost"] {
            std::fs::create_dir_all(pool.join(name)).unwrap();
            std::fs::write(pool.join(name).join("file"), "").unwrap();
        }
        let set = |name: &str, mode| {
            std::fs::set_permissions(pool.join(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        set("sticky", 0o1777);
        set("closed/inner/innermost", 0);
        set("closed/inner", 0);
        set("closed", 0);
        if rustix::process::geteuid().is_root() {
            for name in ["sticky", "sticky/inner", "sticky/inner/innermost"] {
                std::os::unix::fs::chown(pool.join(name), Some(12_345), None).unwrap();
            }
        }
        assert_eq!(remove(&pool), Ok(()));
    }

    #[test]
    fn a_folder_with_more_than_mps_leaves_there_is_found() {
        let work = tempfile::tempdir().unwrap();
        let pool = work.path();
        for name in ["pipe", "log"] {
            std::fs::create_dir(pool.join(name)).unwrap();
        }
        std::fs::write(pool.join("log/control.out"), vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(excess(pool), None);
        let large = pool.join("pipe/large");
        std::fs::write(&large, vec![b'x'; usize::try_from(POOL_FOLDER_MAX_BYTES).unwrap()]).unwrap();
        assert_eq!(excess(pool).as_deref(), Some("more than 16 MiB"));
        std::fs::remove_file(&large).unwrap();
        deep(pool, POOL_FOLDER_LEVELS_MAX + 1);
        assert_eq!(excess(pool).as_deref(), Some("folders more than 8 deep"));
        std::fs::remove_dir_all(pool.join("d")).unwrap();
        (0..POOL_FOLDER_ENTRIES_MAX).for_each(|n| drop(std::fs::write(pool.join(format!("log/{n}")), "")));
        assert_eq!(excess(pool).as_deref(), Some("more than 1024 files"));
        clear(pool).unwrap();
        assert_eq!((excess(pool), std::fs::read_dir(pool).unwrap().count()), (None, 0));
    }

    #[test]
    fn no_more_is_removed_at_a_time_than_takes_a_moment() {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("file"), "").unwrap();
        let mut removal = Removal { top: open(CWD, work.path()).unwrap(), lifted: 0, until: Instant::now() };
        assert_eq!(removal.clear_top(), Err(Errno::TIMEDOUT));
        assert!(work.path().join("file").exists());
    }
}
