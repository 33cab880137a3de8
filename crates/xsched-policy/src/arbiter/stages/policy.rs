//! First stage: the policy in force on the device.

use xsched_proto::device::DeviceState;
use xsched_proto::trace::Why;

use super::{Round, Stage};
use crate::arbiter::member::{Member, order_domains};
use crate::{Choice, GroupView, Micros, Policy, ProgramId, Verdict};

/// The policy in force, and its view of the groups.
pub(in crate::arbiter) struct PolicyStage {
    pub(in crate::arbiter) choice: Choice,
    pub(in crate::arbiter) policy: Box<dyn Policy>,
    /// Second instance, asked in [`Round::Refill`]. The first one would take a refused group for one that had its turn or went idle.
    filler: Option<Box<dyn Policy>>,
    seed: u64,
    /// State of the device as last observed, and when.
    state: Option<(Micros, DeviceState)>,
    view: Vec<GroupView>,
}

impl PolicyStage {
    pub(in crate::arbiter) fn new(choice: Choice, seed: u64, device: &str) -> PolicyStage {
        let policy = choice.make(salted(seed, device));
        PolicyStage { choice, policy, filler: None, seed, state: None, view: Vec::new() }
    }

    /// Puts another policy in force, or the same with other parameters.
    pub(in crate::arbiter) fn choose(&mut self, choice: Choice, device: &str) {
        self.policy = choice.make(salted(self.seed, device));
        self.choice = choice;
        self.filler = None;
        if let Some((at, state)) = &self.state {
            self.policy.observe(*at, Some(state));
        }
    }

    /// Passes the state of the device on to the policy.
    pub(in crate::arbiter) fn observe(&mut self, now: Micros, state: Option<&DeviceState>) {
        self.state = state.map(|state| (now, state.clone()));
        self.policy.observe(now, state);
        if let Some(filler) = &mut self.filler {
            filler.observe(now, state);
        }
    }

    /// Makes the policy's view of all groups.
    fn view_all(&mut self, members: &mut [Member]) {
        order_domains(members);
        let stalled = members.iter().filter(|m| m.watch.stalled && m.group.granted);
        let mut stalled: Vec<(ProgramId, i32)> = stalled.map(|m| (m.group.program, m.group.priority)).collect();
        stalled.sort_unstable();
        // A stalled group that has the device may wait there for another group of its program, which then gets its priority.
        let lent = |m: &Member| {
            let (program, priority) = stalled[..stalled.partition_point(|(p, _)| *p <= m.group.program)].last()?;
            (*program == m.group.program).then_some(*priority)
        };
        self.view.clear();
        self.view.extend(members.iter().map(|m| GroupView {
            ready: m.may_run(),
            priority: m.group.priority.max(lent(m).unwrap_or(i32::MIN)),
            ..m.group.clone()
        }));
    }
}

impl Stage for PolicyStage {
    fn reason(&self) -> Why {
        Why::Policy
    }

    fn apply(&mut self, now: Micros, round: Round, members: &mut [Member], verdicts: &mut [Verdict]) -> Option<Micros> {
        if round == Round::Refill {
            // Since the view was made, no more has changed than the jobs that are refused.
            self.view.iter_mut().zip(members.iter()).for_each(|(group, m)| group.ready = m.may_run());
            let filler = self.filler.get_or_insert_with(|| {
                let mut filler = self.choice.make(self.seed);
                if let Some((at, state)) = &self.state {
                    filler.observe(*at, Some(state));
                }
                filler
            });
            return filler.decide(now, &self.view, verdicts);
        }
        self.view_all(members);
        let again = self.policy.decide(now, &self.view, verdicts);
        for m in members {
            m.interactive = self.policy.is_interactive(m.group.id);
        }
        again
    }
}

/// Seed of one device: those of one arbiter should not act at random in step.
fn salted(seed: u64, device: &str) -> u64 {
    seed ^ device.bytes().fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)))
}
