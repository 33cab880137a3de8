//! Recordings of programs: their groups are followed, and each burst that ends is kept until the command has fetched it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::GroupId;
use xsched_proto::trace::Burst;

use crate::memory::Memory;
use crate::parts::recordings::{Followed, Wanted};
use crate::state::Engine;
use crate::tuning::BURSTS_TOLD;
use crate::user::User;

impl<M: Memory> Engine<M> {
    /// Follows the programs of a command, which may name others than before and meet some that came since.
    pub(crate) fn record(&mut self, command: u64, user: User, pids: Vec<u32>) {
        self.gatekeeper.keep_outcomes();
        self.recordings.commands.insert(command, Wanted { user, pids });
        self.follow_wanted();
    }

    /// Ends the recording of a command.
    pub(crate) fn end_record(&mut self, command: u64) {
        if self.recordings.commands.remove(&command).is_some() {
            self.follow_wanted();
        }
        if !self.recordings.are_on() {
            self.recordings.end();
        }
    }

    /// Bursts of a command's programs from a number on, as [`xsched_proto::wire::DaemonMsg::Bursts`] tells them; none = it records nothing.
    pub fn bursts(&self, command: u64, from: u64) -> Option<(u64, u64, Vec<Burst>)> {
        let wanted = self.recordings.commands.get(&command)?;
        Some(self.recordings.since(wanted, from))
    }

    /// Follows the groups that some command wants, and no others.
    fn follow_wanted(&mut self) {
        let now_us = self.now_us();
        let wanted: BTreeSet<GroupId> = self.groups.keys().filter(|id| self.is_wanted(**id)).copied().collect();
        let left: Vec<GroupId> = self.recordings.followed.keys().filter(|id| !wanted.contains(id)).copied().collect();
        self.recordings.ends.retain(|id, _| self.groups.contains_key(id));
        for id in left {
            self.recordings.followed.remove(&id);
            self.gatekeeper.follow(now_us, id, false);
        }
        wanted.into_iter().for_each(|id| self.follow(id));
    }

    /// Follows a group that has just come, if some command wants it.
    pub(crate) fn follow_newcomer(&mut self, id: GroupId) {
        if self.is_wanted(id) {
            self.follow(id);
        }
    }

    /// True if some command records a group.
    fn is_wanted(&self, id: GroupId) -> bool {
        let Some(group) = self.groups.get(&id) else { return false };
        let Some(pid) = self.program_of(group).map(|program| program.pid) else { return false };
        self.recordings.commands.values().any(|wanted| wanted.has(pid, group.user))
    }

    fn follow(&mut self, id: GroupId) {
        let launches = self.launches_at_end(id);
        self.recordings.followed.entry(id).or_insert(Followed { launches, waited_ns: 0, missed: 0 });
        self.gatekeeper.follow(self.now_us(), id, true);
    }

    /// Launches of a group at the end of its last burst, modulo 2^32.
    fn launches_at_end(&self, id: GroupId) -> u32 {
        self.groups.get(&id).map_or(0, |group| group.words.burst_launches.load(Relaxed))
    }

    /// Counts a wait of a group that is over.
    pub(crate) fn recorded_wait(&mut self, id: GroupId, ns: u64) {
        if let Some(followed) = self.recordings.followed.get_mut(&id) {
            followed.waited_ns = followed.waited_ns.saturating_add(ns);
        }
    }

    /// Takes a burst that is complete. `from_ns` = its begin; none = not known.
    pub(crate) fn recorded_burst(&mut self, id: GroupId, from_ns: Option<u64>, length_ns: u64, missed: u64) {
        if !self.recordings.are_on() {
            return;
        }
        let end_ns = from_ns.map_or(self.now_ns, |from_ns| from_ns.saturating_add(length_ns));
        self.recordings.ends.insert(id, end_ns);
        let launches = self.launches_at_end(id);
        let burst = from_ns.and_then(|from_ns| self.burst_of(id, from_ns, length_ns));
        let Some(followed) = self.recordings.followed.get_mut(&id) else { return };
        let all_missed = followed.missed.saturating_add(missed);
        let commands = u64::from(launches.wrapping_sub(followed.launches));
        *followed = Followed { launches, waited_ns: 0, missed: 0 };
        match burst {
            Some((owner, burst)) => {
                // Missed bursts since the last look count as many commands as this one, for want of better knowledge.
                let commands = commands / missed.saturating_add(1);
                self.recordings.add(owner, Burst { missed: all_missed, commands, ..burst });
            }
            None => followed.missed = all_missed,
        }
    }

    /// Bursts of a command's programs that go on, up to now.
    pub fn open_bursts(&self, command: u64) -> Vec<Burst> {
        let Some(wanted) = self.recordings.commands.get(&command) else { return Vec::new() };
        let mut ids: Vec<GroupId> = self.recordings.followed.keys().copied().collect();
        ids.sort_unstable();
        let all = ids.into_iter().filter_map(|id| self.open_burst(id));
        let told = all.filter(|(owner, burst)| wanted.has(burst.pid, *owner)).map(|(_, burst)| burst);
        told.take(BURSTS_TOLD).collect()
    }

    /// The burst of a followed group that goes on, up to now.
    pub(crate) fn open_burst(&self, id: GroupId) -> Option<(User, Burst)> {
        let from_ns = self.gatekeeper.burst_since_ns(id)?;
        let (owner, burst) = self.burst_of(id, from_ns, self.now_ns.saturating_sub(from_ns))?;
        Some((owner, Burst { device_us: 0, cut: true, ..burst }))
    }

    /// A burst of a followed group, which ends now; without the number of its commands.
    fn burst_of(&self, id: GroupId, from_ns: u64, length_ns: u64) -> Option<(User, Burst)> {
        let (group, followed) = (self.groups.get(&id)?, self.recordings.followed.get(&id)?);
        let program = self.programs.get(&group.program.0)?;
        let is_later = |end_ns: Option<&u64>| end_ns.is_some_and(|end_ns| *end_ns > from_ns);
        let is_rival = |device: &str, other: GroupId| device == &*group.device && other != id;
        let is_quiet = |(device, other): (&str, &xsched_policy::GroupView)| {
            !is_rival(device, other.id) || !other.ready && !is_later(self.recordings.ends.get(&other.id))
        };
        let burst = Burst {
            group: id.0,
            pid: program.pid,
            began_us: from_ns / 1_000,
            us: length_ns / 1_000,
            waited_us: followed.waited_ns / 1_000,
            device_us: group.words.burst_device_us.load(Relaxed).into(),
            commands: 0,
            missed: followed.missed,
            alone: self.arbiter().groups().all(is_quiet) && !is_later(self.recordings.gone.get(&group.device)),
            cut: false,
        };
        Some((group.user, burst))
    }
}
