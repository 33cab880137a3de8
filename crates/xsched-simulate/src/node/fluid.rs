//! A device on which the kernels of a request are one burst that flows: contexts that have work at the same time get parts of the device by
//! their time slices, less the switches, and nothing is cut into kernels. An event for each burst takes the place of one for each kernel.

use xsched_flow::tuning::LONG_COMMAND_NS;

use crate::memory::Segment;
use crate::random::Random;
use crate::scenario;

use super::device::{Command, Done};

/// A request's work on a device, up to where the host waits for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Burst {
    /// Device time that is left, in ns.
    pub(super) left_ns: f64,
    /// Mean device time of a command, in ns.
    pub(super) kernel_ns: f64,
    /// Number of commands.
    pub(super) commands: u32,
    /// Part of the device that the host keeps at work, 1 at most.
    pub(super) pace: f64,
}

/// Index of a context.
type Context = usize;

struct Flow {
    command: Command,
    context: Context,
    burst: Burst,
    /// Work after which the group is off the device, its gate being closed, in ns; none = the gate is open.
    drain_ns: Option<f64>,
    /// Work in a ns, at present.
    rate: f64,
    /// Weight of its context beside others, in ns.
    weight_ns: f64,
    /// Mean length of a turn of its context, in ns: the last one ends early.
    turn_ns: f64,
    /// Cost of a turn of its context, in ns.
    cost_ns: f64,
}

struct Slot {
    timeslice_ns: f64,
    /// Width in thousandths of the device, for a member of the pool.
    width: u32,
    is_pooled: bool,
    /// End of its last burst, in ns.
    ended_ns: u64,
}

/// Context of all members of the pool.
const POOL: Context = 0;

/// A device.
pub(super) struct Fluid {
    timeslice_ns: f64,
    switch_ns: f64,
    /// Cost of cutting a turn that does not end by itself, and of going on with it.
    cut_ns: f64,
    is_interruptible: bool,
    pool_timeslice_ns: f64,
    slots: Vec<Slot>,
    flows: Vec<Flow>,
    at_ns: u64,
    busy_ns: f64,
    switches: f64,
    /// Part of the time that the device works, and switches in a ns, at present.
    use_now: (f64, f64),
    random: Random,
}

impl Fluid {
    pub(super) fn new(kind: &scenario::Device, pool_timeslice_us: u64, seed: u64) -> Fluid {
        Fluid {
            timeslice_ns: kind.timeslice.0 as f64,
            switch_ns: kind.switch.0 as f64,
            cut_ns: 2.0 * kind.save.0 as f64,
            is_interruptible: kind.preemption == scenario::Preemption::Interrupt,
            pool_timeslice_ns: (pool_timeslice_us * 1_000) as f64,
            slots: vec![Slot { timeslice_ns: 0.0, width: 1_000, is_pooled: true, ended_ns: 0 }],
            flows: Vec::new(),
            at_ns: 0,
            busy_ns: 0.0,
            switches: 0.0,
            use_now: (0.0, 0.0),
            random: Random::new(seed, u64::MAX),
        }
    }

    /// Adds a program. Returns its place.
    pub(super) fn add(&mut self, pooled_percent: Option<u32>) -> usize {
        let width = pooled_percent.unwrap_or(100) * 10;
        self.slots.push(Slot {
            timeslice_ns: self.timeslice_ns,
            width,
            is_pooled: pooled_percent.is_some(),
            ended_ns: 0,
        });
        self.slots.len() - 1
    }

    /// Removes what a program has on the device.
    pub(super) fn remove(&mut self, slot: usize) {
        self.flows.retain(|flow| flow.command.kind as usize != slot);
        self.set_rates();
    }

    pub(super) fn set_timeslice(&mut self, slot: usize, us: u64) {
        self.slots[slot].timeslice_ns = (us * 1_000) as f64;
        for flow in self.flows.iter_mut().filter(|flow| flow.context == slot) {
            flow.weight_ns = (us * 1_000) as f64;
        }
        self.set_rates();
    }

