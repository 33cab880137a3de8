//! The processes of a pool: NVIDIA's control daemon, which starts a server, both as the pool's user.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Error;
use crate::mps::{CONTROL, PIPE_DIRECTORY, answers};
use crate::tuning::POOL_LOG_MAX_BYTES;

/// How often one that an earlier daemon left is looked at.
const LEFT_STEP: Duration = Duration::from_millis(200);

/// The user whose processes they are.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Owner {
    /// The user of a process, in the groups that it is in.
    pub(crate) fn of(pid: u32, uid: u32) -> Option<Owner> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        // The effective user, as the socket has it; the real group, which a program cannot borrow.
        let (uids, gids) = (numbers("Uid:"), numbers("Gid:"));
        (uids.get(1) == Some(&uid)).then_some(())?;
        Some(Owner { uid, gid: *gids.first()?, groups: numbers("Groups:") })
    }

    /// Whose a folder is.
    fn of_folder(folder: &Path) -> Option<Owner> {
        let meta = std::fs::symlink_metadata(folder).ok()?;
        Some(Owner { uid: meta.uid(), gid: meta.gid(), groups: Vec::new() })
    }

    fn is_ours(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}

/// What the processes find in their environment besides.
pub(crate) struct Surroundings<'a> {
    /// `libxsched.so`, for the server.
    pub(crate) library: &'a Path,
    /// The daemon's socket.
    pub(crate) socket: &'a Path,
    /// Number of the pool.
    pub(crate) pool: u64,
    /// Time slice of the server's channel groups, in µs.
    pub(crate) timeslice_us: u64,
    /// GPUs that it sees; empty = all.
    pub(crate) gpus: &'a [String],
}

/// A control daemon in a folder of its own beside the socket.
pub(crate) struct Process {
    folder: PathBuf,
    pipe: String,
    owner: Owner,
    control: Child,
    pub(crate) pidfd: OwnedFd,
    log: File,
}

/// The MPS server of a pool.
pub(crate) struct MpsServer {
    pid: u32,
    pub(crate) pidfd: OwnedFd,
}

impl MpsServer {
    pub(crate) fn of(pid: u32) -> Option<MpsServer> {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
        Some(MpsServer { pid, pidfd })
    }

