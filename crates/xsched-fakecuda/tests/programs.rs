//! The C programs of testing/cuda/c, which also run on a real driver, with this one as `libcuda.so.1`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xsched_testkit::{finish, so_within};

/// Longer than any program takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder with the driver under its usual name, and a device of its own.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        std::os::unix::fs::symlink(library(), bench.path("libcuda.so.1")).unwrap();
        // The driver starts `$SIMDEV_SERVER sim-device --socket PATH --idle-exit SECS`; here that is this very test
        // program, told to run `serve`.
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nSIMDEV_TEST_SERVE=\"$3\" exec '{}' --exact serve --ignored --nocapture\n",
            exe.display()
        );
        std::fs::write(bench.path("server"), script).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(bench.path("server")).status().unwrap().success());
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        let output = self.path(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&output);
        cc.arg(source(&format!("testing/cuda/c/{name}.c"))).args(flags).args(["-lpthread", "-lm"]);
        assert!(cc.status().unwrap().success(), "{name}.c");
        output
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("SIMDEV_SOCKET", self.path("simdev.sock"))
            .env("SIMDEV_SERVER", self.path("server"))
            .env("FAKECUDA_STATS", self.path("stats"));
        command
    }

    /// Runs a program; all its checks must hold. What it left in the stats.
    fn check(&self, mut command: Command) -> serde_json::Value {
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), LIMIT);
        let text = String::from_utf8_lossy(&output.stdout);
        let failed: Vec<&str> = text.lines().filter(|line| !line.starts_with("ok ")).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && failed.is_empty(), "{}\n{failed:#?}\n{errors}", output.status);
        assert!(text.lines().count() >= 5, "hardly any checks: {text}");
        let stats = std::fs::read_to_string(self.path("stats")).unwrap();
        serde_json::from_str(stats.lines().last().unwrap()).unwrap()
    }

    /// Runs one of the programs that a correct driver runs without a complaint.
    fn program(&self, name: &str, arguments: &[&Path]) -> serde_json::Value {
        let mut command = self.command(&self.compile(name, &[]));
        command.args(arguments);
        self.check(command)
    }
}

impl Drop for Bench {
    /// The device ends by itself after its last client; the folder stays until then.
    fn drop(&mut self) {
        so_within(LIMIT, || !self.path("simdev.sock").exists());
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// libfakecuda.so of this build: cargo makes it for the tests of its package.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libfakecuda.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

#[test]
#[ignore = "the device that the other tests start; `cargo test -p xsched-fakecuda --test programs`"]
fn serve() {
    let socket = std::env::var_os("SIMDEV_TEST_SERVE").expect("run by a bench only");
    xsched_sim::server::run(Path::new(&socket), Some(Duration::from_millis(200))).unwrap();
}

/// Programs, with the number of calls in them that are wrong on purpose.
macro_rules! programs {
    ($($name:ident: $illegal:literal),* $(,)?) => { $(
        #[test]
        fn $name() {
            let stats = Bench::new().program(stringify!($name), &[]);
            assert_eq!(stats["illegal"], $illegal, "{stats}");
        }
    )* };
}

programs! {
    basics: 0, streams: 0, events: 0, memops: 1, hostfuncs: 1, capture: 0, graphs: 0, graph_nodes: 0, errors: 1, contexts: 0,
    multithread: 0,
}

#[test]
fn strict() {
    Bench::new().program("strict", &[]);
}

#[test]
fn procaddress() {
    Bench::new().program("procaddress", &[&source("testing/cuda/names.txt")]);
}

/// A preloaded `ioctl` sees the driver's own calls and may rewrite them.
#[test]
fn a_preloaded_ioctl_rewrites_the_time_slice() {
    let bench = Bench::new();
    let preload = bench.path("rewrite.so");
    let code = "#include <stdarg.h>\n#include <stdint.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int ioctl(int fd, unsigned long request, ...) {\n\
        va_list a; va_start(a, request); uint32_t *c = va_arg(a, void *); va_end(a);\n\
        if ((request & 0xffff) == 0x462a && c[2] == 0xa06c0103) **(uint64_t **)(c + 4) = 321;\n\
        return (int)syscall(SYS_ioctl, fd, request, c); }\n";
    let file = bench.path("rewrite.c");
    std::fs::write(&file, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&preload).arg(&file);
    assert!(cc.status().unwrap().success());
    let mut command = bench.command(&bench.compile("strict", &[]));
    command.env("LD_PRELOAD", &preload).env("EXPECT_TIMESLICE_US", "321");
    bench.check(command);
}

/// With the manager preloaded, it answers what goes through `ioctl`.
#[test]
fn a_preloaded_manager_answers() {
    let bench = Bench::new();
    let manager = bench.compile("fakerm", &["-shared", "-fPIC"]);
    let mut command = bench.command(&bench.compile("strict", &[]));
    command.env("LD_PRELOAD", manager);
    bench.check(command);
}

/// Every name of the newest header, and the two of this library's own.
#[test]
fn exports() {
    let names = std::fs::read_to_string(source("testing/cuda/names.txt")).unwrap();
    let mut wanted: Vec<&str> =
        names.lines().filter(|line| !line.starts_with('#')).chain(["fakeGetCounters", "fakeRmIoctl"]).collect();
    wanted.sort_unstable();
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = listing.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.sort_unstable();
    assert_eq!(exported, wanted);
    let output = Command::new("readelf").arg("-d").arg(library()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("soname: [libcuda.so.1]"));
}