    /// Begins a burst, or goes on with it. The gate of its group is open.
    pub(super) fn begin(&mut self, slot: usize, command: Command, burst: Burst) {
        let context = if self.slots[slot].is_pooled { POOL } else { slot };
        let command = Command { kind: slot as u32, ..command };
        let slice_ns = self.slice_ns(context);
        let turn_ns = match context {
            POOL => slice_ns,
            _ => burst.left_ns / (burst.left_ns / slice_ns).ceil().max(1.0),
        };
        let weight_ns = self.weight_ns(context, burst.left_ns).unwrap_or(turn_ns);
        let turns = (burst.left_ns / slice_ns).ceil().max(1.0);
        // The last turn of a burst ends by itself, and so do all of one whose host is slow.
        let cuts = if burst.pace < 1.0 { 0.0 } else { (turns - 1.0) / turns };
        let cost_ns = self.switch_ns + self.cut_ns * cuts;
        self.flows.push(Flow { command, context, burst, drain_ns: None, rate: 0.0, weight_ns, turn_ns, cost_ns });
        self.set_rates();
    }

    fn slice_ns(&self, context: Context) -> f64 {
        match context {
            POOL => self.pool_timeslice_ns,
            own => self.slots[own].timeslice_ns,
        }
    }

    /// Weight of a context that begins with some work beside others: the one by which it ends as late as by turns. Its first turn comes at
    /// some time in a round of the others, at the end of one if it has just had a turn; each whole slice of its own is followed by another
    /// round. In the long run the weight is its slice. None: there is no other, or it has turns already.
    fn weight_ns(&mut self, context: Context, work_ns: f64) -> Option<f64> {
        let mut others: Vec<(Context, f64)> =
            self.flows.iter().map(|flow| (flow.context, flow.turn_ns + flow.cost_ns)).collect();
        others.sort_unstable_by_key(|other| other.0);
        others.dedup_by_key(|other| other.0);
        if others.is_empty() || context == POOL || others.iter().any(|other| other.0 == context) {
            return None;
        }
        let slice_ns = self.slice_ns(context);
        let round_ns: f64 = others.iter().map(|other| other.1).sum();
        let since_ns = self.at_ns.saturating_sub(self.slots[context].ended_ns) as f64;
        let first_ns = if since_ns < round_ns { round_ns - since_ns } else { round_ns * self.random.unit() };
        let rounds = (work_ns / slice_ns).ceil() - 1.0;
        let cost_ns = self.switch_ns + self.cut_ns;
        let waits_ns = first_ns + (round_ns + cost_ns) * rounds;
        let weight_ns = work_ns * (round_ns + cost_ns) / waits_ns.max(1_000.0);
        Some(weight_ns.clamp(slice_ns / 100.0, slice_ns * 100.0))
    }

    /// Looks at the gates: what is in flight of a group whose gate has closed is executed yet, and a group whose gate has opened again
    /// goes on.
    pub(super) fn look(&mut self, segments: &[Segment]) {
        let mut is_changed = false;
        for flow in &mut self.flows {
            let segment = &segments[flow.command.rank];
            let is_open = segment.gate.load().is_open();
            if is_open == flow.drain_ns.is_none() {
                continue;
            }
            is_changed = true;
            let part = self.random.unit();
            flow.drain_ns = (!is_open).then(|| {
                let level = segment.level.load(std::sync::atomic::Ordering::Relaxed);
                let budget_us = segment.budget_us.load(std::sync::atomic::Ordering::Relaxed);
                let budget_ns = f64::from(budget_us) * 1_000.0;
                let (kernel_ns, long_ns) = (flow.burst.kernel_ns, LONG_COMMAND_NS as f64);
                match level {
                    3 if self.is_interruptible => 0.0,
                    // A long command has a gate of its own; of short ones, as many as fit into the budget.
                    2.. if kernel_ns >= long_ns => part * kernel_ns,
                    2.. => part * budget_ns.max(kernel_ns),
                    _ if kernel_ns >= budget_ns => part * kernel_ns,
                    _ => budget_ns - part * kernel_ns,
                }
            });
        }
        if is_changed {
            self.set_rates();
        }
    }

    /// Writes how many commands of running bursts are complete.
    pub(super) fn publish(&self, segments: &[Segment]) {
        for Flow { burst, command, .. } in &self.flows {
            let left = (burst.left_ns / burst.kernel_ns.max(1.0)) as u64;
            segments[command.rank].set_left(left.min(u64::from(burst.commands)));
        }
    }

