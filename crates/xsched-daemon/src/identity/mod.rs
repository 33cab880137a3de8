//! Users, processes and containers of clients, and rights.
//!
//! A user is one across namespaces. The rights of uid 0 belong to the root of the daemon's own machine: a container's uid 0 is
//! another user, to which rules and limits apply as to any other.

pub(crate) mod accounts;
pub(crate) mod container;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod rights;
pub(crate) mod standing;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

pub(crate) use xsched_engine::{Rank, User};

/// Device and inode, which identify a namespace.
type Namespace = (u64, u64);

/// User of a process for which the kernel has given the user id `seen`. Reads the process's namespaces in /proc.
pub(crate) fn user_of(pid: u32, seen: u32) -> User {
    let uid = owner_of_container(pid).filter(|owner| *owner != 0).unwrap_or(seen);
    if uid == 0 && !is_of_this_machine(pid) {
        let within = container_of(pid).unwrap_or(u64::MAX);
        return User { uid, rank: Rank::Other, within };
    }
    User { uid, rank: rank_of(uid), within: 0 }
}

/// Reports whether a user has the id of root or of the daemon's own user. No right follows from that, since a container's root has the id
/// too.
pub(crate) fn has_own_uid(user: User) -> bool {
    user.uid == 0 || user.uid == rustix::process::geteuid().as_raw()
}

/// Reports whether this daemon serves a user at all: a daemon that is not root's serves its own user and root.
pub(crate) fn is_served(user: User) -> bool {
    rustix::process::geteuid().is_root() || user.is_own()
}

fn rank_of(uid: u32) -> Rank {
    match uid {
        0 => Rank::Root,
        _ if uid == rustix::process::geteuid().as_raw() => Rank::Own,
        _ => Rank::Other,
    }
}

/// User with a uid on this machine, outside all containers.
pub(crate) fn of_machine(uid: u32) -> User {
    User { uid, rank: rank_of(uid), within: 0 }
}

#[cfg(test)]
pub(crate) use of_machine as pretended;

fn namespace(process: &str, kind: &str) -> Option<Namespace> {
    let meta = std::fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Reports whether a process is in the user, pid and mount namespaces of the daemon. A service has a mount namespace of its own: that of
/// the first process counts as the machine's then.
fn is_of_this_machine(pid: u32) -> bool {
    let of = |kind| namespace(&pid.to_string(), kind);
    let (Some(user), Some(pids), Some(mounts)) = (of("user"), of("pid"), of("mnt")) else {
        // A daemon without privilege cannot read the namespaces of root's processes, but sees how deep they are nested.
        return !rustix::process::geteuid().is_root() && is_in_one_pid_namespace(pid);
    };
    let own = |kind| namespace("self", kind);
    let same_mounts = own("mnt") == Some(mounts) || namespace("1", "mnt") == Some(mounts);
    own("user") == Some(user) && own("pid") == Some(pids) && same_mounts
}

fn is_in_one_pid_namespace(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// User id of the user who made the outermost user namespace, below the daemon's own, that a process is in; none if the process is in the
/// daemon's own, or cannot be read.
fn owner_of_container(pid: u32) -> Option<u32> {
    owner(&outermost(pid, "user")?)
}

/// Number of the container of a process: the inode of the outermost pid namespace, below the daemon's own, that the process is in. A
/// container's root may make further ones inside, and is the same user in them. For a process in the daemon's own pid namespace it is that.
fn container_of(pid: u32) -> Option<u64> {
    let inode = |file: File| file.metadata().ok().map(|meta| meta.ino());
    outermost(pid, "pid").and_then(inode).or_else(|| namespace(&pid.to_string(), "pid").map(|(_, inode)| inode))
}

/// Outermost namespace of a kind, below the daemon's own, that a process is in; none if the process is in the daemon's own, or cannot be
/// read.
fn outermost(pid: u32, kind: &str) -> Option<File> {
    let inode = |file: &File| file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let own = namespace("self", kind)?;
    let mut outermost = File::open(format!("/proc/{pid}/ns/{kind}")).ok()?;
    if inode(&outermost)? == own {
        return None;
    }
    // The kernel nests user and pid namespaces at most 33 deep (user_namespaces(7), pid_namespaces(7)).
    for _ in 0..33 {
        let Some(parent) = parent(&outermost) else { break };
        if inode(&parent)? == own {
            break;
        }
        outermost = parent;
    }
    Some(outermost)
}

/// Request of ioctl_ns(2).
const NS_GET_PARENT: libc::c_ulong = 0xb702;
const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;

fn parent(namespace: &File) -> Option<File> {
    // SAFETY: a descriptor of ours; the request takes no argument and returns a new descriptor.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) };
    // SAFETY: just made, and not owned elsewhere.
    (fd >= 0).then(|| File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn owner(namespace: &File) -> Option<u32> {
    let mut uid: libc::uid_t = 0;
    // SAFETY: a descriptor of ours; the request stores one user id.
    let rc = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) };
    (rc == 0).then_some(uid)
}

/// Process at the other end of a socket.
pub(crate) enum Process {
    Known(OwnedFd),
    /// The kernel is older than 6.5 and cannot tell the process.
    Unknown,
    Ended,
}

/// Process that has made a connection.
pub(crate) fn process(socket: BorrowedFd<'_>) -> Process {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `fd` and `len` are valid for the kernel to write, `len` tells the size.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut len)
    };
    if rc == 0 && fd >= 0 {
        // SAFETY: just made, and not owned elsewhere.
        return Process::Known(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let has_ended = std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if has_ended { Process::Ended } else { Process::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_of_this_machine_and_root_that_has_ended_has_no_rights() {
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        assert!(is_of_this_machine(pid) && is_in_one_pid_namespace(pid));
        assert_eq!(owner_of_container(pid), None);
        let user = user_of(pid, uid);
        assert_eq!(user, pretended(uid));
        assert!(user.is_own());
        // No process can have this id: ids are below 2^22.
        let gone = user_of(1 << 23, 0);
        assert!(!gone.is_root() && !gone.is_own());
        assert_ne!(gone, pretended(0));
    }

    /// Numbers of the processes below one, itself included.
    fn below(pid: u32) -> Vec<u32> {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
        std::iter::once(pid).chain(children.flat_map(below)).collect()
    }

    #[test]
    fn a_containers_root_is_one_user_in_all_the_namespaces_that_it_makes() {
        if !rustix::process::geteuid().is_root() {
            return xsched_testkit::skipped("a container's root takes root");
        }
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "unshare", "--pid", "--fork", "sleep", "1000"]);
        let mut outer = command.spawn().unwrap();
        let is_sleep = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|n| n == "sleep\n");
        let mut inner = None;
        xsched_testkit::until("the inner namespace has a process", || {
            inner = below(outer.id()).into_iter().find(is_sleep);
            inner.is_some()
        });
        let inner = inner.unwrap();
        let middle = *below(outer.id()).iter().rev().nth(1).unwrap();
        let [innermost, user] = [inner, middle].map(|pid| user_of(pid, 0));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(inner as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        outer.wait().unwrap();
        assert_eq!(innermost, user);
        assert!(user.is_contained() && !user.is_own());
    }
}
