//! What attached processes say.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::epoll::EventFlags;
use xsched_policy::registry::Entry;
use xsched_policy::{Event, GroupId, GroupSpec, ProgramId};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::class::{Class, is_priority};
use xsched_proto::hint::Hint;
use xsched_proto::segment::{GROUPS, QUEUES, SEGMENT_BYTES};
use xsched_proto::wire::{ClientMsg, DaemonMsg, Levels, Platform, ProgramOptions, Sharing};

use crate::Error;
use crate::clerk::{self, Who};
use crate::client::{Client, Group, Queue, Stands, bounded, check_hint, check_name};
use crate::config::Ceilings;
use crate::identity::User;
use crate::memory::{ClientSegment, GroupWords, file_id};
use crate::peer::{self, Peer};
use crate::server::{Conn, Opening, Role, Server, kind};
use crate::socket::{self, Passed, ProgramFds};
use crate::tuning::{DEVICE_GROUPS_MAX, GROUPS_MAX, PROGRAM_SOCKET_MAX_BYTES, QUEUES_MAX};

/// Descriptors of a program beside its connection: its segment, to wake the daemon, and of its process.
const PROGRAM_FDS: usize = 3;

impl Server {
    /// The most that a user may ask for.
    pub(crate) fn ceilings(&self, user: User) -> Ceilings {
        if user.is_own() { Ceilings::NONE } else { self.config.ceilings(user.uid) }
    }

    /// The same for the user of a program.
    pub(crate) fn ceilings_of(&self, conn: u64) -> Ceilings {
        let user = self.conns.get(&conn).map(|c| c.user);
        user.map_or(Ceilings::NONE, |user| self.ceilings(user))
    }

    /// A program says hello: once it is known whose it is, [`Server::introduced`] goes on.
    pub(crate) fn hello(&mut self, id: u64, options: ProgramOptions, fds: Passed) -> Result<(), Error> {
        let mut fds = fds.take()?;
        let options = bounded(options)?;
        let conn = self.conns.get_mut(&id).ok_or_else(|| Error::input("it is gone"))?;
        if fds.1.is_none() {
            fds.1 = peer::pidfd(conn.socket.as_fd(), conn.pid, conn.since_ns)?;
        }
        self.clerk.push(clerk::task(id, conn.socket.as_fd(), conn.pid, conn.user.uid, fds.1.as_ref()));
        conn.role = Role::Unlisted(Box::new(Opening::Program(options, fds)));
        self.watch_socket(id);
        Ok(())
    }

    /// It is known whose a connection is: what it opened with is done.
    pub(crate) fn introduced(&mut self, id: u64, who: Result<Who, Error>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Role::Unlisted(opening) = std::mem::replace(&mut conn.role, Role::Unknown) else { return };
        let done = match (who, *opening) {
            (Err(why), _) => Err(why),
            (Ok(who), Opening::Program(options, fds)) => {
                conn.user = who.user;
                self.greet(id, who, options, fds)
            }
            (Ok(who), Opening::Command(request)) => {
                (conn.user, conn.who) = (who.user, Some(Rc::new(who)));
                self.control(id, request);
                Ok(())
            }
        };
        if let Err(why) = done {
            return self.doomed.push((id, Some(why)));
        }
        self.watch_socket(id);
        self.enqueue(id);
    }

