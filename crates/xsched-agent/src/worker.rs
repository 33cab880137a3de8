//! The agent thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xsched_core::{Group, Registration, Runtime, Scheduler, journal, now_ns};
use xsched_flow::activity::Looks;
use xsched_flow::journal::Record;
use xsched_flow::timeline::Evidence;
use xsched_flow::tuning::{
    AGENT_STACK_BYTES, DESCRIPTION_LINES, GREETING_NS, LEASE_LOOK_NS, LOOK_NS, RARE_LOOK_LEAST_NS, RARE_LOOK_NS,
    REFUSED_NS, RETRY_NS,
};
use xsched_proto::Error;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::class::Class;
use xsched_proto::domains::DomainMode;
use xsched_proto::gate::Gate;
use xsched_proto::settings::{LOCAL_POLICY, Log, Mode, Settings};
use xsched_proto::variables;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Described};

use crate::connection::{Connection, Received};
use crate::local::Local;
use crate::memory::{HeartbeatPage, Pages, Shared};
use crate::{Host, place, required, say, say_once};

/// What decides, as far as it is known now.
enum Master {
    Unscheduled,
    /// Look for the daemon again at this time.
    Seeking {
        at: u64,
        wait: u64,
    },
    Greeted {
        connection: Connection,
        since: u64,
        wait: u64,
    },
    Daemon {
        connection: Connection,
    },
    Local(Box<Local>),
}

/// What was seen of a group by looking at it.
#[derive(Default)]
struct Seen {
    looks: Looks,
    /// Launches at the last rare look.
    launches: Option<u64>,
}

impl Seen {
    /// A look. Says whether a rare one is due.
    fn look(&mut self, now: u64, stopped: bool) -> bool {
        let before = self.looks;
        let due = self.looks.look(now, stopped);
        journal::record(|| Record::Look(before, now, stopped, due, self.looks));
        due
    }
}

struct Worker {
    rt: &'static Runtime,
    settings: Settings,
    host: Host,
    shared: Shared,
    heartbeat: HeartbeatPage,
    pages: Pages,
    master: Master,
    closed_since: u64,
    coarse_at: u64,
    /// By slot.
    seen: BTreeMap<u16, Seen>,
    interrupted: Vec<u16>,
    unscheduled_said: AtomicBool,
    /// Refusals of the daemon since a group of the program was last taken.
    refusals: u32,
    level_said: AtomicBool,
}

