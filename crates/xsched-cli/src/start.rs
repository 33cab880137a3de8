//! Start of a daemon when none answers.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags};
use xsched_proto::paths::Origin;
use xsched_proto::segment::HEARTBEAT_BYTES;
use xsched_proto::{ask, trust, writing};

use crate::client::NoAnswer;
use crate::failure::{Error, Result};
use crate::{client, folders, values};

/// Longest wait for a daemon to answer. One that ends instead is noticed at once; on a machine that is very busy its start takes seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two checks of the socket while a daemon starts.
const STEP: Duration = Duration::from_millis(2);

/// Reason for which there is no daemon, in one line.
#[derive(Debug)]
pub(crate) enum NoDaemon {
    /// A daemon may answer later.
    Absent(Error),
    /// The daemon at that socket, or one that may come there, is another user's: nothing may attach to it.
    Distrusted(Error),
}

impl NoDaemon {
    pub(crate) fn line(&self) -> &str {
        match self {
            NoDaemon::Absent(why) | NoDaemon::Distrusted(why) => why.line(),
        }
    }
}

impl From<Error> for NoDaemon {
    fn from(why: Error) -> Self {
        NoDaemon::Absent(why)
    }
}

/// Makes sure that a daemon answers at `socket`, and starts one if necessary. Returns whether one was started.
///
/// # Errors
/// Returns the reason for which there is none.
pub(crate) fn ensure(socket: &Path, origin: Origin, scheduler: Option<&Path>) -> std::result::Result<bool, NoDaemon> {
    if origin == Origin::User {
        folders::private(socket.parent().unwrap_or(Path::new("/"))).map_err(NoDaemon::Distrusted)?;
    }
    match client::connect(socket) {
        Ok(_) => return Ok(false),
        Err(NoAnswer::Distrusted(why)) => return Err(NoDaemon::Distrusted(why)),
        Err(NoAnswer::NotConnected(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM)) => {
            return Err(
                Error::environment(format!("no permission to talk to the daemon at {}", socket.display())).into()
            );
        }
        // Another daemon could not take its place.
        Err(NoAnswer::NotConnected(rustix::io::Errno::AGAIN)) => return Err(client::stopped(socket).into()),
        Err(NoAnswer::NotConnected(e)) if origin == Origin::System => {
            let shown = socket.display();
            let why = format!("the system's daemon at {shown} does not answer ({e}); see `systemctl status xsched`");
            return Err(Error::environment(why).into());
        }
        Err(_) => {}
    }
    if socket.parent().is_some_and(Path::exists) {
        trust::check_folder(socket).map_err(NoDaemon::Distrusted)?;
    }
    let deadline = Instant::now() + PATIENCE;
    // One starter at a time: the second one finds the first one's daemon.
    let Some(_lock) = lock(socket, deadline)? else { return Ok(false) };
    if client::connect(socket).is_ok() {
        return Ok(false);
    }
    let daemon = spawn(socket, scheduler)?;
    loop {
        // By its file alone: the meeting point may be another user's, and each attempt there a wait.
        if ask::connect(socket).is_ok() {
            return Ok(true);
        }
        let advice = format!("`xsched daemon --socket {}` shows why", socket.display());
        // Waits one step, or less if the daemon dies meanwhile.
        if daemon.ends_within(STEP)? {
            let why = match writing::may_grow_to(HEARTBEAT_BYTES) {
                Ok(()) => format!("the daemon ended as soon as it was started; {advice}"),
                Err(limit) => format!("the daemon cannot begin: {limit}"),
            };
            return Err(Error::environment(why).into());
        }
        if Instant::now() > deadline {
            return Err(Error::environment(format!(
                "the daemon did not answer within {} s; {advice}",
                PATIENCE.as_secs()
            ))
            .into());
        }
    }
}

/// Path of the socket with a suffix.
fn beside(socket: &Path, what: &str) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(what);
    path.into()
}

/// Takes the starters' lock; none when a daemon answers before the lock is free.
fn lock(socket: &Path, deadline: Instant) -> Result<Option<File>> {
    let path = client::starters_lock(socket);
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        let why = format!(
            "there is no folder {} for the socket of a daemon: make it, or name another by --socket",
            folder.display()
        );
        return Err(Error::environment(why));
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(&path)
        .map_err(|e| Error::environment(format!("cannot open {}: {e}", path.display())))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::environment(format!("cannot lock {}: {e}", path.display()))),
        }
        if client::connect(socket).is_ok() {
            return Ok(None);
        }
        if Instant::now() > deadline {
            return Err(Error::environment(format!(
                "another command holds {} and no daemon answers: end it, or wait",
                path.display()
            )));
        }
        std::thread::sleep(STEP);
    }
}

/// Daemon that was started, not as a child of this process.
struct Started {
    pid: Pid,
    /// Pidfd of the daemon; none where there are no pidfds (seccomp, Valgrind, gVisor).
    pidfd: Option<OwnedFd>,
}

impl Started {
    /// Waits for the daemon's end, for at most `most`. Returns whether it has ended.
    fn ends_within(&self, most: Duration) -> Result<bool> {
        let Some(pidfd) = &self.pidfd else {
            std::thread::sleep(most);
            return Ok(rustix::process::test_kill_process(self.pid).is_err());
        };
        client::readable(pidfd, most).map_err(Error::environment)
    }
}

/// Starts `xsched daemon` detached: in a session of its own, in `/`, without open files, not as a child of this process.
fn spawn(socket: &Path, scheduler: Option<&Path>) -> Result<Started> {
    let failed = |e: std::io::Error| Error::environment(format!("cannot start a daemon: {e}"));
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    let tell = writer.as_raw_fd();
    let exe = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(exe);
    command.arg("daemon").arg("--socket").arg(socket);
    command.args(["--idle-exit", &values::IDLE_EXIT_S.to_string()]).arg("--log").arg(beside(socket, ".log"));
    if let Some(library) = scheduler {
        command.arg("--scheduler").arg(library);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Variables for the program are not for the daemon.
    for (name, _) in std::env::vars_os() {
        let is_ours = name.as_encoded_bytes().starts_with(b"XSCHED_") && name != "XSCHED_LOG";
        if name == "LD_PRELOAD" || is_ours {
            command.env_remove(&name);
        }
    }
    // If this command itself runs under xsched, the library in it would restore these variables.
    command.env("XSCHED_FOLLOW", "0");
    // SAFETY: between fork and exec this calls only async-signal-safe functions, allocates nothing and keeps to
    // descriptors that are open (`writer` lives until after spawn).
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 {
                return Err(std::io::Error::last_os_error());
            }
            match libc::fork() {
                -1 => return Err(std::io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGCHLD] {
                libc::signal(signal, libc::SIG_DFL);
            }
            // The program's file-size limit is not meant for the daemon: the daemon removes it as far as it may.
            let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) != 0
                && libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0
            {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            }
            let pid = libc::getpid().to_ne_bytes();
            libc::write(tell, pid.as_ptr().cast(), pid.len());
            // Closed at exec only, so that std can still report a failed one.
            libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    let mut between = command.spawn().map_err(failed)?;
    drop(writer);
    between.wait().map_err(failed)?;
    let mut pid = [0u8; 4];
    reader.read_exact(&mut pid).map_err(failed)?;
    let pid = Pid::from_raw(i32::from_ne_bytes(pid)).ok_or_else(|| Error::environment("cannot start a daemon"))?;
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => Err(Error::environment("the daemon ended as soon as it was started")),
        pidfd => Ok(Started { pid, pidfd: pidfd.ok() }),
    }
}
