//! Ensures one server per socket, and removes stale socket files.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time that a new server waits for one that is just ending.
const PATIENCE: Duration = Duration::from_secs(2);

/// A listening socket, and the lock that a server holds as long as it runs.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Listener {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let mut lock_path = OsString::from(path);
        lock_path.push(".server");
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::open(&lock_path, flags, Mode::RUSR | Mode::WUSR)?;
        let address = SocketAddrUnix::new(path)?;
        let start = Instant::now();
        while let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::AGAIN {
                return Err(error.into());
            }
            if connects(&address) || start.elapsed() > PATIENCE {
                let what = format!("a device already serves {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Under the lock, a socket file that still exists belongs to a server that was killed.
        match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &address)?;
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
        rustix::net::listen(&socket, 128)?;
        Ok(Self { socket, path: path.to_owned(), _lock: lock })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Removes the socket file before the lock is released; fields are dropped after this.
        let _ = rustix::fs::unlink(&self.path);
    }
}

fn socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn connects(address: &SocketAddrUnix) -> bool {
    socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).is_ok_and(|s| rustix::net::connect(&s, address).is_ok())
}
