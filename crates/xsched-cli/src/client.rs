//! Asking the daemon: one request, answered by packets until the end.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use xsched_proto::paths::Origin;
use xsched_proto::wire::{ClientMsg, DaemonMsg, MAX_PACKET, Request, decode, encode};
use xsched_proto::{PROTOCOL_VERSION, paths, trust};

use crate::failure::Error;
use crate::folders;

/// Longest silence of the daemon in the middle of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no connection.
pub(crate) enum NotConnected {
    System(rustix::io::Errno),
    /// The daemon may be another user's.
    Distrusted(Error),
}

impl From<rustix::io::Errno> for NotConnected {
    fn from(e: rustix::io::Errno) -> Self {
        NotConnected::System(e)
    }
}

/// Connects to the daemon's socket.
///
/// # Errors
/// The system's; or the daemon is neither this user's nor root's.
pub(crate) fn connect(socket: &Path) -> Result<OwnedFd, NotConnected> {
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    trust::check_daemon(fd.as_fd(), socket).map_err(NotConnected::Distrusted)?;
    Ok(fd)
}

/// Where the daemon is, for a command that only talks to it.
fn find(socket: Option<&Path>) -> Result<std::path::PathBuf, Error> {
    let (path, origin) = paths::socket_path(socket.map(Path::to_owned));
    if origin == Origin::User {
        // Another user's folder would mean another user's daemon.
        if let Some(folder) = path.parent().filter(|f| f.symlink_metadata().is_ok()) {
            folders::private(folder)?;
        }
    }
    Ok(path)
}

/// Sends one request and gathers the answer.
///
/// # Errors
/// Exit code 2 for what the daemon calls a bad request; 3 when there is no daemon, or no permission, or no answer.
pub(crate) fn ask(socket: Option<&Path>, request: Request) -> Result<Vec<DaemonMsg>, Error> {
    let path = find(socket)?;
    let fd = connect(&path).map_err(|e| match e {
        NotConnected::Distrusted(why) => Error::environment(why),
        NotConnected::System(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            Error::environment(format!("no permission to talk to the daemon at {}", path.display()))
        }
        NotConnected::System(e) => Error::environment(format!(
            "no daemon answers at {} ({e}); `xsched run` starts one with a program, `xsched daemon` without",
            path.display()
        )),
    })?;
    let packet = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request })?;
    let lost = |e: rustix::io::Errno| Error::environment(format!("lost the daemon at {}: {e}", path.display()));
    rustix::net::send(&fd, &packet, SendFlags::NOSIGNAL).map_err(lost)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0u8; MAX_PACKET];
    loop {
        if !readable(&fd, PATIENCE).map_err(lost)? {
            return Err(Error::environment(format!(
                "the daemon at {} does not answer; is it stopped (`ps` state T)?",
                path.display()
            )));
        }
        let mut receive = || rustix::net::recv(&fd, buffer.as_mut_slice(), RecvFlags::empty());
        // A daemon that ends the connection with a packet unread says so once; its last words come after.
        let received = match receive() {
            Err(rustix::io::Errno::CONNRESET) => receive(),
            received => received,
        };
        let (length, _) = received.map_err(lost)?;
        if length == 0 {
            return Err(Error::environment(format!(
                "the daemon at {} hung up; is it of another version? See its log",
                path.display()
            )));
        }
        match decode::<DaemonMsg>(&buffer[..length]) {
            Ok(DaemonMsg::End) => return Ok(answer),
            Ok(DaemonMsg::Refused(why)) => return Err(why),
            Ok(part) => answer.push(part),
            Err(e) => {
                return Err(Error::environment(format!(
                    "the daemon at {} speaks another language ({e}); restart it with this version",
                    path.display()
                )));
            }
        }
    }
}

/// Tells the daemon something without waiting for the answer: what is told matters to the daemon alone.
pub(crate) fn tell(socket: &Path, request: Request) {
    let Ok(packet) = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request }) else { return };
    if let Ok(fd) = connect(socket) {
        let _ = rustix::net::send(&fd, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Waits until `fd` can be read, at most `patience`.
pub(crate) fn readable(fd: &OwnedFd, patience: Duration) -> rustix::io::Result<bool> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}
