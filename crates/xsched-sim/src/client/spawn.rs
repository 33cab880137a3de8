//! Start of the device server, detached from the program that needs it first.

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Time that the server lives without clients, in seconds.
const IDLE_EXIT_SECS: &str = "10";

/// A server that is starting.
pub(super) struct Starting {
    pidfd: OwnedFd,
}

impl Starting {
    /// Waits at most `ms` milliseconds. Returns whether the process has ended.
    pub(super) fn ended(&self, ms: i64) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(n) if n > 0)
    }
}

/// Program of the server: `SIMDEV_SERVER`, else `xsched` beside this library, else `../../bin/xsched` from there, as a wheel has it.
fn executable() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("SIMDEV_SERVER").filter(|v| !v.is_empty()) {
        return std::fs::canonicalize(path);
    }
    // SAFETY: all-zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is writable, and any address may be asked for.
    let found = unsafe { libc::dladdr((executable as *const ()).cast(), &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: dladdr gave a C string that lives as long as this library.
    let library = unsafe { CStr::from_ptr(info.dli_fname) };
    let library = std::fs::canonicalize(Path::new(std::ffi::OsStr::from_bytes(library.to_bytes())))?;
    Ok(program_of(&library))
}

/// Path of the command that belongs to this library.
fn program_of(library: &Path) -> PathBuf {
    let beside = library.with_file_name("xsched");
    let apart = library.with_file_name("../../bin/xsched").canonicalize();
    if beside.is_file() { beside } else { apart.unwrap_or(beside) }
}

/// Starts `xsched sim-device` for this socket.
pub(super) fn start(socket: &Path) -> io::Result<Starting> {
    let text = |s: OsString| CString::new(s.into_vec()).map_err(io::Error::other);
    let program = text(executable()?.into_os_string())?;
    let socket = text(std::path::absolute(socket)?.into_os_string())?;
    let idle_exit = CString::new(IDLE_EXIT_SECS)?;
    let argv = [program.as_ptr(), c"sim-device".as_ptr(), c"--socket".as_ptr(), socket.as_ptr()];
    let argv: Vec<*const c_char> =
        argv.into_iter().chain([c"--idle-exit".as_ptr(), idle_exit.as_ptr(), std::ptr::null()]).collect();
    // The device is not one of the user's programs: libraries preloaded into the program that starts it must not be in
    // it.
    let env: Vec<CString> = std::env::vars_os()
        .filter(|(name, _)| name != "LD_PRELOAD")
        .filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok())
        // Without this, xsched's library would add itself again.
        .chain([c"XSCHED_DISABLE=1".to_owned()])
        .collect();
    let envp: Vec<*const c_char> = env.iter().map(|v| v.as_ptr()).chain([std::ptr::null()]).collect();

    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, 0.into())?;
    // Made by clone without an exit signal: the program gets no SIGCHLD, and its wait(-1) does not find the child.
    // SAFETY: the child has a copy of this memory and only makes system calls on what was prepared above.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: in the child; see its requirements there.
        0 => unsafe { detach(null.as_raw_fd(), write.as_raw_fd(), &argv, &envp) },
        _ => {}
    }
    drop(write);
    // SAFETY: waits for the child just made, which ends at once.
    unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };

    // The pipe returns the server's process ID and then, only if it could not be executed, the error.
    let mut said = Vec::new();
    std::fs::File::from(read).read_to_end(&mut said)?;
    let number = |i: usize| said.get(i * 4..i * 4 + 4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    if let Some(errno) = number(1) {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let pid = number(0).and_then(Pid::from_raw).ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Starting { pidfd: pidfd_open(pid, PidfdFlags::empty())? })
}

/// Body of the first child: makes the server a child of init, in a session of its own, with none of our descriptors
/// open.
///
/// # Safety
/// Only to be called in a fresh child. Allocates nothing; `argv` and `envp` end in null.
unsafe fn detach(null: RawFd, report: RawFd, argv: &[*const c_char], envp: &[*const c_char]) -> ! {
    let say = |number: c_int| {
        let bytes = number.to_ne_bytes();
        // SAFETY: four bytes of a local array.
        unsafe { libc::write(report, bytes.as_ptr().cast(), bytes.len()) };
    };
    // SAFETY: system calls on numbers and prepared memory only.
    unsafe {
        libc::setsid();
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            0 => {}
            _ => libc::_exit(0),
        }
        say(libc::syscall(libc::SYS_getpid) as c_int);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
        // Closes all descriptors except the report, which is closed when the program is executed.
        if report > 3 {
            libc::syscall(libc::SYS_close_range, 3, report - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, report + 1, u32::MAX, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::chdir(c"/".as_ptr());
        libc::execve(argv[0], argv.as_ptr(), envp.as_ptr());
        say(*libc::__errno_location());
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_lies_beside_the_library_or_in_the_folder_of_programs() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (bin, lib) = (place.join("bin"), place.join("lib/xsched"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        let library = lib.join("libsimdev.so");
        assert_eq!(program_of(&library), lib.join("xsched"), "none: the place where it belongs");
        std::fs::write(bin.join("xsched"), "").unwrap();
        assert_eq!(program_of(&library), bin.join("xsched"));
        std::fs::write(lib.join("xsched"), "").unwrap();
        assert_eq!(program_of(&library), lib.join("xsched"));
    }
}
