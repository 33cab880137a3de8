//! Meeting point of a daemon: a socket with an abstract name, which no removal of files takes away.
//!
//! The end of a login session removes `/run/user/UID`, and with it the file by which programs find the daemon, which runs on. A program
//! that finds no file there asks at the meeting point: the daemon makes the file again, so that no second daemon is started. Two daemons of
//! one user meet there too, whichever of the user's folders each was given.
//!
//! An abstract name belongs to a network namespace and may be taken by any user, so each side checks the other's user first. Where another
//! user has taken the name there is no meeting point, and everything else works as usual.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::{paths, trust};

/// Whole answer of a daemon that listens at the path it was asked for. Any other answer gives the reason for which it does not.
pub const HERE: &[u8] = b"here";
/// Longest question or answer, in bytes.
pub const MAX_BYTES: usize = 1024;

/// Address of the meeting point of the daemon that serves at a socket: one for all paths at which programs of this user look by themselves,
/// one for each other path.
///
/// # Errors
/// Returns the system's error for a name that is too long.
pub fn address(socket: &Path) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name(socket, rustix::process::geteuid().as_raw()).as_bytes())
}

fn name(socket: &Path, uid: u32) -> String {
    if paths::is_usual_of(socket, uid) {
        return format!("xsched/{uid}");
    }
    // FNV-1a, which gives equal results in every build.
    let hash = socket
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("xsched/{uid}/{hash:016x}")
}

/// Reports whether two sockets have one meeting point.
pub fn is_shared(one: &Path, other: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    name(one, uid) == name(other, uid)
}

/// Asks the daemon that serves at a socket, whose file may be gone, to listen there, and waits for at most `patience` in each step. Returns
/// whether it does.
pub fn call(socket: &Path, patience: Duration) -> bool {
    ask(socket, patience).is_ok_and(|is_here| is_here)
}

fn ask(path: &Path, patience: Duration) -> rustix::io::Result<bool> {
    let path = std::path::absolute(path).map_err(|_| Errno::INVAL)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // Without the limit, connecting would wait for ever for a stopped daemon whose backlog is full.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    rustix::net::connect(&socket, &address(&path)?)?;
    if !is_of_this_user(&socket) {
        return Ok(false);
    }
    rustix::net::send(&socket, path.as_os_str().as_bytes(), SendFlags::NOSIGNAL)?;
    let mut answer = [0; MAX_BYTES];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    Ok(&answer[..length] == HERE)
}

/// Reports whether the process at the other end belongs to this process's user.
pub fn is_of_this_user(socket: &OwnedFd) -> bool {
    trust::peer(socket.as_fd()).is_some_and(|(_, uid)| trust::is_own_user(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_places_of_a_user_have_one_meeting_point() {
        let at = |path: &str, uid| name(Path::new(path), uid);
        assert_eq!(at("/run/user/7/xsched/xsched.sock", 7), "xsched/7");
        assert_eq!(at("/tmp/xsched-7/xsched.sock", 7), "xsched/7");
        let others =
            ["/run/user/8/xsched/xsched.sock", "/tmp/xsched-8/xsched.sock", "/run/xsched/xsched.sock", "/s", "/t"];
        let mut names = others.map(|path| at(path, 7)).to_vec();
        names.push(at("/s", 8));
        names.push("xsched/7".to_owned());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), others.len() + 2, "{names:?}");
    }

    #[test]
    fn nobody_answers_where_nobody_is() {
        assert!(!call(Path::new("/nowhere/at/all"), Duration::from_secs(1)));
    }
}