    /// Parts of the device by context: in proportion to the slices, each context that works at its host's pace giving up what it leaves.
    fn set_rates(&mut self) {
        let mut contexts: Vec<(Context, f64, f64, f64)> = Vec::new();
        for flow in &self.flows {
            match contexts.iter_mut().find(|(context, ..)| *context == flow.context) {
                // Several members have work for the whole of a slice, unless all are slow.
                Some((_, _, pace, cost_ns)) => {
                    *pace = (*pace + flow.burst.pace).min(1.0);
                    *cost_ns = cost_ns.max(flow.cost_ns);
                }
                None => contexts.push((flow.context, flow.weight_ns, flow.burst.pace, flow.cost_ns)),
            }
        }
        let several = contexts.len() > 1;
        if !several {
            contexts.iter_mut().for_each(|context| context.3 = 0.0);
        }
        let mut part: Vec<f64> = vec![0.0; contexts.len()];
        let mut left = 1.0;
        let mut open: Vec<usize> = (0..contexts.len()).collect();
        while !open.is_empty() {
            let round: f64 = open.iter().map(|at| contexts[*at].1 + contexts[*at].3).sum();
            let slow = open.iter().position(|at| contexts[*at].2 < left * contexts[*at].1 / round);
            match slow {
                Some(place) => {
                    let at = open.swap_remove(place);
                    part[at] = contexts[at].2;
                    left = (left - part[at] * (1.0 + contexts[at].3 / contexts[at].1)).max(0.01);
                }
                None => {
                    open.iter().for_each(|at| part[*at] = left * contexts[*at].1 / round);
                    open.clear();
                }
            }
        }
        let turn_ns =
            |context: Context| self.flows.iter().find(|flow| flow.context == context).map_or(1.0, |flow| flow.turn_ns);
        let round: f64 = contexts.iter().map(|context| turn_ns(context.0) + context.3).sum();
        let switches = if several { contexts.len() as f64 / round } else { 0.0 };
        self.use_now = (part.iter().sum::<f64>().min(1.0), switches);
        let width: u32 = self
            .flows
            .iter()
            .filter(|flow| flow.context == POOL)
            .map(|flow| self.slots[flow.command.kind as usize].width)
            .sum();
        for flow in &mut self.flows {
            let at = contexts.iter().position(|(context, ..)| *context == flow.context).unwrap_or(0);
            flow.rate = match flow.context {
                POOL => {
                    part[at] / contexts[at].2.max(0.01) * flow.burst.pace.min(1_000.0 / f64::from(width.max(1_000)))
                }
                _ => part[at],
            };
        }
    }

    /// Time at which a flow ends at its present rate, in ns.
    fn end_ns(&self, flow: &Flow) -> u64 {
        let left_ns = flow.drain_ns.map_or(flow.burst.left_ns, |drain| drain.min(flow.burst.left_ns));
        self.at_ns.saturating_add((left_ns / flow.rate.max(1e-6)).ceil() as u64)
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.flows.iter().map(|flow| self.end_ns(flow)).min()
    }

    pub(super) fn run_until(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        while let Some(at_ns) = self.next_ns().filter(|at| *at <= now_ns) {
            self.pass(at_ns);
            let before = self.flows.len();
            let mut at = 0;
            while at < self.flows.len() {
                let flow = &self.flows[at];
                let is_complete = flow.burst.left_ns < 1.0;
                if is_complete || flow.drain_ns.is_some_and(|drain| drain < 1.0) {
                    let flow = self.flows.swap_remove(at);
                    self.slots[flow.command.kind as usize].ended_ns = at_ns;
                    let left = (!is_complete).then_some(flow.burst);
                    done.push(Done { at_ns, command: flow.command, left });
                } else {
                    at += 1;
                }
            }
            if self.flows.len() == before {
                // Rounding left a rest below a ns of some flow.
                break;
            }
            self.set_rates();
        }
        self.pass(now_ns);
    }

    fn pass(&mut self, now_ns: u64) {
        let ns = now_ns.saturating_sub(self.at_ns) as f64;
        for flow in &mut self.flows {
            flow.burst.left_ns -= flow.rate * ns;
            flow.drain_ns = flow.drain_ns.map(|drain| drain - flow.rate * ns);
        }
        self.busy_ns += self.use_now.0 * ns;
        self.switches += self.use_now.1 * ns;
        if self.flows.is_empty() {
            self.use_now = (0.0, 0.0);
        }
        self.at_ns = self.at_ns.max(now_ns);
    }

    pub(super) fn busy_ns(&self) -> u64 {
        self.busy_ns as u64
    }

    pub(super) fn switches(&self) -> u64 {
        self.switches as u64
    }
}
