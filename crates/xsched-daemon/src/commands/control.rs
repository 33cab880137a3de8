//! Requests of commands.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use xsched_engine::{Changes, Order, Sender, What, check_hint, check_name};
use xsched_policy::registry::Entry;
use xsched_policy::{Arbiter, Choice, Param, registry};
use xsched_proto::wire::{DaemonMsg, Described, ParamInfo, PolicyInfo, Request, Target};

use crate::commands::Answer;
use crate::config::devices::odd_key;
use crate::config::restart::on;
use crate::identity::User;
use crate::identity::peer::PATH_MAX_BYTES;
use crate::identity::process::start_ticks;
use crate::net::Stage;
use crate::pool::trusted::Joining;
use crate::pool::unsuitable;
use crate::programs::client::Question;
use crate::server::clock::now_ns;
use crate::server::{Opening, Server};
use crate::services::identify;
use crate::tuning::{ANSWER_NS, HOST_POLICY};
use crate::{Error, Input};

impl Server {
    /// Takes a command's request: once its user is identified, [`Server::control`] continues.
    pub(crate) fn ask(&mut self, id: u64, mut request: Request) {
        if let Err(why) = bound(&mut request) {
            return self.net.refuse(id, why);
        }
        if self.commands.who.contains_key(&id) {
            return self.control(id, request);
        }
        let Some(conn) = self.net.conns.get(&id) else { return };
        self.services.identify.push(identify::task(id, conn.socket.as_fd(), conn.pid, conn.user.uid, None));
        self.programs.openings.insert(id, Opening::Command(request));
        self.net.set_stage(id, Stage::Opening);
    }

    /// Begins to answer a command whose user is known.
    pub(crate) fn control(&mut self, id: u64, request: Request) {
        self.set_answer(id, None);
        let user = self.net.conns.get(&id).map(|conn| conn.user);
        if let Some(user) = user.filter(|user| is_long(&request) && !self.has_room(*user, &self.long_answers())) {
            self.set_answer(id, Some(Answer::Waits(Box::new(request))));
            return self.commands.waiting.push_back((user, id));
        }
        match self.answer(id, request) {
            Ok(Some(answer)) => self.set_answer(id, Some(answer)),
            Ok(None) => self.net.send(id, &DaemonMsg::End, &[]),
            Err(why) => self.net.refuse(id, why),
        }
    }

    /// Begins an answer that waits for room, if there is room.
    pub(crate) fn answer_next(&mut self) {
        if self.commands.waiting.is_empty() {
            return;
        }
        let answers = self.long_answers();
        let has_room = |(user, _): &(User, u64)| self.has_room(*user, &answers);
        let Some(at) = self.commands.waiting.iter().position(has_room) else { return };
        let Some((_, id)) = self.commands.waiting.remove(at) else { return };
        if let Some(Answer::Waits(request)) = self.commands.answers.remove(&id) {
            self.control(id, *request);
            self.net.enqueue(id);
        }
    }

    /// Sends the next message of an answer.
    pub(crate) fn go_on(&mut self, id: u64) {
        let Some(answer) = self.commands.answers.get_mut(&id) else { return };
        let next = match answer {
            Answer::Policies(entries) => {
                entries.next().map(|entry| policy_info(self.engine.arbiter(), entry).map(DaemonMsg::Policy))
            }
            Answer::Usage(rows) => rows.pop_front().map(|row| Some(DaemonMsg::Usage(row))),
            Answer::Trace(telling) => self.engine.trace_part(telling).map(Some),
            Answer::Waits(_)
            | Answer::OfClient
            | Answer::OfPool
            | Answer::OfTeller
            | Answer::OfUsage
            | Answer::OfPrograms
            | Answer::OfReload(_) => return,
            Answer::Changing => return self.continue_change(id),
        };
        match next {
            Some(Some(message)) => self.net.send(id, &message, &[]),
            Some(None) => (),
            None => self.finish(id, &DaemonMsg::End),
        }
    }

