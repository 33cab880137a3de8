//! Keeper of a pool: a process of its own that starts NVIDIA's control daemon as the pool's user, passes commands to it, and cleans up
//! afterwards. So the daemon needs neither the rights of other users nor the devices.
//!
//! The keeper is the daemon's child, or a service of its own that systemd starts for each connection to a socket
//! (`dist/xsched-pool@.service`). Either way the daemon is at the other end of its standard input: one [`Order`], then commands. When the
//! daemon is gone, the keeper tells the control daemon to quit, which serves its programs to their end.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::wire::{MAX_PACKET, decode, encode};

use crate::Error;
use crate::net::socket;
use crate::pool::mps::{CONTROL, PIPE_DIRECTORY, answers};
use crate::pool::{folder, machine};
use crate::tuning::POOL_FOLDER_LOOK_MS;

/// Number of attempts to have a control daemon start its server, and the pause between them.
const START_TRIES: usize = 20;
const START_PAUSE: Duration = Duration::from_millis(20);
/// Interval at which the pool's folder is looked at.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: POOL_FOLDER_LOOK_MS * 1_000_000 };

/// Message of the daemon to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// First message.
    Start {
        /// Version of the protocol, [`PROTOCOL_VERSION`]: the keeper may be of another package than a daemon that still runs.
        version: u32,
        order: Order,
    },
    /// Have the control daemon start its server, which would otherwise start with the first program.
    StartServer,
    /// Have the control daemon end once its last client has ended.
    Quit,
}

/// Description of the pool to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) owner: Owner,
    /// Path of `libxsched.so`, for the server.
    pub(crate) library: PathBuf,
    /// Path of the daemon's socket.
    pub(crate) socket: PathBuf,
    /// Number of the pool.
    pub(crate) pool: u64,
    /// Time slice of the server's channel groups, in µs.
    pub(crate) timeslice_us: u64,
}

/// Answer of the keeper to the order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromKeeper {
    /// The control daemon is started. Comes with two descriptors: its pidfd, and its log.
    Started {
        /// Path of the pipe directory.
        pipe: String,
        /// Number of GPUs that it sees.
        gpus: usize,
    },
    /// There is no control daemon, or the one that was started serves no further program.
    Failed(Error),
}

/// User of the pool's processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Owner {
    /// User of a process, with its groups.
    pub(crate) fn of(pid: u32, uid: u32) -> Option<Owner> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        // The effective user id, which the socket shows, and the real group id, which a set-group-id program does not change.
        let (uids, gids) = (numbers("Uid:"), numbers("Gid:"));
        (uids.get(1) == Some(&uid)).then_some(())?;
        Some(Owner { uid, gid: *gids.first()?, groups: numbers("Groups:") })
    }

    fn is_ours(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}

/// Serves the daemon at the other end of standard input, until the control daemon has ended.
///
/// # Errors
/// Returns the error that the daemon gets as well.
pub fn keep_pool() -> Result<(), Error> {
    // A daemon takes its signals from a descriptor, and a child begins with its mask. A terminal's Ctrl-C is meant for the daemon.
    // SAFETY: this process has one thread; the set is made before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
    let _ = rustix::process::setsid();
    let stdin = std::io::stdin();
    let socket = stdin.as_fd();
    let order = first(socket)?;
    match Kept::start(order) {
        Ok(kept) => {
            let said = FromKeeper::Started { pipe: kept.pipe.clone(), gpus: kept.gpus };
            say(socket, &said, &[kept.pidfd.as_fd(), kept.log.as_fd()]);
            kept.serve(socket);
            Ok(())
        }
        Err(why) => {
            say(socket, &FromKeeper::Failed(why.clone()), &[]);
            Err(why)
        }
    }
}

