//! Listening sockets, and packets with descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags,
};
use xsched_proto::wire::MAX_PACKET;

use super::rendezvous::Rendezvous;
use super::site::Site;
use crate::Error;
use crate::net::fd_reaper::{FdReaper, MAX_FDS};

/// Listening sockets, at one path or at several; their files are removed with this.
pub(crate) struct Listener {
    path: PathBuf,
    sockets: Vec<(PathBuf, OwnedFd)>,
    rendezvous: Rendezvous,
}

impl Listener {
    pub(crate) fn new(path: &Path) -> Result<Listener, Error> {
        let mut rendezvous = Rendezvous::new(path)?;
        let (site, socket) = Site::new(path, true)?;
        rendezvous.keep(site)?;
        Ok(Listener { path: path.to_owned(), sockets: vec![(path.to_owned(), socket)], rendezvous })
    }

    /// Path by which a program of the daemon's user finds the socket.
    pub(crate) fn path(&self) -> &Path {
        let mut paths = self.sockets.iter().map(|(path, _)| path);
        paths.find(|path| path.exists()).unwrap_or(&self.path)
    }

    /// Accepts a connection that has come in at any of the paths.
    pub(crate) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        let mut failure = Errno::AGAIN;
        for (_, socket) in &self.sockets {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => return Ok(socket),
                Err(Errno::AGAIN) => (),
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }

    /// All sockets that the daemon listens on.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sockets.iter().map(|(_, socket)| socket)
    }

    /// Thread that keeps the sites; readable when there is something to [`take`](Rendezvous::take).
    pub(crate) fn rendezvous(&self) -> &Rendezvous {
        &self.rendezvous
    }

    /// Replaces the socket at a path, to which nothing can connect any more, by a new one.
    pub(crate) fn replace(&mut self, path: PathBuf, socket: OwnedFd) {
        self.sockets.retain(|(of, _)| *of != path);
        self.sockets.push((path, socket));
    }

    /// Ends listening. Connections of before can still be accepted.
    pub(crate) fn refuse(&self) {
        for socket in self.sockets() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

/// Result of reading from a socket.
pub(crate) enum Received {
    /// Packet of this many bytes, with the descriptors that it carried.
    Packet(usize, Passed),
    /// No packet for now.
    Nothing,
    /// The other end has hung up.
    HangUp,
    /// Packet that is larger than allowed.
    TooMuch,
    /// Packet with unwanted descriptors; it stays in the queue.
    Unwanted,
}

/// Descriptors of a program: its segment and the eventfd that wakes the daemon, and its pidfd if it has one.
pub(crate) type ProgramFds = ([OwnedFd; 2], Option<OwnedFd>);

/// Descriptors from a stranger. Those of kinds that may be slow to close are closed by another thread.
pub(crate) struct Passed {
    fds: Vec<OwnedFd>,
    uid: u32,
    reaper: FdReaper,
}

impl Passed {
    pub(crate) fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// Takes the descriptors that a client introduces itself with, each of a kind that never blocks.
    pub(crate) fn take(mut self) -> Result<ProgramFds, Error> {
        if !self.fds.iter().all(harmless) {
            return Err(Error::input("a descriptor is no memfd, eventfd or pidfd"));
        }
        let mut fds = std::mem::take(&mut self.fds);
        let pidfd = if fds.len() == 3 { fds.pop() } else { None };
        let fds = <[OwnedFd; 2]>::try_from(fds)
            .map_err(|fds| Error::input(format!("it sent {} descriptors instead of 2 or 3", fds.len())))?;
        Ok((fds, pidfd))
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        for fd in self.fds.drain(..).filter(|fd| !harmless(fd)) {
            self.reaper.close_received(fd, self.uid);
        }
    }
}

/// Reports whether a descriptor is of a kind that closes at once. Asks nothing of a file system that may be the sender's.
fn harmless(fd: &OwnedFd) -> bool {
    // Only files in memory have seals.
    if rustix::fs::fcntl_get_seals(fd).is_ok() {
        return true;
    }
    // A path begins with a slash, these names do not. Newer kernels show a pidfd as a file of its own file system.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
    let link = link.to_string_lossy();
    matches!(&*link, "anon_inode:[eventfd]" | "anon_inode:[pidfd]") || link.starts_with("pidfd:[")
}

/// Receives one packet into `buffer`, which has [`MAX_PACKET`] bytes. A packet with descriptors stays in the queue unless these are
/// `wanted`.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8], uid: u32, reaper: &FdReaper, wanted: bool) -> Received {
    debug_assert_eq!(buffer.len(), MAX_PACKET);
    if !wanted {
        match look(socket) {
            Look::Packet { descriptors: true } => return Received::Unwanted,
            Look::Packet { descriptors: false } => (),
            Look::Nothing => return Received::Nothing,
            Look::HangUp => return Received::HangUp,
        }
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::HangUp,
    };
    let mut passed = Passed { fds: Vec::new(), uid, reaper: reaper.clone() };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            passed.fds.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Received::TooMuch;
    }
    if got.bytes == 0 && passed.is_empty() {
        return Received::HangUp;
    }
    Received::Packet(got.bytes, passed)
}

/// Kind of the next packet.
enum Look {
    Packet { descriptors: bool },
    Nothing,
    HangUp,
}

/// Determines the kind of the next packet without taking it.
fn look(socket: &OwnedFd) -> Look {
    // Without room for descriptors the kernel only reports that there are some, and does not install them; those of the packet stay in the
    // queue.
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut byte = [0];
    match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut RecvAncillaryBuffer::default(), flags) {
        Ok(got) if got.flags.contains(ReturnFlags::CTRUNC) => Look::Packet { descriptors: true },
        Ok(got) if got.bytes == 0 => Look::HangUp,
        Ok(_) => Look::Packet { descriptors: false },
        Err(Errno::AGAIN | Errno::INTR) => Look::Nothing,
        Err(_) => Look::HangUp,
    }
}

/// Sends one packet without waiting.
pub(crate) fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags).map(|_| ())
}

/// Limits the memory of packets that the other side has not taken, since it counts as the daemon's. The kernel's default is 208 KiB.
pub(crate) fn bound_unread(socket: &OwnedFd, bytes: usize) {
    // The kernel doubles the given size, for its own overhead. Where it refuses, its default is in force.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes / 2);
}

/// Memory of packets that the other side has not read yet, in bytes.
pub(crate) fn unread_bytes(socket: &OwnedFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: a socket of ours; the request stores one int.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if rc == 0 { bytes.max(0) as usize } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_closed_at_once_is_harmless() {
        use rustix::event::{EventfdFlags, eventfd};
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str| -> OwnedFd { std::fs::File::create(folder.path().join(name)).unwrap().into() };
        for harmful in [
            named("memfd:x"),
            named("anon_inode:[eventfd]"),
            named("pidfd:[1]"),
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
            std::io::pipe().unwrap().0.into(),
        ] {
            assert!(!harmless(&harmful), "{harmful:?}");
        }
        for good in [
            rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
            eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            pidfd_open(getpid(), PidfdFlags::empty()).unwrap(),
        ] {
            assert!(harmless(&good), "{good:?}");
        }
    }
}
