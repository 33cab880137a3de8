//! Input of a client: the part of its words and commands that the server has read.

use super::memory::Memory;
use super::wake::wake;
use crate::command::{Action, Command};
use crate::layout::{MAX_TIMESLICE_US, RING, STREAM_DEPTH, STREAMS, Shared};
use crate::server::effect::prepare;
use crate::server::{Arrival, Input};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Violation of the protocol, for which a client is dropped.
#[derive(Debug)]
pub(in crate::server) struct Violation;

/// Position of the server in a client's words and commands.
pub(super) struct Reader {
    /// Number of commands read.
    tail: u64,
    last_stamp: u64,
    timeslice_ns: u64,
    runnable: u64,
    /// Number of commands received by stream, to drop a client that exceeds the depth of a stream.
    given: Vec<u64>,
    /// Number of kernels, copies and sets received.
    launched: u64,
}

impl Reader {
    /// Reader of a new client, whose words it sets.
    pub(super) fn new(shared: &Shared, timeslice_ns: u64) -> Self {
        shared.client.timeslice_ns.store(timeslice_ns, Relaxed);
        shared.client.runnable.store(1, Relaxed);
        Self { tail: 0, last_stamp: 0, timeslice_ns, runnable: 1, given: vec![0; STREAMS], launched: 0 }
    }

    /// Number of kernels, copies and sets received.
    pub(super) fn launched(&self) -> u64 {
        self.launched
    }

    /// Reports whether the client has stored anything that was not read.
    pub(super) fn has_news(&self, shared: &Shared) -> bool {
        let words = &shared.client;
        words.head.load(Acquire) != self.tail
            || words.runnable.load(Relaxed) != self.runnable
            || words.timeslice_ns.load(Relaxed) != self.timeslice_ns
    }

    /// Reads everything that the client has stored. Each arrival carries the time at which it was stored.
    pub(super) fn drain(
        &mut self,
        (shared, memory): (&Shared, &Memory),
        (key, now): (u64, u64),
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Violation> {
        // Read before the other words, so that a store that precedes a command is seen no later than the command.
        let head = shared.client.head.load(Acquire);
        self.read_words(shared, key, now, arrivals)?;
        if head == self.tail {
            return Ok(());
        }
        if head.wrapping_sub(self.tail) > RING as u64 {
            return Err(Violation);
        }
        while self.tail != head {
            let (stamp, command) = shared.ring[self.tail as usize % RING].get().ok_or(Violation)?;
            self.tail += 1;
            // Keeps a client's own commands in order, whatever it writes into the time stamps.
            self.last_stamp = self.last_stamp.max(stamp);
            let input = self.take(&command, shared, memory)?;
            arrivals.push(Arrival { stamp: self.last_stamp, key, input });
        }
        shared.device.tail.store(self.tail, Release);
        fence(SeqCst);
        if shared.client.room_waiters.load(Relaxed) != 0 {
            wake(&shared.device.room);
        }
        Ok(())
    }

    /// Reads the words beside the commands: time slice and eviction.
    fn read_words(
        &mut self,
        shared: &Shared,
        key: u64,
        now: u64,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Violation> {
        let timeslice_ns = shared.client.timeslice_ns.load(Relaxed);
        if timeslice_ns != self.timeslice_ns {
            if !(1..=MAX_TIMESLICE_US * 1000).contains(&timeslice_ns) {
                return Err(Violation);
            }
            self.timeslice_ns = timeslice_ns;
            arrivals.push(Arrival { stamp: now, key, input: Input::Timeslice(timeslice_ns) });
        }
        let runnable = shared.client.runnable.load(Relaxed);
        if runnable != self.runnable {
            self.runnable = runnable;
            arrivals.push(Arrival { stamp: runnable >> 1, key, input: Input::Runnable(runnable & 1 != 0) });
        }
        Ok(())
    }

    /// Checks and counts one command.
    fn take(&mut self, command: &Command, shared: &Shared, memory: &Memory) -> Result<Input, Violation> {
        let slot = shared.streams.get(command.stream as usize).ok_or(Violation)?;
        if command.action == Action::Returned {
            return Ok(Input::Returned(command.stream));
        }
        let (work, effect) = prepare(command.action, memory.regions()).ok_or(Violation)?;
        let given = self.given[command.stream as usize] + 1;
        if given - slot.completed.load(Relaxed).min(given) > 2 * STREAM_DEPTH {
            return Err(Violation);
        }
        self.given[command.stream as usize] = given;
        let counted = matches!(
            command.action,
            Action::Kernel { .. } | Action::Stamp { .. } | Action::Copy { .. } | Action::Set { .. }
        );
        self.launched += u64::from(counted);
        Ok(Input::Command(command.stream, work, effect, counted))
    }
}