/// Receives the order, from a daemon that runs as the same user as this process.
fn first(socket: BorrowedFd<'_>) -> Result<Order, Error> {
    let peer =
        rustix::net::sockopt::socket_peercred(socket).map_err(|_| Error::input("its standard input is no daemon"))?;
    if peer.uid != rustix::process::geteuid() {
        return Err(Error::environment("a daemon of another user asks for a pool"));
    }
    match hear(socket) {
        Some(ToKeeper::Start { version, order }) if version == PROTOCOL_VERSION => Ok(order),
        Some(ToKeeper::Start { version, .. }) => {
            let why = Error::Environment(format!(
                "the daemon speaks protocol {version}, its keeper {PROTOCOL_VERSION}: restart it"
            ));
            say(socket, &FromKeeper::Failed(why.clone()), &[]);
            Err(why)
        }
        _ => Err(Error::environment("the daemon has given no order")),
    }
}

/// Receives one message; none = the daemon is gone, or sends nonsense.
fn hear(socket: BorrowedFd<'_>) -> Option<ToKeeper> {
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => return None,
            Ok((_, length)) => return decode(&buffer[..length]).ok(),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn say(socket: BorrowedFd<'_>, message: &FromKeeper, fds: &[BorrowedFd<'_>]) {
    // If the daemon is gone, the next poll of the socket shows it.
    if let Ok(packet) = encode(message) {
        let _ = socket::send(socket, &packet, fds);
    }
}

/// Control daemon in a folder of its own.
struct Kept {
    folder: PathBuf,
    /// Lock that is held for as long as the folder is in use.
    _lock: File,
    pipe: String,
    owner: Owner,
    control: Child,
    pidfd: OwnedFd,
    log: File,
    gpus: usize,
}

impl Kept {
    fn start(order: Order) -> Result<Kept, Error> {
        let Order { owner, library, socket, pool, timeslice_us } = order;
        let fail = |what: &str, e: &dyn std::fmt::Display| Error::environment(format!("cannot {what}: {e}"));
        let all = folder_of_all(&socket);
        let folder = all.join(format!("{}-{pool}", std::process::id()));
        let (pipe, logs) = (folder.join("pipe"), folder.join("log"));
        let shown = || format!("make the folder {}", folder.display());
        clear(&all);
        // Other users have to pass through the outer folder.
        let made = DirBuilder::new().mode(0o711).recursive(true).create(&all).and_then(|()| {
            for folder in [&folder, &pipe, &logs] {
                DirBuilder::new().mode(0o700).create(folder)?;
            }
            File::open(&folder)
        });
        let lock = made.map_err(|e| fail(&shown(), &e))?;
        let _ = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
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
        let gpus = machine::gpus();
        let mut command = control(&pipe, &owner);
        command.arg("-f").stdout(output()?).stderr(output()?);
        command.env("CUDA_MPS_LOG_DIRECTORY", &logs).env("LD_PRELOAD", preloads(&library, &owner));
        command.env("XSCHED_SOCKET", &socket).env("XSCHED_POOL", pool.to_string());
        command.env("XSCHED_POOL_TIMESLICE_US", timeslice_us.to_string());
        if !gpus.is_empty() {
            // GPUs are set by UUID: programs then number them as they would without this variable.
            command.env("CUDA_VISIBLE_DEVICES", gpus.join(","));
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
            (Ok(pidfd), Ok(pipe)) => {
                Ok(Kept { folder, _lock: lock, pipe, owner, control, pidfd, log, gpus: gpus.len() })
            }
            _ => {
                let _ = control.kill();
                let _ = control.wait();
                Err(Error::environment(format!("{CONTROL} cannot be watched, or its folder's name is not UTF-8")))
            }
        }
    }