    /// Begins to answer a request. Returns the rest of the answer; none = the answer is complete.
    fn answer(&mut self, id: u64, request: Request) -> Result<Option<Answer>, Error> {
        let Some(user) = self.net.conns.get(&id).map(|c| c.user) else { return Ok(None) };
        match request {
            Request::Ps => return Ok(Some(self.ps(id, false))),
            Request::PsAll => return Ok(Some(self.ps(id, true))),
            Request::PolicyList => {
                for text in self.policies_set() {
                    self.net.send(id, &DaemonMsg::Note { text }, &[]);
                }
                return Ok(Some(Answer::Policies(registry::POLICIES.iter())));
            }
            Request::PolicySet { name, params, device } => {
                self.operators_only(user, "change the policy")?;
                let choice = Choice::with(&name, params.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
                let unseen = device.as_deref().map(|device| self.unseen_device(device)).transpose()?.flatten();
                if choice.entry.name == HOST_POLICY && self.services.scheduler.is_none() {
                    let why = "no scheduler is loaded: start the daemon with --scheduler FILE";
                    return Err(Error::environment(why));
                }
                self.remember_policy(device.as_deref(), &choice);
                self.record_command(id, &format!("policy {choice}{}", on(device.as_deref())));
                self.input(Input::Policy(device, choice));
                if let Some(text) = unseen {
                    self.net.send(id, &DaemonMsg::Note { text }, &[]);
                }
            }
            Request::Hint { targets, priority, hints, level, threshold, batch } => {
                check_hint(priority, &hints, level)?;
                let changes = Changes { priority, by_root: user.is_root(), level, threshold, batch, hints };
                return Ok(self.change(id, targets, What::Hint(changes)));
            }
            Request::ActiveWindow { pid } => self.input(Input::ActiveWindow { user, pid }),
            Request::Suspend { targets } => return Ok(self.change(id, targets, What::Hold(true))),
            Request::Resume { targets } => return Ok(self.change(id, targets, What::Hold(false))),
            Request::Freeze { targets } => return Ok(self.change(id, targets, What::Freeze(true))),
            Request::Thaw { targets } => return Ok(self.change(id, targets, What::Freeze(false))),
            Request::Describe { pid } => {
                let conn = self.clients_of(id, user, pid)?.into_iter().max().unwrap_or(0);
                let token = self.net.next_id();
                self.commands.questions.push(Question {
                    token,
                    asker: id,
                    asked: conn,
                    pid,
                    until_ns: self.now_ns + ANSWER_NS,
                });
                self.net.send(conn, &DaemonMsg::Describe { token }, &[]);
                return Ok(Some(Answer::OfClient));
            }
            Request::Announce { job, program } => self.announce(id, &job, &program)?,
            Request::JoinPool { job, priority, insists, obstacle } => {
                let joining = Joining { job, priority, insists, obstacle };
                return self.join_pool(id, joining).map(|done| (!done).then_some(Answer::OfPool));
            }
            Request::PoolRefused { pipe } => self.pool_refused(user.uid, &pipe),
            Request::Faulted => self.faulted(id, user),
            Request::PoolServer { pool, fault } => self.pool_server(id, pool, fault)?,
            Request::Usage { since_ms, by } => return self.ask_usage(id, user, since_ms, by).map(Some),
            Request::Record { pids, from, ends } => {
                self.input(Input::Record { command: id, user, pids });
                let Some((next, lost, bursts)) = self.engine.bursts(id, from) else { return Ok(None) };
                self.net.send(id, &DaemonMsg::Bursts { next, lost, bursts }, &[]);
                if ends {
                    let bursts = self.engine.open_bursts(id);
                    self.net.send(id, &DaemonMsg::Bursts { next, lost: 0, bursts }, &[]);
                }
            }
            Request::Trace { from, since_us } => return Ok(self.begin_trace(id, user, from, since_us)),
            Request::Reload => {
                self.operators_only(user, "have the configuration read again")?;
                self.record_command(id, "read the configuration again");
                return Ok(Some(Answer::OfReload(self.reload())));
            }
            Request::Stop => {
                self.operators_only(user, "stop the daemon")?;
                self.record_command(id, "end the daemon");
                self.life.stop = true;
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

    /// Note on a device key that no program has used so far.
    ///
    /// # Errors
    /// Returns a line for a key that no device can have.
    fn unseen_device(&self, device: &str) -> Result<Option<String>, Error> {
        check_name(device, "device key")?;
        let used = self.engine.groups().values().map(|group| &*group.device);
        let known: BTreeSet<&str> = used.chain(self.services.devices.keys()).collect();
        if known.contains(device) {
            return Ok(None);
        }
        let names = known.into_iter().collect::<Vec<_>>().join(", ");
        let known = if names.is_empty() { String::new() } else { format!("; in use now: {names}") };
        match odd_key(device) {
            Some(why) => Err(Error::input(format!("{why}{known}"))),
            None => Ok(Some(format!("no program uses {device} now: the policy counts once one does{known}"))),
        }
    }

    /// Connections of the process that the user of a command may control.
    fn clients_of(&mut self, command: u64, user: User, pid: u32) -> Result<Vec<u64>, Error> {
        let programs = self.engine.programs().iter().filter(|(_, program)| program.pid == pid);
        let (theirs, others): (Vec<_>, Vec<_>) = programs.partition(|(_, program)| user.may_see(program.user));
        if theirs.is_empty() {
            if let Some(owner) = others.first().map(|(_, program)| program.user) {
                self.record_command(command, &format!("refused: process {pid} is of user {owner}"));
            }
            // The line is equal for another user's process and for one that does not exist, so that it discloses nothing.
            return Err(Error::environment(format!("no process {pid} of yours is attached: see xsched ps")));
        }
        Ok(theirs.into_iter().map(|(id, _)| *id).collect())
    }

    /// Begins a command that changes programs.
    fn change(&mut self, command: u64, targets: Vec<Target>, what: What) -> Option<Answer> {
        let conn = self.net.conns.get(&command)?;
        let (user, pid) = (conn.user, conn.pid);
        let who = self.commands.who.get(&command);
        let ancestors = who.map_or_else(Vec::new, |who| who.ancestors.clone());
        let ceilings = self.config.ceilings_of(user);
        let from = Sender { command, user, pid, ancestors, ceilings };
        self.input(Input::Change(Box::new(Order { from, targets, what })));
        self.engine.is_changing(command).then_some(Answer::Changing)
    }

    /// Does the next piece of a command that changes programs.
    fn continue_change(&mut self, command: u64) {
        if self.engine.awaits_answers(command) {
            return self.set_answer(command, Some(Answer::OfPrograms));
        }
        match self.engine.wanted_start(command) {
            Some(pid) => self.input(Input::Start(command, start_ticks(pid))),
            None => self.input(Input::Continue(command)),
        }
    }

    /// Begins to report events since a record or a time.
    fn begin_trace(&mut self, id: u64, user: User, from: u64, since_us: u64) -> Option<Answer> {
        // The request may have come after the current piece of work began; the answer must not be older than the request.
        self.engine.set_now(now_ns());
        let (head, telling) = self.engine.trace(user, from, since_us, self.history.started_ns / 1_000)?;
        self.net.send(id, &DaemonMsg::TraceHead(head), &[]);
        Some(Answer::Trace(Box::new(telling)))
    }

    /// Passes on a client's answer to a question.
    pub(crate) fn description(&mut self, conn: u64, token: u64, more: bool, lines: Vec<Described>) {
        let Some(at) = self.commands.questions.iter().position(|q| q.token == token && q.asked == conn) else {
            // The answer is late, or the asking command is gone. A token that was never given is not worth ending the connection for
            // either.
            return;
        };
        let asker = self.commands.questions[at].asker;
        self.net.send(asker, &DaemonMsg::Description(lines), &[]);
        if !more {
            self.commands.questions.swap_remove(at);
            self.finish(asker, &DaemonMsg::End);
        }
    }

    pub(crate) fn time_out_questions(&mut self) {
        while let Some(at) = self.commands.questions.iter().position(|q| q.until_ns <= self.now_ns) {
            let q = self.commands.questions.swap_remove(at);
            let why = Error::environment(format!("process {} did not answer within 1 s", q.pid));
            self.finish(q.asker, &DaemonMsg::Refused(why));
        }
    }

    pub(crate) fn refuse_questions_to(&mut self, conn: u64) {
        while let Some(at) = self.commands.questions.iter().position(|q| q.asked == conn) {
            let q = self.commands.questions.swap_remove(at);
            let why = Error::environment(format!("process {} ended before it answered", q.pid));
            self.finish(q.asker, &DaemonMsg::Refused(why));
        }
    }
}

/// Reports whether memory is kept for the answer to a request until its command has read it.
fn is_long(request: &Request) -> bool {
    matches!(
        request,
        Request::Hint { .. }
            | Request::Suspend { .. }
            | Request::Resume { .. }
            | Request::Freeze { .. }
            | Request::Thaw { .. }
            | Request::Usage { .. }
            | Request::Trace { .. }
    )
}

/// Cuts the texts of a request to the lengths that are kept: many requests may wait until their users are known.
///
/// # Errors
/// Returns a line for a text that is longer than allowed.
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

/// Description of a policy for the list; none = it is not listed.
fn policy_info(arbiter: &Arbiter, entry: &'static Entry) -> Option<PolicyInfo> {
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

/// Parameters of a policy, with the values of a choice of it, else their defaults.
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
