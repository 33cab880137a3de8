//! What commands ask for.

use std::collections::HashMap;
use std::os::fd::AsFd;

use xsched_engine::{Changes, Order, Sender, What, check_hint, check_name};
use xsched_policy::registry::Entry;
use xsched_policy::{Choice, Param, registry};
use xsched_proto::wire::{DaemonMsg, Described, ParamInfo, PolicyInfo, Request, Target};

use crate::client::Question;
use crate::identity::User;
use crate::peer::PATH_MAX_BYTES;
use crate::places::Joining;
use crate::process::start_ticks;
use crate::restart::on;
use crate::server::{Answer, Conn, Opening, Role, Server};
use crate::tuning::{ANSWER_NS, ANSWERS_MAX, USER_ANSWERS_MAX};
use crate::{Error, Input, clerk, host, unsuitable};

impl Server {
    /// A command asks for something: once it is known whose it is, [`Server::introduced`] goes on.
    pub(crate) fn ask(&mut self, id: u64, mut request: Request) {
        if let Err(why) = bound(&mut request) {
            return self.refuse(id, why);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.who.is_some() {
            return self.control(id, request);
        }
        self.clerk.push(clerk::task(id, conn.socket.as_fd(), conn.pid, conn.user.uid, None));
        conn.role = Role::Unlisted(Box::new(Opening::Command(request)));
        self.watch_socket(id);
    }

    pub(crate) fn control(&mut self, id: u64, request: Request) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Command(None);
        }
        if is_long(&request)
            && let Some(user) = self.conns.get(&id).map(|conn| conn.user)
            && !self.has_room(user, &self.long_answers())
        {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.role = Role::Command(Some(Answer::Waits(Box::new(request))));
            }
            self.waiting.push_back((user, id));
            return self.watch_socket(id);
        }
        let done = self.answer(id, request);
        match done {
            Ok(Some(answer)) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.role = Role::Command(Some(answer));
                }
                self.watch_socket(id);
            }
            Ok(None) => self.send(id, &DaemonMsg::End, &[]),
            Err(why) => self.refuse(id, why),
        }
    }

    /// The last word of an answer that took some time: the next request may come.
    pub(crate) fn finish(&mut self, id: u64, last: &DaemonMsg) {
        self.send(id, last, &[]);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Command(None);
        }
        self.watch_socket(id);
        self.answer_next();
    }

    /// How many long answers the users have under way.
    fn long_answers(&self) -> HashMap<User, usize> {
        let mut answers = HashMap::new();
        for conn in self.conns.values().filter(|conn| conn.has_long_answer()) {
            *answers.entry(conn.user).or_default() += 1;
        }
        answers
    }

    /// Tells whether a user may have a further long answer. Each takes up to half a MiB, for as long as its command takes to read it.
    fn has_room(&self, user: User, answers: &HashMap<User, usize>) -> bool {
        let of_others = || answers.iter().filter(|(user, _)| !user.is_own()).map(|(_, n)| n).sum::<usize>();
        let theirs = answers.get(&user).copied().unwrap_or(0);
        user.is_own() || theirs < USER_ANSWERS_MAX && of_others() < ANSWERS_MAX
    }

    /// Begins an answer that waits for room, if there is some.
    pub(crate) fn answer_next(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let answers = self.long_answers();
        let Some(at) = self.waiting.iter().position(|(user, _)| self.has_room(*user, &answers)) else { return };
        let Some((_, id)) = self.waiting.remove(at) else { return };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Role::Command(Some(Answer::Waits(request))) = std::mem::replace(&mut conn.role, Role::Command(None)) {
            self.control(id, *request);
            self.enqueue(id);
        }
    }

    /// Goes on with an answer, by one message.
    pub(crate) fn go_on(&mut self, id: u64) {
        let Some(Conn { role: Role::Command(Some(answer)), .. }) = self.conns.get_mut(&id) else { return };
        let next = match answer {
            Answer::Policies(entries) => entries.next().map(|entry| self.policy_info(entry).map(DaemonMsg::Policy)),
            Answer::Usage(rows) => rows.pop_front().map(|row| Some(DaemonMsg::Usage(row))),
            Answer::Waits(_) | Answer::OfClient | Answer::OfPool | Answer::OfTeller | Answer::OfUsage => return,
            Answer::Trace(_) => return self.go_on_with_trace(id),
            Answer::Changing => return self.go_on_changing(id),
        };
        match next {
            Some(Some(message)) => self.send(id, &message, &[]),
            Some(None) => (),
            None => self.finish(id, &DaemonMsg::End),
        }
    }

    fn go_on_with_trace(&mut self, id: u64) {
        // Taken out meanwhile: the next part of it is made of what else the server has.
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Role::Command(Some(Answer::Trace(mut telling))) = std::mem::replace(&mut conn.role, Role::Command(None))
        else {
            return;
        };
        let Some(part) = self.engine.trace_part(&mut telling) else { return self.finish(id, &DaemonMsg::End) };
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Command(Some(Answer::Trace(telling)));
        }
        self.send(id, &part, &[]);
    }

    /// What is still to be said; none = the answer is complete.
    fn answer(&mut self, id: u64, request: Request) -> Result<Option<Answer>, Error> {
        let Some(user) = self.conns.get(&id).map(|c| c.user) else { return Ok(None) };
        match request {
            Request::Ps => return Ok(Some(self.ps(id, false))),
            Request::PsAll => return Ok(Some(self.ps(id, true))),
            Request::PolicyList => return Ok(Some(Answer::Policies(registry::POLICIES.iter()))),
            Request::PolicySet { name, params, device } => {
                self.operators_only(user, "change the policy")?;
                let choice = Choice::with(&name, params.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
                if let Some(device) = &device {
                    check_name(device, "device key")?;
                }
                if choice.entry.name == host::POLICY && self.scheduler.is_none() {
                    let why = "no scheduler is loaded: start the daemon with --scheduler FILE";
                    return Err(Error::environment(why));
                }
                self.remember_policy(device.as_deref(), &choice);
                self.record_command(id, &format!("policy {choice}{}", on(device.as_deref())));
                self.input(Input::Policy(device, choice));
            }
            Request::Hint { targets, priority, hints, level, threshold, batch } => {
                check_hint(priority, &hints, level)?;
                let changes = Changes { priority, by_root: user.is_root(), level, threshold, batch, hints };
                return Ok(self.change(id, targets, What::Hint(changes)));
            }
            Request::ActiveWindow { pid } => self.input(Input::ActiveWindow { uid: user.uid, pid }),
            Request::Suspend { targets } => return Ok(self.change(id, targets, What::Hold(true))),
            Request::Resume { targets } => return Ok(self.change(id, targets, What::Hold(false))),
            Request::Describe { pid } => {
                let conn = self.clients_of(id, user, pid)?.into_iter().max().unwrap_or(0);
                let token = self.next_id();
                self.questions.push(Question { token, asker: id, asked: conn, pid, until_ns: self.now_ns + ANSWER_NS });
                self.send(conn, &DaemonMsg::Describe { token }, &[]);
                return Ok(Some(Answer::OfClient));
            }
            Request::Announce { job, program } => self.announce(id, &job, &program)?,
            Request::JoinPool { job, priority, insists, obstacle } => {
                let joining = Joining { job, priority, insists, obstacle };
                return self.join_pool(id, joining).map(|done| (!done).then_some(Answer::OfPool));
            }
            Request::PoolRefused { pipe } => self.pool_refused(user.uid, &pipe),
            Request::PoolServer { pool, fault } => self.pool_server(id, pool, fault)?,
            Request::Usage { since_ms, by } => return self.ask_usage(id, user, since_ms, by).map(Some),
            Request::Trace { from, since_us } => return Ok(self.begin_trace(id, user, from, since_us)),
            Request::Stop => {
                self.operators_only(user, "stop the daemon")?;
                self.record_command(id, "end the daemon");
                self.stop = true;
            }
        }
        Ok(None)
    }

    fn operators_only(&self, user: User, what: &str) -> Result<(), Error> {
        if user.is_own() {
            return Ok(());
        }
        Err(Error::environment(format!("only root and the daemon's own user may {what}")))
    }

    /// Connections of the process, which the user of a command may control.
    fn clients_of(&mut self, command: u64, user: User, pid: u32) -> Result<Vec<u64>, Error> {
        let programs = self.engine.programs().iter().filter(|(_, program)| program.pid == pid);
        let (theirs, others): (Vec<_>, Vec<_>) = programs.partition(|(_, program)| user.may_see(program.user));
        if theirs.is_empty() {
            if let Some(owner) = others.first().map(|(_, program)| program.user) {
                self.record_command(command, &format!("refused: process {pid} is of user {owner}"));
            }
            // The same words whether it is another user's or does not exist.
            return Err(Error::environment(format!("no process {pid} of yours is attached: see xsched ps")));
        }
        Ok(theirs.into_iter().map(|(id, _)| *id).collect())
    }

    /// Begins to change programs.
    fn change(&mut self, command: u64, targets: Vec<Target>, what: What) -> Option<Answer> {
        let conn = self.conns.get(&command)?;
        let (user, pid) = (conn.user, conn.pid);
        let ancestors = conn.who.as_ref().map_or_else(Vec::new, |who| who.ancestors.clone());
        let ceilings = self.config.ceilings_of(user);
        let from = Sender { command, user, pid, ancestors, ceilings };
        self.input(Input::Change(Box::new(Order { from, targets, what })));
        self.engine.is_changing(command).then_some(Answer::Changing)
    }

    /// Does the next piece of a command that changes programs.
    fn go_on_changing(&mut self, command: u64) {
        match self.engine.wanted_start(command) {
            Some(pid) => self.input(Input::Start(command, start_ticks(pid))),
            None => self.input(Input::Continue(command)),
        }
    }

    /// Begins to tell what happened since a record or a time.
    fn begin_trace(&mut self, id: u64, user: User, from: u64, since_us: u64) -> Option<Answer> {
        let (head, telling) = self.engine.trace(user, from, since_us, self.started_ns / 1_000)?;
        self.send(id, &DaemonMsg::TraceHead(head), &[]);
        Some(Answer::Trace(Box::new(telling)))
    }

    /// What is told of a policy; none = it is not listed.
    fn policy_info(&self, entry: &'static Entry) -> Option<PolicyInfo> {
        let arbiter = self.engine.arbiter();
        let own: Vec<(&str, &Choice)> =
            arbiter.policies().filter(|(_, choice)| std::ptr::eq(choice.entry, entry)).collect();
        let devices: Vec<String> = own.iter().map(|(device, _)| (*device).to_owned()).collect();
        let current = std::ptr::eq(arbiter.policy().entry, entry);
        if !entry.listed && !current && devices.is_empty() {
            return None;
        }
        let in_force = if current { Some(arbiter.policy()) } else { own.first().map(|(_, choice)| *choice) };
        Some(PolicyInfo {
            devices,
            params: params_of(entry, in_force),
            name: entry.name.into(),
            aliases: entry.aliases.iter().map(|a| (*a).to_owned()).collect(),
            about: entry.about.into(),
            current,
        })
    }

    /// A client's answer to a question.
    pub(crate) fn description(&mut self, conn: u64, token: u64, more: bool, lines: Vec<Described>) {
        let Some(at) = self.questions.iter().position(|q| q.token == token && q.asked == conn) else {
            // Too late, or the one who asked is gone. A token that was never given is not worth a fight either.
            return;
        };
        let asker = self.questions[at].asker;
        self.send(asker, &DaemonMsg::Description(lines), &[]);
        if !more {
            self.questions.swap_remove(at);
            self.finish(asker, &DaemonMsg::End);
        }
    }

    pub(crate) fn time_out_questions(&mut self) {
        while let Some(at) = self.questions.iter().position(|q| q.until_ns <= self.now_ns) {
            let q = self.questions.swap_remove(at);
            let why = Error::environment(format!("process {} did not answer within 1 s", q.pid));
            self.finish(q.asker, &DaemonMsg::Refused(why));
        }
    }

    pub(crate) fn questions_of_the_dead(&mut self, conn: u64) {
        while let Some(at) = self.questions.iter().position(|q| q.asked == conn) {
            let q = self.questions.swap_remove(at);
            let why = Error::environment(format!("process {} ended before it answered", q.pid));
            self.finish(q.asker, &DaemonMsg::Refused(why));
        }
    }
}

