//! Collection of the loop's data for `ps`. The answer is made and sent by another thread, see `services::snapshot`.

use std::os::fd::AsFd;
use std::rc::Rc;

use xsched_proto::wire::{DaemonInfo, DaemonMsg};

use crate::commands::Answer;
use crate::history::shares::Shares;
use crate::identity::User;
use crate::net::sending::UNREAD;
use crate::programs::client::Client;
use crate::server::Server;
use crate::server::clock::own_cpu_ns;
use crate::services::snapshot::{Asker, Failed, Looking, Seen, SeenGroup, SeenQueue, SeenYielding, Sight};
use crate::tuning::{ENDED_QUEUES_MAX, SIGHT_PIECE};
use crate::{Error, Program};

impl Server {
    /// Registers a command for the next snapshot. `all` = with programs that ended lately.
    pub(crate) fn ps(&mut self, id: u64, all: bool) -> Answer {
        if let Some(user) = self.net.conns.get(&id).map(|conn| conn.user) {
            self.services.snapshots.ask(user, id, all);
        }
        Answer::OfTeller
    }

    /// Makes a piece of a snapshot: begins it, or goes on with it. After the last piece the snapshot is given away.
    pub(crate) fn continue_snapshot(&mut self) {
        let begin_ns = own_cpu_ns();
        let mut looking = match self.services.snapshots.looking.take() {
            Some(looking) => looking,
            None => {
                let Some((user, askers)) = self.services.snapshots.next(self.now_ns) else { return };
                self.begin_snapshot(user, askers)
            }
        };
        self.snapshot_piece(&mut looking);
        looking.took_ns += own_cpu_ns().saturating_sub(begin_ns);
        if looking.clients.is_empty() {
            self.deliver(looking);
        } else {
            self.services.snapshots.looking = Some(looking);
        }
    }

