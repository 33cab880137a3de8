//! Who a client is: proved by its pidfd, which the kernel made, and read from /proc while it is alive.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

use crate::Error;

/// Longest path kept of an executable or cgroup, in bytes.
const PATH_MAX_BYTES: usize = 4096;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Resolved path of the executable.
    pub(crate) exe: String,
    /// File names by which it was run, as it or its starter says: that of a link or a script, perhaps cut.
    pub(crate) names: Vec<String>,
    pub(crate) cgroup: String,
}

/// Checks that `pidfd` is the process that connected, and reads what rules ask about.
pub(crate) fn identify(pid: u32, uid: u32, pidfd: &OwnedFd) -> Result<Peer, Error> {
    if pid == 0 {
        return Err(Error::environment("its process cannot be seen from here (another pid namespace)"));
    }
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap_or_default();
    let shown = info.lines().find_map(|l| l.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
    match shown {
        None => return Err(Error::environment("the descriptor of its process is no pidfd")),
        Some(shown) if shown != i64::from(pid) => {
            return Err(Error::environment("the descriptor of its process is another's"));
        }
        Some(_) => (),
    }
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).map(|p| p.to_string_lossy().into_owned());
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let cgroup = cgroup.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("").to_owned();
    // What was executed, before links and interpreters are looked through. (The first word of its arguments would say more, but
    // is read from its own memory: it could have that take as long as it likes.)
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // Alive after the reading: then it was the one read about, for a pid is not given away while its process lives.
    if !alive(pidfd) {
        return Err(Error::environment("its process has ended"));
    }
    let names = vec![name.trim_end_matches('\n').to_owned()];
    Ok(Peer { pid, uid, exe: cut(exe.unwrap_or_default()), names, cgroup: cut(cgroup) })
}

fn alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// Whether a descriptor is an eventfd, which the daemon can watch without a way to be blocked by it.
pub(crate) fn is_eventfd(fd: &OwnedFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

fn cut(mut text: String) -> String {
    if text.len() > PATH_MAX_BYTES {
        let at = (0..=PATH_MAX_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(at);
    }
    text
}