/// Tells whether memory is kept for the answer to a request until its command has read it.
fn is_long(request: &Request) -> bool {
    matches!(
        request,
        Request::Hint { .. }
            | Request::Suspend { .. }
            | Request::Resume { .. }
            | Request::Usage { .. }
            | Request::Trace { .. }
    )
}

/// Leaves no more of a request's texts than is kept of them: many may wait until it is known whose they are.
///
/// # Errors
/// They are longer than they may be.
fn bound(request: &mut Request) -> Result<(), Error> {
    let path = |text: &str, what: &str| {
        let fits = text.len() <= PATH_MAX_BYTES;
        if fits { Ok(()) } else { Err(Error::input(format!("{what} has {PATH_MAX_BYTES} bytes at most"))) }
    };
    match request {
        Request::Announce { job, program } => {
            check_name(job, "job")?;
            unsuitable::cut(program);
        }
        Request::JoinPool { job, obstacle, .. } => {
            job.as_deref().map_or(Ok(()), |job| check_name(job, "job"))?;
            obstacle.as_deref().map_or(Ok(()), |why| check_name(why, "reason"))?;
        }
        Request::PoolRefused { pipe } => path(pipe, "a folder's name")?,
        Request::PolicySet { name, params, device } => {
            let texts = params.iter().flat_map(|(name, value)| [name, value]).chain([&*name]).chain(&*device);
            texts.into_iter().try_for_each(|text| path(text, "a policy's parameter"))?;
        }
        _ => (),
    }
    Ok(())
}

/// A policy's parameters, with the values of a choice of it, else their defaults.
fn params_of(entry: &Entry, choice: Option<&Choice>) -> Vec<ParamInfo> {
    let value = |name: &str| choice?.values().find(|(known, _)| *known == name).map(|(_, value)| value);
    let info = |param: &Param| ParamInfo {
        name: param.name.into(),
        about: param.about.into(),
        accepts: param.accepts.accepted(),
        value: value(param.name).unwrap_or_else(|| param.accepts.default_text()),
    };
    entry.params.iter().map(info).collect()
}
