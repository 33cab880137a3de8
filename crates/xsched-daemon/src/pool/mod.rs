//! Pools: programs of a user side by side in one context of each GPU. Each user has two: the inner one may contain urgent programs, with
//! others that are proven; the outer one is for all others. A fault in one, or its end, does not affect the other.
//!
//! A pool is a private MPS daemon. Its server's channel groups have a short time slice, set by the `ioctl` hook of
//! `libxsched.so` in that server, so that the urgent programs outside the pool wait no longer for it than for any other
//! context. Gates work in a pool as they do outside.
//!
//! This module describes a pool; its submodules have its processes (`process`), which a `keeper` starts, the limits of this `machine`, and
//! the reading of the `log`. `places` decides which programs are in a pool, and when one begins and ends.

mod folder;
pub(crate) mod keeper;
pub(crate) mod log;
pub(crate) mod machine;
pub mod mps;
mod places;
pub(crate) mod process;
pub(crate) mod proven;
pub(crate) mod trusted;
mod trusting;
pub(crate) mod unsuitable;

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use xsched_engine::{OUTSIDE, Side};

use self::process::{MpsServer, Process};
use crate::tuning::{POOL_DOUBT_NS, POOL_TOLD_MAX};

/// All pools, and everything that they need.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) list: Vec<Pool>,
    /// Users that get no pool of a side, with the reason and the end of that time in ns.
    pub(crate) refused: HashMap<(u32, Side), (String, u64)>,
    /// Time at which the server of a user's pool refused a process, in ns.
    pub(crate) refusals: HashMap<(u32, Side), u64>,
    /// Lines that users were shown.
    pub(crate) told: HashSet<(u32, String)>,
    /// Inotify descriptor that reports new lines in logs.
    pub(crate) watch: Option<OwnedFd>,
    /// Path of `libxsched.so`.
    pub(crate) library: Option<PathBuf>,
    /// Socket of keepers that a service manager starts; none = this daemon starts them.
    pub(crate) keeper: Option<PathBuf>,
}

/// Pool of one user.
pub(crate) struct Pool {
    pub(crate) id: u64,
    pub(crate) uid: u32,
    pub(crate) side: Side,
    pub(crate) process: Process,
    pub(crate) stage: Stage,
    /// Connections of processes that ask for a place in it.
    pub(crate) waiting: Vec<u64>,
    /// Number of devices whose slice is reported to hold, and number of devices that there must be.
    pub(crate) reports: usize,
    pub(crate) devices: usize,
    pub(crate) started_ns: u64,
    /// Server of the pool, once it has reported: before that, programs would hang in their first call.
    pub(crate) server: Option<MpsServer>,
    /// Time since which the pool has no programs, in ns.
    pub(crate) unused_ns: Option<u64>,
    /// True after a GPU fault that ended its programs, and true when the culprit is known.
    pub(crate) has_broken: bool,
    pub(crate) is_named: bool,
    /// Time at which a program last ended in the midst of its work, in ns.
    pub(crate) cut_off_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stage {
    /// The control daemon does not exist yet, or does not answer.
    Starting,
    /// The control daemon was told to start the server.
    Asked,
    /// The pool takes processes in.
    Serving,
    /// The pool takes no process in, and ends with its last program.
    Ending,
}

impl Pool {
    /// Reports whether a fault may still follow the end of a program that ended in the midst of its work.
    pub(crate) fn is_doubtful(&self, now_ns: u64) -> bool {
        self.cut_off_ns.is_some_and(|at| now_ns.saturating_sub(at) < POOL_DOUBT_NS)
    }
}

#[cfg(test)]
impl Pool {
    /// Makes a pool that serves, with a number, a user and a side.
    pub(crate) fn pretended((id, uid, side): (u64, u32, Side)) -> Pool {
        Pool {
            id,
            uid,
            side,
            process: Process::pretended(),
            stage: Stage::Serving,
            waiting: Vec::new(),
            reports: 1,
            devices: 1,
            started_ns: 0,
            server: None,
            unused_ns: None,
            has_broken: false,
            is_named: false,
            cut_off_ns: None,
        }
    }
}

/// Reason for which there can be no pools on this machine, for a daemon with this environment, in one line. Obstacles that only a pool's
/// server can see, such as the compute mode of a GPU, are not found.
pub fn obstacle() -> Option<String> {
    machine::obstacle()
}

impl Pools {
    pub(crate) fn new(library: Option<PathBuf>, keeper: Option<PathBuf>) -> Pools {
        Pools { library, keeper, ..Pools::default() }
    }

    /// Reports whether some pool starts, or may end soon, and so has to be polled.
    pub(crate) fn need_looks(&self) -> bool {
        let looks = |pool: &Pool| match pool.stage {
            Stage::Starting | Stage::Asked => true,
            Stage::Serving => pool.unused_ns.is_some() || !pool.waiting.is_empty(),
            Stage::Ending => false,
        };
        self.list.iter().any(looks)
    }

    /// Notes that a program of a pool has ended in the midst of its work.
    pub(crate) fn cut_off(&mut self, id: u64, now_ns: u64) {
        for pool in self.list.iter_mut().filter(|pool| pool.id == id) {
            pool.cut_off_ns = Some(now_ns);
        }
    }

    /// Returns a line if its user was not shown it before. Lines on urgent programs outside that differ in a figure only count as one.
    pub(crate) fn tell_once(&mut self, uid: u32, line: String) -> Option<String> {
        if self.told.len() >= POOL_TOLD_MAX {
            self.told.clear();
        }
        let is_about_urgent = line.starts_with(OUTSIDE);
        let key = line.chars().filter(|c| !is_about_urgent || !c.is_ascii_digit()).collect();
        self.told.insert((uid, key)).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_in_the_midst_of_its_work_makes_its_own_pool_doubtful_only() {
        let mut pools = Pools::new(None, None);
        pools.list.extend([(1, 7, Side::Inner), (2, 7, Side::Outer), (3, 8, Side::Inner)].map(Pool::pretended));
        pools.cut_off(1, 5);
        let doubtful: Vec<u64> = pools.list.iter().filter(|pool| pool.is_doubtful(6)).map(|pool| pool.id).collect();
        assert_eq!(doubtful, [1]);
    }

    #[test]
    fn lines_about_urgent_programs_that_differ_in_a_figure_are_told_once() {
        let mut pools = Pools::new(None, None);
        let mut told = |uid, line: &str| pools.tell_once(uid, line.to_owned()).is_some();
        let outside = |minutes: u32| format!("{OUTSIDE}not proven yet: {minutes} of 10 min");
        assert!(told(7, &outside(3)) && !told(7, &outside(4)) && told(8, &outside(4)));
        assert!(told(7, "kernels of 12.3 ms") && told(7, "kernels of 45.6 ms") && !told(7, "kernels of 12.3 ms"));
    }
}
