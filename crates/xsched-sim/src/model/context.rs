//! One context: its streams and the FIFO of kernels they feed.

use super::{Board, ContextId, Work};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
struct Stream<P> {
    commands: VecDeque<(Work, P)>,
    completed: u64,
    /// The first command has been queued as a kernel, or called: nothing to do until it ends.
    engaged: bool,
}

impl<P> Default for Stream<P> {
    fn default() -> Self {
        Self { commands: VecDeque::new(), completed: 0, engaged: false }
    }
}

#[derive(Debug)]
pub(super) struct Context<P> {
    streams: BTreeMap<u32, Stream<P>>,
    /// Streams whose first command is a kernel, in the order in which it became first. The front one has the device
    /// when the context has it.
    fifo: VecDeque<u32>,
    /// What is left of the front kernel, once it has been cut.
    cut_left: Option<u64>,
    pub(super) evicted: bool,
    pub(super) timeslice_ns: u64,
    pub(super) used_ns: u64,
}

impl<P> Context<P> {
    pub(super) fn new(timeslice_ns: u64) -> Self {
        Self {
            streams: BTreeMap::new(),
            fifo: VecDeque::new(),
            cut_left: None,
            evicted: false,
            timeslice_ns: timeslice_ns.max(1),
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

    /// Device time the front kernel still needs.
    pub(super) fn kernel_left(&self) -> Option<u64> {
        let front = self.streams.get(self.fifo.front()?)?.commands.front()?;
        match front.0 {
            Work::Run(duration) => Some(self.cut_left.unwrap_or(duration)),
            _ => None,
        }
    }

    /// The front kernel loses the device after having had it for `ran` ns.
    pub(super) fn cut_kernel(&mut self, ran: u64) {
        self.cut_left = self.kernel_left().map(|left| left.saturating_sub(ran));
        self.used_ns += ran;
    }

    pub(super) fn finish_kernel(&mut self, now: u64, id: ContextId, board: &mut impl Board<P>) {
        self.cut_left = None;
        if let Some(stream) = self.fifo.pop_front() {
            self.complete_first(now, id, stream, board);
            self.advance(now, id, stream, board);
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
        !self.evicted && self.streams.values().any(|s| matches!(s.commands.front(), Some((Work::Poll, _))))
    }

    pub(super) fn poll(&mut self, now: u64, id: ContextId, board: &mut impl Board<P>) {
        let blocked: Vec<u32> = self
            .streams
            .iter()
            .filter(|(_, s)| matches!(s.commands.front(), Some((Work::Poll, _))))
            .map(|(&stream, _)| stream)
            .collect();
        for stream in blocked {
            self.advance(now, id, stream, board);
        }
    }

    pub(super) fn advance_all(&mut self, now: u64, id: ContextId, board: &mut impl Board<P>) {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            self.advance(now, id, stream, board);
        }
    }

    /// Takes a stream as far as it goes without device time, and with it the streams that wait for it.
    pub(super) fn advance(&mut self, now: u64, id: ContextId, stream: u32, board: &mut impl Board<P>) {
        if self.evicted {
            return;
        }
        let mut todo = vec![stream];
        while let Some(stream) = todo.pop() {
            while self.first_is_done(id, stream, board) {
                self.complete_first(now, id, stream, board);
            }
            // Those that waited for this stream and may go on now. Each leaves its wait, so this ends.
            let completed = |s: u32| self.streams.get(&s).map_or(0, |s| s.completed);
            todo.extend(self.streams.iter().filter_map(|(&waiter, s)| match s.commands.front() {
                Some((Work::After { stream: on, count }, _)) if *on == stream && completed(*on) >= *count => {
                    Some(waiter)
                }
                _ => None,
            }));
        }
    }

    /// Looks at the first command of a stream: engages it if need be; true if it completes right now.
    fn first_is_done(&mut self, id: ContextId, stream: u32, board: &mut impl Board<P>) -> bool {
        let Some(state) = self.streams.get(&stream) else { return false };
        if state.engaged {
            return false;
        }
        let Some((work, command)) = state.commands.front() else { return false };
        let engage = match *work {
            Work::Instant => return true,
            Work::Poll => return board.holds(command),
            Work::After { stream: on, count } => return self.streams.get(&on).map_or(0, |s| s.completed) >= count,
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
            state.completed += 1;
            board.complete(now, id, stream, state.completed, command);
        }
    }
}
