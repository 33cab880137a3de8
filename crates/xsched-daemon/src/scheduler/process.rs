//! Process of an operator's own scheduler.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use xsched_proto::host::FromHost;
use xsched_proto::wire::{MAX_PACKET, decode};

use crate::Error;
use crate::identity::process::own_program;
use crate::services::child_reaper;
use crate::tuning::{DEADLINE_NS, LOAD_S};

/// Reason for the end of the scheduler's process, equal whether a send or a receive finds it out.
pub(crate) const ENDED: &str = "it ended";

/// Running scheduler process.
pub(crate) struct Host {
    pub(crate) library: PathBuf,
    child: Option<Child>,
    pub(crate) socket: OwnedFd,
    /// True if the scheduler decides stream by stream.
    pub(crate) per_stream: bool,
    /// Number of questions without an answer, and time since which the oldest one waits.
    pub(crate) open: u32,
    pub(crate) asked_ns: u64,
}

impl Host {
    /// Starts the process and waits until the library has registered its scheduler.
    pub(crate) fn start(library: &Path) -> Result<Host, Error> {
        let shown = library.display();
        let failed = |e: &dyn std::fmt::Display| Error::Environment(format!("cannot start the scheduler {shown}: {e}"));
        let (socket, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|e| failed(&e))?;
        let child = Command::new(own_program())
            .arg("scheduler-host")
            .arg(library)
            .env("XSCHED_DISABLE", "1")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| failed(&e))?;
        let library = library.to_owned();
        let mut host = Host { library, child: Some(child), socket, per_stream: false, open: 0, asked_ns: 0 };
        let mut fds = [PollFd::new(&host.socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: LOAD_S, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&patience)).map_err(|e| failed(&e))? == 0 {
            return Err(Error::Input(format!("the scheduler {shown} does not register itself within {LOAD_S} s")));
        }
        match host.receive() {
            Ok(Some(FromHost::Loaded { per_stream })) => {
                host.per_stream = per_stream;
                Ok(host)
            }
            Ok(Some(FromHost::Failed(why))) => Err(Error::Input(format!("the scheduler {shown}: {why}"))),
            _ => Err(Error::Input(format!("the scheduler {shown} ended while it was loaded"))),
        }
    }

    /// Receives one message; none = there is none. Fails if the process is gone, or sends nonsense.
    pub(crate) fn receive(&self) -> Result<Option<FromHost>, Error> {
        let mut buffer = vec![0; MAX_PACKET];
        match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(Error::environment(ENDED)),
            Ok((_, length)) => decode(&buffer[..length]).map(Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(Error::environment(ENDED)),
        }
    }

    /// Time at which the oldest unanswered question is overdue, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        (self.open > 0).then_some(self.asked_ns + DEADLINE_NS)
    }
}

#[cfg(test)]
impl Host {
    /// Scheduler that a test plays at the other end of the socket.
    pub(crate) fn at(socket: OwnedFd, per_stream: bool) -> Host {
        Host { library: "played".into(), child: None, socket, per_stream, open: 0, asked_ns: 0 }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        // A crashed process may be busy writing a core file: the daemon does not wait for its end.
        child_reaper::reap(child);
    }
}
