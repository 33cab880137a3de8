//! A private device for each test, C programs that use it, and cleanup of everything that was started.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use xsched_testkit::{so_within, until};

/// Time limit, longer than any test takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder with a device's socket, and a script that starts its server.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    env: Vec<(&'static str, String)>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap(), env: Vec::new() };
        // The library starts `$SIMDEV_SERVER sim-device --socket PATH --idle-exit SECS`; here that is this test program
        // itself, which runs `serve`.
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nSIMDEV_TEST_SERVE=\"$3\" exec '{}' --exact serve --ignored --nocapture\n",
            exe.display()
        );
        std::fs::write(bench.server(), script).unwrap();
        Command::new("chmod").arg("+x").arg(bench.server()).status().unwrap();
        bench
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("simdev.sock")
    }

    fn server(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// A program of tests/c or testing/programs/sim that uses this bench's device.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(compiled(program));
        command
            .env("LD_LIBRARY_PATH", library().parent().unwrap())
            .env("SIMDEV_SOCKET", self.socket())
            .env("SIMDEV_SERVER", self.server())
            .envs(self.env.iter().cloned());
        command
    }

    /// Runs a scenario to its end.
    pub(crate) fn scenario(&self, program: &str, name: &str) {
        let output = finish(self.command(program).arg(name).stderr(Stdio::piped()).spawn().unwrap());
        assert!(output.status.success(), "{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the server in the foreground and waits until it answers.
    pub(crate) fn serve(&self) -> Child {
        let mut command = Command::new(self.server());
        command.args(["sim-device", "--socket"]).arg(self.socket()).envs(self.env.iter().cloned());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        until("the server comes up", || self.socket().exists());
        child
    }
}

impl Drop for Bench {
    /// Waits until the server is gone: it ends by itself after its last client, and the folder must stay until then.
    fn drop(&mut self) {
        so_within(LIMIT, || !self.socket().exists());
    }
}

/// Waits for the end of a process, which is killed if it hangs.
pub(crate) fn finish(child: Child) -> Output {
    xsched_testkit::finish(child, LIMIT)
}

/// Path of libsimdev.so of this build, which cargo builds for the tests of its package.
pub(crate) fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let library = exe.with_file_name("libsimdev.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Compiles each C program once.
fn compiled(program: &str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let sources = ["one", "many"].map(|name| here.join("tests/c").join(name).with_extension("c"));
        for source in sources.into_iter().chain([here.join("../../testing/programs/sim/simload.c")]) {
            let program = folder.path().join(source.file_stem().unwrap());
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
            cc.arg("-I").arg(here.join("include")).arg("-L").arg(library().parent().unwrap());
            assert!(cc.args(["-lsimdev", "-lpthread", "-lm"]).status().unwrap().success(), "{}", source.display());
        }
        folder
    });
    folder.path().join(program)
}

/// Body of the ignored test `serve`: the server process of a bench.
pub(crate) fn serve() {
    let socket = std::env::var_os("SIMDEV_TEST_SERVE").expect("run by a bench only");
    if let Err(error) = xsched_sim::server::run(Path::new(&socket), Some(Duration::from_millis(200))) {
        eprintln!("server: {error}");
        std::process::exit(3);
    }
}
