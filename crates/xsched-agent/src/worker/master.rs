//! The scheduler that decides for this process: none, the one inside the process, or the daemon, which is sought, greeted and served.

use std::path::Path;

use xsched_core::{Registration, Scheduler, now_ns};
use xsched_flow::tuning::{ASK_AGAIN_MAX_NS, GREETING_NS, LEASE_LOOK_NS, REFUSED_NS, RETRY_NS};
use xsched_proto::Error;
use xsched_proto::domains::DomainMode;
use xsched_proto::settings::{LOCAL_POLICY, Log, Mode};
use xsched_proto::wire::ClientMsg;

use super::Worker;
use crate::choice::changed;
use crate::connection::{Connection, Received};
use crate::local::Local;
use crate::required;

/// The scheduler that decides for this process now.
pub(super) enum Master {
    /// No scheduler: every gate is open.
    Unscheduled,
    /// The daemon, which is sought again `at` this time.
    Seeking { at: u64, wait: u64 },
    /// The daemon, which has yet to answer.
    Greeted { connection: Connection, since: u64, wait: u64 },
    /// The daemon, to which the process is attached.
    Daemon { connection: Connection },
    /// The one inside the process.
    Local(Box<Local>),
}

impl Worker {
    /// Begins with the scheduler that the settings name.
    pub(super) fn begin(&mut self) -> Master {
        self.report.debug(|| match &self.settings.mode {
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
                Ok(local) => self.begin_local(local),
                Err(why) => {
                    if self.is_starting() {
                        required::note(&why, true);
                    } else {
                        self.report.unscheduled(Log::Error, &format!("runs unscheduled: {why}"));
                    }
                    self.rt.detach();
                    Master::Unscheduled
                }
            },
        }
    }

    /// Makes the scheduler inside this process. Where there is no policy of that name the default holds: the program is scheduled all
    /// the same.
    fn local(&self, policy: &str) -> Result<Local, Error> {
        match Local::new(policy, &self.settings.options) {
            Err(why @ Error::Input(_)) if !self.settings.required => {
                self.report.line(Log::Error, &format!("XSCHED_POLICY: {why}; the policy {LOCAL_POLICY} holds"));
                Local::new(LOCAL_POLICY, &self.settings.options)
            }
            made => made,
        }
    }

    fn begin_local(&self, local: Local) -> Master {
        self.rt.attach(core::ptr::null_mut());
        self.rt.set_priority(self.settings.options.priority.unwrap_or(0));
        // There is no operator here.
        let asked = self.settings.options.domains;
        let mode = DomainMode::granted(asked, None);
        self.rt.set_domains(mode);
        if asked.is_some_and(|asked| asked > mode) {
            let text = format!("XSCHED_DOMAINS=exempt needs a daemon with a rule for it: {} holds", mode.name());
            self.report.line(Log::Info, &text);
        }
        self.rt.set_streams_apart(false);
        Master::Local(Box::new(local))
    }

    /// Serves the scheduler that decides now, by its state. Returns the ns until it is to be served again at the latest.
    pub(super) fn serve_master(&mut self) -> Option<u64> {
        let (rt, now) = (self.rt, now_ns());
        if rt.is_over() {
            self.interrupts.restore(rt);
            self.master = Master::Unscheduled;
        }
        rt.take_choice(|scheduler| self.change_to(scheduler));
        rt.groups().for_each(|group| group.set_device_gates(rt));
        // Level 3 takes the whole context away: only where all of it is suspended together.
        if !rt.has_one_group() {
            self.interrupts.restore(rt);
        }
        match core::mem::replace(&mut self.master, Master::Unscheduled) {
            Master::Unscheduled => {
                self.stay_unscheduled();
                None
            }
            Master::Local(local) => self.serve_local(local),
            Master::Seeking { at, wait } => self.seek(now, at, wait),
            Master::Greeted { connection, since, wait } => self.await_welcome(now, connection, since, wait),
            Master::Daemon { connection } => self.serve_daemon(connection),
        }
    }

    /// Unscheduled: opens the gate of each group that came since.
    fn stay_unscheduled(&self) {
        self.rt.take_outbox();
        for group in self.rt.groups() {
            if !self.rt.segment().groups[usize::from(group.index())].gate.load().is_detached() {
                group.set_registration(self.rt, Registration::Detached);
            }
        }
    }

    /// The scheduler inside the process: hands it the messages that a daemon would get, and lets it decide.
    fn serve_local(&mut self, mut local: Box<Local>) -> Option<u64> {
        for message in self.rt.take_outbox() {
            self.report.group_added(&message, self.settings.options.level);
            self.hand_to(&mut local, &message);
        }
        let due = local.turn(self.rt);
        self.master = Master::Local(local);
        due
    }

    /// Hands a message to the scheduler inside the process, and reports a group that it has taken.
    fn hand_to(&self, local: &mut Local, message: &ClientMsg) {
        local.take(self.rt, message);
        if let ClientMsg::GroupAdd { slot, .. } = message {
            self.report.attached_locally(self.rt, *slot, || local.said_of(*slot));
        }
    }

    /// Seeking: connects to the daemon when it is time to.
    fn seek(&mut self, now: u64, at: u64, wait: u64) -> Option<u64> {
        // The next daemon gets an introduction of all groups and queues.
        self.rt.take_outbox();
        if now < at {
            self.master = Master::Seeking { at, wait };
            return Some(at - now);
        }
        let Mode::Daemon(path) = &self.settings.mode else { return None };
        match self.connect(path) {
            None => {
                self.rt.detach_for_good();
                Some(0)
            }
            Some(Ok(connection)) => {
                self.master = Master::Greeted { connection, since: now, wait };
                Some(0)
            }
            Some(Err(why)) => {
                self.lose(&why, wait);
                Some(wait)
            }
        }
    }

