//! What commands ask for.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::registry::Entry;
use xsched_policy::{Choice, Event, GroupId, Param, registry};
use xsched_proto::class::Class;
use xsched_proto::hint::Hints;
use xsched_proto::wire::{ClassFrom, DaemonMsg, Described, ParamInfo, PolicyInfo, Request};

use crate::Error;
use crate::changes::{Changes, Hinting, Lacking};
use crate::client::{Client, Group, Question, check_hint, check_name};
use crate::host;
use crate::identity::User;
use crate::naming::may;
use crate::peer::PATH_MAX_BYTES;
use crate::places::Joining;
use crate::restart::on;
use crate::server::{Answer, Conn, Opening, Role, Server};
use crate::services::identify;
use crate::session::overlooked_line;
use crate::tuning::{ANSWER_NS, ANSWERS_MAX, LACKING_LINES, USER_ANSWERS_MAX};
use crate::unsuitable;

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
        self.clerk.push(identify::task(id, conn.socket.as_fd(), conn.pid, conn.user.uid, None));
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
            Answer::Changing(_) => return self.go_on_changing(id),
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
        let Some(part) = self.trace_part(&mut telling) else { return self.finish(id, &DaemonMsg::End) };
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
                let now_us = self.now_us();
                self.gatekeeper.set_policy(now_us, device.as_deref(), choice.clone());
                self.remember_policy(device.as_deref(), &choice);
                self.record_command(id, &format!("policy {choice}{}", on(device.as_deref())));
                for id in self.groups.keys().copied().collect::<Vec<_>>() {
                    self.publish_level(id);
                }
                self.act();
            }
            Request::Hint { targets, priority, hints, level, threshold, batch } => {
                check_hint(priority, &hints, level)?;
                let changes = Changes { priority, by_root: user.is_root(), level, threshold, batch, hints };
                return self.hint(id, user, targets, changes).map(Some);
            }
            Request::ActiveWindow { pid } => self.active_window(user.uid, pid),
            Request::Suspend { targets } => return self.hold(user, targets, true).map(Some),
            Request::Resume { targets } => return self.hold(user, targets, false).map(Some),
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
            Request::Trace { from, since_us } => return Ok(self.trace(id, user, from, since_us)),
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
        let is = |c: &Client| c.peer.pid == pid && may(user, c);
        let found: Vec<u64> =
            self.conns.iter().filter(|(_, c)| c.client().is_some_and(is)).map(|(id, _)| *id).collect();
        if found.is_empty() {
            self.record_refusal(command, pid);
            // The same words whether it is another user's or does not exist.
            return Err(Error::environment(format!("no process {pid} of yours is attached: see xsched ps")));
        }
        Ok(found)
    }

    pub(crate) fn pids_of(&self, conns: &[u64]) -> impl Iterator<Item = u32> {
        conns.iter().filter_map(|conn| Some(self.conns.get(conn)?.client()?.peer.pid))
    }

    /// Gives a hint to one queue.
    ///
    /// # Errors
    /// The queue is not the user's, or does not allow this.
    pub(crate) fn hint_queue(&mut self, command: u64, user: User, queue: u64, hint: &mut Hinting) -> Result<(), Error> {
        let changes = hint.changes;
        let owner = self.queue_owners.get(&queue).copied().and_then(|(conn, slot)| {
            let client = self.conns.get(&conn)?.client().filter(|c| may(user, c))?;
            Some((conn, slot, client.queues.get(&slot)?.group))
        });
        let Some((conn, slot, group)) = owner else {
            return Err(Error::environment(format!("you have no queue q{queue}: see xsched ps")));
        };
        if let Some(allowed) =
            self.allowed(conn).filter(|a| changes.priority.is_some_and(|p| p > *a) && !user.is_root())
        {
            return Err(too_high(allowed));
        }
        let group = self.group_at(conn, group);
        let mut lacking = Lacking::default();
        self.lacks(group.as_slice(), changes.level, &mut lacking);
        self.all_lack(changes.level, &lacking)?;
        // The client moves the queue to a group of that priority; the rest is for the group it is in.
        if let Some(priority) = changes.priority {
            if let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()).filter(|_| user.is_root()) {
                client.allow(priority);
            }
            self.send(conn, &DaemonMsg::QueuePriority { slot, priority }, &[]);
        }
        if let Some(id) = group {
            self.hint_group(id, Changes { priority: None, ..changes });
            self.note_hinted(id, hint);
            self.act();
        }
        self.record_command(command, &format!("hint queue q{queue}: {}", told(&changes)));
        Ok(())
    }

    /// Notes which of some groups lack a level that is asked for, and what takes its place.
    pub(crate) fn lacks(&self, groups: &[GroupId], level: Option<u8>, lacking: &mut Lacking) {
        let Some(level) = level else { return };
        for id in groups {
            let Some(group) = self.groups.get(id) else { continue };
            if group.levels.has(level) {
                lacking.some_have = true;
                continue;
            }
            lacking.first.get_or_insert(*id);
            if lacking.lines.len() < LACKING_LINES {
                let used = group.levels.highest_to(level);
                let place = place_of(group);
                let line = format!("preemption level {level} is not available on {place}: using level {used}");
                lacking.lines.insert(line);
            }
        }
    }

    /// # Errors
    /// None of the groups has the level: nothing would change.
    pub(crate) fn all_lack(&self, level: Option<u8>, lacking: &Lacking) -> Result<(), Error> {
        let first = lacking.first.filter(|_| !lacking.some_have).and_then(|id| self.groups.get(&id));
        let (Some(level), Some(group)) = (level, first) else { return Ok(()) };
        let there: Vec<String> = (1..=3).filter(|l| group.levels.has(*l)).map(|l| l.to_string()).collect();
        let (place, there) = (place_of(group), there.join(" or "));
        Err(Error::environment(format!("preemption level {level} is not available on {place}: use {there}")))
    }

    /// The note that pooled programs of another class now stay in their pool.
    pub(crate) fn stays(&self, priority: i32) -> Option<String> {
        let class = Class::of(priority);
        (class > self.config.pool_max_class()).then(|| {
            format!("it stays in the pool until it ends: only its gates follow class {class}; start it with that class")
        })
    }

    /// Lines on hints that the policies of some devices do not look at.
    pub(crate) fn without_effect(&self, devices: &BTreeSet<Arc<str>>, hints: &Hints) -> Vec<String> {
        let arbiter = self.gatekeeper.arbiter();
        let mut lines: Vec<String> = Vec::new();
        for entry in devices.iter().map(|device| arbiter.policy_of(device).entry) {
            let line = overlooked_line(entry, &entry.overlooks(hints.given()));
            lines.extend(line.filter(|line| !lines.contains(line)));
        }
        lines
    }

    pub(crate) fn allowed(&self, conn: u64) -> Option<i32> {
        Some(self.conns.get(&conn)?.client()?.allowed)
    }

    pub(crate) fn groups_of(&self, conn: u64) -> Vec<GroupId> {
        self.conns.get(&conn).and_then(|c| c.client()).map_or(Vec::new(), |c| c.groups.clone())
    }

    /// What a command says of a program.
    pub(crate) fn hint_client(&mut self, conn: u64, changes: Changes) {
        let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()) else { return };
        if let Some(priority) = changes.priority {
            client.set_priority(priority, changes.by_root);
            (client.class_from, client.limited) = (ClassFrom::Hint, false);
        }
        client.hints = changes.hints.or(client.hints);
        client.asked = changes.hints.or(client.asked);
        // The command is told that they are not looked at.
        client.note_overlooked(changes.hints.given());
        client.level = changes.level.or(client.level);
        client.threshold = changes.threshold.unwrap_or(client.threshold);
        client.batch = changes.batch.unwrap_or(client.batch);
        let groups = client.groups.clone();
        let follows = |id| self.groups.get(id).is_some_and(|g| g.platform.has_priorities());
        if let Some(priority) = changes.priority.filter(|_| groups.iter().any(follows)) {
            self.send(conn, &DaemonMsg::Priority { priority }, &[]);
        }
        for id in groups {
            let priority = changes.priority.and_then(|_| {
                let group = self.groups.get(&id).filter(|g| g.fixed.is_none())?;
                let client = self.conns.get(&conn)?.client()?;
                Some(client.group_priority(group))
            });
            self.hint_group(id, Changes { priority, ..changes });
        }
    }

    /// A program speaks of one of its groups. No priority is above its ceiling.
    pub(crate) fn said_of_group(&mut self, id: GroupId, priority: Option<i32>, hints: Hints) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.fixed = priority;
        let (conn, device) = (group.conn, group.device.clone());
        let Some(group) = self.groups.get(&id) else { return };
        let priority = self.conns.get(&conn).and_then(|c| c.client()).map(|client| client.group_priority(group));
        let hints = self.ceilings_of(conn).cut(hints);
        self.hint_group(id, Changes { priority, hints, ..Changes::default() });
        self.act();
        self.assign_timeslices(&[device]);
    }

    /// A program speaks of all of its groups.
    pub(crate) fn said_of_program(&mut self, conn: u64, hints: Hints) {
        let hints = self.ceilings_of(conn).cut(hints);
        let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()) else { return };
        client.hints = hints.or(client.hints);
        client.asked = hints.or(client.asked);
        for id in client.groups.clone() {
            self.hint_group(id, Changes { hints, ..Changes::default() });
        }
        self.act();
    }

    fn hint_group(&mut self, id: GroupId, changes: Changes) {
        let Changes { priority, mut hints, level, threshold, batch, .. } = changes;
        if let Some(group) = self.groups.get(&id).filter(|_| hints.laxity.is_some())
            && let Some(client) = self.conns.get(&group.conn).and_then(|c| c.client())
        {
            hints.laxity = client.group_laxity(group, hints.laxity);
        }
        self.gatekeeper.event(self.now_ns / 1_000, Event::Hint { group: id, priority, hints });
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some(threshold) = threshold {
            group.words.budget_commands.store(threshold, Relaxed);
        }
        if let Some(batch) = batch {
            group.words.batch_commands.store(batch, Relaxed);
        }
        let Some(wished) = level else { return };
        let level = group.levels.highest_to(wished);
        group.level = level;
        // A group whose gate is closed is interrupted, or let go on, as the new level wants it.
        let on = level == 3 && !self.gatekeeper.is_granted(id) && group.platform.interrupts();
        if group.interrupted != on {
            self.interrupt(id, on);
        }
        self.publish_level(id);
    }

    /// What is told of a policy; none = it is not listed.
    fn policy_info(&self, entry: &'static Entry) -> Option<PolicyInfo> {
        let arbiter = self.gatekeeper.arbiter();
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
    pub(crate) fn description(
        &mut self,
        conn: u64,
        token: u64,
        more: bool,
        lines: Vec<Described>,
    ) -> Result<(), Error> {
        let Some(at) = self.questions.iter().position(|q| q.token == token && q.asked == conn) else {
            // Too late, or the one who asked is gone. A token that was never given is not worth a fight either.
            return Ok(());
        };
        let asker = self.questions[at].asker;
        self.send(asker, &DaemonMsg::Description(lines), &[]);
        if !more {
            self.questions.swap_remove(at);
            self.finish(asker, &DaemonMsg::End);
        }
        Ok(())
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

/// A group's device and interface, in words.
fn place_of(group: &Group) -> String {
    format!("{} through {}", group.device, group.platform.name())
}

pub(crate) fn too_high(limit: i32) -> Error {
    let class = Class::of(limit);
    Error::environment(format!("not allowed: your limit is class {class} (priority {limit})"))
}

/// What a hint says, in one line.
pub(crate) fn told(changes: &Changes) -> String {
    let number = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}"));
    let own = [
        number("priority", changes.priority.map(|p| p.to_string())),
        number("level", changes.level.map(|level| level.to_string())),
        number("threshold", changes.threshold.map(|n| n.to_string())),
        number("batch", changes.batch.map(|n| n.to_string())),
    ];
    let hints = changes.hints.given().filter_map(|hint| number(hint.name(), changes.hints.text(hint)));
    own.into_iter().flatten().chain(hints).collect::<Vec<_>>().join(", ")
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
