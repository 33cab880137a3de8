//! What policies ask about a process that is outside xsched: its nice value, whether its user looks at it, and where it stands
//! among users and cgroups.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rustix::process::{Pid, getpriority_process};
use xsched_policy::{Event, Level, Lineage, ProgramId};
use xsched_proto::class::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};

use crate::config::Config;
use crate::peer::Peer;
use crate::server::Server;
use crate::tuning::NICE_NS;

/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// No chain of processes is longer than this.
const ANCESTORS_MAX: usize = 64;

/// Nice value of a process, -20..=19; of one that is gone 0.
pub(crate) fn nice(pid: u32) -> i32 {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.and_then(|pid| getpriority_process(Some(pid)).ok()).unwrap_or(0)
}

/// Where a process stands. The weights of cgroups are those of the processor (`cpu.weight`), 100 where there is none.
pub(crate) fn lineage(peer: &Peer, config: &Config) -> Lineage {
    let user = Level { id: peer.uid.into(), weight: config.user_weight(peer.uid) };
    let mut folder = Path::new(CGROUPS).to_path_buf();
    let mut cgroup = Vec::new();
    for name in peer.cgroup.split('/').filter(|name| !name.is_empty() && *name != "..") {
        folder.push(name);
        let text = std::fs::read_to_string(folder.join("cpu.weight")).unwrap_or_default();
        let weight = text.trim().parse().unwrap_or(WEIGHT_DEFAULT).clamp(WEIGHT_MIN, WEIGHT_MAX);
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        cgroup.push(Level { id: hasher.finish(), weight });
    }
    Lineage { user, cgroup }
}

/// The process that started another; none if that is gone.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process is another one or was started below it.
fn is_below(pid: u32, top: u32) -> bool {
    std::iter::successors(Some(pid), |pid| parent(*pid)).take(ANCESTORS_MAX).any(|pid| pid == top)
}

impl Server {
    /// Whether a user's active window is that of a process, or of one that it was started by.
    pub(crate) fn has_active_window(&self, uid: u32, pid: u32) -> bool {
        self.active_windows.get(&uid).is_some_and(|window| is_below(pid, *window))
    }

    /// The active window of a user belongs to another process now.
    pub(crate) fn active_window(&mut self, uid: u32, pid: Option<u32>) {
        match pid {
            Some(pid) => self.active_windows.insert(uid, pid),
            None => self.active_windows.remove(&uid),
        };
        let of_user: Vec<(ProgramId, u32)> =
            self.clients().filter(|c| c.peer.uid == uid).map(|c| (c.program, c.peer.pid)).collect();
        let now_us = self.now_us();
        for (program, pid) in of_user {
            let active = self.has_active_window(uid, pid);
            self.gatekeeper.event(now_us, Event::Active(program, active));
        }
        self.act();
    }

    /// Whether some policy in force goes by nice values, which change without a word.
    pub(crate) fn follows_nice(&self) -> bool {
        let arbiter = self.gatekeeper.arbiter();
        arbiter.policies_in_force().any(|choice| choice.entry.reads_nice) && self.clients().next().is_some()
    }

    /// Looks at the nice values of all programs.
    pub(crate) fn look_at_nice(&mut self) {
        let found: Vec<(u64, ProgramId, i32)> = self
            .conns
            .iter()
            .filter_map(|(id, conn)| Some((*id, conn.client()?)))
            .map(|(id, client)| (id, client.program, nice(client.peer.pid)))
            .collect();
        let now_us = self.now_us();
        for (id, program, nice) in found {
            let Some(client) = self.conns.get_mut(&id).and_then(|c| c.client_mut()) else { continue };
            if std::mem::replace(&mut client.nice, nice) != nice {
                self.gatekeeper.event(now_us, Event::Nice(program, nice));
            }
        }
        self.nice_at = Some(self.now_ns + NICE_NS);
        self.act();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_below_those_that_started_it() {
        let own = std::process::id();
        assert!(is_below(own, own));
        assert!(is_below(own, parent(own).unwrap()));
        assert!(!is_below(parent(own).unwrap(), own));
        assert!(!is_below(u32::MAX / 4, own), "it does not exist");
    }

    #[test]
    fn cgroups_are_told_apart_by_their_whole_path() {
        let peer = |cgroup: &str| Peer { pid: 1, uid: 7, exe: String::new(), cgroup: cgroup.into() };
        let of = |cgroup: &str| lineage(&peer(cgroup), &Config::default()).cgroup;
        let (a, b) = (of("/x/1"), of("/y/1"));
        assert_eq!(a.len(), 2);
        assert_ne!(a[1].id, b[1].id);
        assert_eq!(a[0].id, of("/x/2")[0].id);
        assert_eq!(of("/"), []);
        assert_eq!(a[0].weight, 100, "there is no such cgroup");
    }
}
