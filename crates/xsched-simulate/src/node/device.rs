//! A device of a machine: the simulated device's own model, with a context for each program or one for a pool; or a [`Fluid`] one.

use xsched_proto::gate::Gate;
use xsched_sim::model::{Board, ContextId, Model, Timing, Work, own_number, stream_of};

use crate::memory::Segment;
use crate::scenario::{self, Detail};

use super::fluid::{Burst, Fluid};

/// A command on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// Its program.
    pub(super) rank: usize,
    /// Its number among the program's commands; 0 = a gate.
    pub(super) seq: u64,
    /// Its kind within a request.
    pub(super) kind: u32,
    /// Its device time, in ns.
    pub(super) ns: u64,
}

/// A command that is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) at_ns: u64,
    pub(super) command: Command,
    /// The rest of a burst whose gate has closed; none = it is complete.
    pub(super) left: Option<Burst>,
}

/// The place of a program on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    context: ContextId,
    member: u32,
    is_pooled: bool,
}

/// A device.
pub(super) enum Device {
    /// Each kernel by itself.
    Exact(Exact),
    /// A device that executes bursts.
    Fluid(Fluid),
}

/// A device that executes kernels.
pub(super) struct Exact {
    model: Model<Command>,
    pool: Option<ContextId>,
    pool_timeslice_us: u64,
    contexts: Vec<ContextId>,
    /// Device time of contexts that are gone, in ns.
    gone_ns: u64,
}

struct Gates<'a> {
    segments: &'a [Segment],
    done: &'a mut Vec<Done>,
}

impl Board<Command> for Gates<'_> {
    fn complete(&mut self, at_ns: u64, _context: ContextId, stream: u32, _count: u64, command: Command) {
        debug_assert_eq!(own_number(stream), 0);
        if command.seq != 0 {
            self.done.push(Done { at_ns, command, left: None });
        }
    }

    fn holds(&mut self, command: &Command) -> bool {
        let gate: Gate = self.segments[command.rank].gate.load();
        gate.is_open_on_device()
    }

    fn call(&mut self, _context: ContextId, _stream: u32, _count: u64) {}
}

/// Time slice of a pool's context, in µs, and of the one that urgent programs are in.
pub(super) const POOL_TIMESLICE_US: u64 = 120;
const INSIDE_TIMESLICE_US: u64 = 2_000;

fn pool_timeslice_us(kind: &scenario::Device) -> u64 {
    if kind.inside { INSIDE_TIMESLICE_US } else { POOL_TIMESLICE_US }
}

impl Exact {
    fn new(kind: &scenario::Device) -> Exact {
        let timing = Timing {
            timeslice_ns: kind.timeslice.0,
            switch_ns: kind.switch.0,
            save_ns: kind.save.0,
            shares: kind.pool,
        };
        let pool_timeslice_us = pool_timeslice_us(kind);
        Exact { model: Model::new(timing), pool: None, pool_timeslice_us, contexts: Vec::new(), gone_ns: 0 }
    }

    /// Adds a program: with a context of its own, or as a member of the pool's.
    fn add(&mut self, pooled_percent: Option<u32>) -> Seat {
        let Some(percent) = pooled_percent else {
            let context = self.model.add_context();
            self.contexts.push(context);
            return Seat { context, member: 0, is_pooled: false };
        };
        let context = self.pool.unwrap_or_else(|| {
            let context = self.model.add_context();
            self.model.set_timeslice(context, self.pool_timeslice_us * 1_000);
            self.contexts.push(context);
            context
        });
        self.pool = Some(context);
        let member = self.model.add_member(context, percent * 10).unwrap_or(0);
        Seat { context, member, is_pooled: true }
    }

    /// Removes a program with what it has on the device.
    fn remove(&mut self, seat: Seat) {
        if seat.is_pooled {
            return self.model.remove_member(seat.context, seat.member);
        }
        self.gone_ns += self.model.used_ns(seat.context);
        self.model.remove_context(seat.context);
        self.contexts.retain(|context| *context != seat.context);
    }

    /// Gives the device a command, behind a gate if it is `gated`.
    fn submit(&mut self, seat: Seat, command: Command, gated: bool, segments: &[Segment], done: &mut Vec<Done>) {
        let mut board = Gates { segments, done };
        let stream = stream_of(seat.member, 0);
        if gated {
            self.model.submit(seat.context, stream, Work::Poll, Command { seq: 0, ..command }, &mut board);
        }
        self.model.submit(seat.context, stream, Work::Run(command.ns), command, &mut board);
    }

