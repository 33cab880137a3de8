//! One request to the daemon and its answer, for processes that are no clients: commands, and processes that are about to become clients.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::wire::{ClientMsg, DaemonMsg, MAX_PACKET, QueueInfo, Request, decode, encode};
use crate::{Error, PROTOCOL_VERSION, trust};

/// Longest wait for a place in the backlog of a daemon's socket.
const BACKLOG: Duration = Duration::from_secs(5);

/// Reason for which there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// No connection to the socket was possible.
    NotConnected(Errno),
    /// The daemon may belong to another user.
    Distrusted(Error),
    /// The connection was lost, with this error.
    Lost(Errno),
    /// The daemon was silent for longer than `patience`.
    Silent,
    /// The daemon ended the connection.
    HungUp,
    /// A packet of the daemon cannot be decoded.
    Unreadable(Error),
    /// The daemon refused the request.
    Refused(Error),
}

/// Connects to the socket of a daemon, which must belong to this user or root.
///
/// # Errors
/// [`NoAnswer::NotConnected`], [`NoAnswer::Distrusted`].
pub fn connect(socket: &Path) -> Result<OwnedFd, NoAnswer> {
    let connected = || {
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // A stopped daemon's backlog fills up, and then connecting waits for room.
        rustix::net::sockopt::set_socket_timeout(&fd, Timeout::Send, Some(BACKLOG))?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
        Ok(fd)
    };
    let fd = connected().map_err(NoAnswer::NotConnected)?;
    trust::check_daemon(fd.as_fd(), socket).map_err(NoAnswer::Distrusted)?;
    Ok(fd)
}

/// Sends one request and collects the answer. Each part of it must come within `patience` after the one before.
///
/// # Errors
/// See [`NoAnswer`].
pub fn ask(socket: &Path, request: Request, patience: Duration) -> Result<Vec<DaemonMsg>, NoAnswer> {
    ask_on(&connect(socket)?, request, patience)
}

/// Sends one request on an open connection, on which no other answer is pending, and gathers the answer.
///
/// # Errors
/// See [`NoAnswer`]. After any but [`NoAnswer::Refused`] the connection must not be used again.
pub fn ask_on(fd: &OwnedFd, request: Request, patience: Duration) -> Result<Vec<DaemonMsg>, NoAnswer> {
    let message = ClientMsg::Control { version: PROTOCOL_VERSION, request };
    let packet = encode(&message).map_err(NoAnswer::Unreadable)?;
    match rustix::net::send(fd, &packet, SendFlags::NOSIGNAL) {
        // A daemon that has turned this process away has said why before.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(e) => return Err(NoAnswer::Lost(e)),
    }
    let mut answer = Vec::new();
    let mut buffer = vec![0u8; MAX_PACKET];
    loop {
        if !readable(fd, patience).map_err(NoAnswer::Lost)? {
            return Err(NoAnswer::Silent);
        }
        let mut receive = || rustix::net::recv(fd, buffer.as_mut_slice(), RecvFlags::empty());
        // A daemon that ends the connection with a packet unread causes this error once; its last packets come after it.
        let received = match receive() {
            Err(Errno::CONNRESET) => receive(),
            received => received,
        };
        let (length, _) = received.map_err(NoAnswer::Lost)?;
        if length == 0 {
            return Err(NoAnswer::HungUp);
        }
        match decode(&buffer[..length]) {
            Ok(DaemonMsg::End) => return Ok(answer),
            Ok(DaemonMsg::Refused(why)) => return Err(NoAnswer::Refused(why)),
            Ok(DaemonMsg::MoreQueues(queues)) => add_queues(answer.last_mut(), queues),
            Ok(part) => answer.push(part),
            Err(e) => return Err(NoAnswer::Unreadable(e)),
        }
    }
}

/// Adds queues ([`DaemonMsg::MoreQueues`]) to the program whose queues they are.
pub fn add_queues(program: Option<&mut DaemonMsg>, queues: Vec<(String, QueueInfo)>) {
    let Some(DaemonMsg::Program(program)) = program else { return };
    for (group, queue) in queues {
        if let Some(group) = program.groups.iter_mut().find(|g| g.id == group) {
            group.queues.push(queue);
        }
    }
}

/// Sends the daemon a request without waiting for the answer, where the information matters to the daemon alone.
pub fn tell(socket: &Path, request: Request) {
    let Ok(packet) = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request }) else { return };
    if let Ok(fd) = connect(socket) {
        let _ = rustix::net::send(&fd, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Waits until `fd` can be read, for at most `patience`.
///
/// # Errors
/// Returns the system's error.
pub fn readable(fd: &OwnedFd, patience: Duration) -> rustix::io::Result<bool> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(n) => return Ok(n > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}
