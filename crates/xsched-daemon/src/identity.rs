//! Whose a connection is, over namespaces. The rights of uid 0 belong to the root of the daemon's own machine: a container's uid 0 is
//! another user, whom rules and limits treat as any.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// A user, as far as rights and bounds go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct User {
    /// The number that rules and limits know.
    pub(crate) uid: u32,
    rank: Rank,
    /// Which container's it is, where its number says less than that: the inode of its pid namespace.
    within: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rank {
    Root,
    /// The user whom the daemon runs as.
    Own,
    Other,
}

/// Device and inode, which tell namespaces apart.
type Namespace = (u64, u64);

impl User {
    /// The user of a process, of which the kernel has told this number. Looks at the process.
    pub(crate) fn of(pid: u32, seen: u32) -> User {
        let uid = owner_of_container(pid).filter(|owner| *owner != 0).unwrap_or(seen);
        if uid == 0 && !is_of_this_machine(pid) {
            let within = namespace(&pid.to_string(), "pid").map_or(u64::MAX, |(_, inode)| inode);
            return User { uid, rank: Rank::Other, within };
        }
        User { uid, rank: Rank::of(uid), within: 0 }
    }

    /// As long as nothing else is known than the number: without rights.
    pub(crate) fn unknown(uid: u32) -> User {
        User { uid, rank: Rank::Other, within: 0 }
    }

    /// Root of the daemon's own machine: every program is its, and no limit holds for it.
    pub(crate) fn is_root(self) -> bool {
        self.rank == Rank::Root
    }

    /// Root, or the user whom the daemon runs as.
    pub(crate) fn is_own(self) -> bool {
        self.rank != Rank::Other
    }

    /// Tells whether its number is that of root or of the user whom the daemon runs as. No right follows from that: a container's root has
    /// the number, too.
    pub(crate) fn has_own_uid(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Whether this daemon has programs of its at all: one that is not root's serves its own user and root.
    pub(crate) fn is_served(self) -> bool {
        rustix::process::geteuid().is_root() || self.is_own()
    }

    /// Whether it is known to be of a container.
    pub(crate) fn is_contained(self) -> bool {
        self.within != 0
    }

    #[cfg(test)]
    pub(crate) fn pretended(uid: u32) -> User {
        User { uid, rank: Rank::of(uid), within: 0 }
    }
}

/// As it is told, and as the jobs of its programs are told from those of others.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within {
            0 => write!(f, "{}", self.uid),
            within => write!(f, "{} of container {within}", self.uid),
        }
    }
}

impl Rank {
    fn of(uid: u32) -> Rank {
        match uid {
            0 => Rank::Root,
            _ if uid == rustix::process::geteuid().as_raw() => Rank::Own,
            _ => Rank::Other,
        }
    }
}

fn namespace(process: &str, kind: &str) -> Option<Namespace> {
    let meta = std::fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Whether a process is in the user, pid and mount namespaces of the daemon. A service has a mount namespace of its own: that of the
/// first process is the machine's then.
fn is_of_this_machine(pid: u32) -> bool {
    let of = |kind| namespace(&pid.to_string(), kind);
    let (Some(user), Some(pids), Some(mounts)) = (of("user"), of("pid"), of("mnt")) else {
        // A daemon without privilege cannot look at root's processes, but sees how deep they are nested.
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

/// The user who made the outermost user namespace, below the daemon's own, that a process is in; none if it is in the daemon's own, or
/// cannot be looked at.
fn owner_of_container(pid: u32) -> Option<u32> {
    let inode = |file: &File| file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let own = namespace("self", "user")?;
    let mut outermost = File::open(format!("/proc/{pid}/ns/user")).ok()?;
    if inode(&outermost)? == own {
        return None;
    }
    // Namespaces are nested 33 deep at most (user_namespaces(7)).
    for _ in 0..33 {
        let Some(parent) = parent(&outermost) else { break };
        if inode(&parent)? == own {
            break;
        }
        outermost = parent;
    }
    owner(&outermost)
}

/// ioctl_ns(2).
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

/// The process at the other end of a socket.
pub(crate) enum Process {
    Known(OwnedFd),
    /// The kernel is older than 6.5 and does not tell.
    Unknown,
    Ended,
}

/// The process that has made a connection.
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
        let user = User::of(pid, uid);
        assert_eq!(user, User::pretended(uid));
        assert!(user.is_own());
        // Pids are below 2^22.
        let gone = User::of(1 << 23, 0);
        assert!(!gone.is_root() && !gone.is_own());
        assert_ne!(gone, User::pretended(0));
    }
}
