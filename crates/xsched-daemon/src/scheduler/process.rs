//! Process of an operator's own scheduler.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
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
    /// Packets of questions that are not sent yet, by device, and the devices in the order of their questions.
    unsent: HashMap<String, Vec<u8>>,
    order: VecDeque<String>,
    /// Time after which an answer counts as missing, in ns.
    pub(crate) patience_ns: u64,
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
        let mut host = Host::new(library, Some(child), socket);
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

    fn new(library: PathBuf, child: Option<Child>, socket: OwnedFd) -> Host {
        let (unsent, order) = (HashMap::new(), VecDeque::new());
        Host {
            library,
            child,
            socket,
            per_stream: false,
            open: 0,
            asked_ns: 0,
            unsent,
            order,
            patience_ns: DEADLINE_NS,
        }
    }

    /// Takes the packet of a question about a device. One that was not sent is dropped: its answer would count no more.
    pub(crate) fn put(&mut self, device: &str, packet: Vec<u8>) {
        if self.unsent.insert(device.to_owned(), packet).is_none() {
            self.order.push_back(device.to_owned());
        }
    }

    /// Sends questions until the socket is full. The others stay: an answer, which makes room, wakes the loop, and a process that never
    /// answers is ended by its deadline.
    ///
    /// # Errors
    /// Returns the system's error, if the process is gone or a question cannot be sent at all.
    pub(crate) fn send(&mut self, now_ns: u64) -> rustix::io::Result<()> {
        while let Some(packet) = self.order.front().and_then(|device| self.unsent.get(device)) {
            if self.open == 0 {
                self.asked_ns = now_ns;
            }
            match rustix::net::send(&self.socket, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(_) => self.open += 1,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(e) => return Err(e),
            }
            self.order.pop_front().map(|device| self.unsent.remove(&device));
        }
        Ok(())
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
        (self.open > 0 || !self.order.is_empty()).then_some(self.asked_ns + self.patience_ns)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Host {
    /// Scheduler that a test plays at the other end of the socket.
    pub(crate) fn at(socket: OwnedFd, per_stream: bool) -> Host {
        let mut host = Host::new("played".into(), None, socket);
        host.per_stream = per_stream;
        host
    }
}

#[cfg(test)]
impl Host {
    /// Number of questions that are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.order.len()
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
