//! Processes that are expected to attach: `xsched run` announced them, or they have a place in a pool. Minutes may pass before they attach.

use std::sync::atomic::Ordering::Relaxed;

use rustix::event::epoll::EventFlags;
use rustix::process::{Pid, PidfdFlags};
use xsched_engine::{Seat, Side, check_name};
use xsched_policy::PoolId;
use xsched_proto::class::Class;
use xsched_proto::entitlement::Entitlement;
use xsched_proto::wire::Sharing;

use crate::identity::peer::Peer;
use crate::identity::{self, User};
use crate::net::Token;
use crate::pool::unsuitable;
use crate::programs::client::Expected;
use crate::server::Server;
use crate::{Error, Group, Program};

impl Server {
    /// Registers the process that asks as a program.
    pub(crate) fn announce(&mut self, conn: u64, job: &str, program: &str) -> Result<(), Error> {
        let (pid, user) =
            self.net.conns.get(&conn).map(|c| (c.pid, c.user)).ok_or_else(|| Error::environment("it is gone"))?;
        check_name(job, "job")?;
        self.expect(pid, user, Some(job), Some(program))?;
        Ok(())
    }

    /// Remembers an announced process until it and its whole job have ended. A second announcement of the same process replaces the first,
    /// but the process keeps its place in a pool. Returns its number.
    pub(crate) fn expect(
        &mut self,
        pid: u32,
        user: User,
        job: Option<&str>,
        program: Option<&str>,
    ) -> Result<u64, Error> {
        let environment = |line: &str| Error::environment(line);
        if !identity::is_served(user) {
            return Err(environment("this daemon serves another user"));
        }
        let job = job.map(|job| format!("{user}:{job}"));
        // A process started by the first one of its job runs the program that the job was started for.
        let of_job =
            || self.places.expected.values().find(|e| e.job == job && job.is_some()).and_then(|e| e.program.clone());
        let name = program.and_then(|program| program.rsplit(['/', ' ']).next()).map(str::to_owned);
        let program = program.map(|program| unsuitable::key(user.uid, program)).or_else(of_job);
        if let Some((id, known)) = self.places.expected.iter_mut().find(|(_, e)| e.pid == pid && !e.ended) {
            (known.user, known.job, known.program) = (user, job, program);
            known.name = name.or(known.name.take());
            return Ok(*id);
        }
        let of_user = self.places.expected.values().filter(|e| e.user == user).count();
        if self.places.expected.len() >= self.net.max_conns || !user.is_own() && of_user >= self.net.max_conns / 4 {
            return Err(environment("too many programs are announced"));
        }
        let pidfd = Pid::from_raw(pid.cast_signed())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|e| environment(&format!("the process cannot be seen from here ({e})")))?;
        let id = self.net.next_id();
        self.net
            .watch(&pidfd, Token::Announced(id), EventFlags::IN)
            .map_err(|e| environment(&format!("the process cannot be watched ({e})")))?;
        let expected =
            Expected { pid, user, job, pidfd, ended: false, program, name, pool: None, why: None, is_urgent: false };
        self.places.expected.insert(id, expected);
        self.places.has_left = true;
        Ok(id)
    }

    /// Priority that a process will have when it attaches, if it asks for `asked`.
    pub(crate) fn priority_to_be(&self, conn: u64, asked: Option<i32>) -> i32 {
        let who = self.commands.who.get(&conn);
        let Some(conn) = self.net.conns.get(&conn) else { return Class::Normal.nominal() };
        let Some(who) = who else { return Class::Normal.nominal() };
        let names = self.names(conn.pid, who.user, who.names.clone());
        let (pid, user) = (conn.pid, who.user);
        let (exe, place) = (who.exe.clone(), who.place.clone());
        let peer = Peer { pid, uid: user.uid, user, exe, names, place, start: who.start };
        Entitlement::new(self.config.terms(&peer, &[]).claim(asked)).priority
    }

    /// Adds the name that `run` announced: for `python3 train.py` that of the script.
    pub(crate) fn names(&self, pid: u32, user: User, mut names: Vec<String>) -> Vec<String> {
        let announced = self.places.expected.values().find(|e| e.pid == pid && e.user == user && !e.ended);
        names.extend(announced.and_then(|e| e.name.clone()));
        names
    }

    pub(crate) fn announced(&self, program: &Program) -> Option<&Expected> {
        let itself = self.places.expected.values().find(|e| e.pid == program.pid && !e.ended);
        itself.or_else(|| self.places.expected.values().find(|e| program.job.is_some() && e.job == program.job))
    }

    /// Notes the place of a program that makes a context, in a pool or outside. Returns its seat, if it is in a pool.
    pub(crate) fn take_place(&mut self, id: u64, sharing: Sharing) -> Option<Seat> {
        let seat = (sharing == Sharing::Pool).then(|| self.pool_of(id));
        let program = self.engine.programs().get(&id)?;
        // Other processes of its job have reasons of their own.
        let itself = self.places.expected.values().find(|e| e.pid == program.pid && !e.ended);
        let why = itself.and_then(|expected| expected.why.clone());
        if let Some(client) = self.programs.clients.get_mut(&id) {
            (client.seat, client.place_why) = (seat, why);
        }
        seat
    }

    /// Seat of a program in a pool. Seats from an earlier daemon are kept; a program without a known seat is assumed to be in one outer
    /// pool of its user.
    pub(crate) fn pool_of(&self, id: u64) -> Seat {
        let program = self.engine.programs().get(&id);
        if let Some(seat) = program.and_then(|program| self.kept.seat(program)) {
            return seat;
        }
        let known = program.and_then(|program| self.announced(program)).and_then(|expected| expected.pool);
        let side = known.and_then(|id| self.places.pools.list.iter().find(|pool| pool.id == id)).map(|pool| pool.side);
        let uid = program.map_or(0, |program| program.user.uid);
        let server = PoolId(known.unwrap_or(u64::MAX - u64::from(uid)));
        Seat { server, side: side.unwrap_or(Side::Outer) }
    }

    /// Remembers, while the program is still attached, that its kernels are too long for others of a pool.
    pub(crate) fn note_kernels(&mut self, id: u64) {
        let Some(program) = self.engine.programs().get(&id) else { return };
        let pooled = self.engine.groups_of(program).filter(|(_, group)| group.sharing != Sharing::Time);
        let Some(longest_us) = pooled.map(|(_, group)| group.words.longest_us.load(Relaxed)).max() else { return };
        let Some(name) = self.announced(program).and_then(|e| e.program.clone()) else { return };
        match self.places.unsuitable.note_kernel(&name, longest_us) {
            Ok(()) => (),
            Err(e) => self.log(&e.to_string()),
        }
    }

    /// Notes for a pool that one of its programs has ended in the middle of its work.
    pub(crate) fn note_cut_off(&mut self, id: u64, seat: Option<Seat>) {
        let Some(program) = self.engine.programs().get(&id) else { return };
        // Decided by the program's own word, since a change to idle may not have been read yet.
        let is_cut_off = |group: &Group| group.is_pooled() && !group.words.gate.load().must_announce();
        if let Some(seat) = seat
            && self.engine.groups_of(program).any(|(_, group)| is_cut_off(group))
        {
            self.places.pools.cut_off(seat.server.0, self.now_ns);
        }
    }

    /// Handles the end of an expected process.
    pub(crate) fn expected_ended(&mut self, id: u64) {
        if let Some(expected) = self.places.expected.get_mut(&id) {
            expected.ended = true;
            expected.leave_pool();
        }
        if let Some(expected) = self.places.expected.get(&id) {
            self.net.unwatch(&expected.pidfd);
            if !expected.job.as_ref().is_some_and(|job| self.places.jobs.contains_key(job)) {
                self.places.expected.remove(&id);
            }
        }
        self.places.has_left = true;
    }

    /// Counts a program of a job that has attached.
    pub(crate) fn job_attached(&mut self, job: Option<String>) {
        if let Some(job) = job {
            *self.places.jobs.entry(job).or_default() += 1;
        }
    }

    /// Counts out a program of a job that has left: with the last one, ended processes of the job that were announced are forgotten.
    pub(crate) fn job_left(&mut self, job: Option<&String>) {
        let Some(programs) = job.and_then(|job| self.places.jobs.get_mut(job)) else { return };
        *programs -= 1;
        if *programs == 0 {
            job.and_then(|job| self.places.jobs.remove(job));
            self.places.expected.retain(|_, e| !e.ended || e.job.as_ref() != job);
        }
    }
}
