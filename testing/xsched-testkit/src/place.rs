//! A folder for one test, with a simulated device and room for a daemon.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;

use crate::files::{beside, put, source};
use crate::process::Process;
use crate::{kept, one_of, until};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Place of a test. Its device starts with the first program and ends with the place.
pub struct Place {
    dir: tempfile::TempDir,
    device: Mutex<Option<Process>>,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    /// Makes a place, once no other test of this program has one.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Place {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        // `/tmp` keeps the paths of sockets short.
        let dir = tempfile::Builder::new().prefix("xsched-e2e-").tempdir_in("/tmp").expect("a temporary folder");
        beside("libxsched.so");
        beside("libsimdev.so");
        Place { dir, device: Mutex::new(None), _alone: alone }
    }

    /// Path of a file in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.join("x.sock")
    }

    /// Command whose environment names this place's device and daemon, and none of the machine's own.
    pub fn command(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let bytes = name.as_encoded_bytes();
            let chooses = ["LD_PRELOAD", "CUDA_VISIBLE_DEVICES"].iter().any(|other| name == *other);
            let ours: [&[u8]; 4] = [b"XSCHED_", b"SIMDEV_", b"FAKECUDA_", b"CUDA_MPS_"];
            if ours.iter().any(|prefix| bytes.starts_with(prefix)) || chooses {
                command.env_remove(&name);
            }
        }
        for name in ["HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            command.env(name, self.dir.path());
        }
        // The state folder is then its default: below the home.
        command.env_remove("XDG_STATE_HOME");
        command.env("SIMDEV_SOCKET", self.join("sim.sock")).env("XSCHED_SOCKET", self.socket());
        command.env("XSCHED_STATS", self.join("stats"));
        // PoCL keeps compiled kernels below the home by default: each test would wait for its compiler again.
        command.env("POCL_CACHE_DIR", kept::folder().join("pocl"));
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Command that runs `xsched`.
    pub fn xsched(&self, args: &[&str]) -> Command {
        self.command(self.built("xsched"), args)
    }

    /// Path of a built file: of the copy that other users can reach, if there is one.
    fn built(&self, name: &str) -> PathBuf {
        let copy = self.join("build").join(name);
        if copy.is_file() { copy } else { beside(name) }
    }

    /// Copies the files of the build that other users need, since they may not be able to reach its folder. Later commands are started from
    /// the copies.
    pub fn share_build(&self) {
        let build = self.join("build");
        std::fs::create_dir_all(&build).expect("a folder for copies");
        for name in ["xsched", "libxsched.so", "libsimdev.so"] {
            // A present copy may be running.
            let copy = build.join(name);
            if !copy.is_file() {
                put(&beside(name), &copy);
            }
        }
    }

    /// Runs `xsched` and returns its output; fails unless it ended well.
    #[track_caller]
    pub fn ask(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.xsched(args).output().expect("xsched runs");
        assert!(status.success(), "xsched {args:?}: {status}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("text")
    }

    /// Compiles a program of `testing` (or a library, if the flags say so), linked against the simulated device where they ask for it.
    pub fn compile(&self, file: &str, flags: &[&str]) -> PathBuf {
        let output = self.join(Path::new(file).file_stem().and_then(OsStr::to_str).expect("a name"));
        let libraries = beside("libsimdev.so").parent().expect("a folder").to_owned();
        let mut rpath = std::ffi::OsString::from("-Wl,-rpath,");
        rpath.push(&libraries);
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
        cc.arg(source("testing").join(file)).arg("-I").arg(source("crates/xsched-simdev/include"));
        cc.arg("-L").arg(&libraries).arg(rpath).args(flags);
        kept::made(cc, &kept::folder().join("programs"), &output);
        output
    }

    /// Compiles a program of `testing/programs/hazards` for the simulated device, and starts the device.
    pub fn sim_program(&self, name: &str) -> PathBuf {
        self.device();
        self.compile(&format!("programs/hazards/{name}.c"), &["-lsimdev", "-lpthread", "-lm"])
    }

    /// Compiles an OpenCL program of `testing/programs/hazards`.
    pub fn opencl_program(&self, name: &str) -> PathBuf {
        self.compile(&format!("programs/hazards/{name}.c"), &["-lOpenCL", "-lpthread", "-lm"])
    }

    /// Text of all files in the daemons' state folder, which is kept for the next daemon.
    pub fn kept(&self) -> String {
        let files = std::fs::read_dir(self.join(".local/state/xsched")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    }

    /// Starts the simulated device, unless it runs.
    pub fn device(&self) {
        self.devices(1);
    }

    /// Starts this many simulated devices, served by one process, if there are none.
    pub fn devices(&self, count: u32) {
        self.devices_with(count, &[]);
    }

    /// Starts this many simulated devices with these variables, if there are none.
    pub fn devices_with(&self, count: u32, variables: &[(&str, &str)]) {
        let mut device = self.device.lock().unwrap_or_else(|e| e.into_inner());
        if device.is_none() {
            let socket = self.join("sim.sock");
            let mut command = self.xsched(&["sim-device", "--socket", socket.to_str().expect("text")]);
            command.env("SIMDEV_DEVICES", count.to_string()).envs(variables.iter().copied());
            *device = Some(Process::start(command));
            // The file appears once the device can be connected to.
            until("the device answers", || socket.exists());
        }
    }

    /// Starts a daemon and waits until it answers.
    pub fn daemon(&self, args: &[&str]) -> Process {
        self.daemon_with(args, &[])
    }

    /// Starts a daemon with these variables.
    pub fn daemon_with(&self, args: &[&str], variables: &[(&str, &OsStr)]) -> Process {
        let mut command = self.xsched(&["daemon"]);
        command.args(args).envs(variables.iter().copied());
        self.answering(command)
    }

    /// Starts a daemon that can start a private MPS daemon, since its `PATH` begins with the stand-ins of [`Place::mps_binaries`].
    pub fn daemon_with_mps(&self, args: &[&str], variables: &[(&str, &str)]) -> Process {
        let mut command = self.xsched(&["daemon"]);
        command.args(args).env("PATH", self.path_with_mps()).envs(variables.iter().copied());
        self.answering(command)
    }

    fn answering(&self, command: Command) -> Process {
        let mut daemon = Process::start(command);
        let pid = daemon.pid();
        until("the daemon answers", || {
            assert!(daemon.has_ended().is_none(), "the daemon ended");
            self.ps().is_some_and(|ps| ps["daemon"]["pid"] == pid)
        });
        daemon
    }

    /// Makes a folder with stand-ins for NVIDIA's `nvidia-cuda-mps-control` and `nvidia-cuda-mps-server`, under these names. They serve
    /// programs that use the software driver ([`crate::Gpu`]) with this place's device.
    ///
    /// The control program finds the server by itself. Like NVIDIA's, the stand-ins need `CUDA_MPS_PIPE_DIRECTORY` and
    /// `CUDA_MPS_LOG_DIRECTORY`. They end when the pipe directory goes away, if not before; so it should lie in this place.
    pub fn mps_binaries(&self) -> PathBuf {
        let folder = self.join("mps-bin");
        if !folder.is_dir() {
            std::fs::create_dir(&folder).expect("a folder for the stand-ins");
            for name in ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "libfakecuda.so"] {
                put(&beside(name), &folder.join(name));
            }
        }
        folder
    }

    /// `PATH` with the folder of the stand-ins first.
    pub fn path_with_mps(&self) -> std::ffi::OsString {
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.mps_binaries()).chain(std::env::split_paths(&usual));
        std::env::join_paths(folders).expect("no colon in a place's path")
    }

    /// Starts an MPS daemon that is not xsched's, with the pipe directory `name` of this place, and waits until it answers. Its
    /// logs lie in `NAME-log`. Dropping the process ends it with its server, at once.
    pub fn mps_daemon(&self, name: &str, variables: &[(&str, &str)]) -> Process {
        let mut command = self.mps_control(name);
        command.arg("-f").envs(variables.iter().copied());
        let daemon = Process::start(command);
        until("the MPS daemon answers", || self.mps_says(name, "get_server_list").is_ok());
        daemon
    }

    /// Sends the MPS daemon of a pipe directory a command. Returns its answer, or the error message of the control program.
    pub fn mps_says(&self, name: &str, line: &str) -> Result<String, String> {
        let mut child =
            self.mps_control(name).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.as_mut().expect("the stand-in runs");
        writeln!(child.stdin.take().expect("a pipe"), "{line}").expect("the stand-in reads");
        let (mut out, mut err) = (String::new(), String::new());
        child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
        child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        let done = child.wait().expect("a child").success();
        if done { Ok(out.trim().to_owned()) } else { Err(err.trim().to_owned()) }
    }

    /// Command that runs the control program for the pipe directory `name` of this place, or for an absolute path.
    fn mps_control(&self, name: &str) -> Command {
        let mut command = self.command(self.mps_binaries().join("nvidia-cuda-mps-control"), &[]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.join(name));
        command.env("CUDA_MPS_LOG_DIRECTORY", self.join(&format!("{name}-log")));
        command
    }

    /// Starts a program under `xsched run`.
    pub fn run(&self, options: &[&str], program: &Path, args: &[&str]) -> Process {
        Process::start(self.run_command(options, program, args))
    }

    /// Command that runs a program under `xsched run`.
    pub fn run_command(&self, options: &[&str], program: &Path, args: &[&str]) -> Command {
        let mut command = self.xsched(&["run"]);
        command.args(options).arg("--").arg(program).args(args);
        command
    }

    /// Command that runs a program as another user. There must be a daemon and a device. Needs root.
    pub fn run_command_of(&self, uid: u32, options: &[&str], program: &Path, args: &[&str]) -> Command {
        self.share_build();
        let runtime = self.join(&format!("run-{uid}"));
        std::fs::create_dir_all(&runtime).expect("a runtime folder");
        std::os::unix::fs::chown(&runtime, Some(uid), Some(uid)).expect("root");
        for (path, mode) in [(self.join(""), 0o755), (self.join("sim.sock"), 0o666), (self.socket(), 0o666)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("own files");
        }
        let mut command = self.run_command(options, program, args);
        command.env("LD_LIBRARY_PATH", self.join("build")).env("XDG_RUNTIME_DIR", runtime).env_remove("XSCHED_STATS");
        command.current_dir("/").uid(uid).gid(uid);
        command
    }

    /// Answer of `xsched ps`, or none without a daemon. A daemon that is slow to answer, as on a busy machine, is asked three times.
    pub fn ps(&self) -> Option<Value> {
        for _ in 0..3 {
            let output = self.xsched(&["ps", "--json"]).output().expect("xsched runs");
            if output.status.success() {
                return Some(serde_json::from_slice(&output.stdout).expect("JSON"));
            }
            if !String::from_utf8_lossy(&output.stderr).contains(" does not answer") {
                break;
            }
        }
        None
    }

    /// Entry of a program in the answer of `xsched ps`.
    pub fn program(&self, pid: u32) -> Option<Value> {
        self.ps()?["programs"].as_array()?.iter().find(|p| p["pid"] == pid).cloned()
    }

    /// First group of a program, which has no other in most tests.
    pub fn group(&self, pid: u32) -> Option<Value> {
        self.program(pid)?["groups"].as_array()?.first().cloned()
    }

    /// First groups of several programs at one moment: two calls of `xsched ps` would show the second one later.
    #[track_caller]
    pub fn groups_at_once<const N: usize>(&self, pids: [u32; N]) -> [Value; N] {
        let ps = self.ps().expect("a daemon");
        let shown = ps["programs"].as_array().expect("a list");
        pids.map(|pid| shown.iter().find(|entry| entry["pid"] == pid).expect("attached")["groups"][0].clone())
    }

    /// Number of launches of a program's only group.
    #[track_caller]
    pub fn launches(&self, pid: u32) -> u64 {
        self.group(pid).and_then(|g| g["launches"].as_u64()).expect("a group")
    }

    /// Checks that of two programs that want a device all the time one goes first: while it launches `n` commands, the
    /// other launches less than a quarter as many. What was going on before counts for neither.
    #[track_caller]
    pub fn assert_ahead(&self, first: u32, second: u32, n: u64) {
        // A program whose thread a busy machine wakes late leaves the device to the other for that time.
        one_of(5, "the first goes ahead", || {
            until("the second is held once", || self.group(second).is_some_and(|g| g["state"] == "ready"));
            let before = [first, second].map(|pid| self.launches(pid));
            until("the first gets on", || self.launches(first) >= before[0] + n);
            let made = [self.launches(first) - before[0], self.launches(second) - before[1]];
            if made[1] * 4 < made[0] { Ok(()) } else { Err(format!("{made:?} launches")) }
        });
    }

    /// Starts a low program of the simulated device and a high one that never pauses, and waits until the low one is held back. There must
    /// be a daemon. Each program has enough in flight to keep the device even while a busy machine wakes its thread late.
    #[track_caller]
    pub fn low_held_by_high(&self) -> (Process, Process) {
        let steady = self.sim_program("steady");
        let start = |class| {
            let mut program = self.run(&["--priority", class], &steady, &["200", "64"]);
            program.expect("ready");
            program.progress_after(0);
            program
        };
        let (mut low, mut high) = (start("low"), start("high"));
        self.await_state(low.pid(), "ready");
        low.skip_lines();
        high.skip_lines();
        (low, high)
    }

    /// Waits until a program's group is in `state` (suspended, or waiting for another group) and launches no more.
    pub fn await_state(&self, pid: u32, state: &str) {
        let mut before = None;
        until("it is held", || {
            let Some(group) = self.group(pid) else { return false };
            let now = (group["state"] == state).then(|| group["launches"].as_u64());
            now.is_some() && std::mem::replace(&mut before, now) == now
        });
    }

    /// Statistics that processes wrote at their ends, with the process ids.
    pub fn stats(&self) -> Vec<(u32, Value)> {
        let text = std::fs::read_to_string(self.join("stats")).unwrap_or_default();
        let parse = |line: &str| -> Value { serde_json::from_str(line).expect("JSON") };
        text.lines().map(parse).map(|v| (v["pid"].as_u64().expect("pid") as u32, v)).collect()
    }

    /// Statistics that one process wrote at its end.
    #[track_caller]
    pub fn stats_of(&self, pid: u32) -> Value {
        let mut lines = self.stats().into_iter().filter(|(p, _)| *p == pid);
        let line = lines.next().unwrap_or_else(|| panic!("{pid} left no line: {:?}", self.stats())).1;
        assert!(lines.next().is_none(), "{pid} left two lines");
        line
    }

    /// Checks that the scheduler counts as many launches as the device (`launched PID N` lines of a program), and that all of them were
    /// scheduled.
    #[track_caller]
    pub fn assert_counts(&self, lines: &[String]) {
        let counts = lines.iter().filter_map(|l| l.strip_prefix("launched "));
        let mut seen = 0;
        for line in counts {
            let (pid, launched) = line.split_once(' ').expect("launched PID N");
            let stats = self.stats_of(pid.parse().expect("pid"));
            let launched: u64 = launched.parse().expect("a number");
            assert_eq!(stats["launches"], launched, "{stats}");
            assert_eq!(stats["unscheduled"], serde_json::json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
            seen += 1;
        }
        assert!(seen > 0, "no count in {lines:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A daemon that `xsched run` started is no child of the test, so that nothing else ends it.
        if let Some(pid) = self.ps().and_then(|ps| ps["daemon"]["pid"].as_u64()) {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
    }
}
