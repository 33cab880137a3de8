//! The choice of a scheduler by the program itself.

use xsched_core::Scheduler;
use xsched_proto::settings::Mode;

use crate::local::Local;

/// Mode of the process once the program has chosen this scheduler.
pub fn changed(mode: &Mode, scheduler: Scheduler) -> Mode {
    match (scheduler, mode) {
        (Scheduler::Application, _) => Mode::Unscheduled,
        (Scheduler::Local(policy), _) => Mode::Local(policy),
        (Scheduler::Daemon, Mode::Daemon(path)) => Mode::Daemon(path.clone()),
        (Scheduler::Daemon, _) => Mode::Daemon(xsched_proto::paths::socket_path(None).0),
    }
}

/// Tells if a policy of this name can decide inside a process.
pub fn has_local_policy(name: &str) -> bool {
    Local::new(name, &xsched_proto::wire::ProgramOptions::default()).is_ok()
}
