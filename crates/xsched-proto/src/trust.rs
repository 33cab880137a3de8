//! Check that a daemon may be trusted: a program that attaches to it waits at its gates and maps its memory.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Error;

/// User id that the kernel shows for a user without a number in this user namespace.
const OVERFLOW_UID: u32 = 65_534;

/// Process id and user id at the other end of a socket, as they were when it connected or began to listen. Pid 0 = the process cannot be
/// seen from here.
pub fn peer(socket: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` are valid for the kernel to write, `len` tells the size.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &raw mut len)
    };
    (rc == 0).then(|| (u32::try_from(cred.pid).unwrap_or(0), cred.uid))
}

/// Checks the daemon at the other end of a connection: the daemon and the folder of its socket must belong to this user or root, and others
/// must not be able to put another socket there.
///
/// # Errors
/// Returns one line with the reason if the daemon is not trusted.
pub fn check_daemon(socket: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    let shown = path.display();
    match peer(socket) {
        Some((_, uid)) if is_trusted(uid) => check_folder(path),
        Some((_, OVERFLOW_UID)) if is_from_outside(folder_of(path)) => Ok(()),
        Some((_, uid)) => {
            Err(Error::environment(format!("the daemon at {shown} is not trusted: it belongs to user {uid}")))
        }
        None => Err(Error::environment(format!("the daemon at {shown} is not trusted: its user cannot be found out"))),
    }
}

/// Checks the folder of a socket: it must belong to this user or root, and others must not be able to write there, or at least (sticky
/// folder, as `/tmp`) not to replace files of others.
///
/// # Errors
/// Returns one line with the reason.
pub fn check_folder(socket: &Path) -> Result<(), Error> {
    let folder = folder_of(socket);
    let shown = folder.display();
    // The folder itself, and the link if the path is a link: its owner can change the target.
    let metas = (std::fs::metadata(folder), std::fs::symlink_metadata(folder));
    let (Ok(meta), Ok(link)) = metas else {
        return Err(Error::environment(format!("the folder {shown} cannot be looked at")));
    };
    for uid in [meta.uid(), link.uid()] {
        if !is_trusted(uid) {
            return Err(Error::environment(format!(
                "the daemon in {shown} is not trusted: the folder belongs to user {uid}"
            )));
        }
    }
    if meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 {
        return Err(Error::environment(format!(
            "the daemon in {shown} is not trusted: others may write to the folder"
        )));
    }
    Ok(())
}

fn folder_of(socket: &Path) -> &Path {
    match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reports whether a folder was put into this user namespace from outside: its owner has no number here, it is mounted there, and this
/// process cannot write to it. It is then as the creator of the container wanted it, and a daemon in it that has no number either is the
/// machine's.
fn is_from_outside(folder: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags};
    if has_all_users() {
        return false;
    }
    let Ok(stat) = rustix::fs::statx(CWD, folder, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) else {
        return false;
    };
    let is_mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let writes = rustix::fs::accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    is_mounted && !writes && stat.stx_uid == OVERFLOW_UID && stat.stx_mode & 0o022 == 0
}

/// Reports whether a user is root or this process's own user.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || is_own_user(uid)
}

/// Reports whether a user id that the kernel shows is this process's own user. The overflow id stands for many users where not every user
/// has a number, so it is no one's own there.
pub fn is_own_user(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw() && is_one_user(uid)
}

/// Reports whether a user id that the kernel shows stands for one user only.
pub fn is_one_user(uid: u32) -> bool {
    uid != OVERFLOW_UID || has_all_users()
}

/// Reports whether every user has a number in this namespace, so that the overflow number is a user like any other.
fn has_all_users() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_daemon_is_trusted_by_its_user_and_its_folder() {
        let folder = std::env::temp_dir().join(format!("xsched-trust-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        let check = |mode| {
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
            check_daemon(stream.as_fd(), &path)
        };
        for mode in [0o700, 0o755, 0o1777] {
            assert_eq!(check(mode), Ok(()), "{mode:o}");
        }
        for mode in [0o777, 0o770, 0o702] {
            assert!(check(mode).unwrap_err().line().contains("others may write"), "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(12_345), None).unwrap();
            assert!(check(0o700).unwrap_err().line().contains("belongs to user 12345"));
        }
        let own = peer(stream.as_fd()).unwrap();
        assert_eq!(own, (std::process::id(), rustix::process::geteuid().as_raw()));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!is_trusted(own.1 + 1));
    }
}