    /// Looks at gates again that hold commands.
    fn look(&mut self, segments: &[Segment], done: &mut Vec<Done>) {
        if self.model.polls() {
            self.model.poll(&mut Gates { segments, done });
        }
    }

    /// Time in which the device has worked for programs, in ns.
    fn busy_ns(&self) -> u64 {
        self.gone_ns + self.contexts.iter().map(|context| self.model.used_ns(*context)).sum::<u64>()
    }
}

impl Device {
    pub(super) fn new(kind: &scenario::Device, detail: Detail, seed: u64) -> Device {
        match detail {
            Detail::Kernels => Device::Exact(Exact::new(kind)),
            Detail::Bursts => Device::Fluid(Fluid::new(kind, pool_timeslice_us(kind), seed)),
        }
    }

    /// Adds a program: with a context of its own, or as a member of the pool's.
    pub(super) fn add(&mut self, pooled_percent: Option<u32>) -> Seat {
        match self {
            Device::Exact(exact) => exact.add(pooled_percent),
            Device::Fluid(fluid) => {
                let context = fluid.add(pooled_percent) as u64;
                Seat { context, member: 0, is_pooled: pooled_percent.is_some() }
            }
        }
    }

    /// Removes a program with what it has on the device.
    pub(super) fn remove(&mut self, seat: Seat) {
        match self {
            Device::Exact(exact) => exact.remove(seat),
            Device::Fluid(fluid) => fluid.remove(seat.context as usize),
        }
    }

    /// Time of the next event without further input, in ns.
    pub(super) fn next_ns(&self) -> Option<u64> {
        match self {
            Device::Exact(exact) => exact.model.next_event(),
            Device::Fluid(fluid) => fluid.next_ns(),
        }
    }

    /// Plays the device up to a time.
    pub(super) fn run_until(&mut self, now_ns: u64, segments: &[Segment], done: &mut Vec<Done>) {
        match self {
            Device::Exact(exact) => exact.model.run_until(now_ns, &mut Gates { segments, done }),
            Device::Fluid(fluid) => fluid.run_until(now_ns, done),
        }
    }

    /// Gives the device a command, behind a gate if it is `gated`.
    pub(super) fn submit(
        &mut self,
        seat: Seat,
        command: Command,
        gated: bool,
        segments: &[Segment],
        done: &mut Vec<Done>,
    ) {
        if let Device::Exact(exact) = self {
            exact.submit(seat, command, gated, segments, done);
        }
    }

    /// Gives the device a burst.
    pub(super) fn begin(&mut self, seat: Seat, command: Command, burst: Burst) {
        if let Device::Fluid(fluid) = self {
            fluid.begin(seat.context as usize, command, burst);
        }
    }

    /// Looks at gates again that hold commands.
    pub(super) fn look(&mut self, segments: &[Segment], done: &mut Vec<Done>) {
        match self {
            Device::Exact(exact) => exact.look(segments, done),
            Device::Fluid(fluid) => fluid.look(segments),
        }
    }

    /// Writes how far bursts are.
    pub(super) fn publish(&self, segments: &[Segment]) {
        if let Device::Fluid(fluid) = self {
            fluid.publish(segments);
        }
    }

    /// Sets the time slice of a program's own context, in µs.
    pub(super) fn set_timeslice(&mut self, seat: Seat, us: u64) {
        if seat.is_pooled {
            return;
        }
        match self {
            Device::Exact(exact) => exact.model.set_timeslice(seat.context, us * 1_000),
            Device::Fluid(fluid) => fluid.set_timeslice(seat.context as usize, us),
        }
    }

    /// Interrupts what a program's own context runs, or lets it go on. Bursts leave the device by their gates.
    pub(super) fn interrupt(&mut self, seat: Seat, on: bool, segments: &[Segment], done: &mut Vec<Done>) {
        if let (Device::Exact(exact), false) = (self, seat.is_pooled) {
            exact.model.set_runnable(seat.context, !on, &mut Gates { segments, done });
        }
    }

    /// Time in which the device has worked for programs, in ns.
    pub(super) fn busy_ns(&self) -> u64 {
        match self {
            Device::Exact(exact) => exact.busy_ns(),
            Device::Fluid(fluid) => fluid.busy_ns(),
        }
    }

    /// Switches from one context to another.
    pub(super) fn switches(&self) -> u64 {
        match self {
            Device::Exact(exact) => exact.model.switches(),
            Device::Fluid(fluid) => fluid.switches(),
        }
    }
}
