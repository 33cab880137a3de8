//! Processes of a pool as the daemon sees them: the connection to their [keeper](super::keeper), and the descriptors that the keeper has
//! passed on.

use std::fs::File;
use std::io::{IoSliceMut, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::wire::{MAX_PACKET, decode, encode};

use super::keeper::{FromKeeper, Order, ToKeeper};
use crate::Error;
use crate::identity::process::own_program;
use crate::net::socket;
use crate::pool::mps::answers;
use crate::services::child_reaper;
use crate::tuning::POOL_LOG_MAX_BYTES;

/// Command by which this program is a keeper.
const KEEPER: &str = "pool-keeper";
/// Longest message in which a keeper gives its pool up, in bytes: a line with a path.
const GIVEN_UP_MAX: usize = 8 << 10;

/// Keeper of a pool, and the control daemon that it has started.
pub(crate) struct Process {
    pub(crate) keeper: OwnedFd,
    /// Child process, where the keeper is this daemon's child.
    child: Option<Child>,
    control: Option<Control>,
    /// True if the keeper ended before it had started anything.
    failed: bool,
}

/// Running control daemon.
struct Control {
    pipe: String,
    pidfd: OwnedFd,
    log: File,
}

/// MPS server of a pool.
pub(crate) struct MpsServer {
    pid: u32,
    pub(crate) pidfd: OwnedFd,
}

impl MpsServer {
    pub(crate) fn of(pid: u32) -> Option<MpsServer> {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
        Some(MpsServer { pid, pidfd })
    }

    /// Reports whether the server has ended, or is about to. The kernel closes its sockets long before it has ended, since its work on the
    /// GPU is removed first.
    pub(crate) fn is_ending(&self) -> bool {
        /// The kernel's flag PF_EXITING.
        const EXITING: u64 = 4;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name of the process may contain anything. State, six numbers and the flags follow it (proc(5)).
        let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
        flags.is_none_or(|flags| flags & EXITING != 0) || has_ended(&self.pidfd)
    }
}

#[cfg(test)]
impl Process {
    /// Makes a keeper that sends nothing.
    pub(crate) fn pretended() -> Process {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let keeper = rustix::event::eventfd(0, flags).expect("a descriptor");
        Process { keeper, child: None, control: None, failed: false }
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    !matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

impl Process {
    /// Gives the order to a keeper: to the one at a socket, else to one that is started. [`Process::hear`] reports when the order is
    /// carried out.
    pub(crate) fn start(order: Order, at: Option<&Path>) -> Result<Process, Error> {
        let fail = |e: &dyn std::fmt::Display| Error::environment(format!("cannot start a keeper of pools: {e}"));
        let (keeper, child) = match at {
            Some(path) => (connect(path)?, None),
            None => {
                let (socket, other) =
                    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                        .map_err(|e| fail(&e))?;
                let mut command = Command::new(own_program());
                command.arg(KEEPER).env("XSCHED_DISABLE", "1").stdin(Stdio::from(other)).stdout(Stdio::null());
                (socket, Some(command.spawn().map_err(|e| fail(&e))?))
            }
        };
        let process = Process { keeper, child, control: None, failed: false };
        process.say(&ToKeeper::Start { version: PROTOCOL_VERSION, order }).map_err(|e| fail(&e))?;
        Ok(process)
    }

    fn say(&self, message: &ToKeeper) -> rustix::io::Result<()> {
        let packet = encode(message).map_err(|_| Errno::MSGSIZE)?;
        socket::send(self.keeper.as_fd(), &packet, &[])
    }

    /// Takes the keeper's answer, if it has arrived. Returns the number of GPUs when the control daemon has been started.
    ///
    /// # Errors
    /// Returns the reason for which there will be no control daemon, or for which the keeper has given it up.
    pub(crate) fn hear(&mut self) -> Result<Option<usize>, Error> {
        if self.failed {
            return Ok(None);
        }
        if self.control.is_some() {
            return self.given_up().map_or(Ok(None), Err);
        }
        let mut buffer = vec![0; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let got = match rustix::net::recvmsg(&self.keeper, &mut parts, &mut passed, flags) {
            Ok(got) => got.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(_) => 0,
        };
        let fds = passed.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let fds: Vec<OwnedFd> = fds.flatten().collect();
        self.failed = true;
        if got == 0 {
            return Err(Error::environment("the keeper of the pool has ended"));
        }
        match decode(&buffer[..got])? {
            FromKeeper::Failed(why) => Err(why),
            FromKeeper::Started { pipe, gpus } => {
                let [pidfd, log] = <[OwnedFd; 2]>::try_from(fds)
                    .map_err(|_| Error::environment("the keeper of the pool passes nothing on"))?;
                self.control = Some(Control { pipe, pidfd, log: log.into() });
                self.failed = false;
                Ok(Some(gpus))
            }
        }
    }

    /// Reason for which the keeper ends a pool that serves, once it has sent one.
    fn given_up(&self) -> Option<Error> {
        let mut buffer = vec![0; GIVEN_UP_MAX];
        let (got, _) = rustix::net::recv(&self.keeper, &mut *buffer, RecvFlags::DONTWAIT).ok()?;
        match decode(&buffer[..got]) {
            Ok(FromKeeper::Failed(why)) => Some(why),
            _ => None,
        }
    }

    /// Pipe directory of the control daemon; empty as long as there is none.
    pub(crate) fn pipe(&self) -> &str {
        self.control.as_ref().map_or("", |control| &control.pipe)
    }

    /// Descriptor that reports the control daemon's end; none as long as there is no control daemon.
    pub(crate) fn pidfd(&self) -> Option<&OwnedFd> {
        self.control.as_ref().map(|control| &control.pidfd)
    }

    /// Reports whether the control daemon takes commands.
    pub(crate) fn answers(&self) -> bool {
        self.control.as_ref().is_some_and(|control| answers(Path::new(&control.pipe)))
    }

    /// Reports whether the control daemon runs, or will.
    pub(crate) fn is_alive(&self) -> bool {
        self.control.as_ref().map_or(!self.failed, |control| !has_ended(&control.pidfd))
    }

    /// Has the control daemon start the server, which would otherwise start with the first program.
    pub(crate) fn start_server(&self) {
        let _ = self.say(&ToKeeper::StartServer);
    }

    /// Lines that the control daemon wrote to its log since the last call. A log that has become long is emptied.
    pub(crate) fn news(&mut self) -> String {
        let Some(Control { log, .. }) = &mut self.control else { return String::new() };
        let mut text = Vec::new();
        let _ = Read::by_ref(log).take(POOL_LOG_MAX_BYTES).read_to_end(&mut text);
        if log.stream_position().is_ok_and(|at| at >= POOL_LOG_MAX_BYTES) {
            let _ = log.set_len(0);
            let _ = log.seek(SeekFrom::Start(0));
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Path of the log's file by its descriptor, since the file may lie where this daemon has no access.
    pub(crate) fn log_path(&self) -> Option<PathBuf> {
        use std::os::fd::AsRawFd;
        self.control.as_ref().map(|control| format!("/proc/self/fd/{}", control.log.as_raw_fd()).into())
    }

    /// Has the control daemon end once its last client has ended. The keeper does so too if the daemon ends without a message.
    pub(crate) fn quit(&self) {
        let _ = self.say(&ToKeeper::Quit);
    }

    /// Releases a control daemon that has ended; its keeper cleans up.
    pub(crate) fn bury(self) {
        let Process { child, keeper, .. } = self;
        drop(keeper);
        if let Some(child) = child {
            child_reaper::reap(child);
        }
    }
}

/// Connects to a socket at which a service manager starts a keeper for each connection.
fn connect(path: &Path) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connected = SocketAddrUnix::new(path).and_then(|address| {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&socket, &address).map(|()| socket)
    });
    connected.map_err(|e| Error::environment(format!("no keeper of pools answers at {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, pidfd_open};

    #[test]
    fn a_keeper_that_gives_up_a_pool_that_serves_is_heard() {
        let (keeper, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let control = Control { pipe: "/none".into(), pidfd, log: tempfile::tempfile().unwrap() };
        let mut process = Process { keeper, child: None, control: Some(control), failed: false };
        assert_eq!(process.hear(), Ok(None), "nothing is sent");
        let why = Error::environment("its folder holds too much");
        socket::send(other.as_fd(), &encode(&FromKeeper::Failed(why.clone())).unwrap(), &[]).unwrap();
        assert_eq!(process.hear(), Err(why));
        drop(other);
        assert_eq!(process.hear(), Ok(None), "its end alone ends no pool");
        assert!(process.is_alive());
    }
}
