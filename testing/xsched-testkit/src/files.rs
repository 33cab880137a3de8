//! Paths of files of a build and of the source tree.

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Gives a file a second place. A link keeps what a test does with its own path from the others. Where none can be made, `cp`
/// copies: a file that this process has open for writing cannot be run, and a child forked meanwhile would hold it open.
#[track_caller]
pub(crate) fn put(file: &Path, there: &Path) {
    let _ = std::fs::remove_file(there);
    if std::fs::hard_link(file, there).is_err() {
        let copied = Command::new("cp").arg(file).arg(there).status().expect("cp");
        assert!(copied.success(), "{} is not copied to {}", file.display(), there.display());
    }
}

/// Lays out headers, libraries and the files for pkg-config of this build below a prefix, as they are installed.
pub fn installed(prefix: &Path) {
    for folder in ["lib", "share/pkgconfig"] {
        std::fs::create_dir_all(prefix.join(folder)).expect("a folder");
    }
    let root = source("").canonicalize().expect("the source tree");
    let libraries = beside("libhalopencl.so").parent().expect("a folder").to_owned();
    for (from, to) in [(root.join("include"), "include"), (libraries, "lib/xsched")] {
        std::os::unix::fs::symlink(from, prefix.join(to)).expect("a link");
    }
    for file in std::fs::read_dir(root.join("dist/pkgconfig")).expect("files").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("text").replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        let text = text.replace("prefix=/usr\n", &format!("prefix={}\n", prefix.display()));
        std::fs::write(prefix.join("share/pkgconfig").join(file.file_name()), text).expect("a file");
    }
}
