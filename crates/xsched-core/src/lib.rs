//! The way between an application's launch and the driver: XQueues, the groups they are suspended in, and the accounting that finds
//! when a group is ready, idle or drained.
//!
//! - [`XQueue`] stands over one hardware queue (a stream, a command queue). It counts launches, and while another group shares the
//!   device it also follows completions and keeps the device time in flight within a budget.
//! - [`Group`] is the unit of suspension: one gate word in shared memory for all its queues.
//! - [`Registry`] has both and finds the XQueue of a handle; [`fast_path::pass`] is the fast path to it.
//! - [`Runtime`] composes the registry with the port to the agent thread, the daemon's page and the estimates.
//! - [`inspect`] finds the origin of launches, for pass-through rules and reports; off unless asked for.
//! - [`Platform`] is the little that this crate must ask of a vendor interface.
//!
//! Calls between modules go one way. Application threads and the agent come in through `fast_path`, `remember`, `admit`, `sync` or
//! `membership`; they wait in `waiting` and `yielding`, which lend priority by `inherit`; `activity` and `device_gates` follow from
//! `completion`; all of them reach the agent and the daemon by `attachment`, and queues and groups in `registry`. Beside them,
//! `device_memory` has the accounts of memory, by device.
//!
//! No vendor function is called from here and nothing is reordered: the application's own call goes on into the driver as soon as
//! [`XQueue::admit`] returns, and [`XQueue::commit`] takes the driver's answer.

// Tests in this crate include files that they share with those beside it.
#[cfg(test)]
extern crate self as xsched_core;

mod activity;
mod admit;
mod agent_port;
mod attachment;
mod backlog_pages;
mod blocks;
mod clock;
mod completion;
mod daemon_page;
mod descriptor;
mod device_gates;
mod device_memory;
mod estimate;
pub mod fast_path;
mod gate_conditions;
mod group;
mod hold;
mod inherit;
pub mod inspect;
pub mod journal;
#[cfg(test)]
mod learning;
#[cfg(test)]
mod lengths;
mod membership;
mod memory_questions;
#[cfg(test)]
#[path = "../tests/nothing/mod.rs"]
mod nothing;
mod origin;
mod protocol;
mod queue;
mod registry;
mod remember;
pub mod residency;
mod runtime;
mod sync;
pub mod thread;
mod timeline;
mod used;
mod waiting;
mod yielding;

pub use admit::{Admission, Work};
pub use agent_port::Scheduler;
pub use attachment::{Unscheduled, require_registration};
pub use backlog_pages::Yielded;
pub use clock::now_ns;
pub use descriptor::{Descriptor, close_all_in_child};
pub use estimate::PARTS;
pub use group::Group;
pub use hold::Hold;
pub use inherit::{HoldsAll, Inheritance, ask_before_waiting};
pub use memory_questions::{MemoryAnswer, Room};
pub use protocol::registration::Registration;
pub use queue::{CompletionFence, XQueue};
pub use registry::{QueueSpec, Registry};
pub use runtime::Runtime;
pub use sync::Waiting;
pub use waiting::{MemoryWait, RunsHandlers, ask_at_signals};

/// Vendor interface, as far as the core needs it. One static per platform.
pub trait Platform: Sync + Send + 'static {
    /// Name of the interface.
    fn kind(&self) -> xsched_proto::wire::Platform;

    /// Preemption levels that the interface can do on a device.
    fn levels(&self, device: &str) -> xsched_proto::wire::Levels;

    /// Sharing of a device between this process's contexts and those of others.
    fn sharing(&self, _device: &str) -> xsched_proto::wire::Sharing {
        xsched_proto::wire::Sharing::Time
    }

    /// Function that makes the commands already handed to the driver begin, if this driver may put that off. It runs on an
    /// application thread that is about to block, and must keep the queue alive until it is done: this call is made with a lock held
    /// that the queue's destruction waits for, and must not block.
    fn flusher(&self, queue: &XQueue) -> Option<Box<dyn FnOnce()>>;

    /// True: completions are reported by [`XQueue::complete`]; otherwise the device writes the number of completed commands into the
    /// queue's completion word.
    fn reports_completion(&self) -> bool;

    /// Level 3: interrupts the running command of a device's context, or lets it go on. Called on the agent thread: must not block
    /// and must not take a lock of the driver. False: the device cannot do it any more, nothing is interrupted, and
    /// [`Platform::levels`] reflects that from now on.
    fn interrupt(&self, _device: &str, _on: bool) -> bool {
        true
    }

    /// Takes the program's priority from the daemon or the local gatekeeper, for hardware that has priorities of its own. Called on
    /// the agent thread, under the same rules.
    fn set_priority(&self, _rt: &Runtime, _priority: i32) {}

    /// Commands that the program has put into a queue which it fills by itself, without a call that could be seen, and the commands
    /// of it that the device has taken. Called on the agent thread; reads memory only. The queue is not destroyed meanwhile.
    fn filled(&self, _queue: &XQueue) -> Option<(u64, u64)> {
        None
    }

    /// Level 3 by the hardware's own time slices: gives the contexts of this process on a device another slice, in µs. Called on the
    /// agent thread: must not take a lock of the driver.
    fn set_timeslice(&self, _device: &str, _us: u64) {}

    /// Has the memory of this process in a slot leave its device or come back, and reports by [`Runtime::memory_moved`] what became of
    /// it. Called on the agent thread, which does not wait for that. False: none of it can move.
    fn move_memory(&self, _slot: u16, _number: u32, _order: xsched_proto::wire::MemoryOrder) -> bool {
        false
    }
}