    /// Obeys the daemon until the control daemon has ended.
    fn serve(mut self, socket: BorrowedFd<'_>) {
        let mut daemon = Some(socket);
        loop {
            let ended = {
                let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
                fds.extend(daemon.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
                match rustix::event::poll(&mut fds, Some(&LOOK)) {
                    Ok(0) => {
                        self.end_if_too_full(daemon);
                        continue;
                    }
                    Ok(_) => !fds[0].revents().is_empty(),
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                }
            };
            if ended {
                break;
            }
            match daemon.and_then(hear) {
                Some(ToKeeper::StartServer) => self.start_server(),
                Some(ToKeeper::Quit) => self.quit(),
                Some(ToKeeper::Start { .. }) | None => {
                    self.quit();
                    daemon = None;
                }
            }
        }
        let _ = self.control.wait();
        remove(&self.folder);
    }

    /// Ends the pool if its folder holds more than a pool needs: the user would take room from all others. The daemon is told first, and sends
    /// no program there any more. The folder is cleared at once, since the pool lives for as long as its programs.
    fn end_if_too_full(&self, daemon: Option<BorrowedFd<'_>>) {
        let Some(excess) = folder::excess(&self.folder) else { return };
        if let Some(daemon) = daemon {
            let why = Error::Environment(format!("the folder of the pool holds {excess}"));
            say(daemon, &FromKeeper::Failed(why), &[]);
            // The daemon waits for changes of the log, and reads messages then.
            let _ = self.log.set_len(0);
        }
        say_line(&format!(
            "user {}: a pool ends, as its folder {} holds {excess}",
            self.owner.uid,
            self.folder.display()
        ));
        self.quit();
        if let Err(why) = folder::clear(&self.folder) {
            say_line(&format!("{} is not cleared: {why}", self.folder.display()));
        }
    }

    /// Has the control daemon start its server. A control daemon that has bound its socket and does not listen yet seems to answer
    /// ([`crate::pool::mps::answers`]), but takes no command.
    fn start_server(&self) {
        let start = || self.tell(&format!("start_server -uid {}", self.owner.uid)).is_ok_and(|status| status.success());
        for _ in 0..START_TRIES {
            if start() {
                return;
            }
            std::thread::sleep(START_PAUSE);
        }
    }

    /// Has the control daemon end once its last client has ended; one that does not take the command is killed.
    fn quit(&self) {
        if !self.tell("quit").is_ok_and(|status| status.success()) {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::TERM);
        }
    }

    /// Passes a command to the control daemon.
    fn tell(&self, line: &str) -> std::io::Result<std::process::ExitStatus> {
        let mut child = control(Path::new(&self.pipe), &self.owner).stdin(Stdio::piped()).spawn()?;
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(format!("{line}\n").as_bytes()));
        let status = child.wait()?;
        written.map(|()| status)
    }
}

/// Folder of the pools' folders: the one that systemd has made for the keeper, else one beside the daemon's socket.
fn folder_of_all(socket: &Path) -> PathBuf {
    if let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY").filter(|folder| !folder.is_empty()) {
        return folder.into();
    }
    let mut all = socket.as_os_str().to_owned();
    all.push(".mps");
    all.into()
}

/// Removes folders of keepers that were killed. A folder whose control daemon still serves stays.
fn clear(all: &Path) {
    for folder in std::fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Ok(lock) = File::open(&folder) else { continue };
        let is_free = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_free && !answers(&folder.join("pipe")) {
            remove(&folder);
        }
    }
}

/// Removes a pool's folder.
fn remove(folder: &Path) {
    if let Err(why) = folder::remove(folder) {
        say_line(&format!("{} is not removed: {why}", folder.display()));
    }
}

/// Writes a line to the service manager's log, or to where the daemon writes.
fn say_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "xsched: pool-keeper: {line}");
}

/// Value of LD_PRELOAD: the library, before the libraries that the user preloads into all processes.
fn preloads(library: &Path, owner: &Owner) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| owner.is_ours() && !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Command of the control daemon's program for a pipe directory, as the user that the pool belongs to: without variables for programs or
/// for xsched, and for another user without any part of this environment that it does not need.
fn control(pipe: &Path, owner: &Owner) -> Command {
    let mut command = Command::new(CONTROL);
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let ours = ["CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "RUNTIME_DIRECTORY"].iter().any(|other| name == *other)
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
            let Some(owner) = &other else { return Ok(()) };
            let done = libc::setgroups(owner.groups.len(), owner.groups.as_ptr()) == 0
                && libc::setresgid(owner.gid, owner.gid, owner.gid) == 0
                && libc::setresuid(owner.uid, owner.uid, owner.uid) == 0;
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    command
}
