//! Who a client is: proved by its pidfd, which the kernel made, and read from /proc while it is alive (`clerk`).

use std::os::fd::{AsRawFd, OwnedFd};

use crate::Error;
use crate::container::Place;
use crate::identity::User;

/// Longest path kept of an executable or cgroup, in bytes.
const PATH_MAX_BYTES: usize = 4096;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) user: User,
    /// Resolved path of the executable.
    pub(crate) exe: String,
    /// File names by which it was run, as it or its starter says: that of a link or a script, perhaps cut.
    pub(crate) names: Vec<String>,
    pub(crate) place: Place,
    /// See [`crate::process::start_ticks`].
    pub(crate) start: Option<u64>,
}

/// Checks that `pidfd` is the process that connected.
pub(crate) fn check(pid: u32, pidfd: &OwnedFd) -> Result<(), Error> {
    if pid == 0 {
        return Err(Error::environment("its process cannot be seen from here (another pid namespace)"));
    }
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap_or_default();
    let shown = info.lines().find_map(|l| l.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
    match shown {
        None => Err(Error::environment("the descriptor of its process is no pidfd")),
        Some(-1) => Err(Error::environment("it has ended already")),
        Some(shown) if shown != i64::from(pid) => Err(Error::environment("the descriptor of its process is another's")),
        Some(_) => Ok(()),
    }
}

/// Executable, names and the lines of its cgroups, which rules ask about.
pub(crate) fn look(pid: u32) -> (String, Vec<String>, String) {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).map(|p| p.to_string_lossy().into_owned());
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // What was executed, before links and interpreters are looked through. (The first word of its arguments would say more, but
    // is read from its own memory: it could have that take as long as it likes.)
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    (cut(exe.unwrap_or_default()), vec![name.trim_end_matches('\n').to_owned()], cut(cgroup))
}

/// Whether a descriptor is an eventfd, which the daemon can watch without a way to be blocked by it.
pub(crate) fn is_eventfd(fd: &OwnedFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

/// As much of a path as is kept.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > PATH_MAX_BYTES {
        let at = (0..=PATH_MAX_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(at);
    }
    text
}
