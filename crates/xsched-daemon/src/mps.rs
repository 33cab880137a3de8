//! NVIDIA's Multi-Process Service (MPS): programs that share one context of the GPU and run side by side.
//!
//! A control daemon, its servers and the programs find each other through a folder, the pipe directory. One that is
//! there already is used as it is; a private one is started by this daemon for its own programs and ended with them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Error;

/// The variable that names the pipe directory.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Where that is without the variable.
const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";
/// The control daemon's program.
pub const CONTROL: &str = "nvidia-cuda-mps-control";

/// The pipe directory of programs with this process's environment.
pub fn pipe_directory() -> PathBuf {
    match std::env::var_os(PIPE_DIRECTORY).filter(|v| !v.is_empty()) {
        Some(folder) => folder.into(),
        None => DEFAULT_PIPE_DIRECTORY.into(),
    }
}

/// Whether a control daemon answers in a pipe directory: what a dead one left there does not count.
pub fn answers(folder: &Path) -> bool {
    let control = folder.join("control");
    let Ok(kind) = std::fs::metadata(&control).map(|m| m.file_type()) else { return false };
    if kind.is_fifo() {
        // A pipe without a reader cannot be opened for writing.
        let open = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&control);
        !open.is_err_and(|e| e.raw_os_error() == Some(libc::ENXIO))
    } else if kind.is_socket() {
        // A socket of the wrong kind is told so by one that is alive, which hears nothing of it.
        let connect = || {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(&control)?)
        };
        connect() != Err(Errno::CONNREFUSED)
    } else {
        false
    }
}

/// A control daemon of our own, in a folder of its own beside the socket.
pub(crate) struct Private {
    folder: PathBuf,
    pipe: String,
    control: Child,
    pidfd: OwnedFd,
}

impl Private {
    /// Starts one; it answers soon after.
    pub(crate) fn start(socket: &Path) -> Result<Private, Error> {
        let mut all = socket.as_os_str().to_owned();
        all.push(".mps");
        let all = PathBuf::from(all);
        clear(&all);
        let fail = |what: &str, e: &dyn std::fmt::Display| Error::environment(format!("cannot {what}: {e}"));
        let folder = all.join(format!("{}-{}", std::process::id(), crate::clock::now_ns()));
        let (pipe, log) = (folder.join("pipe"), folder.join("log"));
        for folder in [&pipe, &log] {
            let made = DirBuilder::new().mode(0o700).recursive(true).create(folder);
            made.map_err(|e| fail(&format!("make the folder {}", folder.display()), &e))?;
        }
        let output = File::create(log.join("control.out")).map_err(|e| fail("write the log of MPS", &e))?;
        let errors = output.try_clone().map_err(|e| fail("write the log of MPS", &e))?;
        let mut command = control(&pipe);
        command.arg("-f").env("CUDA_MPS_LOG_DIRECTORY", &log).stdout(output).stderr(errors);
        let mut control = command.spawn().map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::environment(format!(
                "{CONTROL} is not in the daemon's PATH: install NVIDIA's compute utilities, or use time sharing"
            )),
            _ => fail(&format!("start {CONTROL}"), &e),
        })?;
        let pidfd = Pid::from_raw(control.id().cast_signed())
            .ok_or(Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        let pipe = pipe.into_os_string().into_string();
        match (pidfd, pipe) {
            (Ok(pidfd), Ok(pipe)) => Ok(Private { folder, pipe, control, pidfd }),
            _ => {
                let _ = control.kill();
                let _ = control.wait();
                Err(Error::environment(format!("{CONTROL} cannot be watched, or its folder's name is not UTF-8")))
            }
        }
    }

    /// Its pipe directory.
    pub(crate) fn pipe(&self) -> &str {
        &self.pipe
    }

    /// Whether it runs.
    pub(crate) fn alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// Has it end once its last client has, and clears up after it, without waiting for either.
    pub(crate) fn end(self) {
        let asked = quit(Path::new(&self.pipe));
        // Without a thread the folder stays until the next start.
        let _ = std::thread::Builder::new().name("mps".into()).spawn(move || self.outlast(asked));
    }

    fn outlast(mut self, asked: std::io::Result<Child>) {
        let told = asked.and_then(|mut child| child.wait()).is_ok_and(|status| status.success());
        if !told {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::TERM);
        }
        let _ = self.control.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Ends or removes what daemons that were killed left there.
fn clear(all: &Path) {
    for folder in std::fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let pipe = folder.join("pipe");
        if !answers(&pipe) {
            let _ = std::fs::remove_dir_all(&folder);
        } else if let Ok(mut child) = quit(&pipe) {
            let _ = std::thread::Builder::new().name("mps".into()).spawn(move || child.wait());
        }
    }
}

/// Tells a control daemon to end when its last client has ended.
fn quit(pipe: &Path) -> std::io::Result<Child> {
    let mut child = control(pipe).stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(b"quit\n")?;
    }
    Ok(child)
}

/// The program, for the control daemon of a pipe directory: nothing of what is meant for programs or for this daemon.
fn control(pipe: &Path) -> Command {
    let mut command = Command::new(CONTROL);
    for (name, _) in std::env::vars_os() {
        if name == "CUDA_VISIBLE_DEVICES" || name.as_encoded_bytes().starts_with(b"CUDA_MPS_") {
            command.env_remove(&name);
        }
    }
    command.env(PIPE_DIRECTORY, pipe).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec this calls only async-signal-safe functions, on memory of its own.
    unsafe {
        command.pre_exec(|| {
            // This daemon takes its signals from a descriptor; a child needs them as they are.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            libc::setsid();
            Ok(())
        });
    }
    command
}

/// Process ids of the control daemons that this user runs.
pub fn control_daemons() -> Vec<u32> {
    let us = rustix::process::geteuid().as_raw();
    let is_control = |pid: &u32| {
        let own = std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.uid() == us);
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // The second word where the first is an interpreter.
        own && line
            .split(|&b| b == 0)
            .take(2)
            .any(|word| word.rsplit(|&b| b == b'/').next() == Some(CONTROL.as_bytes()))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_control).collect()
}
