//! Meeting point of a daemon: a socket with an abstract name, which no removal of files takes away.
//!
//! The end of a login session removes `/run/user/UID`, and with it the file by which programs find the daemon, which runs on. A program
//! that finds no file there asks at the meeting point: the daemon makes the file again, so that no second daemon is started. Two daemons of
//! one user meet there too, whichever of the user's folders each was given.
//!
//! An abstract name belongs to a network namespace and may be taken by any user, so each side checks the other's user first. Where another
//! user has taken the name there is no meeting point, and everything else works as usual: that user can only make a program wait for a
//! connection, for [`REACH`].

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

/// Longest wait for a connection to a meeting point. The thread of a daemon that has it takes connections at once, so only a socket whose
/// queue of connections is kept full needs more; the user of what listens there is not known before.
const REACH: Duration = Duration::from_millis(30);

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

/// Asks the daemon that serves at a socket, whose file may be gone, to listen there, and waits for its answer for at most `patience`.
/// Returns whether it does.
pub fn call(socket: &Path, patience: Duration) -> bool {
    ask(socket, patience).is_ok_and(|is_here| is_here)
}

/// Connects to what listens at the meeting point of a socket, if that is of this process's user.
pub fn connected(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(REACH))?;
    rustix::net::connect(&socket, &address(path)?)?;
    if is_of_this_user(&socket) { Ok(socket) } else { Err(Errno::PERM) }
}

fn ask(path: &Path, patience: Duration) -> rustix::io::Result<bool> {
    let path = std::path::absolute(path).map_err(|_| Errno::INVAL)?;
    let socket = connected(&path)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
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
    fn a_meeting_point_whose_connections_are_not_taken_costs_a_moment() {
        let path = std::env::temp_dir().join(format!("xsched-squatted-{}", std::process::id()));
        let new = |flags| {
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
        };
        let squatter = new(SocketFlags::empty()).unwrap();
        rustix::net::bind(&squatter, &address(&path).unwrap()).unwrap();
        rustix::net::listen(&squatter, 0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let socket = new(SocketFlags::NONBLOCK).unwrap();
            match rustix::net::connect(&socket, &address(&path).unwrap()) {
                Ok(()) => waiting.push(socket),
                Err(why) => break assert_eq!(why, Errno::AGAIN, "its queue is full"),
            }
        }
        let (began, patience) = (std::time::Instant::now(), Duration::from_secs(20));
        assert!(!call(&path, patience));
        assert!(began.elapsed() < patience / 2, "{:?}", began.elapsed());
    }

    #[test]
    fn nobody_answers_where_nobody_is() {
        assert!(!call(Path::new("/nowhere/at/all"), Duration::from_secs(1)));
    }
}
