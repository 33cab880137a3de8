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

/// Descriptors a packet may carry.
const MAX_FDS: usize = 3;

/// A socket that is listened on; its file goes with it.
pub(crate) struct Listener {
    path: PathBuf,
    socket: OwnedFd,
    /// Locked for as long as this daemon lives: what lies at `path` while nobody holds the lock is stale.
    lock: File,
    lock_path: PathBuf,
}

impl Listener {
    pub(crate) fn new(path: &Path) -> Result<Listener, Error> {
        let shown = path.display();
        let fail = |what: &str, e: &dyn std::fmt::Display| Error::Environment(format!("{what} {shown}: {e}"));
        let address = SocketAddrUnix::new(path)
            .map_err(|_| Error::Environment(format!("the socket path {shown} is too long: use one under 108 bytes")))?;
        prepare_folder(path)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".pid");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock(path, &lock_path)?;
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
        let listener = Listener { path: path.to_owned(), socket, lock, lock_path };
        // Root serves everybody who can reach the folder; each peer's user is checked.
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(|e| fail("cannot open up", &e))?;
        rustix::net::listen(&listener.socket, 128).map_err(|e| fail("cannot listen on", &e))?;
        Ok(listener)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // Removed while locked: whoever opened it meanwhile finds that it is no longer the file of that name.
        let _ = std::fs::remove_file(&self.lock_path);
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Makes the socket's folder, or checks that nobody else can put things into it.
fn prepare_folder(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let shown = folder.display();
    let system = Path::new(SYSTEM_SOCKET).parent() == Some(folder);
    let mode = if system { 0o755 } else { 0o700 };
    let made = std::fs::DirBuilder::new().mode(mode).recursive(true).create(folder);
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
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = open.map_err(|e| fail(&e))?;
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
        if std::fs::metadata(path).is_ok_and(same) {
            let pid = format!("{}\n", std::process::id());
            let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
            written.map_err(|e| fail(&e))?;
            return Ok(file);
        }
    }
}

/// Process and user at the other end, as they were when it connected. Pid 0 = cannot be seen from here.
pub(crate) fn peer(socket: &OwnedFd) -> Option<(u32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` are valid for the kernel to write, `len` tells the size.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &raw mut len)
    };
    (rc == 0).then(|| (u32::try_from(cred.pid).unwrap_or(0), cred.uid))
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
}

/// Descriptors from a stranger. Closing one can take as long as the stranger likes (a file of its own file system),
/// so that those of no known kind are closed elsewhere.
pub(crate) struct Passed(Vec<OwnedFd>);

impl Passed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The three that a client introduces itself with, each of a kind that never blocks.
    pub(crate) fn take(mut self) -> Result<[OwnedFd; 3], String> {
        if !self.0.iter().all(harmless) {
            return Err("a descriptor is no memfd, eventfd or pidfd".into());
        }
        let fds = std::mem::take(&mut self.0);
        <[OwnedFd; 3]>::try_from(fds).map_err(|fds| format!("it sent {} descriptors instead of 3", fds.len()))
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        for fd in self.0.drain(..).filter(|fd| !harmless(fd)) {
            let thread = std::thread::Builder::new().name("close".into()).stack_size(64 << 10);
            // Failing that, it is closed here after all: better than to run out of descriptors.
            let _ = thread.spawn(move || drop(fd));
        }
    }
}

fn harmless(fd: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
    let link = link.to_string_lossy();
    // Newer kernels show a pidfd as a file of its own file system.
    link.starts_with("/memfd:")
        || matches!(&*link, "anon_inode:[eventfd]" | "anon_inode:[pidfd]")
        || link.starts_with("pidfd:[")
}

/// Receives one packet into `buffer`, which has [`MAX_PACKET`] bytes.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Received {
    debug_assert_eq!(buffer.len(), MAX_PACKET);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::HangUp,
    };
    let mut fds = Passed(Vec::new());
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.0.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Received::TooMuch;
    }
    if got.bytes == 0 && fds.is_empty() {
        return Received::HangUp;
    }
    Received::Packet(got.bytes, fds)
}

/// Sends one packet without waiting.
pub(crate) fn send(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
