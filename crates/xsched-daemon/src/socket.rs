//! The listening socket, packets with descriptors, and the lock that keeps a second daemon away.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use xsched_proto::paths::SYSTEM_SOCKET;
use xsched_proto::wire::MAX_PACKET;

use crate::Error;
use crate::closer::{Closer, MAX_FDS};
use crate::rendezvous::Rendezvous;

/// The sockets that are listened on, at one path or at several; their files go with this.
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

    /// Where a program of the daemon's user finds it.
    pub(crate) fn path(&self) -> &Path {
        let mut paths = self.sockets.iter().map(|(path, _)| path);
        paths.find(|path| path.exists()).unwrap_or(&self.path)
    }

    /// A connection that has come in at any of the paths.
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

    /// All that is listened on.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sockets.iter().map(|(_, socket)| socket)
    }

    /// Readable when there is something to [`take`](Rendezvous::take).
    pub(crate) fn rendezvous(&self) -> &Rendezvous {
        &self.rendezvous
    }

    /// Takes a socket in place of the one before at that path, which nothing can connect to any more.
    pub(crate) fn replace(&mut self, path: PathBuf, socket: OwnedFd) {
        self.sockets.retain(|(of, _)| *of != path);
        self.sockets.push((path, socket));
    }

    /// Lets nothing more connect. What has connected can still be accepted.
    pub(crate) fn refuse(&self) {
        for socket in self.sockets() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

/// The file of a socket, and the lock beside it; both go with this.
pub(crate) struct Site {
    path: PathBuf,
    /// Locked for as long as this daemon lives: what lies at `path` while the lock is free is stale.
    lock: File,
    lock_path: PathBuf,
    /// What lies at `path`: device and inode.
    file: (u64, u64),
}

impl Site {
    /// Listens at a path. `deep`: makes all of the folders on the way there, and not only the last.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn new(path: &Path, deep: bool) -> Result<(Site, OwnedFd), Error> {
        prepare_folder(path, deep)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".pid");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock(path, &lock_path)?;
        // From here on the lock's file goes with it.
        let mut site = Site { path: path.to_owned(), lock, lock_path, file: (0, 0) };
        let socket = site.bind()?;
        Ok((site, socket))
    }

    /// Listens there again.
    ///
    /// # Errors
    /// One line. Then all is as before.
    pub(crate) fn renew(&mut self) -> Result<OwnedFd, Error> {
        prepare_folder(&self.path, false)?;
        if !self.has_lock() {
            self.lock = lock(&self.path, &self.lock_path)?;
        }
        self.bind()
    }

    fn bind(&mut self) -> Result<OwnedFd, Error> {
        let path = &self.path;
        let shown = path.display();
        let fail = |what: &str, e: &dyn std::fmt::Display| Error::Environment(format!("{what} {shown}: {e}"));
        let address = SocketAddrUnix::new(path)
            .map_err(|_| Error::Environment(format!("the socket path {shown} is too long: use one under 108 bytes")))?;
        match std::fs::symlink_metadata(path) {
            Ok(m) if m.file_type().is_socket() => {
                std::fs::remove_file(path).map_err(|e| fail("cannot remove the stale socket", &e))?;
            }
            Ok(_) => {
                return Err(Error::Environment(format!(
                    "{shown} is in the way and no socket: move it or use another path"
                )));
            }
            Err(_) => (),
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| fail("cannot make a socket for", &e))?;
        rustix::net::bind(&socket, &address).map_err(|e| fail("cannot bind", &e))?;
        // Root serves every user that can reach the folder; each peer's user is checked.
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(|e| fail("cannot open up", &e))?;
        rustix::net::listen(&socket, 128).map_err(|e| fail("cannot listen on", &e))?;
        self.file = id_at(path).unwrap_or_default();
        Ok(socket)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its path leads to it still, and its lock keeps others away.
    pub(crate) fn is_there(&self) -> bool {
        id_at(&self.path) == Some(self.file) && self.has_lock()
    }

    fn has_lock(&self) -> bool {
        self.lock.metadata().is_ok_and(|meta| id_at(&self.lock_path) == Some((meta.dev(), meta.ino())))
    }
}

