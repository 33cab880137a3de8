//! Compiled programs that one test keeps for the next: compiling the same programs again would take half of the tests' processor time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::files::{beside, put, source};

/// Folder of the compiled programs, beside the files that cargo built.
pub(crate) fn folder() -> PathBuf {
    beside("libsimdev.so").with_file_name("testkit")
}

/// Puts the output of a compiler command at a path. Runs the compiler only if the sources changed since the same command last ran.
#[track_caller]
pub(crate) fn made(mut cc: Command, folder: &Path, output: &Path) {
    let mut hasher = DefaultHasher::new();
    cc.get_args().for_each(|arg| arg.hash(&mut hasher));
    let kept = folder.join(format!("{:016x}", hasher.finish()));
    let is_new = std::fs::metadata(&kept).and_then(|file| file.modified()).is_ok_and(|time| time > sources_changed());
    if !is_new {
        std::fs::create_dir_all(folder).expect("a folder for what is compiled");
        // The output gets a name of this process first, since another test may compile the same program now.
        let new = kept.with_extension(std::process::id().to_string());
        let done = cc.arg("-o").arg(&new).output().expect("a C compiler");
        assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
        std::fs::rename(&new, &kept).expect("a name for what is compiled");
    }
    put(&kept, output);
}

/// Time of the last change to a file that a program may include: all sources count for each program.
fn sources_changed() -> SystemTime {
    static LAST: OnceLock<SystemTime> = OnceLock::new();
    *LAST.get_or_init(|| {
        let folders = ["testing", "examples", "include", "crates/xsched-simdev/include"].map(source);
        folders.iter().map(|folder| changed(folder)).max().expect("some folders")
    })
}

/// Newest time of a folder and everything below it. The folder's own time shows that a file was moved into it with an old time.
fn changed(path: &Path) -> SystemTime {
    let own = std::fs::metadata(path).and_then(|data| data.modified()).unwrap_or_else(|_| SystemTime::now());
    let below = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    // Python's caches, written beside the sources, do not count. Crates have no sources of C programs.
    let sources = below.filter(|path| !path.ends_with("__pycache__") && !path.join("Cargo.toml").is_file());
    sources.map(|path| changed(&path)).fold(own, SystemTime::max)
}
