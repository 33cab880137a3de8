//! Files that are complete at any time, since a new version replaces the old one in one step.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Replaces a file by one with this text: written elsewhere and moved, so that the file is whole at any time. Its folder is made if
/// necessary.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    }
    let fresh = path.with_extension("toml.new");
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&fresh);
    open?.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)
}
