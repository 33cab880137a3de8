//! Recordings: commands that follow programs, and the bursts that they have not fetched yet.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use xsched_policy::GroupId;
use xsched_proto::trace::Burst;

use crate::tuning::{BURSTS_MAX, BURSTS_READ, BURSTS_TOLD};
use crate::user::User;

/// Programs that a command follows.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// User of the command.
    pub(crate) user: User,
    /// Processes; none = all of the user's.
    pub(crate) pids: Vec<u32>,
}

impl Wanted {
    /// True if a program of this process and user is among them.
    pub(crate) fn has(&self, pid: u32, owner: User) -> bool {
        self.user.may_see(owner) && (self.pids.is_empty() || self.pids.contains(&pid))
    }
}

/// A group that is followed: figures since its last burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    /// Launches at its end, modulo 2^32.
    pub(crate) launches: u32,
    /// Time that it was kept from its device, in ns.
    pub(crate) waited_ns: u64,
    /// Bursts of which no more is known than that they ended.
    pub(crate) missed: u64,
}

/// All recordings.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    /// By connection of the command.
    pub(crate) commands: BTreeMap<u64, Wanted>,
    pub(crate) followed: HashMap<GroupId, Followed>,
    /// End of the last burst of each group while anything is recorded, in ns.
    pub(crate) ends: HashMap<GroupId, u64>,
    /// End of the last burst of groups that are gone, by device, in ns.
    pub(crate) gone: HashMap<Arc<str>, u64>,
    /// Bursts with the users of their programs, in the order of their ends.
    bursts: VecDeque<(User, Burst)>,
    /// Number of the next burst.
    next: u64,
}

impl Recordings {
    /// True while a command records.
    pub(crate) fn are_on(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Adds a burst. The oldest makes room.
    pub(crate) fn add(&mut self, owner: User, burst: Burst) {
        if self.bursts.len() == BURSTS_MAX {
            self.bursts.pop_front();
        }
        self.bursts.push_back((owner, burst));
        self.next += 1;
    }

    /// Forgets what nobody fetches any more.
    pub(crate) fn end(&mut self) {
        self.bursts = VecDeque::new();
        self.ends.clear();
        self.gone.clear();
    }

    /// Some bursts of a command from a number on, the number after them, and how many were forgotten before they were fetched.
    pub(crate) fn since(&self, wanted: &Wanted, from: u64) -> (u64, u64, Vec<Burst>) {
        let oldest = self.next - self.bursts.len() as u64;
        let lost = oldest.saturating_sub(from);
        let at = from.clamp(oldest, self.next);
        let (mut next, mut told) = (at, Vec::new());
        for (owner, burst) in self.bursts.range((at - oldest) as usize..).take(BURSTS_READ) {
            if told.len() == BURSTS_TOLD {
                break;
            }
            next += 1;
            told.extend(wanted.has(burst.pid, *owner).then_some(*burst));
        }
        (next, lost, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Rank;

    #[test]
    fn the_oldest_bursts_make_room_and_the_command_is_told_how_many() {
        let user = User { uid: 0, rank: Rank::Other, within: 0 };
        let mut recordings = Recordings::default();
        for us in 0..BURSTS_MAX as u64 + 3 {
            let burst = Burst {
                group: 1,
                pid: 1,
                began_us: 0,
                us,
                waited_us: 0,
                device_us: 0,
                commands: 1,
                missed: 0,
                alone: true,
                cut: false,
            };
            recordings.add(user, burst);
        }
        assert_eq!(recordings.bursts.len(), BURSTS_MAX);
        let (_, lost, told) = recordings.since(&Wanted { user, pids: Vec::new() }, 0);
        assert_eq!((lost, told.first().map(|burst| burst.us)), (3, Some(3)));
    }
}
