//! Admission of a command into the driver, and the fence and device gate that are placed with it.
//!
//! Three questions, in this order: the gate ([`at_gate`]), the in-flight budget ([`fits`]), and, once both let the command pass, the fence
//! and the device gate that go with it ([`place`]). The core asks the first two again whenever a wait ends.

use serde::{Deserialize, Serialize};
use xsched_proto::gate::Gate;

use crate::tuning::*;

/// Facts that decide at a closed gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtGate {
    /// Value of the gate word.
    pub word: u32,
    /// True if the driver takes the command at once, whatever the command's queue waits for.
    pub can_prequeue: bool,
    /// True if the driver may load code for the command.
    pub loads: bool,
    /// True if the queue's commands get gates on the device.
    pub has_gates: bool,
    /// True if the budget is in force.
    pub budgeted: bool,
}

/// Reports whether the command may be pre-queued behind a device gate; if not, its thread waits. `issued` counts the group's commands that
/// are in flight or pre-queued already. Pre-queueing gives a program with slow launches a head start: when the group's grant comes, the
/// device finds work before any thread has woken up.
#[inline]
pub fn at_gate(ask: &AtGate, issued: impl FnOnce() -> u64) -> bool {
    ask.can_prequeue
        && !ask.loads
        && ask.has_gates
        && ask.budgeted
        && !Gate::from_bits(ask.word).is_bypassed()
        && issued() < PREQUEUED_COMMANDS
}

/// In-flight budget of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Largest device time in flight, in ns; 0 = no limit.
    pub ns: u64,
    /// Largest number of commands in flight; 0 = no limit.
    pub commands: u64,
}

impl Budget {
    /// Computes the budget of a group from the µs and the commands that the daemon assigned. Where the device has gates, more may be in
    /// flight.
    #[inline]
    pub fn new(us: u32, commands: u32, has_gates: bool) -> Budget {
        let times = if has_gates { GATED_BUDGETS } else { 1 };
        Budget { ns: (u64::from(us) * 1000).saturating_mul(times), commands: u64::from(commands) }
    }

    /// Reports whether neither time nor commands are limited.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.ns == 0 && self.commands == 0
    }
}

/// Device time that may lie between two gates inside a graph that is made ready now, in ns: the budget of its group (given in µs), or the
/// default where no budget is in force. `forced`: the level was asked for by number, so each kernel gets a gate.
pub fn inside_ns(budget_us: u32, forced: bool) -> u64 {
    match (forced, budget_us) {
        (true, _) => 0,
        (false, 0) => INSIDE_NS,
        (false, us) => u64::from(us) * 1000,
    }
}

/// Work of a group in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Number of fenced commands.
    pub commands: u64,
    /// Expected device time of these commands, in ns.
    pub ns: u64,
}

/// Reports whether one more command of `estimate_ns` fits into the budget. `consumed_ns` returns how much of the work in flight the running
/// command has used up; it is called only where it decides.
#[inline]
pub fn fits(budget: &Budget, in_flight: &InFlight, estimate_ns: u64, consumed_ns: impl FnOnce() -> u64) -> bool {
    let time = budget.ns == 0 || in_flight.commands == 0 || in_flight.ns.saturating_add(estimate_ns) <= budget.ns || {
        let left = in_flight.ns.saturating_sub(consumed_ns());
        left.saturating_add(estimate_ns) <= budget.ns || left <= LEAD_NS
    };
    time && (budget.commands == 0 || in_flight.commands < budget.commands)
}

/// Behaviour of a thread that waits for the budget until its next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    /// Polls again at once, without sleeping.
    Awake,
    /// Sleeps for this time at most, in ns.
    Sleep(u64),
}

/// Chooses the [`Pause`]. `due_ns` = time from now until the next completion is due.
#[inline]
pub fn pause(due_ns: i64) -> Pause {
    // The next command is due shortly before the next completion.
    let due = due_ns.saturating_sub(LEAD_NS as i64);
    if (-((LEAD_NS + AWAKE_NS) as i64)..=AWAKE_NS as i64).contains(&due) {
        return Pause::Awake;
    }
    Pause::Sleep(if due > 0 { (due as u64 - AWAKE_NS).min(BUDGET_POLL_NS) } else { BUDGET_POLL_NS })
}

