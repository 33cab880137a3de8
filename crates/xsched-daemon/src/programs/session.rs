//! Messages of attached processes.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use xsched_engine::{Arrival, Message, NewGroup, all_taken, bound_met};
use xsched_policy::{Level, Lineage};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::class::Class;
use xsched_proto::hint::Hints;
use xsched_proto::segment::SEGMENT_BYTES;
use xsched_proto::text::escaped;
use xsched_proto::wire::{ClientMsg, DaemonMsg, ProgramOptions};

use crate::identity::peer::{self, Peer};
use crate::identity::standing;
use crate::identity::{self, User};
use crate::net::socket::{self, Passed, ProgramFds};
use crate::net::{Ended, Stage, Token, Wake};
use crate::programs::client::{Client, bounded, wishes};
use crate::programs::memory::{ClientSegment, Shared, file_id};
use crate::programs::naming::called_by;
use crate::server::clock::now_ns;
use crate::server::timers::Timer;
use crate::server::{Opening, Server};
use crate::services::identify::{self, Who};
use crate::tuning::PROGRAM_SOCKET_MAX_BYTES;
use crate::{Error, Input};

/// Length of a line of a program's that is passed on, in characters.
const LINE_MAX_CHARS: usize = 300;
/// Number of descriptors of a program beside its connection: its segment, its eventfd, and its pidfd.
const PROGRAM_FDS: usize = 3;

impl Server {
    /// Takes a message of a connection. An error is the connection's fault, and ends it.
    ///
    /// # Errors
    /// Fails if the message makes no sense at this stage.
    pub(crate) fn take_message(&mut self, id: u64, message: ClientMsg, fds: Passed) -> Result<(), Error> {
        let conn = self.net.conns.get(&id).ok_or_else(|| Error::input("it is gone"))?;
        match (conn.stage, message) {
            (Stage::Silent, ClientMsg::Hello { options, .. }) => self.hello(id, options, fds),
            (Stage::Silent | Stage::Command(_), ClientMsg::Control { request, .. }) => {
                self.ask(id, request);
                Ok(())
            }
            (Stage::Program, message) => self.program_message(id, message),
            _ => Err(Error::input("its messages come in an order that makes no sense")),
        }
    }

    /// Takes a program's greeting: once its user is identified, [`Server::introduce`] continues.
    fn hello(&mut self, id: u64, options: ProgramOptions, fds: Passed) -> Result<(), Error> {
        let mut fds = fds.take()?;
        let options = bounded(options)?;
        let conn = self.net.conns.get(&id).ok_or_else(|| Error::input("it is gone"))?;
        if fds.1.is_none() {
            fds.1 = peer::pidfd(conn.socket.as_fd(), conn.pid, conn.since_ns)?;
        }
        self.services.identify.push(identify::task(id, conn.socket.as_fd(), conn.pid, conn.user.uid, fds.1.as_ref()));
        self.programs.openings.insert(id, Opening::Program(options, fds));
        self.net.set_stage(id, Stage::Opening);
        Ok(())
    }

    /// Takes identified users, as work for their connections.
    pub(crate) fn take_identified(&mut self) {
        while let Some((id, who)) = self.services.identify.take() {
            // A connection that is gone needs no identity any more.
            if self.net.conns.contains_key(&id) {
                self.programs.found.insert(id, who);
                self.net.enqueue_introduction(id);
            }
        }
    }

    /// Processes the first message of a connection, once its user is identified.
    pub(crate) fn introduce(&mut self, id: u64) {
        let (Some(who), Some(opening)) = (self.programs.found.remove(&id), self.programs.openings.remove(&id)) else {
            return;
        };
        let Some(conn) = self.net.conns.get_mut(&id) else { return };
        let done = match (who, opening) {
            (Err(why), _) => Err(why),
            (Ok(who), Opening::Program(options, fds)) => {
                conn.user = who.user;
                self.greet(id, who, options, fds)
            }
            (Ok(who), Opening::Command(request)) => {
                conn.user = who.user;
                self.commands.who.insert(id, Rc::new(who));
                self.control(id, request);
                Ok(())
            }
        };
        if let Err(why) = done {
            return self.net.doom(id, Some(why));
        }
        self.net.watch_socket(id);
        self.net.enqueue(id);
    }