/// Starts the agent thread, with every signal blocked: handlers run on the application's own threads. Neither the processors nor the
/// policy of the thread that happens to start it are its own.
pub(crate) fn spawn(rt: &'static Runtime, settings: Settings, host: Host, shared: Shared) -> Result<(), Error> {
    let worker = Worker {
        rt,
        settings,
        host,
        shared,
        heartbeat: HeartbeatPage::default(),
        pages: Pages::default(),
        master: Master::Unscheduled,
        closed_since: 0,
        coarse_at: 0,
        seen: BTreeMap::new(),
        interrupted: Vec::new(),
        unscheduled_said: AtomicBool::new(false),
        refusals: 0,
        level_said: AtomicBool::new(false),
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
                // Nothing is left that could open a gate: open them all, for good, and let go on what was interrupted.
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
        let complaints = self.settings.complaints.iter().map(|line| (Log::Error, format!("{line}; the default holds")));
        let without_effect = self.settings.without_effect.iter().map(|(_, line)| (Log::Info, line.clone()));
        for (_, line) in complaints.chain(without_effect).filter(|(least, _)| self.settings.log >= *least) {
            say(&line);
        }
        self.master = self.begin();
        if self.settings.told {
            self.unscheduled_said.store(true, Relaxed);
        }
        loop {
            let mut timeout = self.serve_master();
            let mut sooner = |ns: Option<u64>| timeout = [timeout, ns].into_iter().flatten().min();
            sooner(self.look_for_idle());
            sooner(self.check_lease());
            if let Some(ns) = timeout {
                // A group that drains from now on need not wake this thread for a time at which it wakes anyway; one that
                // drained since the last look is seen now.
                self.rt.agent_sleeps_until(now_ns() + ns);
                let now = now_ns();
                // What is stopped does not drain, and there is nothing to decide of it.
                let drains = |group: &&Group| self.seen.get(&group.index()).is_none_or(|seen| !seen.looks.stopped);
                let due = self.rt.groups().filter(drains).filter_map(|g| g.idle_due_ns(self.rt, now)).min();
                timeout = due.into_iter().chain([ns]).min();
            }
            if !self.wait(timeout) {
                // The application closed our descriptors: it goes on without us, and we leave theirs alone.
                self.rt.detach_for_good();
                self.restore_interrupted();
                let text = "the program closed its descriptors, ours too: runs unscheduled from here on";
                say_once(&self.unscheduled_said, self.settings.log, Log::Info, text);
                return;
            }
            self.rt.agent_sleeps_until(u64::MAX);
        }
    }

    /// A line of `XSCHED_LOG=debug`.
    fn debug(&self, line: impl FnOnce() -> String) {
        if self.settings.log >= Log::Debug {
            crate::say_debug(&line());
        }
    }

    /// The scheduler inside this process. Where there is no policy of that name the default holds: the program is scheduled all the
    /// same.
    fn local(&self, policy: &str) -> Result<Local, Error> {
        match Local::new(policy, &self.settings.options) {
            Err(why @ Error::Input(_)) if !self.settings.required => {
                if self.settings.log >= Log::Error {
                    say(&format!("XSCHED_POLICY: {why}; the policy {LOCAL_POLICY} holds"));
                }
                Local::new(LOCAL_POLICY, &self.settings.options)
            }
            made => made,
        }
    }

    /// What decides at first.
    fn begin(&mut self) -> Master {
        self.debug(|| match &self.settings.mode {
            Mode::Unscheduled => "asks no scheduler".to_owned(),
            Mode::Daemon(socket) => format!("looks for its daemon at {}", socket.display()),
            Mode::Local(policy) => format!("schedules itself, by the policy {policy}"),
        });
        match &self.settings.mode {
            Mode::Unscheduled => {
                self.rt.detach();
                Master::Unscheduled
            }
            Mode::Daemon(_) => Master::Seeking { at: 0, wait: RETRY_NS.0 },
            Mode::Local(policy) => match self.local(policy) {
                Ok(local) => {
                    self.rt.attach(core::ptr::null_mut());
                    self.rt.set_priority(self.settings.options.priority.unwrap_or(0));
                    // There is no operator here.
                    let asked = self.settings.options.domains;
                    let mode = DomainMode::granted(asked, None);
                    self.rt.set_domains(mode);
                    if asked.is_some_and(|asked| asked > mode) && self.settings.log >= Log::Info {
                        say(&format!("XSCHED_DOMAINS=exempt needs a daemon with a rule for it: {} holds", mode.name()));
                    }
                    self.rt.set_streams_apart(false);
                    Master::Local(Box::new(local))
                }
                Err(e) => {
                    if self.is_starting() {
                        required::note(&e, true);
                    } else {
                        let text = format!("runs unscheduled: {e}");
                        say_once(&self.unscheduled_said, self.settings.log, Log::Error, &text);
                    }
                    self.rt.detach();
                    Master::Unscheduled
                }
            },
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
            // In this mode the daemon's eventfd is ours.
            Master::Local(_) => fds.push(PollFd::from_borrowed_fd(daemon_event, PollFlags::IN)),
            Master::Unscheduled | Master::Seeking { .. } => {}
        }
        let timespec =
            timeout.map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ });
        let _ = poll(&mut fds, timespec.as_ref());
        // They may have been closed while we slept.
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

    /// Talks to the daemon or the local gatekeeper. Returns after how many ns it wants to be called again at the latest.
    fn serve_master(&mut self) -> Option<u64> {
        let now = now_ns();
        if self.rt.is_over() {
            self.restore_interrupted();
            self.master = Master::Unscheduled;
        }
        let rt = self.rt;
        rt.take_choice(|scheduler| self.change_to(scheduler));
        self.rt.groups().for_each(|group| group.set_device_gates(self.rt));
        // Level 3 takes the whole context away: only where all of it is suspended together.
        if !self.rt.has_one_group() {
            self.restore_interrupted();
        }
        match core::mem::replace(&mut self.master, Master::Unscheduled) {
            Master::Unscheduled => {
                self.rt.take_outbox();
                for group in self.rt.groups() {
                    if !self.rt.segment().groups[usize::from(group.index())].gate.load().is_detached() {
                        group.set_registration(self.rt, Registration::Detached);
                    }
                }
                None
            }
            Master::Local(mut local) => {
                for message in self.rt.take_outbox() {
                    self.degrade(&message);
                    take_in(&mut local, self.rt, &message, self.settings.verbose);
                }
                let due = local.turn(self.rt);
                self.master = Master::Local(local);
                due
            }
            Master::Seeking { at, wait } => {
                // The next daemon is told of all there is then.
                self.rt.take_outbox();
                if now < at {
                    self.master = Master::Seeking { at, wait };
                    return Some(at - now);
                }
                let Mode::Daemon(path) = &self.settings.mode else { return None };
                let (Some(segment), Some(event)) = (self.shared.fd.get(), self.rt.daemon_event().get()) else {
                    self.rt.detach_for_good();
                    return Some(0);
                };
                match Connection::open(path, &self.settings.options, segment, event) {
                    Ok(connection) => {
                        self.master = Master::Greeted { connection, since: now, wait };
                        Some(0)
                    }
                    Err(why) => {
                        self.lose(&why, wait);
                        Some(wait)
                    }
                }
            }
            Master::Greeted { mut connection, since, wait } => match connection.receive() {
                Ok(None) if now - since > GREETING_NS => {
                    self.lose(&Error::environment("the daemon does not answer"), wait);
                    Some(wait)
                }
                Ok(None) => {
                    self.master = Master::Greeted { connection, since, wait };
                    Some(GREETING_NS)
                }
                Ok(Some(first)) => match self.welcome(&mut connection, first) {
                    Ok(()) => {
                        self.master = Master::Daemon { connection };
                        if std::mem::take(&mut self.settings.told) {
                            // Should this one go, that is news.
                            self.unscheduled_said.store(false, Relaxed);
                        }
                        Some(0)
                    }
                    Err(why) => {
                        let wait = self.lose_connection(&connection, &why, wait);
                        if self.is_starting() {
                            required::note(&why, true);
                        }
                        Some(wait)
                    }
                },
                Err(why) => Some(self.lose_connection(&connection, &why, wait)),
            },
            Master::Daemon { mut connection } => match self.serve_daemon(&mut connection) {
                Ok(()) => {
                    self.master = Master::Daemon { connection };
                    None
                }
                Err(why) => Some(self.lose_connection(&connection, &why, RETRY_NS.0)),
            },
        }
    }

    /// The program itself has chosen a scheduler. Gates are open until that one holds them.
    fn change_to(&mut self, scheduler: Scheduler) {
        self.rt.detach();
        self.restore_interrupted();
        match core::mem::replace(&mut self.master, Master::Unscheduled) {
            Master::Daemon { connection } | Master::Greeted { connection, .. } => connection.end(),
            Master::Unscheduled | Master::Seeking { .. } | Master::Local(_) => {}
        }
        self.settings.mode = crate::changed(&self.settings.mode, scheduler);
        self.master = self.begin();
        if let Master::Local(local) = &mut self.master {
            for message in self.rt.introduce() {
                take_in(local, self.rt, &message, self.settings.verbose);
            }
        }
    }

    /// Handles the end of a connection. A program that was refused asks again more and more rarely. Returns the wait before the next
    /// attempt, in ns.
    fn lose_connection(&mut self, connection: &Connection, why: &Error, wait: u64) -> u64 {
        if !connection.is_refused() {
            self.lose(why, wait);
            return wait;
        }
        let wait = (REFUSED_NS.0 << self.refusals.min(8)).min(REFUSED_NS.1);
        self.refusals += 1;
        if self.refusals == 1 {
            // The reason is news.
            self.unscheduled_said.store(false, Relaxed);
        }
        self.lose(why, wait);
        wait
    }

    /// There is no daemon (any more): gates open, the application goes on, and we look again later.
    fn lose(&mut self, why: &Error, wait: u64) {
        self.master = Master::Seeking { at: now_ns() + wait, wait: (wait * 2).min(RETRY_NS.1) };
        if self.is_starting() {
            // The launch that ends the program says so.
            required::note(why, false);
            self.rt.detach();
            return;
        }
        self.rt.detach();
        self.restore_interrupted();
        if self.settings.log >= Log::Debug {
            say(&format!("runs unscheduled for now: {why}"));
        } else {
            let until = if self.refusals > 0 { "the daemon takes it" } else { "a daemon answers" };
            let text = format!("runs unscheduled until {until}: {why}");
            say_once(&self.unscheduled_said, self.settings.log, Log::Info, &text);
        }
    }

    /// Whether the program must be scheduled and has not been so far.
    fn is_starting(&self) -> bool {
        self.settings.required && !self.rt.was_registered()
    }

    fn welcome(&mut self, connection: &mut Connection, (message, fd): Received) -> Result<(), Error> {
        let (priority, domains, streams_apart) = match message {
            DaemonMsg::Welcome { version, priority, domains, streams_apart, .. } if version == PROTOCOL_VERSION => {
                (priority, domains, streams_apart)
            }
            DaemonMsg::Welcome { version, .. } => {
                return Err(Error::environment(format!(
                    "the daemon speaks protocol {version}, this library {PROTOCOL_VERSION}"
                )));
            }
            DaemonMsg::Refused(why) => return Err(why.within("refused by the daemon")),
            _ => return Err(Error::environment("the daemon did not greet back")),
        };
        let page = fd.ok_or_else(|| Error::environment("the daemon sent no heartbeat page"))?;
        let heartbeat =
            self.heartbeat.map(&page).map_err(|e| Error::environment(format!("cannot map the heartbeat page: {e}")))?;
        // Before its priority: a thread that waits for that looks at this page next.
        self.rt.attach(heartbeat);
        self.rt.set_priority(priority);
        self.set_priority(priority);
        self.debug(|| format!("the daemon answers: class {}, priority {priority}", Class::of(priority)));
        // Before any gate of this daemon's can hold a launch.
        self.rt.set_domains(domains);
        self.rt.set_streams_apart(streams_apart);
        for message in self.rt.introduce() {
            self.degrade(&message);
            connection.send(&message)?;
        }
        Ok(())
    }

    fn serve_daemon(&mut self, connection: &mut Connection) -> Result<(), Error> {
        if self.rt.is_detached() {
            // At its end the program itself has opened its gates, perhaps only just: nothing needs to be told.
            return if self.rt.is_over() { Ok(()) } else { Err(Error::environment("the daemon was silent")) };
        }
        connection.push()?;
        for message in self.rt.take_outbox() {
            self.degrade(&message);
            connection.send(&message)?;
        }
        let mut timeslices = BTreeMap::new();
        while let Some((message, fd)) = connection.receive()? {
            match message {
                DaemonMsg::Backlog { page, epoch, own } => {
                    // Without it nobody is told how this program keeps up, or it does not yield: its gate holds as ever.
                    let fd = fd.filter(|_| may_yield());
                    let mapped = fd.and_then(|fd| self.pages.map((!own).then_some(page), fd).ok());
                    match mapped {
                        Some(mapped) if own => self.rt.set_own_page(mapped),
                        Some(mapped) => self.rt.set_page(page, epoch, mapped),
                        None => {}
                    }
                }
                DaemonMsg::GroupAdded { slot, priority, policy, .. } => {
                    if let Some(group) = self.rt.groups().find(|g| g.index() == slot) {
                        if self.settings.verbose || self.settings.log >= Log::Debug {
                            crate::say_attached(self.rt, slot, priority, &policy);
                        }
                        group.set_registration(self.rt, Registration::Attached);
                        self.refusals = 0;
                    }
                }
                DaemonMsg::QueuePriority { slot, priority } => self.rt.move_queue(slot, priority),
                DaemonMsg::Interrupt { slot, on } => {
                    self.interrupted.retain(|s| *s != slot);
                    if !on || self.rt.has_one_group() {
                        if on {
                            self.interrupted.push(slot);
                        }
                        if !self.interrupt(slot, on) {
                            self.interrupted.retain(|s| *s != slot);
                            self.lower(connection, slot)?;
                        }
                    }
                }
                DaemonMsg::Priority { priority } => {
                    self.debug(|| format!("its priority is {priority} now, class {}", Class::of(priority)));
                    self.set_priority(priority);
                }
                DaemonMsg::Timeslice { slot, us } => _ = timeslices.insert(slot, us),
                DaemonMsg::Note { text } => {
                    // Another one each time: the daemon tells each thing once.
                    say_once(&AtomicBool::new(false), self.settings.log, Log::Info, &text);
                }
                DaemonMsg::Describe { token } => self.describe(connection, token)?,
                DaemonMsg::Refused(why) => return Err(why.within("refused by the daemon")),
                _ => {}
            }
        }
        // Last, and only the newest: it may take the driver milliseconds, in which others wait for us.
        for (slot, us) in timeslices {
            if let Some((device, platform)) = self.rt.device_of(slot) {
                platform.set_timeslice(&device, us);
            }
        }
        Ok(())
    }

    fn describe(&self, connection: &mut Connection, token: u64) -> Result<(), Error> {
        let mut lines = (self.host.describe)();
        lines.extend(self.rt.queues().map(|q| Described::Queue {
            handle: q.handle().addr() as u64,
            slot: q.index(),
            group: q.group(self.rt).index(),
        }));
        while lines.len() > DESCRIPTION_LINES {
            let rest = lines.split_off(DESCRIPTION_LINES);
            connection.send(&ClientMsg::Description { token, more: true, lines })?;
            lines = rest;
        }
        connection.send(&ClientMsg::Description { token, more: false, lines })
    }

    fn restore_interrupted(&mut self) {
        for slot in core::mem::take(&mut self.interrupted) {
            self.interrupt(slot, false);
        }
    }

    fn interrupt(&self, slot: u16, on: bool) -> bool {
        self.rt.device_of(slot).is_none_or(|(device, platform)| platform.interrupt(&device, on))
    }

    /// Tells the daemon that a group has lost a level.
    fn lower(&self, connection: &mut Connection, slot: u16) -> Result<(), Error> {
        let Some((device, platform)) = self.rt.device_of(slot) else { return Ok(()) };
        connection.send(&ClientMsg::Levels { slot, levels: platform.levels(&device) })
    }

    /// Hardware that has priorities of its own follows the program's.
    fn set_priority(&self, priority: i32) {
        for platform in self.host.platforms {
            platform.set_priority(self.rt, priority);
        }
    }

    /// Says once when a level was asked for that the device lacks.
    fn degrade(&self, message: &ClientMsg) {
        let ClientMsg::GroupAdd { device, platform, levels, .. } = message else { return };
        self.debug(|| {
            format!("first XQueue of a group on {device} through {}, which can do {levels}", platform.name())
        });
        let Some(wanted) = self.settings.options.level else { return };
        if !levels.has(wanted) {
            let used = levels.highest_to(wanted);
            let text = format!(
                "preemption level {wanted} is not available on {device} through {}: using level {used}",
                platform.name()
            );
            say_once(&self.level_said, self.settings.log, Log::Error, &text);
        }
    }

    /// Decides which groups are idle. Returns in how many ns to look again.
    fn look_for_idle(&mut self) -> Option<u64> {
        let rt = self.rt;
        let now = now_ns();
        let mut due: Option<u64> = None;
        let mut sooner = |ns: u64| due = Some(due.map_or(ns, |d| d.min(ns)));
        let coarse = now >= self.coarse_at;
        let mut any_coarse = false;
        for group in rt.groups() {
            if let Some(ns) = rt.look_inside(group) {
                sooner(ns);
                continue;
            }
            let index = usize::from(group.index());
            let gate = rt.segment().groups[index].gate.load();
            if gate.has(Gate::MUST_ANNOUNCE | Gate::DETACHED) {
                continue;
            }
            let held_inside = group.is_held_inside(rt);
            let stopped = held_inside || self.interrupted.contains(&group.index());
            let seen = self.seen.entry(group.index()).or_default();
            let coarse = seen.look(now, stopped) && coarse;
            if stopped && !rt.is_quiet(group) {
                any_coarse = true;
                // Nothing tells when its gate opens.
                if held_inside {
                    sooner(LOOK_NS);
                }
                continue;
            }
            if coarse {
                seen.looks.looked();
            }
            // Without rivals, or where the device tells of fenced commands only and perhaps of none: a group that launched
            // nothing for a while is idle.
            if !gate.is_contended() || group.is_polled(rt) {
                any_coarse = true;
                if coarse {
                    let launches = Some(group.launches(rt));
                    let same = core::mem::replace(&mut seen.launches, launches) == launches;
                    if same && group.try_idle(rt, false).is_some() {
                        continue;
                    }
                }
            }
            if !gate.is_contended() {
                continue;
            }
            any_coarse = true;
            group.release_held(rt, now);
            if coarse {
                rt.presume(group, Evidence::Silence);
                group.update_idle_state(rt);
            }
            match group.idle_due_ns(rt, now) {
                Some(0) if group.try_idle(rt, true).is_some() => {}
                Some(0) => sooner(LOOK_NS),
                Some(ns) => sooner(ns),
                None if group.is_polled(rt) => {
                    if group.activity(rt, now).is_late() {
                        rt.presume(group, Evidence::Overdue);
                    }
                    group.update_idle_state(rt);
                    let activity = group.activity(rt, now);
                    sooner(activity.grace_left_ns().unwrap_or(activity.look_ns()));
                }
                None => {}
            }
        }
        if any_coarse {
            if coarse {
                self.coarse_at = now + RARE_LOOK_NS;
            }
            sooner(self.coarse_at.saturating_sub(now).max(RARE_LOOK_LEAST_NS));
        }
        due
    }

    /// Opens the gates when the daemon that closed them is silent. One that has opened a gate and not yet said that the group is to
    /// go on on the device holds it all the same.
    fn check_lease(&mut self) -> Option<u64> {
        let held = self.rt.some_gate_is_closed() || !self.interrupted.is_empty();
        if !matches!(self.master, Master::Daemon { .. }) || !held {
            self.closed_since = 0;
            return None;
        }
        let now = now_ns();
        if self.closed_since == 0 {
            self.closed_since = now;
        }
        if self.rt.daemon_is_silent(now, self.closed_since) {
            self.lose(&Error::environment("the daemon is silent"), RETRY_NS.0);
        }
        Some(LEASE_LOOK_NS)
    }
}

/// A scheduler inside the process takes a message, and says what became of it if that is asked for.
fn take_in(local: &mut Local, rt: &Runtime, message: &ClientMsg, verbose: bool) {
    local.take(rt, message);
    if verbose
        && let ClientMsg::GroupAdd { slot, .. } = message
        && let Some((priority, policy)) = local.said_of(*slot)
    {
        crate::say_attached(rt, *slot, priority, policy);
    }
}

/// True unless the environment of this process forbids it to yield, and others to yield to it.
fn may_yield() -> bool {
    variables::text("XSCHED_YIELD").and_then(|text| variables::flag(&text)) != Some(false)
}