/// What lies at a path: device and inode.
fn id_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Drop for Site {
    fn drop(&mut self) {
        if id_at(&self.path) == Some(self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
        // Removed while locked: a daemon that opened it meanwhile finds that it is no longer the file of that name.
        if self.has_lock() {
            let _ = std::fs::remove_file(&self.lock_path);
        }
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Makes the socket's folder, or checks that other users cannot put things into it.
fn prepare_folder(path: &Path, deep: bool) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let shown = folder.display();
    let system = Path::new(SYSTEM_SOCKET).parent() == Some(folder);
    let mode = if system { 0o755 } else { 0o700 };
    let made = std::fs::DirBuilder::new().mode(mode).recursive(deep).create(folder);
    let made = made.or_else(|e| if folder.is_dir() { Ok(()) } else { Err(e) });
    made.map_err(|e| Error::Environment(format!("cannot make the folder {shown}: {e}; use --socket")))?;
    let link = std::fs::symlink_metadata(folder);
    let meta = std::fs::metadata(folder);
    let (Ok(link), Ok(meta)) = (link, meta) else {
        return Err(Error::Environment(format!("cannot look at the folder {shown}; use --socket")));
    };
    let us = rustix::process::geteuid().as_raw();
    let trusted = |uid: u32| uid == us || uid == 0;
    // Others may write only where they cannot replace what is ours (sticky, as /tmp).
    let writable_by_others = meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0;
    if !trusted(link.uid()) || !trusted(meta.uid()) || writable_by_others {
        let line = format!("the folder {shown} belongs to or can be written by others; remove it or use --socket");
        return Err(Error::Environment(line));
    }
    Ok(())
}

fn lock(socket: &Path, path: &Path) -> Result<File, Error> {
    let fail = |e: &dyn std::fmt::Display| Error::Environment(format!("cannot lock {}: {e}", path.display()));
    loop {
        // What another user has put there is not followed elsewhere, and a FIFO is not waited for.
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let mut file = open.open(path).map_err(|e| fail(&e))?;
        let meta = file.metadata().map_err(|e| fail(&e))?;
        let us = rustix::process::geteuid().as_raw();
        if !meta.is_file() || meta.uid() != us {
            return Err(fail(&"it is not a file of the daemon's user: remove it or use --socket"));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => (),
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = (&file).take(20).read_to_string(&mut pid);
                let who = if pid.trim().is_empty() { String::new() } else { format!(" (pid {})", pid.trim()) };
                let line = format!("another daemon{who} already serves {}; end it or use --socket", socket.display());
                return Err(Error::Environment(line));
            }
            Err(e) => return Err(fail(&e)),
        }
        let same = |m: std::fs::Metadata| file.metadata().is_ok_and(|f| (f.dev(), f.ino()) == (m.dev(), m.ino()));
        if std::fs::symlink_metadata(path).is_ok_and(same) {
            let pid = format!("{}\n", std::process::id());
            let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
            written.map_err(|e| fail(&e))?;
            return Ok(file);
        }
    }
}

/// What came out of a socket.
pub(crate) enum Received {
    /// A packet of this many bytes, and what it carried.
    Packet(usize, Passed),
    /// Nothing for now.
    Nothing,
    /// The other end is gone.
    HangUp,
    /// More than a packet may have.
    TooMuch,
    /// A packet with descriptors that are not wanted; not taken.
    Unwanted,
}

/// Of a program: its segment and the eventfd that wakes the daemon, and its pidfd if it has one.
pub(crate) type ProgramFds = ([OwnedFd; 2], Option<OwnedFd>);

/// Descriptors from a stranger. Those of kinds that may be slow to close are closed elsewhere.
pub(crate) struct Passed {
    fds: Vec<OwnedFd>,
    uid: u32,
    closer: Closer,
}

impl Passed {
    pub(crate) fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// Those that a client introduces itself with, each of a kind that never blocks.
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
            self.closer.close_received(fd, self.uid);
        }
    }
}

/// Whether a descriptor is of a kind that is closed at once. Asks nothing of a file system that may be the sender's.
fn harmless(fd: &OwnedFd) -> bool {
    // Only files in memory know of seals.
    if rustix::fs::fcntl_get_seals(fd).is_ok() {
        return true;
    }
    // A path begins with a slash, these do not. Newer kernels show a pidfd as a file of its own file system.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
    let link = link.to_string_lossy();
    matches!(&*link, "anon_inode:[eventfd]" | "anon_inode:[pidfd]") || link.starts_with("pidfd:[")
}

/// Receives one packet into `buffer`, which has [`MAX_PACKET`] bytes. One with descriptors is left where it is unless those are
/// `wanted`.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8], uid: u32, closer: &Closer, wanted: bool) -> Received {
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
    let mut passed = Passed { fds: Vec::new(), uid, closer: closer.clone() };
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

/// What a look at the next packet shows.
enum Look {
    Packet { descriptors: bool },
    Nothing,
    HangUp,
}

/// Looks at the next packet without taking it.
fn look(socket: &OwnedFd) -> Look {
    // Without room for descriptors the kernel only says that there are some; those of the packet stay where they are.
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

/// Memory held by packets that the other side has not taken yet, in bytes.
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
        let named = |name: &str| -> OwnedFd { File::create(folder.path().join(name)).unwrap().into() };
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
