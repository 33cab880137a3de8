//! Tables of the objects behind handles.

use std::collections::HashMap;
use std::sync::Arc;

use xsched_capi::types::XResult;

use super::command::Command;
use super::queue::Queue;
use crate::enabled::{CUDA, HIP, OPENCL};
use crate::lock::Lock;
use crate::platform::hal::HardwareQueue;

/// A vendor's interface. One address may be a queue of several interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Cuda,
    Hip,
    OpenCl,
}

impl Kind {
    /// Number of its platform, see [`crate::enabled`].
    pub(super) fn platform(self) -> u8 {
        match self {
            Kind::Cuda => CUDA,
            Kind::Hip => HIP,
            Kind::OpenCl => OPENCL,
        }
    }
}

/// A hardware queue, with its handle.
pub(super) struct Hardware {
    pub(super) handle: u64,
    pub(super) kind: Kind,
    pub(super) queue: Arc<dyn HardwareQueue>,
}

#[derive(Default)]
pub(super) struct Tables {
    last: u64,
    hardware: HashMap<u64, Arc<Hardware>>,
    queues: HashMap<u64, Arc<Queue>>,
    commands: HashMap<u64, Arc<Command>>,
}

static TABLES: Lock<Tables> = Lock::new();

/// Accesses the tables, which are locked meanwhile: `look` must not wait, nor access the tables itself.
pub(super) fn with<T>(look: impl FnOnce(&mut Tables) -> T) -> T {
    look(&mut TABLES.lock())
}

/// Abandons the tables, in a forked child.
pub(super) fn forget() {
    TABLES.forget();
}

fn known<T>(table: &HashMap<u64, Arc<T>>, handle: u64) -> Result<Arc<T>, XResult> {
    table.get(&handle).cloned().ok_or(XResult::NOT_FOUND)
}

impl Tables {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Hardware queue behind a handle.
    pub(super) fn hardware(&self, handle: u64) -> Result<Arc<Hardware>, XResult> {
        known(&self.hardware, handle)
    }

    /// Handle of a hardware queue, if it has one.
    pub(super) fn handle_of(&self, kind: Kind, key: usize) -> Option<u64> {
        self.hardware.values().find(|h| h.kind == kind && h.queue.key() == key).map(|h| h.handle)
    }

    /// Adds a hardware queue, and returns its handle.
    pub(super) fn add_hardware(&mut self, kind: Kind, queue: Arc<dyn HardwareQueue>) -> u64 {
        let handle = self.next();
        self.hardware.insert(handle, Arc::new(Hardware { handle, kind, queue }));
        handle
    }

    pub(super) fn remove_hardware(&mut self, handle: u64) -> Result<(), XResult> {
        if self.over(handle).is_some() {
            return Err(XResult::NOT_ALLOWED);
        }
        self.hardware.remove(&handle).map(drop).ok_or(XResult::NOT_FOUND)
    }

    /// XQueue behind a handle.
    pub(super) fn queue(&self, handle: u64) -> Result<Arc<Queue>, XResult> {
        known(&self.queues, handle)
    }

    /// Handle of the XQueue over a hardware queue.
    pub(super) fn over(&self, hardware: u64) -> Option<u64> {
        self.queues.values().find(|queue| queue.hardware().handle == hardware).map(|queue| queue.handle())
    }

    /// Makes an XQueue over a hardware queue that has none, and returns its handle.
    pub(super) fn add_queue(
        &mut self,
        hardware: u64,
        make: impl FnOnce(u64, Arc<Hardware>) -> Arc<Queue>,
    ) -> Result<u64, XResult> {
        let below = self.hardware(hardware)?;
        if self.over(hardware).is_some() {
            return Err(XResult::NOT_ALLOWED);
        }
        let handle = self.next();
        self.queues.insert(handle, make(handle, below));
        Ok(handle)
    }

    pub(super) fn remove_queue(&mut self, handle: u64) -> Result<Arc<Queue>, XResult> {
        self.queues.remove(&handle).ok_or(XResult::NOT_FOUND)
    }

    /// Command behind a handle.
    pub(super) fn command(&self, handle: u64) -> Result<Arc<Command>, XResult> {
        known(&self.commands, handle)
    }

    pub(super) fn add_command(&mut self, command: Command) -> u64 {
        let handle = self.next();
        self.commands.insert(handle, Arc::new(command));
        handle
    }

    /// Removes the handle of a command. A queue that holds the command keeps it.
    pub(super) fn remove_command(&mut self, handle: u64) -> Result<(), XResult> {
        self.commands.remove(&handle).map(drop).ok_or(XResult::NOT_FOUND)
    }
}
