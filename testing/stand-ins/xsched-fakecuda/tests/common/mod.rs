//! A folder with the driver under its usual name and a private device, for the C programs of testing/programs/cuda.
#![allow(dead_code, unreachable_pub)] // not every test needs all of it

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xsched_testkit::{finish, so_within};

/// Time limit, longer than any program takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder with the driver under its usual name, and a private device.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        std::os::unix::fs::symlink(library(), bench.path("libcuda.so.1")).unwrap();
        // The driver starts `$SIMDEV_SERVER sim-device --socket PATH --idle-exit SECS`; here that is this test program
        // itself, which runs `serve`.
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nSIMDEV_TEST_SERVE=\"$3\" exec '{}' --exact serve --ignored --nocapture\n",
            exe.display()
        );
        std::fs::write(bench.path("server"), script).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(bench.path("server")).status().unwrap().success());
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        let output = self.path(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&output);
        cc.arg(source(&format!("testing/programs/cuda/{name}.c"))).args(flags).args(["-lpthread", "-lm"]);
        assert!(cc.status().unwrap().success(), "{name}.c");
        output
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("SIMDEV_SOCKET", self.path("simdev.sock"))
            .env("SIMDEV_SERVER", self.path("server"))
            .env("FAKECUDA_STATS", self.path("stats"));
        command
    }

    /// Runs a program and checks that all its checks hold. Returns its line of statistics.
    pub fn check(&self, mut command: Command) -> serde_json::Value {
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), LIMIT);
        let text = String::from_utf8_lossy(&output.stdout);
        let failed: Vec<&str> = text.lines().filter(|line| !line.starts_with("ok ")).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && failed.is_empty(), "{}\n{failed:#?}\n{errors}", output.status);
        assert!(text.lines().count() >= 5, "hardly any checks: {text}");
        let stats = std::fs::read_to_string(self.path("stats")).unwrap();
        serde_json::from_str(stats.lines().last().unwrap()).unwrap()
    }

    /// Runs one of the programs that must succeed on any correct driver.
    pub fn program(&self, name: &str, arguments: &[&Path]) -> serde_json::Value {
        let mut command = self.command(&self.compile(name, &[]));
        command.args(arguments);
        self.check(command)
    }
}

impl Drop for Bench {
    /// Waits until the device is gone: it ends by itself after its last client, and the folder must stay until then.
    fn drop(&mut self) {
        so_within(LIMIT, || !self.path("simdev.sock").exists());
    }
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name)
}

/// Path of libfakecuda.so of this build, which cargo builds for the tests of its package.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libfakecuda.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Body of the device process that a bench's programs start: this test program itself, which runs its test `serve`.
pub fn serve() {
    let socket = std::env::var_os("SIMDEV_TEST_SERVE").expect("run by a bench only");
    xsched_sim::server::run(Path::new(&socket), Some(Duration::from_millis(200))).unwrap();
}
