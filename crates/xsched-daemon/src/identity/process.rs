//! Facts about a process from the kernel.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags};

use crate::tuning::ANCESTORS_MAX;

/// Path of this program, for another process of it, even where an upgrade has put another file in its place, or none.
pub(crate) fn own_program() -> PathBuf {
    let path = std::env::current_exe().ok().filter(|path| path.is_file());
    path.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Reports whether the process of a pidfd is alive.
pub(crate) fn alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// Reads a field of /proc/PID/stat, by its number in proc(5), which is 3 or more; none if the process is gone.
fn stat(pid: u32, field: usize) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(field - 3)?.parse().ok()
}

/// Parent of a process; none if the process is gone.
fn parent(pid: u32) -> Option<u32> {
    stat(pid, 4)?.try_into().ok()
}

/// Start time of a process, in clock ticks from the boot: pid and start time together identify a process.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid, 22)
}

/// A process and its ancestors, itself first.
pub(crate) fn ancestors(pid: u32) -> Vec<u32> {
    std::iter::successors(Some(pid), |pid| parent(*pid)).take(ANCESTORS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_below_those_that_started_it() {
        let own = std::process::id();
        let (above, started_by) = (ancestors(own), parent(own).unwrap());
        assert_eq!(above[..2], [own, started_by]);
        assert!(above.len() <= ANCESTORS_MAX);
        assert!(!ancestors(started_by).contains(&own));
        assert_eq!(ancestors(u32::MAX / 4), [u32::MAX / 4], "it does not exist");
    }
}