    fn greet(&mut self, id: u64, mut who: Who, mut options: ProgramOptions, fds: ProgramFds) -> Result<(), Error> {
        let pid = self.conns.get(&id).map_or(0, |c| c.pid);
        let user = who.user;
        if !user.is_served() {
            self.refuse(id, Error::environment("this daemon serves another user"));
            self.doomed.push((id, None));
            return Ok(());
        }
        if let Ok(file) = file_id(&fds.0[0]) {
            self.take_up(user, file);
        }
        if let Some(why) = self.too_much_kept(user) {
            self.refuse(id, why);
            self.doomed.push((id, None));
            return Ok(());
        }
        let ([segment, eventfd], pidfd) = fds;
        if !peer::is_eventfd(&eventfd) {
            return Err(Error::input("the descriptor to wake the daemon is no eventfd"));
        }
        // A daemon that is confined to a user namespace (dist/user) may not look at its own user's programs outside of it.
        let told = std::mem::take(&mut options.exe);
        if who.exe.is_empty() && user.is_own() && told.starts_with('/') {
            who.exe = told;
        }
        let names = self.names(pid, user, who.names);
        let peer = Peer { pid, uid: user.uid, user, exe: who.exe, names, place: who.place, start: who.start };
        let stands = Stands { ancestors: who.ancestors, cgroups: who.cgroups, nice: who.nice };
        let segment = ClientSegment::new(segment)?;
        let parts = (segment, eventfd, pidfd);
        let ceilings = self.ceilings(user);
        let cut = ceilings.notice(options.hints);
        let client = Client::new(peer, ProgramId(id), options, parts, &self.config, ceilings, stands)?;
        let line = format!(
            "attached process {pid} of user {user}, class {} ({}): {}",
            Class::of(client.priority),
            client.class_from.text(),
            client.peer.exe
        );
        let (domains, limited) = (client.domains, client.domains_limited);
        // Edge-triggered: each write is one event, and nothing needs to be read.
        let wake = self.watch(&client.eventfd, id, kind::WAKE, EventFlags::IN | EventFlags::ET);
        // Without it the end of its socket tells of its death.
        let death = client.pidfd.as_ref().map_or(Ok(()), |pidfd| self.watch(pidfd, id, kind::DEATH, EventFlags::IN));
        wake.and(death).map_err(|e| Error::input(format!("its descriptors cannot be watched: {e}")))?;
        self.job_attached(client.job.clone());
        if let Some(conn) = self.conns.get_mut(&id) {
            socket::bound_unread(&conn.socket, PROGRAM_SOCKET_MAX_BYTES);
            conn.role = Role::Client(Box::new(client));
        }
        let page = self
            .heartbeat
            .file()
            .try_clone()
            .map_err(|e| Error::input(format!("the heartbeat page cannot be sent: {e}")))?;
        self.restore_program(id);
        let priority = self.conns.get(&id).and_then(Conn::client).map_or(0, |client| client.priority);
        let streams_apart = self.scheduler.as_ref().is_some_and(|host| host.per_stream);
        let welcome = DaemonMsg::Welcome { version: PROTOCOL_VERSION, session: id, priority, domains, streams_apart };
        self.send(id, &welcome, &[page.as_fd()]);
        if let Some(text) = cut {
            self.send(id, &DaemonMsg::Note { text }, &[]);
        }
        if limited {
            let text = format!(
                "XSCHED_DOMAINS=exempt needs a rule of the daemon's configuration (domains = \"exempt\"): {} holds",
                domains.name()
            );
            self.send(id, &DaemonMsg::Note { text }, &[]);
        }
        self.record(user.uid, &line);
        Ok(())
    }

