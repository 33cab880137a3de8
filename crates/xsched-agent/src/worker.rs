//! The agent thread: serves the scheduler that decides, polls the groups, and sleeps until there is something to do.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xsched_core::{Runtime, now_ns};
use xsched_flow::tuning::AGENT_STACK_BYTES;
use xsched_proto::Error;
use xsched_proto::settings::{Log, Settings};

use crate::memory::{HeartbeatPage, Pages, Shared};
use crate::report::Reporter;
use crate::{Host, place};

mod idle;
mod interrupts;
mod master;
mod session;

use idle::Polls;
use interrupts::Interrupts;
use master::Master;

/// The agent thread's state.
struct Worker {
    rt: &'static Runtime,
    settings: Settings,
    host: Host,
    shared: Shared,
    heartbeat: HeartbeatPage,
    pages: Pages,
    master: Master,
    /// Time since which some gate is seen closed, in ns; 0 = none is.
    closed_since: u64,
    polls: Polls,
    interrupts: Interrupts,
    report: Reporter,
    /// Refusals of the daemon since a group of the program was last taken.
    refusals: u32,
}

/// Starts the agent thread, with every signal blocked: handlers run on the application's own threads. Neither the processors nor the
/// policy of the thread that happens to start it are its own.
pub(crate) fn spawn(rt: &'static Runtime, settings: Settings, host: Host, shared: Shared) -> Result<(), Error> {
    let worker = Worker {
        rt,
        report: Reporter::new(settings.log, settings.verbose),
        settings,
        host,
        shared,
        heartbeat: HeartbeatPage::default(),
        pages: Pages::default(),
        master: Master::Unscheduled,
        closed_since: 0,
        polls: Polls::default(),
        interrupts: Interrupts::default(),
        refusals: 0,
    };
    // SAFETY: sigset_t is plain data; the functions fill it and change this thread's mask only, which is restored.
    let mut old: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
    }
    let started =
        std::thread::Builder::new().name("xsched-agent".into()).stack_size(AGENT_STACK_BYTES).spawn(move || {
            let rt = worker.rt;
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run())).is_err() {
                // Nothing is left that could open a gate: open them all, for good, and resume interrupted contexts.
                rt.detach();
                for (device, platform) in rt.groups().filter_map(|group| rt.device_of(group.index())) {
                    platform.interrupt(&device, false);
                }
            }
        });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut()) };
    started
        .map(|agent| place::free(&agent))
        .map_err(|e| Error::environment(format!("cannot start the agent thread: {e}")))
}

impl Worker {
    fn run(mut self) {
        place::take_nice_value();
        xsched_proto::wakeup::run_promptly();
        for line in &self.settings.complaints {
            self.report.line(Log::Error, &format!("{line}; the default holds"));
        }
        for (_, line) in &self.settings.without_effect {
            self.report.line(Log::Info, line);
        }
        self.master = self.begin();
        if self.settings.told {
            self.report.set_unscheduled_said(true);
        }
        loop {
            let mut timeout = self.serve_master();
            let mut sooner = |ns: Option<u64>| timeout = [timeout, ns].into_iter().flatten().min();
            sooner(self.polls.poll(self.rt, &self.interrupts));
            sooner(self.check_lease());
            if let Some(ns) = timeout {
                // A group that drains from now on need not wake this thread for a time at which it wakes anyway; one that
                // drained since the last poll is seen now.
                self.rt.agent_sleeps_until(now_ns() + ns);
                timeout = self.polls.idle_due_ns(self.rt).into_iter().chain([ns]).min();
            }
            if !self.wait(timeout) {
                // The application closed our descriptors: it goes on without us, and we leave theirs alone.
                self.rt.detach_for_good();
                self.interrupts.restore(self.rt);
                let text = "the program closed its descriptors, ours too: runs unscheduled from here on";
                self.report.unscheduled(Log::Info, text);
                return;
            }
            self.rt.agent_sleeps_until(u64::MAX);
        }
    }

    /// Sleeps until the daemon or an application thread has something, or `timeout` ns have passed. False when there
    /// is no telling any more.
    #[must_use]
    fn wait(&mut self, timeout: Option<u64>) -> bool {
        let (Some(event), Some(daemon_event)) = (self.rt.agent_event().get(), self.rt.daemon_event().get()) else {
            return false;
        };
        let mut fds = vec![PollFd::from_borrowed_fd(event, PollFlags::IN)];
        match &self.master {
            Master::Greeted { connection, .. } | Master::Daemon { connection } => {
                let out = if connection.has_backlog() { PollFlags::OUT } else { PollFlags::empty() };
                let Some(socket) = connection.socket() else { return false };
                fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN | out));
            }
            // The daemon's eventfd wakes the scheduler in this process then.
            Master::Local(_) => fds.push(PollFd::from_borrowed_fd(daemon_event, PollFlags::IN)),
            Master::Unscheduled | Master::Seeking { .. } => {}
        }
        let timespec =
            timeout.map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ });
        let _ = poll(&mut fds, timespec.as_ref());
        // The application may have closed the descriptors while this thread slept.
        let (Some(event), Some(daemon_event)) = (self.rt.agent_event().get(), self.rt.daemon_event().get()) else {
            return false;
        };
        let mut drained = [0; 8];
        let _ = rustix::io::read(event, &mut drained);
        if matches!(self.master, Master::Local(_)) {
            let _ = rustix::io::read(daemon_event, &mut drained);
        }
        true
    }
}