/// Command that passes, and the state of its queue. Two cache lines in size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Number of the command among the queue's numbered commands.
    pub seq: u64,
    /// Expected device time, in ns; none = never measured.
    pub estimate_ns: Option<u64>,
    /// Sum of the expected times of all numbered commands of the queue before this one, in ns.
    pub issued_ns: u64,
    /// [`Place::seq`] of the queue's last fenced command.
    pub fenced: u64,
    /// [`Place::issued_ns`] up to that command, and including it.
    pub fenced_ns: u64,
    /// [`Place::issued_ns`] at the queue's last gate on the device.
    pub gated_ns: u64,
    /// Number of launches of this thread on this queue before this one.
    pub before: u64,
    /// Budget of the group, in µs; 0 = none.
    pub budget_us: u32,
    /// Largest number of commands between two fences, see [`fence_commands`]; 0 = chosen by expected time.
    pub fence_commands: u32,
    /// True if the command gets a gate on the device whatever the times: it is the first one pre-queued in this grant epoch, or the fence
    /// directly before it announced a gate.
    pub gate_due: bool,
    /// True if the queue's commands get gates on the device.
    pub has_gates: bool,
    /// True if the level was asked for by number: each command gets a gate.
    pub forced: bool,
    /// True if commands complete in their order.
    pub in_order: bool,
    /// True if a callback reports completion; else the device writes it into memory.
    pub calls_back: bool,
    /// True if the call returns only when the command is complete.
    pub blocking: bool,
}

/// Fence and gate that are placed with a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// True if a completion fence follows the command.
    pub fence: bool,
    /// True if a gate on the device precedes the command.
    pub device_gate: bool,
}

impl Place {
    /// Reports whether fences announce the gates that follow them. They do not where each command has a gate.
    #[inline]
    pub fn tells_of_gates(&self) -> bool {
        self.has_gates && self.in_order && !self.calls_back && !self.forced
    }
}

const _: () = assert!(size_of::<Place>() <= 128);

/// Computes [`Place::fence_commands`] of a group that may have `commands` in flight (0 = no such limit) and was assigned a batch size (0 =
/// none). A fence that is reached makes room for all commands that it covers, so a batch is the distance between two fences.
#[inline]
pub fn fence_commands(commands: u32, batch: u32) -> u32 {
    match (commands, batch) {
        (0, batch) => batch,
        (commands, 0) => (commands / 2).max(1),
        (commands, batch) => batch.min(commands),
    }
}

/// Decides which fence and gate are placed with a command. `busy_queues` counts the group's other queues that have work; `few_fences`
/// returns whether fewer than [`FEW_FENCES`] are under way. Both are called only where they decide.
#[inline]
pub fn place(ask: &Place, busy_queues: impl FnOnce() -> u64, few_fences: impl FnOnce() -> bool) -> Placed {
    let budget_ns = u64::from(ask.budget_us) * 1000;
    let gated = ask.has_gates && budget_ns != 0 && is_gated(ask, budget_ns, busy_queues);
    Placed { fence: is_fenced(ask, budget_ns, few_fences), device_gate: ask.gate_due || gated }
}

/// Reports whether the fence that [`place`] asks for is left out while the group yields: its queue keeps up, so that one fence can cover
/// the next commands, too. `keeps_up` is true if the device has reached every fence of the queue. A fence costs a host-bound program as
/// much as a launch.
#[inline]
pub fn leaves_out(ask: &Place, keeps_up: bool) -> bool {
    let Some(estimate_ns) = ask.estimate_ns else { return false };
    let unfenced_ns = ask.issued_ns.saturating_add(estimate_ns).saturating_sub(ask.fenced_ns);
    keeps_up
        && ask.in_order
        && !ask.calls_back
        && ask.fence_commands == 0
        && unfenced_ns < SPARSE_FENCE_NS
        && ask.seq.saturating_sub(ask.fenced) < FENCE_COMMANDS
        && !(is_sample(ask.seq) || is_sample(ask.seq.wrapping_sub(1)))
}

