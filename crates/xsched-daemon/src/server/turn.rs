//! The loop: events of the kernel become inputs, and work is done for each user in turn, a slice of time at once.

use rustix::event::epoll;
use rustix::io::Errno;
use xsched_proto::wire::MAX_PACKET;

use super::Server;
use crate::identity::{User, of_machine};
use crate::net::{Own, Served, Token, Work};
use crate::server::clock::now_ns;
use crate::server::precedence::Precedence;
use crate::server::signals::Signal;
use crate::tuning::{EVENTS_MAX, FOREIGN_WAKES_NS, SLICE_NS, STALL_NS};
use crate::{Error, Input};

impl Server {
    /// Serves until a command or signal stops the daemon.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        self.life.precedence = Some(Precedence::new(now_ns()));
        self.life.service.ready();
        while !self.life.stop {
            self.turn(&mut events, &mut buffer)?;
        }
        self.life.service.ending();
        self.release_all();
        Ok(())
    }

    /// Waits for events unless there is work, and does a slice of the work.
    pub(super) fn turn(&mut self, events: &mut Vec<epoll::Event>, buffer: &mut [u8]) -> Result<(), Error> {
        self.arm();
        let waits_from_ns = now_ns();
        match self.net.wait(events, self.has_work()) {
            Ok(()) => (),
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(Error::Environment(format!("cannot wait for events: {e}"))),
        }
        self.set_now(now_ns());
        let began_ns = self.now_ns;
        if let Some(precedence) = &mut self.life.precedence {
            precedence.waited(waits_from_ns, began_ns);
        }
        self.note_delay();
        self.take_events(events);
        self.do_slices(buffer);
        self.do_pieces();
        self.do_due();
        self.end_conns();
        self.ask_scheduler();
        self.piece_done("timers");
        self.life.service.turned(self.now_ns);
        if let Some(precedence) = &mut self.life.precedence {
            precedence.worked(self.now_ns);
        }
        self.note_stall(began_ns);
        Ok(())
    }

    /// Reports whether there is work without an event.
    fn has_work(&self) -> bool {
        self.net.rations.due_ns().is_some_and(|at| at <= self.now_ns)
            || !self.net.work.is_empty()
            || self.engine.has_memory_work()
            || self.makes_metrics_snapshot()
            || self.history.accounting.sweep.is_some()
            || self.services.snapshots.is_due(self.now_ns)
    }

    /// Takes events of the kernel: first those of gates, since programs wait for them.
    fn take_events(&mut self, events: &[epoll::Event]) {
        let all = || events.iter().filter_map(|event| Some((Token::of(event.data.u64())?, event.flags)));
        for (token, _) in all() {
            if let Token::Wake(id) = token {
                self.net.note_wake(id);
            }
        }
        self.take_wakes();
        for (token, flags) in all() {
            if let Token::Socket(id) | Token::Death(id) = token
                && !self.net.note(token, flags)
                && token == Token::Death(id)
            {
                self.abandoned_process_ended(id);
            }
        }
        for (token, _) in all() {
            match token {
                Token::Own(own) => self.take_own(own),
                Token::Announced(id) => {
                    _ = self.for_itself("the end of an announced program", |s| s.expected_ended(id))
                }
                Token::Socket(_) | Token::Wake(_) | Token::Death(_) => continue,
            }
            self.end_conns();
            self.piece_done("events of its own");
        }
    }

    /// Takes an event of one of the daemon's own descriptors.
    fn take_own(&mut self, own: Own) {
        match own {
            Own::Listener => {
                let config = &self.config;
                self.net.accept(&|uid, own| config.bounds(uid, own).connections);
            }
            Own::Sites => {
                let config = &self.config;
                self.net.take_sites(&|uid, own| config.bounds(uid, own).connections);
            }
            Own::Timer => self.life.armed = None,
            Own::Signals => self.take_signals(),
            of_service => {
                self.for_itself("the outcome of a service", |server| server.take_outcomes_of(of_service));
                self.note_faults_of_services();
            }
        }
    }

    /// Takes the outcomes of a service.
    fn take_outcomes_of(&mut self, service: Own) {
        match service {
            Own::Listener | Own::Sites | Own::Timer | Own::Signals => (),
            Own::Identified => self.take_identified(),
            Own::Pools => self.take_pool_logs(),
            Own::Usage => self.take_usage(),
            Own::Metrics => self.begin_metrics_snapshot(),
            Own::Snapshots => self.take_snapshot_ends(),
            Own::Scheduler => self.take_scheduler_answers(),
            Own::Trust => self.take_trust(),
            Own::Configuration => self.take_configuration(),
            Own::Devices => self.poll_devices(),
        }
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.life.signals.take() {
            match signal {
                Signal::End => {
                    self.detail_of_own(|| "ends: it was told to by a signal".to_owned());
                    self.life.stop = true;
                }
                Signal::Reload => self.reload_or_end(),
            }
        }
    }

    /// Reads the words of programs that have woken the daemon, and decides once for all of them, all at the time of the beginning. First
    /// come programs of root and of the daemon's own user, then some of one other user, whose turn it is; then the next others may come.
    fn take_wakes(&mut self) {
        self.take_wakes_of(|user| user.is_own(), SLICE_NS);
        if let Some(user) = self.net.rations.wakes.turn(self.now_ns) {
            self.take_wakes_of(|other| other == user, FOREIGN_WAKES_NS);
        }
    }

    /// Reads the words of woken programs of users for which `may` is true, for at most `for_ns`.
    fn take_wakes_of(&mut self, may: impl Fn(User) -> bool, for_ns: u64) {
        let until_ns = self.now_ns + for_ns;
        let mut last = None;
        while let Some((user, id)) = self.net.rations.wakes.pop_of(self.now_ns, &may) {
            last = Some(user);
            self.net.mute(id, false);
            self.for_conn(id, "the words", |server| server.input(Input::Words(id)));
            self.end_conns();
            if now_ns() >= until_ns || self.life.stop {
                break;
            }
        }
        let Some(user) = last else { return };
        self.input(Input::Decide);
        let began_ns = self.now_ns;
        self.piece_done("decisions");
        if !user.is_own() {
            self.net.rations.wakes.charge(user, self.now_ns, self.now_ns - began_ns);
        }
    }

    /// Does work for connections and programs, in one common slice: a wake-up that comes meanwhile waits no longer than for one slice.
    fn do_slices(&mut self, buffer: &mut [u8]) {
        let until = self.now_ns + SLICE_NS;
        self.in_slices("work of its own users", until, |server| {
            let (user, work) = server.net.work.pop_of(|_| true)?;
            server.do_work(work, buffer);
            // The end of a connection does not wait for the ration, and is charged all the same.
            server.charge(user, |rations, now_ns, used_ns| rations.messages.charge(user, now_ns, used_ns));
            Some(())
        });
        self.in_slices("messages", until, |server| {
            let (user, work) = server.net.rations.messages.pop(server.now_ns)?;
            server.do_work(work, buffer);
            server.charge(user, |rations, now_ns, used_ns| rations.messages.charge(user, now_ns, used_ns));
            Some(())
        });
        self.in_slices("commands", until, |server| {
            let (user, id) = server.net.rations.commands.pop(server.now_ns)?;
            server.serve(id, buffer);
            server.charge(user, |rations, now_ns, used_ns| rations.commands.charge(user, now_ns, used_ns));
            Some(())
        });
        self.in_slices("looks at programs", until, |server| {
            let (user, id) = server.net.rations.looks.pop(server.now_ns)?;
            server.for_conn(id, "the counters", |server| server.input(Input::Look(id)));
            server.charge(user, |rations, now_ns, used_ns| rations.looks.charge(user, now_ns, used_ns));
            Some(())
        });
    }

    /// Does pieces of work while there are some and until this time in ns, but at least one.
    fn in_slices(&mut self, what: &'static str, until: u64, mut piece: impl FnMut(&mut Server) -> Option<()>) {
        while piece(self).is_some() {
            self.end_conns();
            self.piece_done(what);
            if self.now_ns >= until || self.life.stop {
                return;
            }
        }
    }

    /// Charges a piece of work to the ration of its user, unless that is root or the daemon's own.
    fn charge(&mut self, user: User, charge: impl FnOnce(&mut crate::net::Rations, u64, u64)) {
        if !user.is_own() {
            let now_ns = now_ns();
            charge(&mut self.net.rations, now_ns, now_ns - self.now_ns);
        }
    }

    /// Does a piece of each of the daemon's own unfinished tasks.
    fn do_pieces(&mut self) {
        if self.engine.has_memory_work() {
            self.input(Input::MemoryWork);
            self.piece_done("decisions on memory");
        }
        if self.makes_metrics_snapshot() {
            self.for_itself("data for monitors", Server::continue_metrics_snapshot);
            self.piece_done("metrics");
        }
        if self.services.snapshots.is_due(self.now_ns) {
            self.for_itself("a look for ps", Server::continue_snapshot);
            self.piece_done("looks for ps");
        }
        if self.history.accounting.sweep.is_some() {
            if !self.for_itself("records of usage", Server::continue_usage_sweep) {
                self.history.accounting.sweep = None;
            }
            self.piece_done("records of usage");
        }
    }

    /// Does a piece of work for a connection.
    fn do_work(&mut self, work: Work, buffer: &mut [u8]) {
        match work {
            Work::Serve(id) => self.serve(id, buffer),
            Work::Introduce(id) => self.for_conn(id, "the greeting", |server| server.introduce(id)),
        }
    }

    /// Does one piece of work for a connection. Others have their turn before its next piece.
    pub(super) fn serve(&mut self, id: u64, buffer: &mut [u8]) {
        self.for_conn(id, "a message", |server| server.serve_piece(id, buffer));
    }

    fn serve_piece(&mut self, id: u64, buffer: &mut [u8]) {
        match self.net.serve(id, buffer) {
            Served::Nothing => return,
            Served::Continues => self.go_on(id),
            Served::Said(said) => {
                if let Err(why) = said.and_then(|(message, fds)| self.take_message(id, message, fds)) {
                    return self.net.doom(id, Some(why));
                }
            }
        }
        self.net.enqueue(id);
    }

    /// Sets the time of the following work.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        (self.now_ns, self.net.now_ns) = (now_ns, now_ns);
        self.engine.set_now(now_ns);
    }

    /// Takes the time after a piece of work, and handles its remainders: lines for the log, answers that have room now.
    fn piece_done(&mut self, what: &'static str) {
        for (user, line) in self.net.lines() {
            match user {
                Some(user) => self.record(user, &line),
                // Lines of the daemon itself count as those of root.
                None => self.record(of_machine(0), &line),
            }
        }
        self.note_own_faults();
        self.answer_next();
        let before_ns = self.now_ns;
        self.set_now(now_ns());
        self.life.longest = self.life.longest.max((self.now_ns - before_ns, what));
    }

    /// Reports to the operator that the machine did not run the daemon for long: its timer went off long ago.
    fn note_delay(&mut self) {
        let late_ns = self.life.armed.map_or(0, |armed| self.now_ns.saturating_sub(armed));
        if late_ns >= STALL_NS {
            let ms = late_ns / 1_000_000;
            self.say(&format!("no decision for {ms} ms: the daemon was stopped or the machine did not run it"));
        }
    }

    /// Reports to the operator that the loop did not come to decisions for long.
    fn note_stall(&mut self, began_ns: u64) {
        let (took_ns, (longest_ns, what)) = (self.now_ns - began_ns, std::mem::take(&mut self.life.longest));
        if took_ns >= STALL_NS {
            let (all, longest) = (took_ns / 1_000_000, longest_ns / 1_000_000);
            self.say(&format!("no decision for {all} ms: one of its {what} took {longest} ms"));
        }
    }
}
