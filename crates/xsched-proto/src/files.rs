//! Opening of files that a variable names: it must not make a program wait, or touch a device.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::OpenOptionsExt;
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
}
