//! The scheduler's presence in an application: the shared segment, the agent thread, the connection to the daemon,
//! and, where a program asks for it, a scheduler of its own.
//!
//! [`start`] makes the [`Runtime`] and the thread. The thread never calls a vendor's driver: opening a gate is a
//! store, and everything else it does is talk to the daemon and decide when a group is idle.

mod connection;
mod local;
mod memory;
mod place;
mod required;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use xsched_core::{Platform, Runtime, Scheduler};
use xsched_proto::Error;
use xsched_proto::settings::{Log, Mode, Settings};
use xsched_proto::text::escaped;
use xsched_proto::wire::Described;
use xsched_proto::writing;

pub use required::refuse;

/// What the agent asks of the library it lives in.
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
    let runtime = if settings.auto_xqueue { runtime } else { runtime.without_queues() };
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    worker::spawn(runtime, settings, host, shared)?;
    Ok(runtime)
}

/// What decides when the program itself has chosen this.
pub fn changed(mode: &Mode, scheduler: Scheduler) -> Mode {
    match (scheduler, mode) {
        (Scheduler::Application, _) => Mode::Unscheduled,
        (Scheduler::Local(policy), _) => Mode::Local(policy),
        (Scheduler::Daemon, Mode::Daemon(path)) => Mode::Daemon(path.clone()),
        (Scheduler::Daemon, _) => Mode::Daemon(xsched_proto::paths::socket_path(None).0),
    }
}

/// Whether a policy of this name can decide inside a process.
pub fn has_local_policy(name: &str) -> bool {
    local::Local::new(name, &xsched_proto::wire::ProgramOptions::default()).is_ok()
}

/// Says something on stderr unless it was `said`. (No `Once`: if a thread is at it while another forks, it never ends in
/// the child.)
pub fn say_once(said: &AtomicBool, log: Log, least: Log, text: &str) {
    if log >= least && !said.swap(true, Relaxed) {
        say(text);
    }
}

/// With `XSCHED_VERBOSE=1`: a group is scheduled, and how.
fn say_attached(rt: &Runtime, slot: u16, priority: i32, policy: &str) {
    if let Some((device, _)) = rt.device_of(slot) {
        let level = rt.segment().groups[usize::from(slot)].level.load(Relaxed);
        say(&format!("attached: {device}, level {level}, policy {policy}, priority {priority}"));
    }
}

/// Writes one line of what is told with `XSCHED_LOG=debug`: of several processes that write to one place, it says which.
pub fn say_debug(text: &str) {
    say(&format!("debug: process {}: {text}", std::process::id()));
}

/// Writes one line to stderr, in one piece. A closed or redirected stderr is no reason to fail.
pub fn say(text: &str) {
    let line = format!("xsched: {}\n", escaped(text));
    // SAFETY: descriptor 2 is only written to; if it is closed the write fails, which is ignored.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = writing::without_signals(|| rustix::io::write(stderr, line.as_bytes()));
}
