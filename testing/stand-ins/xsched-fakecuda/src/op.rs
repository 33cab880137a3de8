//! A command: submitted to a stream, recorded by a capture, or part of a graph.

use crate::context::Ctx;
use crate::copy::{Copy, Set};
use crate::event::Event;
use crate::given::{Given, give};
use crate::graph_memory::Block;
use crate::launch::Launch;
use crate::memops::MemOp;
use crate::process::in_host_function;
use crate::result::{Error, Result};
use crate::stats::{COUNTERS, Counters};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Release;
use xsched_sim::client::{self, Mark, Slot, lock};
use xsched_sim::command::{Action, Condition, Place, Width};

/// `CUhostFn`.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub(crate) type Callback = unsafe extern "C" fn(usize, c_int, *mut c_void);

/// Argument of a function of the program.
#[derive(Clone, Copy)]
pub(crate) struct Argument(pub(crate) *mut c_void);

// SAFETY: the pointer is the program's own: by passing it with a host function, the program allows its use on another
// thread.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

impl Argument {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// A command.
#[derive(Clone)]
pub(crate) enum Op {
    Kernel(Launch),
    Copy(Copy),
    Set(Set),
    Host(HostFunction, Argument),
    Callback(usize, Callback, Argument),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    MemOps(Vec<MemOp>),
    Empty,
    /// A node that allocates memory. The memory is allocated when the node is created.
    Memory(Arc<Block>),
    /// A node that frees memory.
    Free,
    /// A child graph: its commands in order.
    Child(Vec<Op>),
}

impl Op {
    /// Notes that a graph with this command uses memory of its nodes until this mark.
    pub(crate) fn used_until(&self, mark: Mark) {
        match self {
            Self::Memory(block) => block.used_until(mark),
            Self::Child(ops) => ops.iter().for_each(|op| op.used_until(mark)),
            _ => {}
        }
    }

    /// Submits the command to the device. In a graph (`graph`) no work may be left for the host.
    pub(crate) fn run(&self, ctx: &Arc<Ctx>, slot: Slot, graph: bool) -> Result<Given> {
        if let Self::Copy(copy) = self {
            return copy.run(ctx, slot, graph);
        }
        self.run_on_device(ctx, slot, graph).map(Given::from)
    }

    fn run_on_device(&self, ctx: &Arc<Ctx>, slot: Slot, graph: bool) -> Result<Mark> {
        match self {
            Self::Kernel(launch) => {
                Counters::add(&COUNTERS.kernels);
                if graph {
                    Counters::add(&COUNTERS.graph_kernels);
                }
                give(ctx, slot, launch.action(ctx))
            }
            Self::Copy(copy) => copy.run(ctx, slot, graph)?.finish(),
            Self::Set(set) => {
                Counters::add(&COUNTERS.sets);
                if graph {
                    Counters::add(&COUNTERS.graph_sets);
                }
                give(ctx, slot, set.action(ctx)?)
            }
            &Self::Host(function, argument) => {
                // SAFETY: the program gave this function and its argument for this.
                call(ctx, slot, move || unsafe { function(argument.get()) })
            }
            &Self::Callback(stream, function, argument) => {
                // SAFETY: the program gave this function and its argument for this.
                call(ctx, slot, move || unsafe { function(stream, 0, argument.get()) })
            }
            Self::Record(event) => {
                Counters::add(&COUNTERS.records);
                match event.shared {
                    Some(shared) => shared.record(ctx, slot),
                    None => Ok(ctx.sim.record(event.slot, slot)?),
                }
            }
            Self::Wait(event) => wait(ctx, slot, event),
            Self::MemOps(ops) => {
                ops.iter().try_for_each(|op| give(ctx, slot, op.action(ctx)?).map(drop))?;
                Ok(ctx.sim.end(slot)?)
            }
            Self::Empty | Self::Memory(_) | Self::Free => Ok(ctx.sim.end(slot)?),
            Self::Child(ops) => {
                ops.iter().try_for_each(|op| op.run(ctx, slot, graph).map(drop))?;
                Ok(ctx.sim.end(slot)?)
            }
        }
    }
}

/// Runs a function of the program when the stream reaches it.
fn call(ctx: &Ctx, slot: Slot, body: impl FnOnce() + Send + 'static) -> Result<Mark> {
    let function = Box::new(move || {
        in_host_function(body);
        Counters::add(&COUNTERS.host_functions);
    });
    Ok(ctx.sim.call(slot, function)?)
}

/// Makes the stream wait for an event. The device supports waits within a context only; for an event of another context
/// the stream waits for a word that a thread of this library writes.
fn wait(ctx: &Arc<Ctx>, slot: Slot, event: &Event) -> Result<Mark> {
    if let Some(shared) = event.shared {
        return shared.hold(ctx, slot);
    }
    let other = event.context()?;
    if Arc::ptr_eq(ctx, &other) {
        ctx.sim.wait_event(slot, event.slot)?;
        return Ok(ctx.sim.end(slot)?);
    }
    let Some(mark) = other.sim.recorded(event.slot)? else { return Ok(ctx.sim.end(slot)?) };
    let offset = lock(&ctx.sim.heaps).host.alloc(4).ok_or(Error::OUT_OF_MEMORY)?;
    let sim = ctx.sim;
    let word = move || {
        // SAFETY: a word of the arena, allocated for this, aligned, and mapped for good.
        unsafe { AtomicU32::from_ptr(sim.address(offset).cast()) }
    };
    word().store(0, Release);
    let place = Place { region: 0, offset };
    let given = give(ctx, slot, Action::WaitValue { place, width: Width::Word, condition: Condition::Eq, value: 1 })?;
    client::spawn("fakecuda-wait", move || {
        // An end of the other context ends the wait too.
        let _ = other.sim.wait(mark);
        word().store(1, Release);
        if sim.wait(given).is_ok() {
            let _ = sim.release(offset, |heaps| &mut heaps.host);
        }
    })?;
    Ok(given)
}
