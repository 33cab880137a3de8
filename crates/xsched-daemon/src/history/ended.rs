//! Programs that ended recently, with their last measurements.

use std::collections::VecDeque;
use std::sync::Arc;

use xsched_gatekeeper::ledger::Ledger;
use xsched_policy::{GroupId, ProgramId};
use xsched_proto::wire::ProgramInfo;

use crate::identity::User;
use crate::tuning::{ENDED_MAX, ENDED_NS, USER_ENDED_MAX, of_user};

/// A program that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedProgram {
    pub(crate) user: User,
    program: ProgramId,
    /// Its GPU time may still change: not all of it is charged.
    is_open: bool,
    /// The last one has the greatest.
    pub(crate) number: u64,
    /// Time at which it ended, in ns.
    pub(crate) at_ns: u64,
    /// Last report on the program; see [`EndedProgram::info`].
    last: ProgramInfo,
}

impl EndedProgram {
    /// Report on the program for `ps`, with the time since its end.
    pub(crate) fn info(&self, now_ns: u64) -> ProgramInfo {
        ProgramInfo { ended_s: Some(now_ns.saturating_sub(self.at_ns) / 1_000_000_000), ..self.last.clone() }
    }
}

/// Bounded list of ended programs, the earliest end first. When it is full, a user's programs push out programs of the same user first.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    programs: VecDeque<Arc<EndedProgram>>,
    count: u64,
}

impl Ended {
    /// Keeps what a program was told last, for some time.
    pub(crate) fn push(&mut self, user: User, program: ProgramId, at_ns: u64, last: ProgramInfo) {
        self.expire(at_ns);
        let of_this = |e: &Arc<EndedProgram>| e.user == user;
        if self.programs.iter().filter(|e| of_this(e)).count() >= of_user(USER_ENDED_MAX, user.is_own())
            && let Some(at) = self.programs.iter().position(of_this)
        {
            self.programs.remove(at);
        }
        if self.programs.len() >= ENDED_MAX {
            self.programs.pop_front();
        }
        self.count += 1;
        let ended = EndedProgram { user, program, is_open: true, number: self.count, at_ns, last };
        self.programs.push_back(Arc::new(ended));
    }

    /// Programs that are still kept.
    pub(crate) fn iter(&mut self, now_ns: u64) -> impl Iterator<Item = &Arc<EndedProgram>> {
        self.expire(now_ns);
        self.programs.iter()
    }

    /// Brings their GPU times up to date. The last of it is charged some time after their end.
    pub(crate) fn charge(&mut self, ledger: &Ledger) {
        for ended in self.programs.iter_mut().filter(|ended| ended.is_open) {
            let ended = Arc::make_mut(ended);
            ended.is_open = false;
            for group in &mut ended.last.groups {
                let number = group.id.strip_prefix('g').and_then(|number| number.parse().ok());
                let part = number.and_then(|id| ledger.group_ns(&group.device, ended.program, GroupId(id)));
                if let Some(ns) = part {
                    (group.gpu_us, ended.is_open) = (ns / 1_000, true);
                }
            }
        }
    }

    fn expire(&mut self, now_ns: u64) {
        while self.programs.front().is_some_and(|e| e.at_ns + ENDED_NS <= now_ns) {
            self.programs.pop_front();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use xsched_proto::class::Class;

    pub(crate) fn program(pid: u32) -> ProgramInfo {
        ProgramInfo { attached_s: 3, ..ProgramInfo::new(pid, 1, "", Class::Normal) }
    }

    #[test]
    fn each_user_keeps_the_last_ones_for_some_time() {
        let (one, other) = (User::unknown(1), User::unknown(2));
        let mut ended = Ended::default();
        ended.push(other, ProgramId(7), 0, program(7));
        let n = USER_ENDED_MAX.0 as u32;
        (0..n + 5).for_each(|pid| ended.push(one, ProgramId(pid.into()), 1_000_000_000, program(pid)));
        let pids = |ended: &mut Ended, user| -> Vec<u32> {
            ended.iter(2_000_000_000).filter(|e| e.user == user).map(|e| e.last.pid).collect()
        };
        assert_eq!(pids(&mut ended, one), (5..n + 5).collect::<Vec<_>>());
        assert_eq!(pids(&mut ended, other), [7]);
        let info = ended.iter(3_000_000_000).next().unwrap().info(3_000_000_000);
        assert_eq!((info.ended_s, info.attached_s), (Some(3), 3));
        assert_eq!(ended.iter(ENDED_NS + 500_000_000).count(), n as usize, "the first is too old");
        assert_eq!(ended.iter(u64::MAX).count(), 0);
    }
}