    fn begin_snapshot(&mut self, user: User, askers: Vec<(u64, bool)>) -> Looking {
        self.poll_devices();
        self.measure();
        self.history.ended.charge(self.engine.gatekeeper().ledger());
        let arbiter = self.engine.arbiter();
        let daemon = DaemonInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            policy: arbiter.policy().to_string(),
            device_policies: arbiter
                .policies()
                .map(|(device, choice)| (device.to_owned(), choice.to_string()))
                .collect(),
            uptime_s: self.now_ns.saturating_sub(self.history.started_ns) / 1_000_000_000,
            dropped_clients: self.history.dropped_clients,
            hidden_programs: 0,
            configuration: self.history.configuration.clone(),
            configuration_fault: self.history.configuration_fault.clone(),
            scheduler_failure: self.history.scheduler_failure.clone(),
            warnings: self.warnings(),
            panics: self.history.panics,
        };
        let sight = Sight {
            now_ns: self.now_ns,
            started_ns: self.history.started_ns,
            daemon,
            recent: self.history.recent.clone(),
            devices: self.services.devices.all(),
            programs: Vec::new(),
            ended: self.history.ended.iter(self.now_ns).cloned().collect(),
            refused: self.history.refusals.all(self.now_ns),
        };
        let clients = self.engine.programs().keys().copied().collect();
        Looking { user, sight, askers, clients, from: 0, took_ns: 0 }
    }

    /// Collects some clients, as many groups and queues as one piece has.
    fn snapshot_piece(&self, looking: &mut Looking) {
        let mut room = SIGHT_PIECE;
        while let Some(&id) = looking.clients.last().filter(|_| room > 0) {
            // A program that has left meanwhile is left out.
            let client = self.programs.clients.get(&id).zip(self.engine.programs().get(&id));
            let Some((client, program)) = client else {
                looking.clients.pop();
                looking.from = 0;
                continue;
            };
            let is_shown = looking.user.may_see(program.user);
            if looking.from == 0 {
                let seen = self.see(id, program, client, is_shown);
                room = room.saturating_sub(1 + seen.groups.len());
                looking.sight.programs.push(seen);
            }
            // Of a program that is not shown only its groups' parts of the devices are needed.
            if !is_shown {
                looking.clients.pop();
                continue;
            }
            let Some(seen) = looking.sight.programs.last_mut() else { return };
            let before = seen.queues.len();
            seen.queues.extend(seen_queues(program, looking.from).take(room.max(1)));
            room = room.saturating_sub(seen.queues.len() - before);
            // Further queues come with the next piece.
            let last = seen.queues[before..].last().map(|queue| queue.slot);
            match last.and_then(|slot| program.queues.range(slot.checked_add(1)?..).next()) {
                Some((next, _)) => looking.from = *next,
                None => {
                    looking.from = 0;
                    looking.clients.pop();
                }
            }
        }
    }

    fn deliver(&mut self, looking: Looking) {
        let Looking { user, sight, askers, took_ns, .. } = looking;
        let (mut told, mut refused) = (Vec::new(), Vec::new());
        for (id, all) in askers {
            let is_waiting = matches!(self.commands.answers.get(&id), Some(Answer::OfTeller));
            let Some(conn) = self.net.conns.get(&id).filter(|_| is_waiting) else { continue };
            match conn.socket.as_fd().try_clone_to_owned() {
                Ok(socket) => told.push(Asker { conn: id, epoch: 0, user: conn.user, all, socket }),
                Err(_) => refused.push(id),
            }
        }
        if let Err(all) = self.services.snapshots.deliver(user, sight, told, took_ns) {
            refused.extend(all.into_iter().map(|asker| asker.conn));
        }
        for id in refused {
            let why = Error::environment("the daemon has no descriptor or no thread left for this answer: try again");
            self.finish(id, &DaemonMsg::Refused(why));
        }
    }

    /// Handles the ends of answers.
    pub(crate) fn take_snapshot_ends(&mut self) {
        while let Some(told) = self.services.snapshots.take() {
            if !self.net.conns.contains_key(&told.conn) {
                // The socket may have no other descriptor, and the last one can be slow to close.
                self.net.reaper.close_socket(told.socket);
                continue;
            }
            if !self.services.snapshots.accept(&told) {
                continue;
            }
            match told.failed {
                None => self.set_answer(told.conn, None),
                Some(Failed::Gone) => self.net.doom(told.conn, None),
                Some(Failed::Unread) => self.net.doom(told.conn, Some(Error::input(UNREAD))),
            }
        }
    }

    /// Collects a program as it is now, without its queues; without what only a reader of it needs unless it is shown.
    fn see(&self, conn: u64, program: &Program, client: &Client, is_shown: bool) -> Seen {
        let (arbiter, keeper) = (self.engine.arbiter(), self.engine.gatekeeper());
        let groups = self.engine.groups_of(program).filter_map(|(id, group)| {
            Some(SeenGroup {
                id,
                words: group.words.clone(),
                slot: group.slot,
                device: group.device.clone(),
                platform: group.platform,
                share: group.share(),
                system: group.system,
                level: group.level,
                status: arbiter.status(self.now_us(), id)?,
                gpu_ns: keeper.ledger().group_ns(&group.device, program.id, id).unwrap_or(0),
                yielding: keeper
                    .opened(self.now_us(), id)
                    .map(|opened| SeenYielding { rule: keeper.rule(self.now_us(), id), opened }),
                way: arbiter.way(id)?,
                policy: arbiter.policy_of(&group.device).entry,
            })
        });
        Seen {
            conn,
            peer: client.peer.clone(),
            command: client.command.clone(),
            title: client.title.clone(),
            job: program.job.clone(),
            segment: client.segment.clone(),
            attached_ns: client.attached_ns,
            class_from: program.entitlement.from,
            limited: program.entitlement.limited,
            priority: program.priority(),
            hints: program.hints,
            domains: program.domains,
            timeslice_us: program.told_timeslice_us,
            pool: client.seat.map(|seat| seat.side.told()),
            pool_why: client.place_why.clone(),
            groups: groups.collect(),
            queues: Vec::new(),
            memory: if is_shown { self.engine.memory_of(conn) } else { Vec::new() },
        }
    }

    /// Keeps the last report on a program that is about to be forgotten, if the program had groups.
    pub(crate) fn keep_last_info(&mut self, id: u64, client: &Client) {
        let shares = self.recent_shares();
        let Some(program) = self.engine.programs().get(&id).filter(|program| !program.groups.is_empty()) else {
            return;
        };
        let number = program.id;
        let mut seen = self.see(id, program, client, true);
        seen.queues.extend(seen_queues(program, 0));
        let mut info = seen.info(self.now_ns, self.history.started_ns, &shares);
        // Launches on the queues are counted in their groups.
        if program.queues.len() > ENDED_QUEUES_MAX {
            info.groups.iter_mut().for_each(|group| group.queues = Vec::new());
        }
        self.detail_left(client.peer.user, &info);
        self.history.ended.push(client.peer.user, number, self.now_ns, info);
    }

    /// Returns sums that are recent, or computes new ones. Recent sums save work when many programs end at once.
    fn recent_shares(&mut self) -> Rc<Shares> {
        if self.history.shares.is_recent(self.now_ns) {
            return self.history.shares.clone();
        }
        let (now_us, recent) = (self.now_us(), &self.history.recent);
        let arbiter = self.engine.arbiter();
        let groups = arbiter.used_us(now_us).filter_map(|(id, used_us)| {
            let device = &*self.engine.groups().get(&id)?.device;
            Some((id, device, recent.charged_us(self.now_ns, id, used_us), arbiter.way(id)?))
        });
        self.history.shares = Rc::new(Shares::of(self.now_ns, groups));
        self.history.shares.clone()
    }

    /// Notes the present charge of each group.
    pub(crate) fn sample_shares(&mut self) {
        let used = self.engine.arbiter().used_us(self.now_us());
        self.history.recent.look(self.now_ns, used);
    }
}

/// Queues of a program from a slot on.
fn seen_queues(program: &Program, from: u16) -> impl Iterator<Item = SeenQueue> {
    program.queues.range(from..).map(|(slot, queue)| SeenQueue { slot: *slot, id: queue.id, group: queue.group })
}
