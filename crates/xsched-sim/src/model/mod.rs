//! The device as a state machine in virtual time.
//!
//! Nothing here reads a clock. Every input carries its time in ns, and [`Model::run_until`] plays all events in
//! between, in order and at their exact times. So the caller may be late without stretching a kernel. The effects of
//! commands on memory are left to a [`Board`].
//!
//! Rules:
//! - The commands of a stream run in order. Commands that take no device time complete as soon as they are first in
//!   their stream, whether or not the context has the device.
//! - Kernels that are first in their stream form one FIFO per context. One kernel runs at a time, on the whole device.
//! - Only kernels of different *members* of a context run side by side. A member has a width, its part of the device; its
//!   kernels run one at a time. Kernels start in the order of the FIFO as long as there is room, and do not slow each
//!   other. A kernel without room waits, as do all kernels behind it. A context has itself as its only member at first,
//!   as wide as the device.
//! - With [`Timing::shares`] no kernel waits for room: one of each member runs. If they are wider than the device together,
//!   they slow each other down, as programs do that compete for memory. A member below normal priority then gets half the
//!   pace of the others.
//! - A context is *runnable* when its FIFO is not empty and it is not evicted. Runnable contexts get the device in the
//!   order of their ids, for one time slice each. At the end of a slice the running kernel is cut, and continues there
//!   later. A context with nothing to run gives the device up at once.
//! - Handing the device from one context to another takes the switch cost, during which nothing runs. The slice
//!   begins after it. If a running kernel is cut, saving it adds to the cost, and restoring it later adds to that of the switch back.
//! - A slice that ends while no other context is runnable is followed by another one of the same context.
//! - Evicting a context cuts its kernel at once; the device is then busy for the switch cost.

mod context;
mod streams;
#[cfg(test)]
mod tests;

use context::Context;
use std::collections::BTreeMap;

pub use context::{Board, Work};
pub use streams::{member_of, own_number, stream_of};

/// Identifies a context for the life of a model; never reused.
pub type ContextId = u64;

/// Width of a whole device, in thousandths of it.
pub const WHOLE: u32 = 1000;

/// Timing parameters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Slice of a context that has not set another, in ns.
    pub timeslice_ns: u64,
    /// Time for handing the device from one context to another, in ns.
    pub switch_ns: u64,
    /// Further time for saving a kernel that is cut, and for restoring it later, each in ns.
    pub save_ns: u64,
    /// Set if the members of a context share its throughput instead of its room.
    pub shares: bool,
}

