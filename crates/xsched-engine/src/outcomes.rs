//! Outcomes of the transitions of groups: the host's statistics take them, and bursts become lines for measurements.
//!
//! A burst is a time in which a group wanted its device. A line of JSON tells of each, as soon as the daemon learns of its end. A program
//! that begins the next burst before the daemon reads its words loses the time, not the count: `missed`.

use xsched_policy::GroupId;
use xsched_proto::transitions::Outcome;

use crate::io::Effect;
use crate::memory::Memory;
use crate::state::Engine;

impl<M: Memory> Engine<M> {
    /// Keeps outcomes from now on, for [`Engine::take_outcomes`].
    pub fn keep_outcomes(&mut self) {
        self.history.outcomes.keep();
        self.gatekeeper.keep_outcomes();
    }

    /// Outcomes since the last call: waits, preemptions, and how long groups took to leave.
    pub fn take_outcomes(&mut self) -> Vec<(GroupId, Outcome)> {
        self.history.outcomes.take()
    }

    /// Hands on the outcomes of the input that was handled.
    pub(crate) fn hand_on_outcomes(&mut self) {
        let mut effects = Vec::new();
        let mut recorded = Vec::new();
        for (id, outcome) in self.gatekeeper.outcomes() {
            if self.recordings.are_on() {
                recorded.push((id, outcome));
            }
            let Outcome::Burst { from_ns, length_ns, missed } = outcome else {
                self.history.outcomes.add(id, outcome);
                continue;
            };
            let Some(group) = self.groups.get(&id).filter(|_| self.history.outcomes.has_bursts()) else { continue };
            let Some(program) = self.programs.get(&group.program.0) else { continue };
            effects.push(Effect::Burst(format!(
                "{{\"pid\":{},\"priority\":{},\"device\":{:?},\"from_us\":{},\"us\":{},\"missed\":{missed}}}\n",
                program.pid,
                program.priority(),
                &*group.device,
                from_ns.unwrap_or(0) / 1_000,
                length_ns / 1_000,
            )));
        }
        effects.into_iter().for_each(|effect| self.emit(effect));
        for (id, outcome) in recorded {
            match outcome {
                Outcome::Waited(ns) => self.recorded_wait(id, ns),
                Outcome::Burst { from_ns, length_ns, missed } => self.recorded_burst(id, from_ns, length_ns, missed),
                _ => (),
            }
        }
    }

    /// Takes the burst of a group that goes before it has ended.
    pub(crate) fn cut_burst(&mut self, id: GroupId) {
        if !self.recordings.are_on() {
            return;
        }
        // The group's last words are heard while it is there.
        self.gatekeeper.hear_last(self.now_us(), id);
        self.hand_on_outcomes();
        if let Some((owner, burst)) = self.open_burst(id) {
            self.recordings.add(owner, burst);
        }
        let Some(device) = self.groups.get(&id).map(|group| group.device.clone()) else { return };
        let goes_on = self.gatekeeper.burst_since_ns(id).is_some();
        let end_ns = if goes_on { self.now_ns } else { self.recordings.ends.get(&id).copied().unwrap_or(0) };
        let gone_ns = self.recordings.gone.entry(device).or_default();
        *gone_ns = end_ns.max(*gone_ns);
    }
}
