//! Environment in which the command does not see the machine's own xsched: folders, sockets and variables belong to the test.
#![allow(dead_code, unreachable_pub, unused_imports)]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use xsched_testkit::{is_alive as alive, until};

/// Folder of one test.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// Makes the folder, under `/tmp`, so that paths of sockets stay short.
    pub fn new() -> Place {
        Place { dir: tempfile::Builder::new().prefix("xsched-test-").tempdir_in("/tmp").unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Command that runs `xsched` in the test's environment.
    pub fn xsched(&self, args: &[&str]) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_xsched")), args)
    }

    /// Command that runs any program in the test's environment.
    pub fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(b"XSCHED_") || bytes.starts_with(b"SIMDEV_") || name == "LD_PRELOAD" {
                command.env_remove(&name);
            }
        }
        command.env("XDG_RUNTIME_DIR", self.path()).env("XDG_CONFIG_HOME", self.path());
        command.env("HOME", self.path());
        // The socket is the test's own even on a machine with a system daemon.
        command.env("XSCHED_SOCKET", self.socket());
        command
    }

    pub fn socket(&self) -> PathBuf {
        self.join("x.sock")
    }

    /// Compiles a C program (or library, with `-shared`).
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let input = self.join(&format!("{}.c", name.replace('/', "_")));
        std::fs::write(&input, source).unwrap();
        let output = self.join(name);
        let done = Command::new("cc").arg(&input).arg("-o").arg(&output).args(flags).output().unwrap();
        assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
        output
    }

    /// Makes a stand-in for libxsched.so that sets a variable in its program: for tests of the command, not of the library.
    pub fn stand_in(&self, name: &str) -> PathBuf {
        let source = r#"#include <stdlib.h>
            __attribute__((constructor)) static void in(void) { setenv("ATTACHED", "yes", 1); }"#;
        self.compile(name, source, &["-shared", "-fPIC"])
    }

    /// Ends the daemon at the test's socket, if there is one.
    pub fn end_daemon(&self) {
        if let Some(pid) = self.daemon_pid() {
            let _ = Command::new("kill").arg(pid.to_string()).status();
            until("the daemon is gone", || !alive(pid));
        }
    }

    pub fn daemon_pid(&self) -> Option<u32> {
        let output = self.xsched(&["ps", "--json"]).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        answer["daemon"]["pid"].as_u64().map(|n| n as u32)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end_daemon();
    }
}

/// Copies a program, in another process: a child that another test forks meanwhile would else have the copy open for writing, and the copy
/// could not be executed ("Text file busy").
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Output of a command, and its end.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn said(mut command: Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Said {
        code: status.code(),
        signal: status.signal(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

impl Said {
    /// Asserts that it ended with this code after exactly one line, which begins with `xsched: ` and has this text.
    #[track_caller]
    pub fn one_line(&self, code: i32, contains: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("xsched: "), "{self:?}");
        assert!(self.err.contains(contains), "{contains:?} in {self:?}");
    }

    /// Asserts that the command ended with this code and wrote nothing to stderr.
    #[track_caller]
    pub fn quiet(&self, code: i32) {
        assert_eq!((self.code, self.err.as_str()), (Some(code), ""), "{self:?}");
    }
}

/// Path of the library, beside the command.
pub fn library() -> PathBuf {
    beside("libxsched.so")
}

/// Path of a file that a build puts beside the command.
pub fn beside(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_xsched")).with_file_name(name);
    assert!(path.is_file(), "{} is missing: run `cargo build` first", path.display());
    path
}
