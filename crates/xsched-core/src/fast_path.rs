//! The fast path of a launch: find its queue among those that the thread used last, count the launch, check the gate word.

use core::sync::atomic::Ordering::*;

use xsched_flow::admission;
use xsched_proto::gate::Gate;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{Counter, GroupSlot};

use crate::inspect;
use crate::origin::Way;
use crate::protocol::idle;
use crate::queue::XQueue;
use crate::thread::{Known, current, slot_of};

/// Outcome of [`enter`]: the next step of a launch.
pub enum Entered {
    /// The gate stands plainly open and the launch is counted: call the driver, then [`Counted::done`].
    Fast(Counted),
    /// The queue is known, but the launch takes the slow path: [`XQueue::admit`].
    Slow(&'static XQueue, &'static Counter),
    /// This thread has not used the queue lately: [`crate::Runtime::remember`] it and enter again.
    Unknown,
}

/// A launch counted by [`enter`].
pub struct Counted(&'static Counter);

impl Counted {
    /// Takes the count back if the driver refused the launch.
    #[inline(always)]
    pub fn done(self, accepted: bool) {
        if !accepted {
            idle::uncount::<Hardware>(&self.0.launches);
        }
    }
}

/// Reason for which [`pass`] did not let a launch through.
#[derive(Clone, Copy)]
pub enum Held {
    /// This thread has not used the queue lately.
    Unknown,
    /// The launch is counted, but the gate does not stand plainly open.
    Counted,
}

/// The fast path of a launch on the queue with this key: find it, count, one load of the gate word. Touches one line of the
/// cache of the thread's own, one of its counter and one of the gate.
#[inline(always)]
pub fn pass(key: usize) -> Result<Counted, Held> {
    let entry = current().entries[slot_of(key)].get();
    let Some(known) = entry.known else { return Err(Held::Unknown) };
    if entry.key != key || known.counter.stamp.load(Relaxed) != entry.stamp {
        return Err(Held::Unknown);
    }
    let gate = idle::count(&known.counter.launches, &known.slot.gate);
    if gate.is_plainly_open() || gate.is_inspected() && inspected(gate, key) {
        Ok(Counted(known.counter))
    } else {
        Err(Held::Counted)
    }
}

impl Held {
    /// Second check of a launch that [`pass`] did not let through. `tells`: the program learns from the return of the call alone
    /// that the queue is complete, so that the launch must be numbered.
    #[inline(never)]
    pub fn look(self, key: usize, tells: bool) -> Entered {
        let known = current().entries[slot_of(key)].get().known;
        let (Held::Counted, Some(Known { queue, group, slot, counter })) = (self, known) else {
            return Entered::Unknown;
        };
        // `pass` has counted the launch already.
        if !tells
            && current().inspected.get() != Way::Regroup
            && is_open_unbounded(slot)
            && queue.in_order()
            // The first launch after a pause ends the pause.
            && !group.grace.runs()
            && !admission::is_followed(counter.total().wrapping_sub(1))
        {
            take_inspected();
            return Entered::Fast(Counted(counter));
        }
        Entered::Slow(queue, counter)
    }
}

/// Combines [`pass`] and [`Held::look`], for tests of the core.
#[inline(always)]
pub fn enter(key: usize) -> Entered {
    match pass(key) {
        Ok(counted) => Entered::Fast(counted),
        Err(held) => held.look(key, false),
    }
}

/// True: the gate stands open for any number of launches, beside rivals or not.
fn is_open_unbounded(slot: &GroupSlot) -> bool {
    // A group that is not contended has no budget. Where call sites are inspected, this launch's was.
    let gate = slot.gate.peek().without(Gate::EXCLUSIVE | Gate::DEVICE_GATES_BYPASSED | Gate::INSPECT);
    gate.is_plainly_open()
        || gate == Gate::GRANTED | Gate::CONTENDED
            && slot.budget_us.load(Relaxed) == 0
            && slot.budget_commands.load(Relaxed) == 0
}

/// Inspects the call site of a launch on a queue that this thread remembers. True: the launch goes on at once. Takes the key, which
/// lies in a register anyway: the fast path keeps nothing for this.
#[inline(never)]
fn inspected(gate: Gate, key: usize) -> bool {
    let Some(Known { queue, slot, counter, .. }) = current().entries[slot_of(key)].get().known else { return false };
    let way = inspect::launch(queue, slot, counter);
    let goes_on = way == Way::Passes || way != Way::Regroup && gate.without(Gate::INSPECT).is_plainly_open();
    current().inspected.set(if goes_on { Way::Unknown } else { way });
    goes_on
}

/// Takes the result of the inspection of a launch that goes the slow path; called once for each.
pub(crate) fn take_inspected() -> Way {
    current().inspected.take()
}