    pub(crate) fn client_message(&mut self, id: u64, message: ClientMsg) -> Result<(), Error> {
        match message {
            ClientMsg::GroupAdd { slot, device, platform, priority_steps, priority_fixed, system, levels, sharing } => {
                let group = self.new_group(id, slot, device, platform, levels)?;
                if priority_fixed.is_some_and(|p| !is_priority(p)) {
                    return Err(Error::input("it asks for a priority out of range"));
                }
                if let Some(why) = self.too_much(&group) {
                    // As without a daemon: it runs unscheduled, and asks again later.
                    self.refuse(id, why);
                    self.doomed.push((id, None));
                    return Ok(());
                }
                self.group_add(id, Group { steps: priority_steps, fixed: priority_fixed, system, sharing, ..group });
                Ok(())
            }
            ClientMsg::Levels { slot, levels } => {
                let id = self
                    .group_at(id, slot)
                    .ok_or_else(|| Error::input("it tells the levels of a group that it does not have"))?;
                self.set_levels(id, levels);
                Ok(())
            }
            ClientMsg::GroupHint { slot, priority, hints } => {
                check_hint(priority, &hints, None)?;
                let group = self
                    .group_at(id, slot)
                    .ok_or_else(|| Error::input("it speaks of a group that it does not have"))?;
                self.said_of_group(group, priority, hints);
                Ok(())
            }
            ClientMsg::ProgramHint { hints } => {
                check_hint(None, &hints, None)?;
                self.said_of_program(id, hints);
                Ok(())
            }
            ClientMsg::GroupRemove { slot } => {
                let group =
                    self.group_at(id, slot).ok_or_else(|| Error::input("it removes a group that it does not have"))?;
                self.note_kernels(id);
                let client = self.conns.get(&id).and_then(Conn::client);
                self.remember_traced(client.and_then(|client| self.traced(group, client)));
                if let Some(client) = self.conns.get_mut(&id).and_then(|c| c.client_mut()) {
                    client.groups.retain(|g| *g != group);
                }
                self.group_remove(group);
                Ok(())
            }
            ClientMsg::QueueAdd { slot, group } => {
                if usize::from(slot) >= QUEUES {
                    return Err(Error::input(format!("it adds a queue in slot {slot} of {QUEUES}")));
                }
                self.group_at(id, group)
                    .ok_or_else(|| Error::input("it adds a queue to a group that it does not have"))?;
                let is_known = |client: &Client| client.queues.contains_key(&slot);
                if !self.conns.get(&id).and_then(Conn::client).is_some_and(is_known)
                    && let Some(why) = self.too_many_queues(id)
                {
                    self.refuse(id, why);
                    self.doomed.push((id, None));
                    return Ok(());
                }
                let fresh = self.next_id();
                let client =
                    self.conns.get_mut(&id).and_then(|c| c.client_mut()).ok_or_else(|| Error::input("it is gone"))?;
                let user = client.peer.user;
                client.segment.announce(slot);
                // Told again, a queue has moved to another group.
                let queue = client.queues.entry(slot).or_insert_with(|| Queue::new(fresh, group));
                queue.group = group;
                if queue.id == fresh {
                    *self.queues_of.entry(user).or_default() += 1;
                    self.queue_owners.insert(fresh, (id, slot));
                }
                Ok(())
            }
            ClientMsg::QueueRemove { slot } => {
                let client =
                    self.conns.get_mut(&id).and_then(|c| c.client_mut()).ok_or_else(|| Error::input("it is gone"))?;
                let queue = client
                    .queues
                    .remove(&slot)
                    .ok_or_else(|| Error::input("it removes a queue that it does not have"))?;
                let user = client.peer.user;
                self.queue_owners.remove(&queue.id);
                self.queues_gone(user, 1);
                Ok(())
            }
            ClientMsg::Description { token, more, lines } => self.description(id, token, more, lines),
            ClientMsg::Hello { .. } | ClientMsg::Control { .. } => Err(Error::input("it has introduced itself before")),
        }
    }

    pub(crate) fn group_at(&self, conn: u64, slot: u16) -> Option<GroupId> {
        let client = self.conns.get(&conn)?.client()?;
        client.groups.iter().copied().find(|id| self.groups.get(id).is_some_and(|g| g.slot == slot))
    }

    /// So many queues of a user are gone.
    fn queues_gone(&mut self, user: User, n: usize) {
        if let Some(left) = self.queues_of.get_mut(&user) {
            *left = left.saturating_sub(n);
            if *left == 0 {
                self.queues_of.remove(&user);
            }
        }
    }

