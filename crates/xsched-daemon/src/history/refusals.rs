//! Programs that the daemon refused lately, with the reason, for whoever asks why a program runs unscheduled.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use xsched_engine::trim;
use xsched_proto::wire::RefusedProgram;

use crate::identity::User;
use crate::tuning::{REFUSED_KEPT_NS, REFUSED_MAX};

/// Refusal of one process.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) pid: u32,
    pub(crate) user: User,
    name: String,
    why: String,
    since_ns: u64,
    last_ns: u64,
}

impl Refusal {
    /// Report on the refusal for `ps`.
    pub(crate) fn info(&self, now_ns: u64) -> RefusedProgram {
        RefusedProgram {
            pid: self.pid,
            uid: self.user.uid,
            name: self.name.clone(),
            why: self.why.clone(),
            since_s: now_ns.saturating_sub(self.since_ns) / 1_000_000_000,
        }
    }
}

/// Refusals of programs that have not been accepted since, one for each process. A process that is refused asks again at least once a
/// minute, so that a refusal without a repetition is of a process that has ended.
#[derive(Debug, Default)]
pub(crate) struct Refusals(VecDeque<Arc<Refusal>>);

impl Refusals {
    /// Notes a refusal. Returns false if the same process was refused for the same reason before.
    pub(crate) fn note(&mut self, now_ns: u64, pid: u32, user: User, name: &str, why: &str) -> bool {
        let before = self.take(pid);
        let is_new = before.as_ref().is_none_or(|before| before.why != why);
        let since_ns = before.as_ref().map_or(now_ns, |before| before.since_ns);
        let name = match before {
            Some(before) if name.is_empty() => before.name.clone(),
            _ => name.to_owned(),
        };
        self.0.push_back(Arc::new(Refusal { pid, user, name, why: why.to_owned(), since_ns, last_ns: now_ns }));
        trim(&mut self.0, REFUSED_MAX, |refusal| refusal.user);
        is_new
    }

    /// Forgets the refusal of a process that is accepted now.
    pub(crate) fn take(&mut self, pid: u32) -> Option<Arc<Refusal>> {
        let at = self.0.iter().position(|refusal| refusal.pid == pid)?;
        self.0.remove(at)
    }

    /// Refusals that still hold, by process.
    pub(crate) fn all(&mut self, now_ns: u64) -> Vec<Arc<Refusal>> {
        self.0.retain(|refusal| refusal.last_ns + REFUSED_KEPT_NS > now_ns && is_there(refusal.pid));
        let mut all: Vec<_> = self.0.iter().cloned().collect();
        all.sort_unstable_by_key(|refusal| refusal.pid);
        all
    }
}

/// Reports whether a process exists.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_refused_once_until_it_is_accepted_or_asks_no_more() {
        let user = User::unknown(7);
        let (one, other) = (std::process::id(), std::os::unix::process::parent_id());
        let mut refusals = Refusals::default();
        assert!(refusals.note(1_000_000_000, one, user, "train", "too many"));
        assert!(!refusals.note(3_000_000_000, one, user, "", "too many"), "the same again");
        assert!(refusals.note(4_000_000_000, one, user, "", "too many groups"), "another reason");
        assert!(refusals.note(4_000_000_000, other, user, "serve", "too many"));
        let no_process = u32::MAX >> 1;
        assert!(refusals.note(4_000_000_000, no_process, user, "ended", "too many"));
        let mut infos: Vec<_> = refusals.all(5_000_000_000).iter().map(|r| r.info(5_000_000_000)).collect();
        infos.sort_by_key(|info| info.since_s);
        let info = |pid, name: &str, why: &str, since_s| RefusedProgram {
            pid,
            uid: 7,
            name: name.into(),
            why: why.into(),
            since_s,
        };
        assert_eq!(infos, [info(other, "serve", "too many", 1), info(one, "train", "too many groups", 4)]);
        assert!(refusals.take(other).is_some());
        assert_eq!(refusals.all(5_000_000_000).len(), 1);
        assert_eq!(refusals.all(4_000_000_000 + REFUSED_KEPT_NS).len(), 0);
        refusals.note(0, 1, User::unknown(8), "", "");
        (10..10 + 2 * REFUSED_MAX as u32).for_each(|pid| _ = refusals.note(0, pid, user, "", ""));
        let of_other = refusals.0.iter().filter(|refusal| refusal.user == User::unknown(8)).count();
        assert_eq!((refusals.0.len(), of_other), (REFUSED_MAX, 1));
    }
}
