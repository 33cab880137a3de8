//! The scheduler's presence in an application: the shared segment, the agent thread, the connection to the daemon,
//! and, where a program asks for it, a scheduler of its own.
//!
//! [`start`] makes the [`Runtime`] and the thread. The thread never calls a vendor's driver: opening a gate is a store, and
//! otherwise it only talks to the daemon and decides when a group is idle.

mod choice;
mod connection;
mod local;
mod memory;
mod place;
mod report;
mod required;
mod worker;

use xsched_core::{Platform, Runtime};
use xsched_proto::Error;
use xsched_proto::settings::{Mode, Settings};
use xsched_proto::wire::Described;

pub use choice::{changed, has_local_policy};
pub use report::{say, say_debug, say_once, say_whole};
pub use required::{ENVIRONMENT, refuse};

/// Library that the agent lives in, as far as the agent needs it.
pub struct Host {
    /// Vendor interfaces, in the order that [`xsched_core::QueueSpec::platform`] counts them.
    pub platforms: &'static [&'static dyn Platform],
    /// Describes the process for `xsched doctor --pid`.
    pub describe: fn() -> Vec<Described>,
}

/// Makes the runtime of this process and starts its agent thread.
///
/// # Errors
/// One line, when the kernel refuses memory, descriptors or a thread; the application then runs unscheduled.
pub fn start(settings: Settings, host: Host) -> Result<&'static Runtime, Error> {
    if settings.required {
        if settings.mode == Mode::Unscheduled || !settings.auto_xqueue {
            return Err(Error::environment(
                "XSCHED_NO_DAEMON, XSCHED_SCHEDULER=APP or XSCHED_AUTO_XQUEUE=OFF asks for no scheduling",
            ));
        }
        required::guard_start();
    }
    let shared =
        memory::Shared::create().map_err(|e| Error::environment(format!("cannot make the shared segment: {e}")))?;
    let event = || {
        use rustix::event::{EventfdFlags, eventfd};
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::environment(format!("cannot make an eventfd: {e}")))
    };
    let runtime = Runtime::new(
        shared.segment,
        host.platforms,
        settings.options.priority.unwrap_or(0),
        settings.options.level,
        settings.options.hints.timeslice_us,
        event()?,
        event()?,
    );
    let runtime = runtime.with_memory_limit(settings.options.memory_limit);
    let runtime = if settings.auto_xqueue { runtime } else { runtime.without_queues() };
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    worker::spawn(runtime, settings, host, shared)?;
    Ok(runtime)
}
