//! Identity of a client: proved by its pidfd, which the kernel made, and read from /proc while the process is alive (`services::identify`).

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::identity::container::Place;
use crate::identity::process::start_ticks;
use crate::identity::{self, Process, User};
use crate::server::clock::now_ns;

/// Clock ticks a second (USER_HZ), the unit of a process's start time in /proc.
const TICKS: u64 = 100;
/// Longest path kept of an executable or cgroup, in bytes.
pub(crate) const PATH_MAX_BYTES: usize = 4096;

/// Identified process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) user: User,
    /// Resolved path of the executable.
    pub(crate) exe: String,
    /// File names by which the process was run, as reported by it or its starter: that of a link or a script, perhaps cut.
    pub(crate) names: Vec<String>,
    pub(crate) place: Place,
    /// See [`crate::identity::process::start_ticks`].
    pub(crate) start: Option<u64>,
}

/// Checks that `pidfd` refers to the process that connected.
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

/// Pidfd of a program that has sent none; none where this kernel has no pidfds.
pub(crate) fn pidfd(socket: BorrowedFd<'_>, pid: u32, accepted_ns: u64) -> Result<Option<OwnedFd>, Error> {
    match identity::process(socket) {
        Process::Known(pidfd) => Ok(Some(pidfd)),
        Process::Ended => Err(Error::environment("its process has ended")),
        Process::Unknown => pidfd_by_number(pid, accepted_ns),
    }
}

/// Opens the process with the number of the one that connected, which may be another's by now.
fn pidfd_by_number(pid: u32, accepted_ns: u64) -> Result<Option<OwnedFd>, Error> {
    let Some(number) = Pid::from_raw(pid.cast_signed()) else {
        return Err(Error::environment("its process cannot be seen from here (another pid namespace)"));
    };
    let pidfd = pidfd_open(number, PidfdFlags::empty()).ok();
    // Read after the pidfd was opened: from then on the number cannot become another process's unnoticed.
    let since_boot = clock_gettime(ClockId::Boottime);
    let now_ticks =
        since_boot.tv_sec.cast_unsigned() * TICKS + since_boot.tv_nsec.cast_unsigned() / (1_000_000_000 / TICKS);
    let age_ticks = now_ns().saturating_sub(accepted_ns) / (1_000_000_000 / TICKS);
    match start_ticks(pid) {
        Some(start) if start <= now_ticks.saturating_sub(age_ticks) => Ok(pidfd),
        _ => Err(Error::environment("its process has ended")),
    }
}

/// Executable, names and lines of the cgroups of a process, which rules use.
pub(crate) fn look(pid: u32) -> (String, Vec<String>, String) {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).map(|p| p.to_string_lossy().into_owned());
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // Name of the executed file, before links and interpreters are resolved. (The first word of its arguments would be more precise, but is
    // read from the process's own memory: the process could make that take as long as it likes.)
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    (cut(exe.unwrap_or_default()), vec![name.trim_end_matches('\n').to_owned()], cut(cgroup))
}

/// Reports whether a descriptor is an eventfd: the daemon can watch one without a risk of being blocked.
pub(crate) fn is_eventfd(fd: &OwnedFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

/// Cuts a path to the length that is kept.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > PATH_MAX_BYTES {
        let at = (0..=PATH_MAX_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(at);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::process::alive;
    use std::os::fd::AsFd;

    #[test]
    fn a_program_without_a_pidfd_is_known_by_its_connection() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let found = pidfd(one.as_fd(), std::process::id(), now_ns()).unwrap();
        assert!(found.is_some_and(|pidfd| check(std::process::id(), &pidfd).is_ok() && alive(&pidfd)));
    }

    #[test]
    fn a_number_is_that_of_the_process_that_connected_or_of_none() {
        let own = std::process::id();
        assert!(pidfd_by_number(own, now_ns()).unwrap().is_some_and(|pidfd| check(own, &pidfd).is_ok()));
        // This process began after the connection was accepted: another process had the number.
        let mut later = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let before_ns = now_ns() - 60_000_000_000;
        assert!(pidfd_by_number(later.id(), before_ns).unwrap_err().line().contains("has ended"));
        later.kill().unwrap();
        later.wait().unwrap();
        assert!(pidfd_by_number(later.id(), now_ns()).is_err());
        assert!(pidfd_by_number(0, now_ns()).unwrap_err().line().contains("another pid namespace"));
    }
}
