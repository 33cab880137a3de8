//! Temporary files and folders, which are removed at the end of the process.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let made = tempfile::Builder::new().prefix("xsched-fuzz-").tempdir();
    made.expect("a folder for temporary files")
});

/// Path of this name in the temporary folder.
pub(crate) fn place(name: &str) -> PathBuf {
    FOLDER.path().join(name)
}

/// Writes a file.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file of ours");
}
