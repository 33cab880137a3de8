//! Opening of files that a variable or an option names: it must not make a program wait, touch a device, or go where another user's link
//! leads.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file for reading. Links are followed.
///
/// # Errors
/// Also fails where the path names a pipe, a socket, a device or a folder.
pub fn read_only(path: &Path) -> Result<File> {
    must_be_regular(&std::fs::metadata(path)?)?;
    opened(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?)
}

/// Opens a file for writing as `options` say, and creates it if they say so.
///
/// # Errors
/// Fails as [`read_only`] does, and where the last part of the path is a link.
pub fn to_write(path: &Path, options: &mut OpenOptions) -> Result<File> {
    // Checked before opening, since a device may act on being opened.
    match std::fs::symlink_metadata(path) {
        Ok(meta) => must_be_regular(&meta)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    opened(options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY).open(path)?)
}

/// Opens a file that is there, for writing. Links of this user and of root are followed where no other user can replace them, and no others:
/// a link of another user would have its target overwritten with this user's rights. In a folder that others may write to, the file must not
/// be another user's either.
///
/// # Errors
/// Also fails with one of these reasons.
pub fn to_overwrite(path: &Path) -> Result<File> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let found = std::fs::symlink_metadata(&path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let around = std::fs::metadata(folder)?;
        let is_shared = around.mode() & 0o022 != 0;
        if !found.is_symlink() {
            if is_shared && !is_trusted(found.uid()) {
                return Err(Error::other(format!("it belongs to user {}", found.uid())));
            }
            return OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY).open(&path);
        }
        let is_replaceable = !is_trusted(around.uid()) || is_shared && around.mode() & 0o1000 == 0;
        if !is_trusted(found.uid()) || is_replaceable {
            return Err(Error::other("it is a link that another user may have made"));
        }
        // A descriptor of this process, as behind /dev/stdout, has no name that could be followed.
        if path.starts_with("/proc") {
            return OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(&path);
        }
        path = folder.join(std::fs::read_link(&path)?);
    }
    Err(Error::other("it is a link to too many links"))
}

/// Largest number of links that are followed.
const LINKS_MAX: usize = 40;

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Checks the opened file again: it may have been replaced since the first check.
fn opened(file: File) -> Result<File> {
    must_be_regular(&file.metadata()?)?;
    Ok(file)
}

fn must_be_regular(meta: &Metadata) -> Result<()> {
    if meta.is_file() { Ok(()) } else { Err(Error::other("it is no regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("xsched-files-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (file, link, fifo) = (folder.join("file"), folder.join("link"), folder.join("fifo"));
        let add = |path: &Path| to_write(path, OpenOptions::new().append(true).create(true));
        assert!(add(&file).is_ok() && add(&file).is_ok() && read_only(&file).is_ok());
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(add(&link).is_err() && read_only(&link).is_ok());
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [&fifo, &folder, Path::new("/dev/null")] {
            for opened in [add(path), read_only(path)] {
                assert!(opened.unwrap_err().to_string().contains("no regular file"), "{}", path.display());
            }
        }
        assert!(add(&folder.join("none/file")).is_err() && read_only(&folder.join("none")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_is_overwritten_through_links_of_this_user_only() {
        let folder = std::env::temp_dir().join(format!("xsched-overwritten-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [file, link, theirs, beyond] = ["file", "link", "theirs", "beyond"].map(|name| folder.join(name));
        let linked = |to: &Path, name: &Path| std::os::unix::fs::symlink(to, name).unwrap();
        let why = |path: &Path| to_overwrite(path).unwrap_err().to_string();
        std::fs::write(&file, "text").unwrap();
        linked(Path::new("file"), &link);
        assert!(to_overwrite(&file).is_ok() && to_overwrite(&link).is_ok());
        assert!(to_overwrite(&folder.join("none")).is_err());
        linked(&folder.join("none"), &folder.join("dangling"));
        assert!(to_overwrite(&folder.join("dangling")).is_err());
        linked(&folder.join("round"), &folder.join("round"));
        assert!(why(&folder.join("round")).contains("too many links"));
        assert!(to_overwrite(Path::new("/dev/stdout")).is_ok());
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            linked(&file, &theirs);
            std::os::unix::fs::lchown(&theirs, Some(12_345), None).unwrap();
            linked(&theirs, &beyond);
            for path in [&theirs, &beyond] {
                assert!(why(path).contains("another user"), "{}", path.display());
            }
            let shared = folder.join("shared");
            std::fs::create_dir(&shared).unwrap();
            std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
            let own = shared.join("own");
            std::fs::write(&own, "").unwrap();
            assert!(to_overwrite(&own).is_ok());
            std::os::unix::fs::chown(&own, Some(12_345), None).unwrap();
            assert!(why(&own).contains("belongs to user 12345"));
            linked(&file, &shared.join("link"));
            assert!(to_overwrite(&shared.join("link")).is_ok(), "no other user can replace it");
            std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
            assert!(why(&shared.join("link")).contains("another user"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
