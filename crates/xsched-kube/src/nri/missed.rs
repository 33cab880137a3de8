//! Containers that ask for a class and run without one, since they started while no injector was running: a node that
//! has rebooted starts its pods in any order. They are logged; if they are ended, the kubelet creates them again, and
//! they get their class then.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::log;

/// Time for a container to end by itself.
const GRACE: Duration = Duration::from_secs(10);
/// Interval of polls meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A container without its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// ID of the container, as in the paths of its cgroups.
    pub id: String,
    /// Its first process; 0 = unknown.
    pub pid: u32,
    /// Name of the container in the log.
    pub name: String,
    /// Rest of its line in the log.
    pub why: String,
}

/// Ends a container, so that the kubelet creates it again.
pub async fn restart(missed: Missed) {
    let Missed { id, pid, name, .. } = missed;
    match end(&id, pid).await {
        Ok(how) => log(format!("{name}: {how}, for the kubelet to start it with its class")),
        Err(why) => log(format!("{name}: cannot be restarted: {why}")),
    }
}

async fn end(id: &str, pid: u32) -> Result<&'static str, String> {
    let said = |what: &str, e: rustix::io::Errno| match e {
        rustix::io::Errno::PERM => format!("{what}: {e}: the injector needs the capability KILL"),
        _ => format!("{what}: {e}"),
    };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("the runtime does not tell its process")?;
    let process = pidfd_open(raw, PidfdFlags::NONBLOCK).map_err(|e| said("its process is not seen here", e))?;
    // Read after the process was opened, so that the ID cannot have been reused meanwhile.
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    if id.is_empty() || !cgroups.contains(id) {
        return Err(format!("process {pid} is not in its cgroup"));
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(|e| said("its process cannot be told to end", e))?;
    if tokio::time::timeout(GRACE, ended(&process)).await.is_ok() {
        return Ok("has ended");
    }
    match pidfd_send_signal(&process, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok("was killed, as it did not end"),
        Err(e) => Err(said("its process cannot be killed", e)),
    }
}

/// Waits until a process has ended.
async fn ended(process: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec::default();
    while !poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