    fn greet(&mut self, id: u64, mut who: Who, mut options: ProgramOptions, fds: ProgramFds) -> Result<(), Error> {
        let pid = self.net.conns.get(&id).map_or(0, |c| c.pid);
        let user = who.user;
        if !identity::is_served(user) {
            self.net.refuse(id, Error::environment("this daemon serves another user"));
            self.net.doom(id, None);
            return Ok(());
        }
        if let Ok(file) = file_id(&fds.0[0]) {
            self.adopt_segment(user, file);
        }
        if let Some(why) = self.too_much_kept(user) {
            self.note_refusal(pid, user, called_by(&options.command, &who.exe), why.line());
            self.net.refuse_for_now(id, why);
            self.net.doom(id, None);
            return Ok(());
        }
        let ([segment, eventfd], pidfd) = fds;
        if !peer::is_eventfd(&eventfd) {
            return Err(Error::input("the descriptor to wake the daemon is no eventfd"));
        }
        // A daemon that is confined to a user namespace (dist/user) may not read facts about its own user's programs outside of it.
        let told = std::mem::take(&mut options.exe);
        if who.exe.is_empty() && user.is_own() && told.starts_with('/') {
            who.exe = told;
        }
        let names = self.names(pid, user, std::mem::take(&mut who.names));
        let (asked, hints) = (options.priority, options.hints);
        let wishes = wishes(&options);
        let peer = Peer { pid, uid: user.uid, user, exe: who.exe, names, place: who.place, start: who.start };
        let client = Client {
            segment: Arc::new(ClientSegment::new(segment)?),
            pidfd,
            command: options.command.into(),
            title: options.title.map(Into::into),
            attached_ns: now_ns(),
            seat: None,
            place_why: None,
            peer: Arc::new(peer),
        };
        let arrival = Arrival {
            pid,
            user,
            exe: client.peer.exe.clone(),
            name: called_by(&client.command, &client.peer.exe).to_owned(),
            start: client.peer.start,
            ancestors: who.ancestors,
            nice: who.nice,
            lineage: self.lineage(&client.peer, who.cgroups),
            memory: Shared(client.segment.clone()),
            wishes,
            terms: self.config.terms(&client.peer, &client.command),
        };
        // The event is edge-triggered: each write is one event, and nothing has to be read.
        let wake = self.net.watch(&eventfd, Token::Wake(id), EventFlags::IN | EventFlags::ET);
        // Without a pidfd, the end of the process's socket reports its death.
        let watch = |pidfd| self.net.watch(pidfd, Token::Death(id), EventFlags::IN);
        let death = client.pidfd.as_ref().map_or(Ok(()), watch);
        wake.and(death).map_err(|e| Error::input(format!("its descriptors cannot be watched: {e}")))?;
        if let Some(conn) = self.net.conns.get_mut(&id) {
            socket::bound_unread(&conn.socket, PROGRAM_SOCKET_MAX_BYTES);
            conn.wake = Some(Wake { eventfd, is_muted: false });
        }
        self.net.set_stage(id, Stage::Program);
        self.programs.clients.insert(id, client);
        self.input(Input::Attached(id, Box::new(arrival)));
        self.welcome(id, asked, hints)
    }