/// Values measured on an H200: 2 ms and 50 µs.
impl Default for Timing {
    fn default() -> Self {
        Self { timeslice_ns: 2_000_000, switch_ns: 50_000, save_ns: 0, shares: false }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// The device is switching until `until`, in ns; then `to` gets it, or no context if `None`.
    Switching {
        to: Option<ContextId>,
        until: u64,
    },
    /// Kernels of the resident context have been running since `since`; the first of them will end at `end`, both in
    /// ns.
    Running {
        since: u64,
        end: u64,
    },
}

/// One device. `P` is a value of the model's driver, which gets it back with a command's completion.
#[derive(Debug)]
pub struct Model<P> {
    timing: Timing,
    now: u64,
    contexts: BTreeMap<ContextId, Context<P>>,
    next_id: ContextId,
    /// Context whose state is loaded; it may no longer exist.
    resident: Option<ContextId>,
    phase: Phase,
    /// End of the resident context's slice, in ns; 0 = the device has been idle since.
    slice_end: u64,
    switches: u64,
}

impl<P> Model<P> {
    /// A device without contexts, idle at time 0.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            now: 0,
            contexts: BTreeMap::new(),
            next_id: 1,
            resident: None,
            phase: Phase::Idle,
            slice_end: 0,
            switches: 0,
        }
    }

    /// Time up to which everything has been played, in ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Number of times that the device went from one context to another, or was taken away by eviction.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Device time that a context has had, in ns (up to the last time its kernel began, ended or was cut).
    pub fn used_ns(&self, id: ContextId) -> u64 {
        self.contexts.get(&id).map_or(0, |c| c.used_ns)
    }

    /// Number of a stream's commands that are not complete.
    pub fn pending(&self, id: ContextId, stream: u32) -> usize {
        self.contexts.get(&id).map_or(0, |c| c.pending(stream))
    }

    /// Adds a context.
    pub fn add_context(&mut self) -> ContextId {
        let id = self.next_id;
        self.next_id += 1;
        self.contexts.insert(id, Context::new(self.timing));
        id
    }

    /// Ends a context now. Its pending commands are dropped, and the rest of its time goes to the others.
    pub fn remove_context(&mut self, id: ContextId) {
        self.renew_slice();
        self.contexts.remove(&id);
        if self.resident == Some(id) && matches!(self.phase, Phase::Running { .. }) {
            self.phase = Phase::Idle;
        }
        self.dispatch();
    }

    /// Adds a member to a context: with streams of its own, numbered by [`stream_of`], whose kernels take `width`
    /// thousandths of the device. `None` if there is no such context, or no room in it.
    pub fn add_member(&mut self, id: ContextId, width: u32) -> Option<u32> {
        self.add_member_with(id, width, false)
    }

    /// Adds a member, below normal priority if `below` is set: see [`Timing::shares`].
    pub fn add_member_with(&mut self, id: ContextId, width: u32, below: bool) -> Option<u32> {
        self.contexts.get_mut(&id)?.add_member(width, below)
    }

    /// Reports whether a member of a context has commands that are not complete.
    pub fn has_work(&self, id: ContextId, member: u32) -> bool {
        self.contexts.get(&id).is_some_and(|context| context.has_work(member))
    }

    /// Reports whether a member of a context has kernels that run or wait only for the device. A kernel behind a
    /// [`Work::Poll`] waits for more than that.
    pub fn executes(&self, id: ContextId, member: u32) -> bool {
        self.contexts.get(&id).is_some_and(|context| context.executes(member))
    }

    /// Ends a member of a context now. Its pending commands are dropped.
    pub fn remove_member(&mut self, id: ContextId, member: u32) {
        self.without(id, |context| context.remove_member(member));
    }

    /// Drops the pending commands of a member of a context, which stays a member.
    pub fn clear_member(&mut self, id: ContextId, member: u32) {
        self.without(id, |context| context.clear_member(member));
    }

    /// Removes something from a context by `take`, possibly running kernels.
    fn without(&mut self, id: ContextId, take: impl FnOnce(&mut Context<P>)) {
        self.renew_slice();
        self.pause(id);
        if let Some(context) = self.contexts.get_mut(&id) {
            take(context);
        }
        self.go_on(id);
        self.dispatch();
    }

    /// Appends a command to a stream at the model's current time. A stream exists from its first command on.
    pub fn submit(&mut self, id: ContextId, stream: u32, work: Work, command: P, board: &mut impl Board<P>) {
        self.change(id, |now, context| {
            context.push(stream, work, command);
            context.advance(now, id, stream, board);
        });
    }

    /// Completes the [`Work::Call`] that is first in this stream. Ignored if there is none.
    pub fn returned(&mut self, id: ContextId, stream: u32, board: &mut impl Board<P>) {
        self.change(id, |now, context| context.returned(now, id, stream, board));
    }

    /// Evaluates [`Board::holds`] again for every [`Work::Poll`] that blocks its stream.
    pub fn poll(&mut self, board: &mut impl Board<P>) {
        for id in self.contexts.keys().copied().collect::<Vec<_>>() {
            self.change(id, |now, context| context.poll(now, id, board));
        }
    }

    /// Reports whether any stream is blocked by a [`Work::Poll`].
    pub fn polls(&self) -> bool {
        self.contexts.values().any(|c| c.polls())
    }

    /// Sets the slice of a context, in ns. Takes effect with its next slice.
    pub fn set_timeslice(&mut self, id: ContextId, ns: u64) {
        self.renew_slice();
        if let Some(context) = self.contexts.get_mut(&id) {
            context.timeslice_ns = ns.max(1);
        }
    }

    /// Takes the device from a context until it is restored, or restores it. None of its streams advances meanwhile.
    pub fn set_runnable(&mut self, id: ContextId, on: bool, board: &mut impl Board<P>) {
        self.change(id, |now, context| {
            context.evicted = !on;
            if on {
                context.advance_all(now, id, board);
            }
        });
        if !on && self.resident == Some(id) && matches!(self.phase, Phase::Running { .. }) {
            self.cut();
            self.switch(self.next_runnable());
        }
    }

    /// Time of the next event without further input, in ns.
    pub fn next_event(&self) -> Option<u64> {
        match self.phase {
            Phase::Idle => None,
            Phase::Switching { until, .. } => Some(until),
            Phase::Running { end, .. } if self.contested() => Some(end.min(self.slice_end)),
            Phase::Running { end, .. } => Some(end),
        }
    }

    /// Plays all events up to and including `time`, which is then the current time.
    pub fn run_until(&mut self, time: u64, board: &mut impl Board<P>) {
        while let Some(due) = self.next_event().filter(|&due| due <= time) {
            self.now = self.now.max(due);
            self.step(board);
        }
        self.now = self.now.max(time);
    }

    fn step(&mut self, board: &mut impl Board<P>) {
        match self.phase {
            Phase::Idle => {}
            Phase::Switching { to, .. } => {
                self.resident = to;
                self.phase = Phase::Idle;
                self.begin_slice();
                self.dispatch();
            }
            Phase::Running { since, end } => {
                let Some((id, context)) = self.resident.and_then(|id| Some((id, self.contexts.get_mut(&id)?))) else {
                    return;
                };
                if self.now >= end {
                    self.phase = Phase::Idle;
                    context.ran(self.now - since);
                    context.finish_kernels(self.now, id, board);
                    self.dispatch();
                } else {
                    self.cut();
                    self.switch(self.next_runnable());
                }
            }
        }
    }

    /// Applies a change to one context, then gives the device to the context that should have it now.
    fn change(&mut self, id: ContextId, change: impl FnOnce(u64, &mut Context<P>)) {
        self.renew_slice();
        let now = self.now;
        if let Some(context) = self.contexts.get_mut(&id) {
            change(now, context);
            if context.outgrown() {
                self.pause(id);
                self.go_on(id);
            }
            self.dispatch();
        }
    }

    /// Accounts for the device time that running kernels of this context have had so far.
    fn pause(&mut self, id: ContextId) {
        if let Phase::Running { since, end } = self.phase
            && self.resident == Some(id)
            && let Some(context) = self.contexts.get_mut(&id)
        {
            context.ran(self.now - since);
            self.phase = Phase::Running { since: self.now, end };
        }
    }

    /// Chooses the running kernels of this context again, if any run. Its slice goes on.
    fn go_on(&mut self, id: ContextId) {
        if matches!(self.phase, Phase::Running { .. })
            && self.resident == Some(id)
            && let Some(context) = self.contexts.get_mut(&id)
        {
            self.phase = match context.start() {
                Some(left) => Phase::Running { since: self.now, end: self.now.saturating_add(left) },
                None => Phase::Idle,
            };
        }
    }

    /// Starts a context's kernels if none are running.
    fn dispatch(&mut self) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        let resident = self.resident.filter(|&id| self.runnable(id));
        match (resident, self.next_runnable()) {
            (Some(id), None) => self.start(id),
            (Some(id), Some(_)) if self.now < self.slice_end => self.start(id),
            (_, Some(next)) => self.switch(Some(next)),
            (None, None) => self.slice_end = 0,
        }
    }

    fn start(&mut self, id: ContextId) {
        if self.slice_end == 0 {
            self.begin_slice();
        }
        if let Some(left) = self.contexts.get_mut(&id).and_then(Context::start) {
            self.phase = Phase::Running { since: self.now, end: self.now.saturating_add(left) };
            self.renew_slice();
        }
    }

    /// Stops the running kernels where they are.
    fn cut(&mut self) {
        if let (Phase::Running { since, .. }, Some(id)) = (self.phase, self.resident)
            && let Some(context) = self.contexts.get_mut(&id)
        {
            context.ran(self.now - since);
            context.is_saved = true;
        }
        self.phase = Phase::Idle;
    }

    /// Hands the device to `to`. The first context on an unused device pays nothing, since there is no state to save.
    fn switch(&mut self, to: Option<ContextId>) {
        if self.resident.is_none()
            && let Some(id) = to
        {
            self.resident = to;
            self.begin_slice();
            self.start(id);
            return;
        }
        self.switches += 1;
        self.phase = Phase::Switching { to, until: self.now + self.switch_cost_ns(to) };
    }

    /// Time that the switch from the resident context to another takes, in ns: with nothing to save or to restore it is short.
    fn switch_cost_ns(&mut self, to: Option<ContextId>) -> u64 {
        let saves = self.resident.and_then(|id| self.contexts.get(&id)).is_some_and(|context| context.is_saved);
        let restores = to.and_then(|id| self.contexts.get_mut(&id));
        let restores = restores.is_some_and(|context| std::mem::take(&mut context.is_saved));
        self.timing.switch_ns + self.timing.save_ns * (u64::from(saves) + u64::from(restores))
    }

    fn begin_slice(&mut self) {
        let slice = self.resident.and_then(|id| self.contexts.get(&id)).map(|c| c.timeslice_ns);
        self.slice_end = slice.map_or(0, |slice| self.now.saturating_add(slice));
    }

    /// Finds the end of the current slice. Slices that ended while no other context wanted the device were followed by
    /// others of equal length. Called before anything that may make another context runnable.
    fn renew_slice(&mut self) {
        if self.slice_end > self.now || !matches!(self.phase, Phase::Running { .. }) || self.contested() {
            return;
        }
        let slice = self.resident.and_then(|id| self.contexts.get(&id)).map_or(1, |c| c.timeslice_ns);
        let missed = (self.now - self.slice_end) / slice + 1;
        self.slice_end = self.slice_end.saturating_add(missed.saturating_mul(slice));
    }

    fn runnable(&self, id: ContextId) -> bool {
        self.contexts.get(&id).is_some_and(Context::runnable)
    }

    /// Reports whether a context other than the resident one wants the device.
    fn contested(&self) -> bool {
        self.contexts.iter().any(|(&id, c)| Some(id) != self.resident && c.runnable())
    }

    /// Next runnable context in order, other than the resident one.
    fn next_runnable(&self) -> Option<ContextId> {
        let after = self.resident.unwrap_or(0);
        let wanting = || self.contexts.iter().filter(|&(_, c)| c.runnable()).map(|(&id, _)| id);
        wanting().find(|&id| id > after).or_else(|| wanting().find(|&id| id < after))
    }
}
