//! The loop: events are taken, and work is done for each user in turn, a slice of time at once.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use xsched_proto::wire::MAX_PACKET;

use super::{
    CLERK, Conn, EXPECTED, LISTENER, LOGS, METRICS, Role, SCHEDULER, SIGNALS, SITES, Server, TELLER, TIMER, USAGE,
    Work, kind,
};
use crate::clock::now_ns;
use crate::identity::User;
use crate::precedence::Precedence;
use crate::signals::Signal;
use crate::tuning::{EVENTS_MAX, FOREIGN_WAKES_NS, SLICE_NS, STALL_NS};
use crate::{Error, Input};

impl Server {
    /// Serves until told to stop.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        self.precedence = Some(Precedence::new(now_ns()));
        self.service.ready();
        while !self.stop {
            self.turn(&mut events, &mut buffer)?;
        }
        self.service.ending();
        if self.remember_at.is_some() {
            self.write_kept();
        }
        self.let_all_go();
        self.finish_usage();
        self.closer.end();
        Ok(())
    }

    /// Does a piece of work for a connection.
    fn do_work(&mut self, work: Work, buffer: &mut [u8]) {
        match work {
            Work::Serve(id) => self.serve(id, buffer),
            Work::Introduce(id) => {
                if let Some(who) = self.found.remove(&id) {
                    self.introduced(id, who);
                }
            }
        }
    }

    /// Waits for events unless there is work, and does a slice of it.
    pub(super) fn turn(&mut self, events: &mut Vec<epoll::Event>, buffer: &mut [u8]) -> Result<(), Error> {
        self.arm();
        events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let has_work = self.rations_due_ns().is_some_and(|at| at <= self.now_ns)
            || !self.work.is_empty()
            || self.makes_snapshot()
            || self.accounting.sweep.is_some()
            || self.teller.is_due(self.now_ns);
        let timeout = has_work.then_some(&at_once);
        let waits_from_ns = now_ns();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(Error::Environment(format!("cannot wait for events: {e}"))),
        }
        self.now_ns = now_ns();
        let began_ns = self.now_ns;
        if let Some(precedence) = &mut self.precedence {
            precedence.waited(waits_from_ns, began_ns);
        }
        self.notice_delay();
        let of_conns =
            || events.iter().map(|event| (event.data.u64(), event.flags)).filter(|(t, _)| t & 3 != kind::OWN);
        let is_wake = |(token, _): &(u64, _)| token & 3 == kind::WAKE;
        // Gates first: a program waits for each of these.
        of_conns().filter(is_wake).for_each(|(token, _)| self.note_wake(token >> 2));
        self.heed_wakes();
        for (token, flags) in of_conns().filter(|event| !is_wake(event)) {
            self.note(token >> 2, token & 3, flags);
        }
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => self.accept(),
                TIMER => self.armed = None,
                SIGNALS => self.heed_signals(),
                SCHEDULER => self.hear_scheduler(),
                LOGS => self.hear_logs(),
                CLERK => self.hear_clerk(),
                USAGE => self.hear_usage(),
                METRICS => self.hear_metrics(),
                TELLER => self.hear_teller(),
                SITES => self.hear_sites(),
                token if token & 3 == kind::OWN => self.expected_ended((token >> 2) - EXPECTED),
                _ => continue,
            }
            self.bury();
            self.piece_done("events of its own");
        }
        // One slice for all three: a wake-up that comes meanwhile waits no longer than for one of them.
        let until = self.now_ns + SLICE_NS;
        self.in_slices("work of its own users", until, |server| {
            let Some((user, work)) = server.work.pop_of(|_| true) else { return false };
            server.do_work(work, buffer);
            if !user.is_own() {
                // The end of a connection does not wait, and is paid for all the same.
                let now_ns = now_ns();
                server.messages.charge(user, now_ns, now_ns - server.now_ns);
            }
            true
        });
        self.in_slices("messages", until, |server| {
            let Some((user, work)) = server.messages.pop(server.now_ns) else { return false };
            server.do_work(work, buffer);
            let now_ns = now_ns();
            server.messages.charge(user, now_ns, now_ns - server.now_ns);
            true
        });
        self.in_slices("commands", until, |server| {
            let Some((user, id)) = server.commands.pop(server.now_ns) else { return false };
            server.serve(id, buffer);
            let now_ns = now_ns();
            server.commands.charge(user, now_ns, now_ns - server.now_ns);
            true
        });
        self.in_slices("looks at programs", until, |server| {
            let Some((user, id)) = server.looks.pop(server.now_ns) else { return false };
            server.input(Input::Look(id));
            if !user.is_own() {
                let now_ns = now_ns();
                server.looks.charge(user, now_ns, now_ns - server.now_ns);
            }
            true
        });
        if self.makes_snapshot() {
            self.go_on_with_snapshot();
            self.piece_done("metrics");
        }
        if self.teller.is_due(self.now_ns) {
            self.look_around();
            self.piece_done("looks for ps");
        }
        if self.accounting.sweep.is_some() {
            self.go_on_keeping();
            self.piece_done("records of usage");
        }
        self.timers();
        self.bury();
        self.ask_scheduler();
        self.piece_done("timers");
        self.service.turned(self.now_ns);
        if let Some(precedence) = &mut self.precedence {
            precedence.worked(self.now_ns);
        }
        let (took_ns, (longest_ns, what)) = (self.now_ns - began_ns, std::mem::take(&mut self.longest));
        if took_ns >= STALL_NS {
            let (all, longest) = (took_ns / 1_000_000, longest_ns / 1_000_000);
            self.say(&format!("no decision for {all} ms: one of its {what} took {longest} ms"));
        }
        Ok(())
    }

    /// Says so when the machine did not run the daemon for long: the timer has gone off long ago.
    fn notice_delay(&mut self) {
        let late_ns = self.armed.map_or(0, |armed| self.now_ns.saturating_sub(armed));
        if late_ns >= STALL_NS {
            let ms = late_ns / 1_000_000;
            self.say(&format!("no decision for {ms} ms: the daemon was stopped or the machine did not run it"));
        }
    }

    /// Takes the time after a piece of work.
    fn piece_done(&mut self, what: &'static str) {
        let before_ns = std::mem::replace(&mut self.now_ns, now_ns());
        self.longest = self.longest.max((self.now_ns - before_ns, what));
    }

    fn heed_signals(&mut self) {
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::End => {
                    self.detail_of_own(|| "ends: it was told to by a signal".to_owned());
                    self.stop = true;
                }
                Signal::Reload => self.reload(),
            }
        }
    }

    /// Takes what is found out, as work for the connections it is about.
    fn hear_clerk(&mut self) {
        while let Some((id, who)) = self.clerk.take() {
            // Of one that is gone nothing more needs to be known.
            let Some(conn) = self.conns.get(&id) else { continue };
            self.found.insert(id, who);
            if conn.is_rationed() {
                self.messages.push(conn.user, Work::Introduce(id));
            } else {
                self.work.push(conn.user, Work::Introduce(id));
            }
        }
    }

    /// Reads the words of programs that have woken the daemon, and decides once for all of them: all at the time when that begins. First
    /// those of root and of the daemon's own user, then some of one other user, whose turn it is: before the next others may come.
    fn heed_wakes(&mut self) {
        self.heed_wakes_of(|user| user.is_own(), SLICE_NS);
        if let Some(user) = self.wakes.turn(self.now_ns) {
            self.heed_wakes_of(|other| other == user, FOREIGN_WAKES_NS);
        }
    }

    /// Of users who may, for so long, in ns.
    fn heed_wakes_of(&mut self, may: impl Fn(User) -> bool, for_ns: u64) {
        let until_ns = self.now_ns + for_ns;
        let mut last = None;
        while let Some((user, id)) = self.wakes.pop_of(self.now_ns, &may) {
            last = Some(user);
            self.mute(id, false);
            self.input(Input::Words(id));
            self.bury();
            if now_ns() >= until_ns || self.stop {
                break;
            }
        }
        let Some(user) = last else { return };
        self.input(Input::Decide);
        let began_ns = self.now_ns;
        self.piece_done("decisions");
        if !user.is_own() {
            self.wakes.charge(user, self.now_ns, self.now_ns - began_ns);
        }
    }

    /// When the first wake-up may be heeded, the first program looked at, the first message or command served, that waits.
    pub(super) fn rations_due_ns(&self) -> Option<u64> {
        [self.wakes.due_ns(), self.looks.due_ns(), self.commands.due_ns(), self.messages.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Notes that a client has woken the daemon.
    fn note_wake(&mut self, id: u64) {
        let Some(user) = self.conns.get(&id).map(|conn| conn.user) else { return };
        self.wakes.push(user, id);
        if !self.wakes.has_time(user, self.now_ns) {
            self.mute(id, true);
        }
    }

    /// Notes that there is something to do for a connection.
    fn note(&mut self, id: u64, kind: u64, flags: EventFlags) {
        let Some(conn) = self.conns.get_mut(&id) else {
            if kind == kind::DEATH {
                self.abandoned_ended(id);
            }
            return;
        };
        // What was sent before a hang-up is still done; an answer has nowhere to go.
        let is_answered = conn.answering().0 && !matches!(conn.role, Role::Unlisted(_));
        let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR) && is_answered;
        conn.gone |= kind == kind::DEATH || hung_up;
        if conn.gone && conn.is_changing() {
            return self.doomed.push((id, None));
        }
        self.enqueue(id);
    }

    /// Keeps writes of a client whose user has no time left from waking the loop: it waits to be looked at already.
    fn mute(&mut self, id: u64, on: bool) {
        let Some(client) = self.conns.get_mut(&id).and_then(Conn::client_mut) else { return };
        if client.is_muted == on {
            return;
        }
        // What was written so far would be told once more after that. Nothing waits for the client here: where the kernel cannot read without
        // waiting (before Linux 5.8), nothing is muted.
        let (mut count, nowhere) = ([0; 8], u64::MAX);
        let taken = rustix::io::preadv2(
            &client.eventfd,
            &mut [std::io::IoSliceMut::new(&mut count)],
            nowhere,
            rustix::io::ReadWriteFlags::NOWAIT,
        );
        if on && taken.is_err_and(|e| e != Errno::AGAIN) {
            return;
        }
        client.is_muted = on;
        let flags = if on { EventFlags::ET } else { EventFlags::IN | EventFlags::ET };
        let data = EventData::new_u64(id << 2 | kind::WAKE);
        if epoll::modify(&self.epoll, &client.eventfd, data, flags).is_err() {
            self.doomed.push((id, None));
        }
    }

    /// Has one thing done for a connection, in its turn.
    pub(crate) fn enqueue(&mut self, id: u64) {
        let Some(conn) = self.conns.get(&id) else { return };
        if !conn.is_rationed() {
            return self.work.push(conn.user, Work::Serve(id));
        }
        match conn.role {
            Role::Command(_) => self.commands.push(conn.user, id),
            _ => self.messages.push(conn.user, Work::Serve(id)),
        }
        // Told once: what is put off must not keep the loop awake.
        self.watch_socket(id);
    }

    /// Does pieces of work while there are some and until this time, in ns, one at least.
    fn in_slices(&mut self, what: &'static str, until: u64, mut piece: impl FnMut(&mut Server) -> bool) {
        while piece(self) {
            self.bury();
            self.piece_done(what);
            if self.now_ns >= until || self.stop {
                return;
            }
        }
    }
}
