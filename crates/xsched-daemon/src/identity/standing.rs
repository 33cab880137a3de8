//! Facts about a process for policies: its nice value, and its place among users, cgroups and namespaces.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rustix::process::{Pid, getpriority_process};
use xsched_policy::Level;
use xsched_proto::class::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};

use crate::tuning::CGROUPS_MAX;

/// Folder in which cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Nice value of a process, -20..=19; 0 for a process that is gone.
pub(crate) fn nice(pid: u32) -> i32 {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.and_then(|pid| getpriority_process(Some(pid)).ok()).unwrap_or(0)
}

/// Number of a Kubernetes namespace, different from all users' numbers.
pub(crate) fn namespace(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    // Users' numbers have 32 bits.
    hasher.finish() | 1 << 63
}

/// Cgroups below a path, the outermost first. Their weights are those of the processor (`cpu.weight`), 100 where there is none.
pub(crate) fn cgroups(path: &str) -> Vec<Level> {
    let mut folder = Path::new(CGROUPS).to_path_buf();
    let mut cgroups = Vec::new();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != "..").take(CGROUPS_MAX) {
        folder.push(name);
        let text = std::fs::read_to_string(folder.join("cpu.weight")).unwrap_or_default();
        let weight = text.trim().parse().unwrap_or(WEIGHT_DEFAULT).clamp(WEIGHT_MIN, WEIGHT_MAX);
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        cgroups.push(Level { id: hasher.finish(), weight });
    }
    cgroups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_told_apart_by_their_whole_path() {
        let of = cgroups;
        let (a, b) = (of("/x/1"), of("/y/1"));
        assert_eq!(a.len(), 2);
        assert_ne!(a[1].id, b[1].id);
        assert_eq!(a[0].id, of("/x/2")[0].id);
        assert_eq!(of("/"), []);
        assert_eq!(of(&"/x".repeat(2_000)).len(), CGROUPS_MAX, "each is a file to read");
        assert_eq!(a[0].weight, 100, "there is no such cgroup");
    }
}
