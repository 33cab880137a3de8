//! Messages of the library on stderr, one line each.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use xsched_core::Runtime;
use xsched_proto::settings::Log;
use xsched_proto::text::escaped;
use xsched_proto::wire::ClientMsg;
use xsched_proto::writing;

/// Writes one line to stderr, in one piece. A closed or redirected stderr is no reason to fail.
pub fn say(text: &str) {
    let line = format!("xsched: {}\n", escaped(text));
    // SAFETY: descriptor 2 is only written to; if it is closed the write fails, which is ignored.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = writing::without_signals(|| rustix::io::write(stderr, line.as_bytes()));
}

/// Writes a whole line to stderr without memory of the heap, for a child whose heap another thread of its parent may have locked.
pub fn say_whole(line: &'static str) {
    // SAFETY: as above.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = writing::without_signals(|| rustix::io::write(stderr, line.as_bytes()));
}

/// Writes a line to stderr unless it was `said`. (No `Once`: a child that is forked while another thread is inside one waits for
/// ever.)
pub fn say_once(said: &AtomicBool, log: Log, least: Log, text: &str) {
    if log >= least && !said.swap(true, Relaxed) {
        say(text);
    }
}

/// Writes one line of `XSCHED_LOG=debug`. It names the process, since several may write to one place.
pub fn say_debug(text: &str) {
    say(&format!("debug: process {}: {text}", std::process::id()));
}

/// Reports of the agent thread, as far as the program's settings ask for them.
pub(crate) struct Reporter {
    log: Log,
    /// `XSCHED_VERBOSE=1`.
    verbose: bool,
    unscheduled_said: AtomicBool,
    level_said: AtomicBool,
}

impl Reporter {
    pub(crate) fn new(log: Log, verbose: bool) -> Reporter {
        Reporter { log, verbose, unscheduled_said: AtomicBool::new(false), level_said: AtomicBool::new(false) }
    }

    /// Reports a line of this importance.
    pub(crate) fn line(&self, least: Log, text: &str) {
        if self.log >= least {
            say(text);
        }
    }

    /// Reports a line of `XSCHED_LOG=debug`.
    pub(crate) fn debug(&self, line: impl FnOnce() -> String) {
        if self.log >= Log::Debug {
            say_debug(&line());
        }
    }

    /// Reports once that the program runs unscheduled.
    pub(crate) fn unscheduled(&self, least: Log, text: &str) {
        say_once(&self.unscheduled_said, self.log, least, text);
    }

    /// Notes if the user knows already that the program runs unscheduled.
    pub(crate) fn set_unscheduled_said(&self, said: bool) {
        self.unscheduled_said.store(said, Relaxed);
    }

    /// Reports that the daemon is lost, or has refused the program; with `XSCHED_LOG=debug` each time, and why.
    pub(crate) fn daemon_lost(&self, why: &xsched_proto::Error, refused: bool) {
        if self.log >= Log::Debug {
            say(&format!("runs unscheduled for now: {why}"));
        } else {
            let until = if refused { "the daemon takes it" } else { "a daemon answers" };
            self.unscheduled(Log::Info, &format!("runs unscheduled until {until}: {why}"));
        }
    }

    /// Reports a group that the daemon has taken, if that is asked for.
    pub(crate) fn attached_to_daemon(&self, rt: &Runtime, slot: u16, priority: i32, policy: &str) {
        if self.verbose || self.log >= Log::Debug {
            say_attached(rt, slot, priority, policy);
        }
    }

    /// Reports a group that the scheduler in the process has taken, if that is asked for.
    pub(crate) fn attached_locally(&self, rt: &Runtime, slot: u16, said: impl FnOnce() -> Option<(i32, &'static str)>) {
        if self.verbose
            && let Some((priority, policy)) = said()
        {
            say_attached(rt, slot, priority, policy);
        }
    }

    /// Reports a new group, and once that its device lacks the level that was asked for.
    pub(crate) fn group_added(&self, message: &ClientMsg, wanted: Option<u8>) {
        let ClientMsg::GroupAdd { device, platform, levels, .. } = message else { return };
        self.debug(|| {
            format!("first XQueue of a group on {device} through {}, which can do {levels}", platform.name())
        });
        if let Some(wanted) = wanted.filter(|wanted| !levels.has(*wanted)) {
            let used = levels.highest_to(wanted);
            let text = format!(
                "preemption level {wanted} is not available on {device} through {}: using level {used}",
                platform.name()
            );
            say_once(&self.level_said, self.log, Log::Error, &text);
        }
    }
}

/// With `XSCHED_VERBOSE=1`: a group is scheduled, and how.
fn say_attached(rt: &Runtime, slot: u16, priority: i32, policy: &str) {
    if let Some((device, _)) = rt.device_of(slot) {
        let level = rt.segment().groups[usize::from(slot)].level.load(Relaxed);
        say(&format!("attached: {device}, level {level}, policy {policy}, priority {priority}"));
    }
}
