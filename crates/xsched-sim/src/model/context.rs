//! One context: its streams, the FIFO of kernels that they feed, and the members that the streams belong to.

use super::streams::{member_of, streams_of};
use super::{ContextId, Timing, WHOLE};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Demand of a command on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel or a copy that takes this much device time, in ns.
    Run(u64),
    /// Takes no device time: event records, value writes.
    Instant,
    /// Blocks its stream until [`Board::holds`] returns true.
    Poll,
    /// Blocks its stream until `stream` of the same context has completed `count` commands.
    After {
        /// The stream waited for.
        stream: u32,
        /// Number of its commands, counted from its creation.
        count: u64,
    },
    /// Blocks its stream from [`Board::call`] until [`Model::returned`](super::Model::returned).
    Call,
}

/// The memory side of the device. Called in device order.
pub trait Board<P> {
    /// Reports that a command completed at `at` ns, the `count`th of its stream.
    fn complete(&mut self, at: u64, context: ContextId, stream: u32, count: u64, command: P);
    /// Reports whether the condition of this [`Work::Poll`] holds.
    fn holds(&mut self, command: &P) -> bool;
    /// Makes the call of a [`Work::Call`] that became first in its stream.
    fn call(&mut self, context: ContextId, stream: u32, count: u64);
}

#[derive(Debug)]
struct Stream<P> {
    commands: VecDeque<(Work, P)>,
    completed: u64,
    /// Set once the first command was queued as a kernel, or its call was made: nothing to do until it ends.
    engaged: bool,
    /// Device time that the first command, a kernel that was running before, still needs, in ns.
    left: Option<u64>,
}

impl<P> Default for Stream<P> {
    fn default() -> Self {
        Self { commands: VecDeque::new(), completed: 0, engaged: false, left: None }
    }
}

/// A part of a context with streams of its own.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Width of the member's kernels, in thousandths of the device.
    width: u32,
    /// Set for a member below normal priority.
    below: bool,
}

/// Member that stands for the context itself.
const OWNER: Member = Member { width: WHOLE, below: false };

#[derive(Debug)]
pub(super) struct Context<P> {
    streams: BTreeMap<u32, Stream<P>>,
    /// Streams whose first command is a kernel, in the order in which it became first. [`Context::start`] chooses among
    /// them the ones that run while the context has the device.
    fifo: VecDeque<u32>,
    /// Streams whose kernels are running, in the order of the FIFO; valid while the context's kernels run.
    running: Vec<u32>,
    /// Streams blocked by a [`Work::Poll`].
    polling: BTreeSet<u32>,
    /// Streams blocked by a [`Work::After`], by the stream that they wait for.
    waiters: BTreeMap<u32, BTreeSet<u32>>,
    /// Members other than the first, by number.
    members: BTreeMap<u32, Member>,
    /// [`Timing::shares`] of the device.
    shares: bool,
    pub(super) evicted: bool,
    /// Set while a kernel of it that was cut is in memory.
    pub(super) is_saved: bool,
    pub(super) timeslice_ns: u64,
    pub(super) used_ns: u64,
}

