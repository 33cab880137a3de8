//! Site of a daemon: the file of its socket, and the lock that keeps a second daemon away.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use xsched_proto::paths::SYSTEM_SOCKET;

use crate::Error;

/// File of a socket, and the lock beside it; both are removed when this is dropped.
pub(crate) struct Site {
    path: PathBuf,
    /// Lock that is held for as long as this daemon lives: a file at `path` is stale while the lock is free.
    lock: File,
    lock_path: PathBuf,
    /// Identity of the file at `path`: device and inode.
    file: (u64, u64),
}

impl Site {
    /// Listens at a path. `deep`: makes all of the folders on the way there, and not only the last.
    ///
    /// # Errors
    /// Returns one line.
    pub(crate) fn new(path: &Path, deep: bool) -> Result<(Site, OwnedFd), Error> {
        prepare_folder(path, deep)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".pid");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock(path, &lock_path)?;
        // From here on the lock's file is removed with the site.
        let mut site = Site { path: path.to_owned(), lock, lock_path, file: (0, 0) };
        let socket = site.bind()?;
        Ok((site, socket))
    }

    /// Listens there again.
    ///
    /// # Errors
    /// Returns one line. The site is then unchanged.
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
        // A daemon of root serves all users that can reach the folder, and checks the user of each connection.
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(|e| fail("cannot open up", &e))?;
        rustix::net::listen(&socket, 128).map_err(|e| fail("cannot listen on", &e))?;
        self.file = id_at(path).unwrap_or_default();
        Ok(socket)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whether its path still leads to it, and its lock keeps others away.
    pub(crate) fn is_there(&self) -> bool {
        id_at(&self.path) == Some(self.file) && self.has_lock()
    }

    fn has_lock(&self) -> bool {
        self.lock.metadata().is_ok_and(|meta| id_at(&self.lock_path) == Some((meta.dev(), meta.ino())))
    }
}

/// Identity of the file at a path: device and inode.
fn id_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Drop for Site {
    fn drop(&mut self) {
        if id_at(&self.path) == Some(self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
        // Removed while locked: a daemon that opened it meanwhile notices that it is no longer the file of that name.
        if self.has_lock() {
            let _ = std::fs::remove_file(&self.lock_path);
        }
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Makes the socket's folder, or checks that other users cannot put files into it.
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
    // A folder that others may write to must be one in which they cannot replace the daemon's files (sticky, as /tmp).
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
        // A link of another user's is not followed, and a FIFO is not waited for.
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
