//! Fakes of the kubelet, a container runtime and the API server, and the program under test.
#![allow(dead_code, unreachable_pub)]

pub mod api_server;
pub mod escaped;
pub mod kubelet;
pub mod runtime;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Path of a download of `cargo xtask kubernetes`, if it exists.
pub fn fetched(name: &str) -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_BIN_EXE_xsched-kube")).parent()?;
    let path = build.parent()?.join("kubernetes").join(name);
    path.exists().then_some(path)
}

/// Folder of one test.
pub struct Node {
    folder: tempfile::TempDir,
    /// Additional environment variable of programs that are started.
    variable: std::cell::Cell<Option<(&'static str, &'static str)>>,
}

/// A running `xsched-kube`, killed on drop.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Node {
    pub fn new() -> Node {
        let folder = tempfile::Builder::new().prefix("xsched-kube-").tempdir_in("/tmp").unwrap();
        for name in ["device-plugins", "pod-resources", "nvml", "lib", "run"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Node { folder, variable: Default::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run/x.sock")
    }

    /// Listens as the daemon does, until the result is dropped.
    pub fn daemon(&self) -> rustix::fd::OwnedFd {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
        let _ = std::fs::remove_file(self.socket());
        // Close-on-exec, so that programs started meanwhile do not keep it open.
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(self.socket()).unwrap()).unwrap();
        listen(&fd, 64).unwrap();
        fd
    }

    /// Compiles the fake of NVIDIA's library into the folder's `lib`.
    pub fn compile_nvml(&self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/nvml/nvml.c");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        let done = cc.arg(self.path("lib/libnvidia-ml.so.1")).arg(source).output().expect("a C compiler");
        assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Sets a value that the fake library reports. In one step, since the library may be reading.
    pub fn nvml(&self, name: &str, value: u64) {
        std::fs::write(self.path("nvml/new"), value.to_string()).unwrap();
        std::fs::rename(self.path("nvml/new"), self.path("nvml").join(name)).unwrap();
    }

    /// Generates the specification of the node by the command itself.
    pub fn generate_cdi(&self) -> PathBuf {
        let mut xsched = Command::new(xsched_testkit::beside("xsched"));
        xsched.args(["cdi", "generate", "--output"]).arg(self.path("cdi")).arg("--socket").arg(self.socket());
        let done = xsched.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        self.path("cdi/xsched.dev-class.json")
    }

    /// Starts a program with an environment variable.
    pub fn with_variable<T>(&self, name: &'static str, value: &'static str, start: impl FnOnce() -> T) -> T {
        self.variable.set(Some((name, value)));
        let started = start();
        self.variable.set(None);
        started
    }

    pub fn start(&self, command: &str, configuration: &str, options: &[&str]) -> Program {
        // A file for each command: another program of the node may not have read its own yet.
        let config = self.path(&format!("{command}-kubernetes.toml"));
        std::fs::write(&config, configuration).unwrap();
        self.start_bare(command, &[&["--config", config.to_str().unwrap()], options].concat())
    }

    /// Starts a command without a configuration of the node.
    pub fn start_bare(&self, command: &str, options: &[&str]) -> Program {
        let log = self.path(&format!("{command}.log"));
        let mut program = Command::new(env!("CARGO_BIN_EXE_xsched-kube"));
        program.arg(command);
        program.args(options).env("LD_LIBRARY_PATH", self.path("lib")).env("FAKENVML", self.path("nvml"));
        program.envs(self.variable.get());
        program.stdin(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        Program { child: program.spawn().unwrap(), log }
    }

    pub fn start_device_plugin(&self, configuration: &str, options: &[&str]) -> Program {
        let (kubelet, resources) = (self.path("device-plugins"), self.path("pod-resources/kubelet.sock"));
        let socket = self.socket();
        let mut all = vec!["--socket", socket.to_str().unwrap(), "--kubelet", kubelet.to_str().unwrap()];
        all.extend(["--pod-resources", resources.to_str().unwrap()]);
        all.extend(options);
        self.start("device-plugin", configuration, &all)
    }
}

impl Program {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// HTTP address of the program, which was started with `--listen 127.0.0.1:0`.
    pub fn address(&self) -> String {
        let said = "answers /ready and /metrics at ";
        let start = Instant::now();
        while !self.log().split(said).nth(1).is_some_and(|rest| rest.contains('\n')) {
            assert!(start.elapsed() < xsched_testkit::TIMEOUT, "{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
        self.log().split(said).nth(1).unwrap().lines().next().unwrap().to_owned()
    }

    /// Sends an HTTP request. Returns the status and the text of the answer.
    pub fn http(&self, path: &str) -> (u16, String) {
        use std::io::{Read, Write};
        let address = self.address();
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Kills the program, and waits until it has ended.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Tells the program to end, and waits until it has.
    pub fn end(&mut self) {
        xsched_testkit::signal(self.child.id(), rustix::process::Signal::TERM);
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a future on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Waits for a condition with a deadline, while other tasks go on.
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < xsched_testkit::TIMEOUT, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Program {
    /// Exit code of the program, once it has ended by itself.
    pub fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}
