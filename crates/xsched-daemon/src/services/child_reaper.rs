//! Reaping of processes that the daemon has started and no longer needs, so that they leave no zombies. One may take long to end: it writes
//! a core file, or has much on a device.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::services::worker::{Next, Service, Spec, Worker};

/// A task has no outcome.
enum Nothing {}

/// Waits for the end of a child on another thread.
pub(crate) fn reap(child: Child) {
    // One worker for the process, since children belong to the process and not to a daemon in it.
    static WORKER: OnceLock<Option<Worker<Child, Nothing>>> = OnceLock::new();
    let make = || -> Box<dyn Service<Child, Nothing>> { Box::new(Children::default()) };
    let worker = WORKER.get_or_init(|| Worker::new(Spec::named("xsched-children"), VecDeque::new(), make).ok());
    // If descriptors or threads ran out, the child stays a zombie until the daemon ends.
    if let Some(worker) = worker {
        worker.push_beyond(child);
    }
}

/// Children that have not ended, each with the descriptor that reports its end.
#[derive(Default)]
struct Children(Vec<(Child, OwnedFd)>);

impl Service<Child, Nothing> for Children {
    fn perform(&mut self, mut child: Child, _: &mut Vec<Nothing>) {
        if matches!(child.try_wait(), Ok(None))
            && let Ok(pidfd) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        {
            self.0.push((child, pidfd));
        }
    }

    fn wait(&mut self, more: BorrowedFd<'_>, _: &mut Vec<Nothing>) -> Next {
        if self.0.is_empty() {
            return Next::Retire;
        }
        let mut fds = vec![PollFd::new(&more, PollFlags::IN)];
        fds.extend(self.0.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        let _ = poll(&mut fds, None);
        self.0.retain_mut(|(child, _)| matches!(child.try_wait(), Ok(None)));
        Next::GoOn
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use xsched_testkit::until;

    use super::*;

    /// Reports whether a process exists, even as a zombie.
    fn is_there(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_child_that_takes_long_to_end_keeps_no_other_from_being_waited_for() {
        let start = || Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process");
        let (mut slow, mut quick) = (start(), start());
        let ([slow_end, quick_end], [slow_pid, quick_pid]) =
            ([slow.stdin.take(), quick.stdin.take()], [slow.id(), quick.id()]);
        reap(slow);
        reap(quick);
        assert!(is_there(slow_pid) && is_there(quick_pid));
        drop(quick_end);
        until("it has ended and is no zombie", || !is_there(quick_pid));
        assert!(is_there(slow_pid));
        drop(slow_end);
        until("it has ended, too", || !is_there(slow_pid));
    }
}
