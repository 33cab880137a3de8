//! Files and folders for as long as the process is there.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let made = tempfile::Builder::new().prefix("xsched-fuzz-").tempdir();
    made.expect("a folder for temporary files")
});

/// A place of this name.
pub(crate) fn place(name: &str) -> PathBuf {
    FOLDER.path().join(name)
}

/// Fills a file.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file of ours");
}
