//! Ensures one server per socket, and removes stale socket files.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
        // The file appears under its name only once it is listened on: a program that finds it may connect at once. A file
        // of that name that still exists belongs to a server that was killed, and is replaced.
        let draft = draft(path);
        match rustix::fs::unlink(&draft) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&draft)?)?;
        rustix::fs::chmod(&draft, Mode::RUSR | Mode::WUSR)?;
        rustix::net::listen(&socket, 128)?;
        rustix::fs::rename(&draft, path)?;
        Ok(Self { socket, path: path.to_owned(), _lock: lock })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Removes the socket file before the lock is released; fields are dropped after this.
        let _ = rustix::fs::unlink(&self.path);
    }
}

/// Name of a socket file until it is listened on. No longer than the path itself, since addresses are limited.
fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    let last = name.pop();
    name.push(if last == Some(b'~') { b'_' } else { b'~' });
    path.with_file_name(OsString::from_vec(name))
}

fn socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn connects(address: &SocketAddrUnix) -> bool {
    socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).is_ok_and(|s| rustix::net::connect(&s, address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_that_is_there_can_be_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..200 {
            let path = dir.path().join(format!("{number}.sock"));
            let address = SocketAddrUnix::new(&path).unwrap();
            std::thread::scope(|scope| {
                let server = scope.spawn(|| Listener::new(&path).unwrap());
                let client = socket(SocketFlags::CLOEXEC).unwrap();
                let first = loop {
                    match rustix::net::connect(&client, &address) {
                        Err(Errno::NOENT) if !server.is_finished() => std::hint::spin_loop(),
                        other => break other,
                    }
                };
                let _listener = server.join().unwrap();
                // The server may have ended its start between the last two steps.
                let first = if first == Err(Errno::NOENT) { rustix::net::connect(&client, &address) } else { first };
                assert_eq!(first, Ok(()), "start {number}");
            });
        }
    }

    #[test]
    fn a_socket_of_a_server_that_was_killed_is_replaced_also_at_the_longest_path() {
        let dir = tempfile::tempdir().unwrap();
        let room = 107 - dir.path().as_os_str().len() - 1;
        for last in ["k", "~"] {
            let path = dir.path().join("s".repeat(room - 1) + last);
            let address = SocketAddrUnix::new(&path).unwrap();
            rustix::net::bind(socket(SocketFlags::CLOEXEC).unwrap(), &address).unwrap();
            assert!(!connects(&address));
            let listener = Listener::new(&path).unwrap();
            assert!(connects(&address));
            drop(listener);
            assert!(!path.exists() && !draft(&path).exists());
        }
    }
}
