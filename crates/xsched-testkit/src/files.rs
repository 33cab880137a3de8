//! Where files of a build and of the source tree lie.

use std::path::{Path, PathBuf};

/// A file that a build puts beside these tests: the command and the libraries.
pub fn beside(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    let path = test.parent().and_then(Path::parent).expect("target folder").join(name);
    assert!(path.is_file(), "{} is missing: run `cargo build` first", path.display());
    path
}

/// A file or folder of the source tree.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}