    /// Line on what a program asked for and does not get, because of a limit of its user or the ceiling of its rule.
    fn cut(&self, id: u64, asked: Option<i32>, hints: Hints) -> Option<String> {
        let program = self.engine.programs().get(&id)?;
        let ceilings = self.config.ceilings_of(program.user);
        let priority = asked.filter(|_| program.entitlement.limited).map(|asked| {
            let given = program.entitlement.priority;
            let of = if given >= ceilings.priority { "your limit" } else { "the ceiling of a rule" };
            let named = |priority: i32| format!("{priority} ({})", Class::of(priority));
            format!("priority {} is over {of}: {} counts", named(asked), named(given))
        });
        let lines: Vec<String> = [priority, ceilings.notice(hints)].into_iter().flatten().collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Place of a program among users, cgroups and namespaces.
    fn lineage(&self, peer: &Peer, cgroups: Vec<Level>) -> Lineage {
        let user = Level { id: peer.uid.into(), weight: self.config.user_weight(peer.uid) };
        let namespace = peer.place.trusted_namespace();
        let namespace =
            namespace.map(|name| Level { id: standing::namespace(name), weight: self.config.namespace_weight(name) });
        Lineage { user, cgroup: cgroups, namespace }
    }

    /// Welcomes a program that has attached and asked for a priority and for hints.
    fn welcome(&mut self, id: u64, asked: Option<i32>, hints: Hints) -> Result<(), Error> {
        let Some(program) = self.engine.programs().get(&id) else { return Ok(()) };
        let line = format!(
            "attached process {} of user {}, class {} ({}): {}",
            program.pid,
            program.user,
            program.class(),
            program.entitlement.from.text(),
            program.exe
        );
        let (user, domains, limited, job) =
            (program.user, program.domains, program.domains_limited, program.job.clone());
        self.job_attached(job);
        let page = self
            .engine
            .heartbeat()
            .file()
            .try_clone()
            .map_err(|e| Error::input(format!("the heartbeat page cannot be sent: {e}")))?;
        self.restore_program(id);
        let priority = self.engine.programs().get(&id).map_or(0, |program| program.priority());
        let streams_apart = self.services.scheduler.as_ref().is_some_and(|host| host.per_stream);
        let welcome = DaemonMsg::Welcome { version: PROTOCOL_VERSION, session: id, priority, domains, streams_apart };
        self.net.send(id, &welcome, &[page.as_fd()]);
        if let Some(text) = self.cut(id, asked, hints) {
            self.net.send(id, &DaemonMsg::Note { text }, &[]);
        }
        if limited {
            let text = format!(
                "XSCHED_DOMAINS=exempt needs a rule of the daemon's configuration (domains = \"exempt\"): {} holds",
                domains.name()
            );
            self.net.send(id, &DaemonMsg::Note { text }, &[]);
        }
        self.record(user, &line);
        Ok(())
    }

    /// Takes a message of an attached program.
    ///
    /// # Errors
    /// Fails if the message makes no sense at this stage.
    pub(crate) fn program_message(&mut self, id: u64, message: ClientMsg) -> Result<(), Error> {
        let message = match message {
            ClientMsg::GroupAdd { slot, device, platform, priority_steps, priority_fixed, system, levels, sharing } => {
                let pool = self.take_place(id, sharing);
                let state = self.services.devices.state(&device, self.now_ns).map(Box::new);
                let (steps, fixed) = (priority_steps, priority_fixed);
                let group = NewGroup { slot, device, platform, steps, fixed, system, levels, sharing, pool, state };
                self.new_group(id, group)?;
                self.follow_trust(id, platform);
                return Ok(());
            }
            ClientMsg::GroupRemove { slot } => {
                self.note_kernels(id);
                Message::GroupRemove(slot)
            }
            ClientMsg::Levels { slot, levels } => Message::Levels { slot, levels },
            ClientMsg::GroupHint { slot, priority, hints } => Message::GroupHint { slot, priority, hints },
            ClientMsg::ProgramHint { hints } => Message::ProgramHint(hints),
            ClientMsg::QueueAdd { slot, group } => Message::QueueAdd { slot, group },
            ClientMsg::QueueRemove { slot } => Message::QueueRemove(slot),
            ClientMsg::Description { token, more, lines } => {
                self.description(id, token, more, lines);
                return Ok(());
            }
            ClientMsg::MemoryDevice { slot, device, capacity_bytes } => {
                Message::MemoryDevice { slot, device, capacity_bytes }
            }
            ClientMsg::MemoryAsk { slot, number, bytes, lacking, returns, part } => {
                Message::MemoryAsk { slot, number, bytes, lacking, returns, part }
            }
            ClientMsg::MemoryMeasure { slot, number } => Message::MemoryMeasure { slot, number },
            ClientMsg::MemoryRefused { slot, bytes, by_driver } => Message::MemoryRefused { slot, bytes, by_driver },
            ClientMsg::MemoryLeaving { number } => Message::MemoryLeaving { number },
            ClientMsg::MemoryMoved { number, why, .. } => {
                Message::MemoryMoved { number, why: why.map(|why| said(&why)) }
            }
            ClientMsg::Hello { .. } | ClientMsg::Control { .. } => {
                return Err(Error::input("it has introduced itself before"));
            }
        };
        self.input(Input::Message(id, message));
        Ok(())
    }

    fn new_group(&mut self, id: u64, group: NewGroup) -> Result<(), Error> {
        let (slot, device) = (group.slot, group.device.clone());
        self.input(Input::Message(id, Message::GroupAdd(group)));
        if self.engine.group_at(id, slot).is_some() {
            self.accept_program(id);
            self.open_accounts(id);
            self.warn_of_full_memory(id, &device);
        }
        Ok(())
    }

    /// Limit that keeps a user from a further program, by the data that the daemon keeps for the user's present ones.
    pub(crate) fn too_much_kept(&self, user: User) -> Option<Error> {
        if !user.is_own() && self.net.conns.len() + self.programs.abandoned.len() >= self.net.max_conns {
            return Some(all_taken("programs"));
        }
        let bounds = self.config.bounds(user.uid, user.is_own());
        let attached = self.programs_of(user);
        if attached >= bounds.connections.min(self.net.most_of_one(user.is_own())) {
            return Some(bound_met(user, attached, "programs attached"));
        }
        let theirs = || self.net.conns.values().filter(|conn| conn.user == user);
        let abandoned = self.programs.abandoned.values().filter(|abandoned| abandoned.user == user).count();
        if abandoned > 0
            && !user.is_own()
            && theirs().count() + abandoned > bounds.connections.min(self.net.max_conns / 4)
        {
            return Some(bound_met(user, abandoned, "processes that have left, with what they share"));
        }
        let programs = theirs().filter(|conn| conn.stage == Stage::Program).count() + abandoned;
        let announced = self.places.expected.values().filter(|expected| expected.user == user).count();
        let pages = self.programs.pages.keys().filter_map(|id| self.net.conns.get(id)).filter(|conn| conn.user == user);
        let descriptors = theirs().count() + programs * PROGRAM_FDS + announced + pages.count();
        if descriptors + PROGRAM_FDS > bounds.descriptors {
            return Some(bound_met(user, descriptors, "descriptors"));
        }
        let mapped_mib = (programs * SEGMENT_BYTES) >> 20;
        let too_much = ((programs + 1) * SEGMENT_BYTES).div_ceil(1 << 20) > bounds.mapped_mib;
        too_much.then(|| bound_met(user, mapped_mib, "MiB mapped"))
    }

    /// Ends the connections that are marked for it; others may be marked meanwhile.
    pub(crate) fn end_conns(&mut self) {
        while let Some(ended) = self.net.next_ended(self.life.stop) {
            self.for_itself("the end of a connection", |server| server.ended_conn(ended));
        }
        if std::mem::take(&mut self.places.has_left) {
            self.end_unused_pools();
        }
    }

    fn ended_conn(&mut self, ended: Ended) {
        let Ended { id, conn, by_itself, fault } = ended;
        self.programs.openings.remove(&id);
        self.programs.found.remove(&id);
        self.services.identify.forget(id);
        self.services.snapshots.forget(id);
        self.services.usage.forget(id);
        self.services.trust.forget(id);
        self.places.trusting.forget(id);
        if let Some(fault) = fault {
            self.history.dropped_clients += 1;
            self.record(conn.user, &format!("dropped process {} of user {}: {fault}", conn.pid, conn.user));
        }
        if let Some(client) = self.programs.clients.remove(&id) {
            self.record(conn.user, &format!("process {} of user {} has left", conn.pid, conn.user));
            self.forget(id, &client, by_itself);
            self.abandon(id, client);
            self.trim.left(self.now_ns);
        }
        self.net.reaper.close_socket(conn.socket);
        self.commands.remove(id);
        self.input(Input::RecordEnds(id));
        self.places.has_left = true;
    }

    /// Releases all resources of a program. `by_itself`: it was not dropped.
    fn forget(&mut self, id: u64, client: &Client, by_itself: bool) {
        self.note_kernels(id);
        self.add_memory_time();
        self.keep_last_metrics(id);
        self.keep_last_info(id, client);
        self.note_cut_off(id, client.seat);
        self.unfollow_trust(id, client.seat.is_some());
        let Some(program) = self.engine.programs().get(&id) else { return };
        let (pid, job) = (program.pid, program.job.clone());
        let is_kept = self.kept.put(program);
        self.input(Input::Left { program: id, by_itself });
        self.job_left(job.as_ref());
        if is_kept {
            self.restore_if_back(pid);
        }
        self.refuse_questions_to(id);
    }

    /// Writes the state that outlives the daemon, at its end. No program may wait for a daemon that is about to end.
    pub(crate) fn release_all(&mut self) {
        if self.timers.is_set(Timer::State) {
            self.write_kept();
        }
        for id in self.net.conns.keys().copied().collect::<Vec<_>>() {
            self.net.doom(id, None);
        }
        self.end_conns();
        self.net.refuse_all();
        self.end_pools();
        self.finish_usage();
        self.net.reaper.end();
    }
}

/// Line that a program has said, cut.
fn said(line: &str) -> String {
    escaped(line).chars().take(LINE_MAX_CHARS).collect()
}
