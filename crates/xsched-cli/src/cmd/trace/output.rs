//! File of a trace. Nothing that exists is overwritten unasked.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use xsched_proto::files;

use crate::failure::{Error, Result};

/// Greatest number in a name that is chosen.
const MOST: u32 = 10_000;

/// Checks a name before anything is asked or made.
///
/// # Errors
/// Fails for a file that exists, unless it may be overwritten. Devices and pipes are no files in this sense.
pub(in crate::cmd) fn check(name: &Path, force: bool) -> Result<()> {
    match name.metadata() {
        Ok(found) if found.is_dir() => {
            Err(Error::input(format!("--output: {} is a folder: name a file", name.display())))
        }
        Ok(found) if found.is_file() && !force => Err(exists(name)),
        _ => Ok(()),
    }
}

fn exists(name: &Path) -> Error {
    Error::input(format!("--output: {} exists: name another file, or add --force", name.display()))
}

/// File that is open for writing. Removed when this is dropped unwritten, if it was made here.
#[derive(Debug)]
pub(in crate::cmd) struct Output {
    file: File,
    name: PathBuf,
    is_new: bool,
}

impl Output {
    /// Opens the file; without a name, a new one in the present folder.
    ///
    /// # Errors
    /// Fails if the file exists and may not be overwritten, or cannot be written.
    pub(in crate::cmd) fn create(name: Option<&Path>, force: bool) -> Result<Output> {
        let cannot =
            |name: &Path, e: std::io::Error| Error::environment(format!("cannot write {}: {e}", name.display()));
        let new = |name: &Path| OpenOptions::new().write(true).create_new(true).open(name);
        if let Some(name) = name {
            return match new(name) {
                Ok(file) => Ok(Output { file, name: name.to_owned(), is_new: true }),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    check(name, force)?;
                    let file = files::to_overwrite(name).map_err(|e| cannot(name, e))?;
                    Ok(Output { file, name: name.to_owned(), is_new: false })
                }
                Err(e) => Err(cannot(name, e)),
            };
        }
        for number in 1..=MOST {
            let name = if number == 1 { "xsched.pftrace".into() } else { format!("xsched-{number}.pftrace") };
            let name = PathBuf::from(name);
            match new(&name) {
                Ok(file) => return Ok(Output { file, name, is_new: true }),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(cannot(&name, e)),
            }
        }
        Err(Error::environment("xsched.pftrace and all further names are taken: give one with --output"))
    }

    /// Writes the whole file. Returns its name.
    pub(in crate::cmd) fn write(mut self, bytes: &[u8]) -> Result<PathBuf> {
        if self.file.metadata().is_ok_and(|found| found.is_file()) {
            // Of an older trace nothing may stand behind this one.
            let _ = self.file.set_len(0);
        }
        let done = self.file.write_all(bytes);
        done.map_err(|e| Error::environment(format!("cannot write {}: {e}", self.name.display())))?;
        self.is_new = false;
        Ok(std::mem::take(&mut self.name))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_is_kept_unless_it_may_go() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("a.pftrace");
        let made = Output::create(Some(&name), false).unwrap();
        assert_eq!(made.write(b"a long one").unwrap(), name);
        for done in [check(&name, false), Output::create(Some(&name), false).map(drop)] {
            let why = done.unwrap_err();
            assert!(why.exit_code() == 2 && why.line().ends_with("exists: name another file, or add --force"), "{why}");
        }
        assert_eq!(std::fs::read(&name).unwrap(), b"a long one");
        Output::create(Some(&name), true).unwrap().write(b"short").unwrap();
        assert_eq!(std::fs::read(&name).unwrap(), b"short");
        assert!(check(folder.path(), true).unwrap_err().line().contains("is a folder"));
        assert_eq!(check(Path::new("/dev/null"), false), Ok(()));
    }

    #[test]
    fn a_file_that_was_not_written_is_gone_again() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("a.pftrace");
        drop(Output::create(Some(&name), false).unwrap());
        assert!(!name.exists());
        std::fs::write(&name, "old").unwrap();
        drop(Output::create(Some(&name), true).unwrap());
        assert_eq!(std::fs::read(&name).unwrap(), b"old");
    }

    #[test]
    fn another_users_link_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return xsched_testkit::skipped("a link of another user takes root");
        }
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("precious"), folder.path().join("a.pftrace"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(Output::create(Some(&link), true).is_ok(), "this user's own");
        std::os::unix::fs::lchown(&link, Some(12_345), None).unwrap();
        let why = Output::create(Some(&link), true).unwrap_err();
        assert!(why.line().contains("another user"), "{why}");
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    }
}