/// Reports whether the fence behind a command announces a gate: one is due with the next command or soon after. Fence and gate then come
/// together, and the fence's number tells whether the device stands before the gate.
#[inline]
pub fn gate_follows(ask: &Place, placed: &Placed) -> bool {
    let budget_ns = u64::from(ask.budget_us) * 1000;
    let before_ns = if placed.device_gate { 0 } else { ask.issued_ns.saturating_sub(ask.gated_ns) };
    let estimate_ns = ask.estimate_ns.unwrap_or(UNKNOWN_NS);
    let due = estimate_ns >= LONG_COMMAND_NS || before_ns.saturating_add(estimate_ns) >= near(budget_ns);
    placed.fence && ask.tells_of_gates() && budget_ns != 0 && due
}

/// Part of a budget, in ns, from which on a fence is worth a gate: the next command would often exceed the budget.
#[inline]
fn near(budget_ns: u64) -> u64 {
    budget_ns / 8 * 7
}

/// Reports whether a command gets a gate where the device has gates. Not every command does, since a gate costs as much as a short kernel.
/// Queues of the group that have work share the time that may run ungated, down to the length of a long command each.
#[inline]
fn is_gated(ask: &Place, budget_ns: u64, busy_queues: impl FnOnce() -> u64) -> bool {
    let estimate_ns = ask.estimate_ns.unwrap_or(UNKNOWN_NS);
    if ask.forced || estimate_ns >= LONG_COMMAND_NS {
        return true;
    }
    let ungated_ns = ask.issued_ns.saturating_sub(ask.gated_ns).saturating_add(estimate_ns);
    ungated_ns > budget_ns || ungated_ns > LONG_COMMAND_NS && ungated_ns > budget_ns / (1 + busy_queues())
}

/// Reports whether a command gets a completion fence. Unbudgeted queues need few fences: enough to detect draining and to sample kernel
/// times, more at first so that long kernels are found early.
#[inline]
fn is_fenced(ask: &Place, budget_ns: u64, few_fences: impl FnOnce() -> bool) -> bool {
    if ask.blocking {
        return false;
    }
    let every = match u64::from(ask.fence_commands) {
        0 => FENCE_COMMANDS,
        commands => commands.min(FENCE_COMMANDS),
    };
    if !ask.in_order || ask.seq.saturating_sub(ask.fenced) >= every {
        return true;
    }
    // A callback costs as much as a launch.
    let (samples, every_ns) = if ask.calls_back {
        (false, (budget_ns / 4).min(SPARSE_FENCE_NS))
    } else {
        let every_ns = if ask.has_gates { near(budget_ns).clamp(FENCE_NS, GATED_FENCE_NS) } else { FENCE_NS };
        (is_sample(ask.seq) || is_sample(ask.seq.wrapping_sub(1)), every_ns)
    };
    if samples {
        return true;
    }
    if budget_ns == 0 {
        let early = ask.before < FIRST_FENCES && few_fences();
        return ask.fence_commands == 0 && (early || !is_beginning(ask.before) && is_followed(ask.before));
    }
    let Some(estimate_ns) = ask.estimate_ns else { return true };
    let unfenced_ns = ask.issued_ns.saturating_add(estimate_ns).saturating_sub(ask.fenced_ns);
    unfenced_ns >= every_ns || ask.has_gates && estimate_ns >= LONG_COMMAND_NS
}

/// Reports whether a command is a sample: such commands, chosen without regard to any period of the program, are fenced by themselves, and
/// so is the next one, so that their time is measured anew.
#[inline]
fn is_sample(seq: u64) -> bool {
    let bits = if seq < SETTLED { SAMPLE_BITS.0 } else { SAMPLE_BITS.1 };
    seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits) == 0
}

/// Reports whether a launch on an unbudgeted queue takes the slow path, by the number of this thread's launches before it. The first ones
/// do, so that the kernels become known; then one launch in every few, to see that the queue progresses; and some launches in pairs, which
/// tell how long the second one took.
#[inline]
pub fn is_followed(before: u64) -> bool {
    is_beginning(before) || before.is_multiple_of(FOLLOW_EVERY) || before % FOLLOW_PAIR_EVERY == 1
}

/// Reports whether a launch is among a thread's first ones on a queue.
#[inline]
pub fn is_beginning(before: u64) -> bool {
    before < BEGINNING
}