    /// Whether it has ended, or is about to. The kernel closes its sockets long before it has ended: what it has on the GPU goes first.
    pub(crate) fn is_ending(&self) -> bool {
        /// PF_EXITING of the kernel.
        const EXITING: u64 = 4;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // After its name, which may hold anything: state and six numbers, then the flags (proc(5)).
        let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
        flags.is_none_or(|flags| flags & EXITING != 0) || has_ended(&self.pidfd)
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    !matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

impl Process {
    /// Starts one; it answers soon after.
    pub(crate) fn start(owner: Owner, around: &Surroundings<'_>) -> Result<Process, Error> {
        let all = beside(around.socket);
        let fail = |what: &str, e: &dyn std::fmt::Display| Error::environment(format!("cannot {what}: {e}"));
        let folder = all.join(format!("{}-{}", std::process::id(), around.pool));
        let (pipe, logs) = (folder.join("pipe"), folder.join("log"));
        let shown = || format!("make the folder {}", folder.display());
        // Other users pass through the outer one.
        let made = DirBuilder::new().mode(0o711).recursive(true).create(&all).and_then(|()| {
            for folder in [&folder, &pipe, &logs] {
                DirBuilder::new().mode(0o700).create(folder)?;
            }
            Ok(())
        });
        made.map_err(|e| fail(&shown(), &e))?;
        let path = logs.join("control.out");
        let written = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let written = written.map_err(|e| fail("write the log of MPS", &e))?;
        let log = OpenOptions::new().read(true).write(true).open(&path);
        let log = log.map_err(|e| fail("read the log of MPS", &e))?;
        if !owner.is_ours() {
            for folder in [&logs, &pipe, &folder] {
                chown(folder, Some(owner.uid), Some(owner.gid)).map_err(|e| fail(&shown(), &e))?;
            }
        }
        let output = || written.try_clone().map_err(|e| fail("write the log of MPS", &e));
        let mut command = control(&pipe, &owner);
        command.arg("-f").stdout(output()?).stderr(output()?);
        command.env("CUDA_MPS_LOG_DIRECTORY", &logs).env("LD_PRELOAD", preloads(around.library, &owner));
        command.env("XSCHED_SOCKET", around.socket).env("XSCHED_POOL", around.pool.to_string());
        command.env("XSCHED_POOL_TIMESLICE_US", around.timeslice_us.to_string());
        if !around.gpus.is_empty() {
            // By name: programs then number them as they would without it.
            command.env("CUDA_VISIBLE_DEVICES", around.gpus.join(","));
        }
        let mut control = command.spawn().map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::environment(format!("{CONTROL} is not in the daemon's PATH")),
            _ => fail(&format!("start {CONTROL}"), &e),
        })?;
        let pidfd = Pid::from_raw(control.id().cast_signed())
            .ok_or(Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        let pipe = pipe.into_os_string().into_string();
        match (pidfd, pipe) {
            (Ok(pidfd), Ok(pipe)) => Ok(Process { folder, pipe, owner, control, pidfd, log }),
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

    /// Whether the control daemon takes commands.
    pub(crate) fn answers(&self) -> bool {
        answers(Path::new(&self.pipe))
    }

    /// Whether the control daemon runs.
    pub(crate) fn is_alive(&self) -> bool {
        !has_ended(&self.pidfd)
    }

    /// Has it start the server, which else comes with the first program.
    pub(crate) fn start_server(&self) {
        let asked = tell(Path::new(&self.pipe), &self.owner, &format!("start_server -uid {}", self.owner.uid));
        let wait = move || asked.and_then(|mut child| child.wait());
        let _ = std::thread::Builder::new().name("mps".into()).spawn(wait);
    }

    /// What it wrote to its log since the last time. A log that has become long is emptied.
    pub(crate) fn news(&mut self) -> String {
        let mut text = Vec::new();
        let _ = Read::by_ref(&mut self.log).take(POOL_LOG_MAX_BYTES).read_to_end(&mut text);
        if self.log.stream_position().is_ok_and(|at| at >= POOL_LOG_MAX_BYTES) {
            let _ = self.log.set_len(0);
            let _ = self.log.seek(SeekFrom::Start(0));
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The log's file.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.join("log/control.out")
    }

    /// Has it end once its last client has. It is told here, by a process that outlives this daemon; how that went is not waited
    /// for.
    pub(crate) fn quit(&self) {
        let (asked, pidfd) = (tell(Path::new(&self.pipe), &self.owner, "quit"), self.pidfd.try_clone());
        let wait = move || {
            let told = asked.and_then(|mut child| child.wait());
            if !told.is_ok_and(|status| status.success())
                && let Ok(pidfd) = pidfd
            {
                let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::TERM);
            }
        };
        let _ = std::thread::Builder::new().name("mps".into()).spawn(wait);
    }

    /// Clears up after one that has ended.
    pub(crate) fn bury(mut self) {
        let _ = self.control.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The preload library, before what this daemon's user preloads into all of its processes.
fn preloads(library: &Path, owner: &Owner) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| owner.is_ours() && !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// The folder of all that belong to the daemon at a socket.
fn beside(socket: &Path) -> PathBuf {
    let mut all = socket.as_os_str().to_owned();
    all.push(".mps");
    all.into()
}

/// Ends or removes what daemons that were killed left there.
pub(crate) fn clear(socket: &Path) {
    for folder in std::fs::read_dir(beside(socket)).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Some(owner) = Owner::of_folder(&folder) else { continue };
        let outlast = move || {
            let pipe = folder.join("pipe");
            if answers(&pipe) {
                let _ = tell(&pipe, &owner, "quit").and_then(|mut child| child.wait());
            }
            // It serves its programs to their end.
            while answers(&pipe) {
                std::thread::sleep(LEFT_STEP);
            }
            let _ = std::fs::remove_dir_all(&folder);
        };
        let _ = std::thread::Builder::new().name("mps".into()).spawn(outlast);
    }
}

/// Passes a command to a control daemon.
fn tell(pipe: &Path, owner: &Owner, line: &str) -> std::io::Result<Child> {
    let mut child = control(pipe, owner).stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(format!("{line}\n").as_bytes())?;
    }
    Ok(child)
}

/// The program, for the control daemon of a pipe directory, as the user that it belongs to: nothing of what is meant for
/// programs or for this daemon, and for another user nothing of this daemon's environment that it does not need.
fn control(pipe: &Path, owner: &Owner) -> Command {
    let mut command = Command::new(CONTROL);
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let ours = ["CUDA_VISIBLE_DEVICES", "LD_PRELOAD"].iter().any(|other| name == *other)
            || bytes.starts_with(b"CUDA_MPS_")
            || bytes.starts_with(b"XSCHED_");
        let needed = name == "PATH" || name == "LD_LIBRARY_PATH";
        if ours || !owner.is_ours() && !needed {
            command.env_remove(&name);
        }
    }
    command.env(PIPE_DIRECTORY, pipe).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let other = (!owner.is_ours()).then(|| owner.clone());
    // SAFETY: between fork and exec this calls only async-signal-safe functions, on memory made before.
    unsafe {
        command.pre_exec(move || {
            // This daemon takes its signals from a descriptor; a child needs them as they are.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            libc::setsid();
            let Some(owner) = &other else { return Ok(()) };
            let done = libc::setgroups(owner.groups.len(), owner.groups.as_ptr()) == 0
                && libc::setresgid(owner.gid, owner.gid, owner.gid) == 0
                && libc::setresuid(owner.uid, owner.uid, owner.uid) == 0;
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    command
}