    /// Why the user of a program may not have a further queue.
    fn too_many_queues(&self, conn: u64) -> Option<Error> {
        let user = self.conns.get(&conn)?.client()?.peer.user;
        let has = self.queues_of.get(&user).copied().unwrap_or(0);
        if !user.is_own() && self.queue_owners.len() >= QUEUES_MAX {
            return Some(all_taken("queues"));
        }
        (has >= self.config.bounds(user.uid, user.is_own()).queues).then(|| bound_met(user, has, "queues"))
    }

    /// Why a user may not have a further program: what the daemon keeps for those that it has.
    pub(crate) fn too_much_kept(&self, user: User) -> Option<Error> {
        if !user.is_own() && self.conns.len() + self.abandoned.len() >= self.max_conns {
            return Some(all_taken("programs"));
        }
        let bounds = self.config.bounds(user.uid, user.is_own());
        let theirs = || self.conns.values().filter(|conn| conn.user == user);
        let abandoned = self.abandoned.values().filter(|abandoned| abandoned.user == user).count();
        if abandoned > 0 && !user.is_own() && theirs().count() + abandoned > bounds.connections.min(self.max_conns / 4)
        {
            return Some(bound_met(user, abandoned, "processes that have left, with what they share"));
        }
        let programs = theirs().filter(|conn| conn.client().is_some()).count() + abandoned;
        let announced = self.expected.values().filter(|expected| expected.user == user).count();
        let descriptors = theirs().count() + programs * PROGRAM_FDS + announced;
        if descriptors + PROGRAM_FDS > bounds.descriptors {
            return Some(bound_met(user, descriptors, "descriptors"));
        }
        let mapped_mib = (programs * SEGMENT_BYTES) >> 20;
        let too_much = ((programs + 1) * SEGMENT_BYTES).div_ceil(1 << 20) > bounds.mapped_mib;
        too_much.then(|| bound_met(user, mapped_mib, "MiB mapped"))
    }

    /// Why a user may not have a further group: every decision, also for others, would take longer.
    fn too_much(&self, group: &Group) -> Option<Error> {
        let user = group.user;
        let bounds = self.config.bounds(user.uid, user.is_own());
        let has = |n: usize, what: &str| Some(bound_met(user, n, what));
        if let Some((n, what)) = self.too_many_books(user, &group.device) {
            return has(n, what);
        }
        if !user.is_own() {
            if let Some(what) = self.all_books_taken(&group.device) {
                return Some(all_taken(what));
            }
            if self.groups.len() >= GROUPS_MAX {
                return Some(all_taken("groups"));
            }
            if self.groups.values().filter(|g| g.device == group.device).count() >= DEVICE_GROUPS_MAX {
                return Some(all_taken(&format!("groups on {}", group.device)));
            }
        }
        let of_user_now = || self.groups.values().filter(|g| g.user == user);
        let here = of_user_now().filter(|g| g.device == group.device).count();
        if here >= bounds.device_groups {
            return has(here, &format!("groups on {}", group.device));
        }
        let all = of_user_now().count();
        if all >= bounds.groups {
            return has(all, "groups");
        }
        let job_of = |g: &Group| self.conns.get(&g.conn).and_then(Conn::client).and_then(|c| c.job.as_deref());
        let job = job_of(group)?;
        let own: BTreeSet<&str> = of_user_now().filter(|g| job_of(g) == Some(job)).map(|g| &*g.device).collect();
        // Only one that comes to its second device is one more.
        if own.len() != 1 || own.contains(&*group.device) {
            return None;
        }
        let mut devices: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for g in of_user_now() {
            if let Some(job) = job_of(g) {
                devices.entry(job).or_default().insert(&g.device);
            }
        }
        let jobs = devices.values().filter(|devices| devices.len() > 1).count();
        if jobs >= bounds.jobs { has(jobs, "jobs on several devices") } else { None }
    }