impl<P> Context<P> {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            streams: BTreeMap::new(),
            fifo: VecDeque::new(),
            running: Vec::new(),
            polling: BTreeSet::new(),
            waiters: BTreeMap::new(),
            members: BTreeMap::new(),
            shares: timing.shares,
            evicted: false,
            is_saved: false,
            timeslice_ns: timing.timeslice_ns.max(1),
            used_ns: 0,
        }
    }

    pub(super) fn runnable(&self) -> bool {
        !self.evicted && !self.fifo.is_empty()
    }

    pub(super) fn pending(&self, stream: u32) -> usize {
        self.streams.get(&stream).map_or(0, |s| s.commands.len())
    }

    pub(super) fn push(&mut self, stream: u32, work: Work, command: P) {
        self.streams.entry(stream).or_default().commands.push_back((work, command));
    }

    /// Reports whether a member has commands that are not complete.
    pub(super) fn has_work(&self, member: u32) -> bool {
        self.streams.range(streams_of(member)).any(|(_, stream)| !stream.commands.is_empty())
    }

    /// Reports whether a member has kernels that run or wait only for the device.
    pub(super) fn executes(&self, member: u32) -> bool {
        self.fifo.iter().any(|&stream| member_of(stream) == member)
    }

    /// Adds a member; `None` if all numbers are in use.
    pub(super) fn add_member(&mut self, width: u32, below: bool) -> Option<u32> {
        let number = (1..=u32::from(u16::MAX)).find(|number| !self.members.contains_key(number))?;
        self.members.insert(number, Member { width: width.clamp(1, WHOLE), below });
        Some(number)
    }

    /// Removes a member, and frees its number.
    pub(super) fn remove_member(&mut self, member: u32) {
        self.clear_member(member);
        self.members.remove(&member);
    }

    /// Removes the streams of a member.
    pub(super) fn clear_member(&mut self, member: u32) {
        let streams = streams_of(member);
        self.streams.retain(|stream, _| !streams.contains(stream));
        self.fifo.retain(|stream| !streams.contains(stream));
        self.running.retain(|stream| !streams.contains(stream));
        self.polling.retain(|stream| !streams.contains(stream));
        self.waiters.retain(|stream, waiters| {
            waiters.retain(|waiter| !streams.contains(waiter));
            !streams.contains(stream) && !waiters.is_empty()
        });
    }

    /// Kernels that run while this context has the device: in the order of the FIFO, one of each member, up to the
    /// first for which there is no room. Kernels that arrive later do not displace any of these; they can only be
    /// added.
    fn chosen(&self) -> Vec<u32> {
        let (mut chosen, mut room) = (Vec::<u32>::new(), WHOLE);
        for &stream in &self.fifo {
            let member = member_of(stream);
            if chosen.iter().any(|&other| member_of(other) == member) {
                continue;
            }
            if self.shares {
                chosen.push(stream);
                continue;
            }
            let Some(rest) = room.checked_sub(self.member(stream).width) else { break };
            chosen.push(stream);
            room = rest;
            if room == 0 {
                break;
            }
        }
        chosen
    }

    fn member(&self, stream: u32) -> Member {
        self.members.get(&member_of(stream)).copied().unwrap_or(OWNER)
    }

    /// Pace of a running kernel, as (own, all): it gets `own` ns of device time in every `all` ns.
    fn pace(&self, stream: u32) -> (u64, u64) {
        let weight = |member: Member| if member.below { 1 } else { 2 };
        let members = || self.running.iter().map(|&stream| self.member(stream));
        if !self.shares || members().map(|member| member.width).sum::<u32>() <= WHOLE {
            return (1, 1);
        }
        let all = members().map(|member| u64::from(member.width) * weight(member)).sum();
        let own = u64::from(WHOLE) * weight(self.member(stream));
        (own.min(all), all)
    }

    /// Reports whether other kernels than the running ones should run now.
    pub(super) fn outgrown(&self) -> bool {
        self.chosen() != self.running
    }

    /// Chooses the kernels that run from now on. Returns the time until the first of them ends, in ns; `None` if there
    /// are none.
    pub(super) fn start(&mut self) -> Option<u64> {
        self.running = self.chosen();
        let ends = |&stream: &u32| {
            let (own, all) = self.pace(stream);
            let ns = (u128::from(self.left(stream)?) * u128::from(all)).div_ceil(u128::from(own));
            Some(u64::try_from(ns).unwrap_or(u64::MAX))
        };
        self.running.iter().filter_map(ends).min()
    }

    /// Device time that the kernel at the front of a stream still needs, in ns.
    fn left(&self, stream: u32) -> Option<u64> {
        let stream = self.streams.get(&stream)?;
        match stream.commands.front()?.0 {
            Work::Run(duration) => Some(stream.left.unwrap_or(duration)),
            _ => None,
        }
    }

    /// Accounts for `ns` more of device time that the running kernels have had.
    pub(super) fn ran(&mut self, ns: u64) {
        for index in 0..self.running.len() {
            let stream = self.running[index];
            let (own, all) = self.pace(stream);
            let got = (u128::from(ns) * u128::from(own) / u128::from(all)) as u64;
            let left = self.left(stream).map(|left| left.saturating_sub(got));
            if let Some(state) = self.streams.get_mut(&stream) {
                state.left = left;
            }
        }
        self.used_ns += ns;
    }

    /// Completes the running kernels that need no more device time.
    pub(super) fn finish_kernels(&mut self, now: u64, id: ContextId, board: &mut impl Board<P>) {
        for stream in std::mem::take(&mut self.running) {
            if self.left(stream) == Some(0) {
                // The search is short: kernels begin in the order of the FIFO.
                if let Some(at) = self.fifo.iter().position(|&other| other == stream) {
                    self.fifo.remove(at);
                }
                self.complete_first(now, id, stream, board);
                self.advance(now, id, stream, board);
            }
        }
    }

    pub(super) fn returned(&mut self, now: u64, id: ContextId, stream: u32, board: &mut impl Board<P>) {
        let called =
            self.streams.get(&stream).is_some_and(|s| s.engaged && matches!(s.commands.front(), Some((Work::Call, _))));
        if called {
            self.complete_first(now, id, stream, board);
            self.advance(now, id, stream, board);
        }
    }

    pub(super) fn polls(&self) -> bool {
        !self.evicted && !self.polling.is_empty()
    }

    pub(super) fn poll(&mut self, now: u64, id: ContextId, board: &mut impl Board<P>) {
        for stream in self.polling.clone() {
            self.advance(now, id, stream, board);
        }
    }

    pub(super) fn advance_all(&mut self, now: u64, id: ContextId, board: &mut impl Board<P>) {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            self.advance(now, id, stream, board);
        }
    }

    /// Advances a stream as far as it goes without device time, and with it the streams that wait for it.
    pub(super) fn advance(&mut self, now: u64, id: ContextId, stream: u32, board: &mut impl Board<P>) {
        if self.evicted {
            return;
        }
        let mut todo = vec![stream];
        while let Some(stream) = todo.pop() {
            while self.first_is_done(id, stream, board) {
                self.complete_first(now, id, stream, board);
            }
            // Streams that waited for this one and may go on now. Each leaves its wait, so this ends.
            let Some(waiters) = self.waiters.get_mut(&stream) else { continue };
            let completed = self.streams.get(&stream).map_or(0, |s| s.completed);
            waiters.retain(|waiter| {
                let front = self.streams.get(waiter).and_then(|s| s.commands.front());
                let goes_on = matches!(front, Some((Work::After { count, .. }, _)) if completed >= *count);
                if goes_on {
                    todo.push(*waiter);
                }
                !goes_on
            });
            if waiters.is_empty() {
                self.waiters.remove(&stream);
            }
        }
    }

    /// Engages the first command of a stream if need be. Returns true if it completes right now.
    fn first_is_done(&mut self, id: ContextId, stream: u32, board: &mut impl Board<P>) -> bool {
        let Some(state) = self.streams.get(&stream) else { return false };
        if state.engaged {
            return false;
        }
        let Some((work, command)) = state.commands.front() else { return false };
        let engage = match *work {
            Work::Instant => return true,
            Work::Poll => {
                let holds = board.holds(command);
                if holds {
                    self.polling.remove(&stream);
                } else {
                    self.polling.insert(stream);
                }
                return holds;
            }
            Work::After { stream: on, count } => {
                let done = self.streams.get(&on).map_or(0, |s| s.completed) >= count;
                if !done {
                    self.waiters.entry(on).or_default().insert(stream);
                }
                return done;
            }
            Work::Run(_) => {
                self.fifo.push_back(stream);
                true
            }
            Work::Call => {
                board.call(id, stream, state.completed + 1);
                true
            }
        };
        if let Some(state) = self.streams.get_mut(&stream) {
            state.engaged = engage;
        }
        false
    }

    fn complete_first(&mut self, now: u64, id: ContextId, stream: u32, board: &mut impl Board<P>) {
        if let Some(state) = self.streams.get_mut(&stream)
            && let Some((_, command)) = state.commands.pop_front()
        {
            state.engaged = false;
            state.left = None;
            state.completed += 1;
            board.complete(now, id, stream, state.completed, command);
        }
    }
}
