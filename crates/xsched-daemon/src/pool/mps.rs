//! NVIDIA's Multi-Process Service (MPS): programs that share one context of the GPU and run side by side.
//!
//! A control daemon, its servers and the programs find each other through a folder, the pipe directory.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Variable that names the pipe directory.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Pipe directory where the variable is not set.
const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";
/// Program of the control daemon.
pub const CONTROL: &str = "nvidia-cuda-mps-control";

/// Pipe directory of programs with this process's environment.
pub fn pipe_directory() -> PathBuf {
    match std::env::var_os(PIPE_DIRECTORY).filter(|v| !v.is_empty()) {
        Some(folder) => folder.into(),
        None => DEFAULT_PIPE_DIRECTORY.into(),
    }
}

/// Reports whether a control daemon answers in a pipe directory. Files of a dead one do not count.
pub fn answers(folder: &Path) -> bool {
    let control = folder.join("control");
    let Ok(kind) = std::fs::metadata(&control).map(|m| m.file_type()) else { return false };
    if kind.is_fifo() {
        // Without this flag, opening a pipe that has no reader would wait for one.
        let open = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&control);
        !open.is_err_and(|e| e.raw_os_error() == Some(libc::ENXIO))
    } else if kind.is_socket() {
        // Connecting with the wrong kind of socket gets a specific error if a daemon listens, and the daemon does not notice the attempt.
        let connect = || {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(&control)?)
        };
        connect() != Err(Errno::CONNREFUSED)
    } else {
        false
    }
}

/// Process ids of this user's control daemons.
pub fn control_daemons() -> Vec<u32> {
    let us = rustix::process::geteuid().as_raw();
    let is_control = |pid: &u32| {
        let own = std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.uid() == us);
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // The second word counts where the first is an interpreter.
        own && line
            .split(|&b| b == 0)
            .take(2)
            .any(|word| word.rsplit(|&b| b == b'/').next() == Some(CONTROL.as_bytes()))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_control).collect()
}