    fn new_group(
        &self,
        conn: u64,
        slot: u16,
        device: String,
        platform: Platform,
        levels: Levels,
    ) -> Result<Group, Error> {
        if usize::from(slot) >= GROUPS {
            return Err(Error::input(format!("it adds a group in slot {slot} of {GROUPS}")));
        }
        if self.group_at(conn, slot).is_some() {
            return Err(Error::input(format!("it adds a group in slot {slot}, which is taken")));
        }
        check_name(&device, "device key")?;
        let client = self.conns.get(&conn).and_then(|c| c.client()).ok_or_else(|| Error::input("it is gone"))?;
        Ok(Group {
            conn,
            user: client.peer.user,
            words: GroupWords::new(client.segment.clone(), slot),
            slot,
            device: device.into(),
            platform,
            levels,
            sharing: Sharing::Time,
            level: client.group_level(platform, levels),
            steps: 0,
            fixed: None,
            system: false,
            interrupted: false,
            too_long: false,
            drains_in_slices: false,
            completed: Vec::new(),
        })
    }

    fn group_add(&mut self, conn: u64, group: Group) {
        let id = GroupId(self.next_id());
        let client = self.conns.get(&conn).and_then(|c| c.client()).filter(|_| group.sharing == Sharing::Pool);
        let pool = client.map(|client| self.pool_of(client));
        let spatial = self.runs_beside(group.spatial());
        let active = self.conns.get(&conn).and_then(|c| c.client()).is_some_and(|c| self.has_active_window(c));
        let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()) else { return };
        client.groups.push(id);
        let spec = GroupSpec {
            id,
            program: client.program,
            device: group.device.to_string(),
            priority: client.group_priority(&group),
            hints: client.group_hints(&group),
            nice: client.nice,
            active,
            lineage: Some(client.lineage.clone()),
            job: client.job.clone(),
            system: group.system,
            spatial,
            pool,
        };
        group.words.budget_commands.store(client.threshold, Relaxed);
        group.words.batch_commands.store(client.batch, Relaxed);
        let (slot, device, words) = (group.slot, group.device.clone(), group.words.clone());
        if let Some(bursts) = &mut self.bursts {
            bursts.add(id, &words);
        }
        self.groups.insert(id, group);
        self.publish_level(id);
        let pooled = self.groups.get(&id).is_some_and(|group| group.sharing == Sharing::Pool);
        self.gatekeeper.add(self.now_us(), spec, words);
        if pooled {
            self.gatekeeper.set_budget(id, self.config.pool_budget_us());
        }
        self.keep_company(id);
        self.know_program(conn);
        self.watch_devices();
        self.observe(&device);
        self.act();
        // It may have become ready while it had no name.
        self.scan(conn);
        let arbiter = self.gatekeeper.arbiter();
        let priority = arbiter.status(self.now_us(), id).map_or(0, |status| status.priority);
        let policy = arbiter.policy_of(&device).entry.name.to_owned();
        self.detail_group(id, priority, &policy);
        self.send(conn, &DaemonMsg::GroupAdded { slot, id: id.0, priority, policy }, &[]);
        self.assign_timeslices(std::slice::from_ref(&device));
        if let Some(text) = self.overlooked(conn, &device) {
            self.send(conn, &DaemonMsg::Note { text }, &[]);
        }
        self.warn_of_full_memory(conn, &device);
    }

    /// What a client said for a policy that does not look at it, in one line, unless it was told before.
    pub(crate) fn overlooked(&mut self, conn: u64, device: &str) -> Option<String> {
        let entry = self.gatekeeper.arbiter().policy_of(device).entry;
        let client = self.conns.get_mut(&conn)?.client_mut()?;
        let mut hints = entry.overlooks(client.asked.given());
        hints.retain(|hint| !client.overlooked.contains(hint));
        client.note_overlooked(hints.iter().copied());
        overlooked_line(entry, &hints)
    }

    /// A level was lost, or the program chose another: the group goes on at the highest one there is. Below level 3 nothing stays
    /// interrupted. That is said even to a client whose driver refused: a further request to interrupt may have been under way to it
    /// while it told of the refusal.
    fn set_levels(&mut self, id: GroupId, levels: Levels) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let Some(client) = self.conns.get(&group.conn).and_then(|c| c.client()) else { return };
        group.levels = levels;
        group.level = client.group_level(group.platform, levels);
        if group.interrupted && group.level != 3 {
            self.interrupt(id, false);
        }
        self.publish_level(id);
    }

    fn group_remove(&mut self, id: GroupId) {
        if let Some(group) = self.take_group(id) {
            self.gatekeeper.remove(self.now_us(), id);
            self.close_blank(ProgramId(group.conn), &group.device);
            self.watch_devices();
            self.act();
            self.assign_timeslices(&[group.device]);
        }
    }

    fn take_group(&mut self, id: GroupId) -> Option<Group> {
        if let Some(bursts) = &mut self.bursts {
            bursts.remove(id);
        }
        self.groups.remove(&id)
    }

    /// Removes all that a client had. `left`: it went by itself, and was not dropped.
    pub(crate) fn forget(&mut self, conn: u64, client: &Client, left: bool) {
        self.keep_last_figures(client);
        if !client.groups.is_empty() {
            let last = self.last_info(conn, client);
            self.detail_left(&last);
            self.ended.push(client.peer.user, self.now_ns, last);
        }
        // By its own word: that it has become idle may not have been heard yet.
        let is_cut_off = |group: &Group| group.sharing == Sharing::Pool && !group.words.gate.load().must_announce();
        if client.groups.iter().filter_map(|id| self.groups.get(id)).any(is_cut_off) {
            self.pools.cut_off(client.peer.uid, self.now_ns);
        }
        let now_us = self.now_us();
        let mut devices = BTreeSet::new();
        for &id in &client.groups {
            self.remember_traced(self.traced(id, client));
            let group = self.take_group(id);
            // An MPS server that has to wait for 150 ms until nothing of a client that is gone is executed ends the whole pool, and beside an
            // urgent program a pool gets on with very little in that time. A client that lives lets itself go.
            if left && group.as_ref().is_some_and(|group| group.sharing != Sharing::Time) {
                self.gatekeeper.remove_dead(now_us, id);
            } else {
                self.gatekeeper.remove(now_us, id);
            }
            devices.extend(group.map(|group| group.device));
        }
        for device in &devices {
            self.close_blank(client.program, device);
        }
        for queue in client.queues.values() {
            self.queue_owners.remove(&queue.id);
        }
        self.queues_gone(client.peer.user, client.queues.len());
        self.pages.forget(conn);
        self.job_left(client.job.as_ref());
        if client.held {
            self.gatekeeper.event(now_us, Event::Release(client.program));
        }
        self.watch_devices();
        self.may_come_back(client);
        // One decision for all of them.
        self.act();
        self.assign_timeslices(&Vec::from_iter(devices));
        self.questions_of_the_dead(conn);
    }

    /// At the end: no program may wait for a daemon that is about to go.
    pub(crate) fn let_all_go(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        for id in conns {
            self.doomed.push((id, None));
        }
        self.bury();
        // Connections that were never accepted may hold descriptors too.
        self.listener.refuse();
        while let Ok(socket) = self.listener.accept() {
            self.closer.close_socket(socket);
        }
        self.end_pools();
    }
}

fn bound_met(user: User, n: usize, what: &str) -> Error {
    Error::environment(format!("user {user} has {n} {what}, as many as a user may have: see xsched ps"))
}

fn all_taken(what: &str) -> Error {
    Error::environment(format!("all users together have as many {what} as the daemon keeps: see xsched ps"))
}

/// That a policy does not look at some hints, in one line; none if there are none.
pub(crate) fn overlooked_line(entry: &Entry, hints: &[Hint]) -> Option<String> {
    let names: Vec<_> = hints.iter().map(|hint| hint.name()).collect();
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("the policy {} does not look at: {names}", entry.name))
}