    /// Connects to the daemon at this socket. `None`: the application closed our descriptors.
    fn connect(&self, path: &Path) -> Option<Result<Connection, Error>> {
        let (segment, event) = (self.shared.fd.get()?, self.rt.daemon_event().get()?);
        Some(Connection::open(path, &self.settings.options, segment, event))
    }

    /// Greeted: takes the daemon's answer, or gives the daemon up that does not answer.
    fn await_welcome(&mut self, now: u64, mut connection: Connection, since: u64, wait: u64) -> Option<u64> {
        let why = match connection.receive() {
            Ok(None) if now - since > GREETING_NS => Error::environment("the daemon does not answer"),
            Ok(None) => {
                self.master = Master::Greeted { connection, since, wait };
                return Some(GREETING_NS);
            }
            Ok(Some(first)) => return Some(self.greet(connection, first, wait)),
            Err(why) => why,
        };
        Some(self.lose_connection(&connection, &why, wait))
    }

    /// Greeted: attaches to the daemon that has answered, unless that refuses. Returns the ns until the next service.
    fn greet(&mut self, mut connection: Connection, answer: Received, wait: u64) -> u64 {
        if let Err(why) = self.welcome(&mut connection, answer) {
            let wait = self.lose_connection(&connection, &why, wait);
            if self.is_starting() {
                required::note(&why, true);
            }
            return wait;
        }
        self.master = Master::Daemon { connection };
        if core::mem::take(&mut self.settings.told) {
            // The loss of this daemon is news.
            self.report.set_unscheduled_said(false);
        }
        0
    }

    /// Attached: exchanges messages with the daemon.
    fn serve_daemon(&mut self, mut connection: Connection) -> Option<u64> {
        match self.exchange(&mut connection) {
            Ok(()) => {
                self.master = Master::Daemon { connection };
                None
            }
            Err(why) => Some(self.lose_connection(&connection, &why, RETRY_NS.0)),
        }
    }

    /// Changes to the scheduler that the program itself has chosen. Gates are open until that one holds them.
    fn change_to(&mut self, scheduler: Scheduler) {
        self.rt.detach();
        self.interrupts.restore(self.rt);
        match core::mem::replace(&mut self.master, Master::Unscheduled) {
            Master::Daemon { connection } | Master::Greeted { connection, .. } => connection.end(),
            Master::Unscheduled | Master::Seeking { .. } | Master::Local(_) => {}
        }
        self.settings.mode = changed(&self.settings.mode, scheduler);
        self.master = match self.begin() {
            Master::Local(mut local) => {
                self.rt.introduce().iter().for_each(|message| self.hand_to(&mut local, message));
                Master::Local(local)
            }
            master => master,
        };
    }

    /// Handles the end of a connection. Returns the wait before the next attempt, in ns.
    fn lose_connection(&mut self, connection: &Connection, why: &Error, wait: u64) -> u64 {
        if !connection.is_refused() {
            self.lose(why, wait);
            return wait;
        }
        let wait = wait_after_refusal(connection.ask_again_ns(), self.refusals);
        self.refusals += 1;
        if self.refusals == 1 {
            // The reason is news.
            self.report.set_unscheduled_said(false);
        }
        self.lose(why, wait);
        wait
    }

    /// Gives the daemon up: gates open, the application goes on, and the daemon is sought again after `wait` ns.
    fn lose(&mut self, why: &Error, wait: u64) {
        self.master = Master::Seeking { at: now_ns() + wait, wait: (wait * 2).min(RETRY_NS.1) };
        if self.is_starting() {
            // The launch that ends the program reports the reason.
            required::note(why, false);
            self.rt.detach();
            return;
        }
        self.rt.detach();
        self.interrupts.restore(self.rt);
        self.report.daemon_lost(why, self.refusals > 0);
    }

    /// True: the program must be scheduled and has not been so far.
    fn is_starting(&self) -> bool {
        self.settings.required && !self.rt.was_registered()
    }

    /// Opens the gates when the daemon that closed them is silent. A daemon that has opened a gate and not yet said that the group is to
    /// go on on the device holds it all the same.
    pub(super) fn check_lease(&mut self) -> Option<u64> {
        let held = self.rt.some_gate_is_closed() || !self.interrupts.is_empty();
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

/// Wait before the next attempt of a program that was refused, in ns: what the daemon wants where it refused for want of room. A refusal for
/// another reason, such as the version, holds until an operator acts: such a program asks more and more rarely.
fn wait_after_refusal(wanted_ns: Option<u64>, refusals: u32) -> u64 {
    match wanted_ns {
        Some(ns) => ns.clamp(RETRY_NS.0, ASK_AGAIN_MAX_NS),
        None => (REFUSED_NS.0 << refusals.min(8)).min(REFUSED_NS.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_refused_for_want_of_room_asks_when_the_daemon_wants_it_and_any_other_more_and_more_rarely() {
        let ms = |ms: u64| ms * 1_000_000;
        for refusals in [0, 3, 100] {
            assert_eq!(wait_after_refusal(Some(ms(1_700)), refusals), ms(1_700));
        }
        assert_eq!(wait_after_refusal(Some(0), 0), RETRY_NS.0, "no attempts without pause");
        assert_eq!(wait_after_refusal(Some(u64::MAX), 0), ASK_AGAIN_MAX_NS);
        assert_eq!([0, 1, 2, 3, 4, 9].map(|n| wait_after_refusal(None, n)), [2, 4, 8, 16, 30, 30].map(|s| ms(s * 1_000)));
    }
}
