//! Connection to the device server, which is started if need be.

use super::error::{Error, Result};
use super::spawn;
use crate::wire::{self, Request, Words};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time for a server to come up or to answer a greeting.
const PATIENCE: Duration = Duration::from_secs(15);

/// A greeting with its reply.
pub(super) struct Greeting {
    pub(super) socket: OwnedFd,
    pub(super) reply: Words,
    pub(super) fds: Vec<OwnedFd>,
}

/// Greets the device, which is started if need be.
pub(super) fn greet(request: Request) -> Result<Greeting> {
    let path = socket_path()?;
    let greeting = match attempt(&path, request) {
        Ok(greeting) => greeting,
        Err(_) => start(&path, request).map_err(|_| Error::NoDevice)?,
    };
    Error::check(greeting.reply[0])?;
    Ok(greeting)
}

fn socket_path() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(path) = set("SIMDEV_SOCKET") {
        return Ok(path);
    }
    let uid = rustix::process::geteuid();
    // After `su` or `sudo -E` it is another user's folder, and files that root makes there are inaccessible to its
    // owner.
    let is_own = |folder: &PathBuf| rustix::fs::stat(folder).is_ok_and(|stat| stat.st_uid == uid.as_raw());
    if let Some(folder) = set("XDG_RUNTIME_DIR").filter(is_own) {
        return Ok(folder.join("simdev.sock"));
    }
    let folder = PathBuf::from(format!("/tmp/simdev-{}", uid.as_raw()));
    match rustix::fs::mkdir(&folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => return Err(Error::NoDevice),
    }
    // Another user may have created it first: it must be a folder, not a link to one, our own, and closed to others.
    let stat = rustix::fs::lstat(&folder).map_err(|_| Error::NoDevice)?;
    let private = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()
        && stat.st_uid == uid.as_raw()
        && stat.st_mode & 0o077 == 0;
    if private { Ok(folder.join("simdev.sock")) } else { Err(Error::NoDevice) }
}

fn attempt(path: &Path, request: Request) -> io::Result<Greeting> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    // A server that hangs must not block its clients.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    wire::send(&socket, request.encode(), &[])?;
    let (reply, fds) = wire::receive(&socket)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, None)?;
    Ok(Greeting { socket, reply, fds })
}

/// Starts the server. If several processes try at once, one starts it and the others connect.
fn start(path: &Path, request: Request) -> io::Result<Greeting> {
    let mut lock_path = OsString::from(path);
    lock_path.push(".lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(&lock_path, flags, Mode::RUSR | Mode::WUSR)?;
    let begin = Instant::now();
    while let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != Errno::AGAIN || begin.elapsed() > PATIENCE {
            return Err(error.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if let Ok(greeting) = attempt(path, request) {
        return Ok(greeting);
    }
    let starting = spawn::start(path)?;
    let begin = Instant::now();
    loop {
        let ended = starting.ended(1);
        match attempt(path, request) {
            Ok(greeting) => return Ok(greeting),
            Err(error) if ended || begin.elapsed() > PATIENCE => return Err(error),
            Err(_) => {}
        }
    }
}
