//! What the loop looks at for `ps`. The answer is made and sent elsewhere, see `services::snapshot`.

use std::os::fd::AsFd;
use std::rc::Rc;

use xsched_proto::wire::{DaemonInfo, DaemonMsg, ProgramInfo};

use crate::Error;
use crate::client::Client;
use crate::clock::own_cpu_ns;
use crate::server::{Answer, Conn, Role, Server, UNREAD};
use crate::services::snapshot::{Asker, Failed, Looking, Seen, SeenGroup, SeenQueue, Sight};
use crate::shares::Shares;
use crate::tuning::{ENDED_QUEUES_MAX, SIGHT_PIECE};

impl Server {
    /// A command is told with the next look. `all` = with programs that ended lately.
    pub(crate) fn ps(&mut self, id: u64, all: bool) -> Answer {
        self.teller.waiting.push((id, all));
        Answer::OfTeller
    }

    /// Takes a piece of a look around: begins it, or goes on with it; with the last one it is given away.
    pub(crate) fn look_around(&mut self) {
        let begin_ns = own_cpu_ns();
        let mut looking = match self.teller.looking.take() {
            Some(looking) => looking,
            None => self.begin_look(),
        };
        self.look_on(&mut looking);
        looking.took_ns += own_cpu_ns().saturating_sub(begin_ns);
        if looking.clients.is_empty() {
            self.deliver(looking);
        } else {
            self.teller.looking = Some(looking);
        }
    }

    fn begin_look(&mut self) -> Looking {
        self.look_at_devices();
        let arbiter = self.gatekeeper.arbiter();
        let daemon = DaemonInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            policy: arbiter.policy().to_string(),
            device_policies: arbiter
                .policies()
                .map(|(device, choice)| (device.to_owned(), choice.to_string()))
                .collect(),
            uptime_s: self.now_ns.saturating_sub(self.started_ns) / 1_000_000_000,
            dropped_clients: self.dropped_clients,
            hidden_programs: 0,
        };
        let sight = Sight {
            now_ns: self.now_ns,
            started_ns: self.started_ns,
            daemon,
            recent: self.recent.clone(),
            devices: self.devices.all(),
            programs: Vec::new(),
            ended: self.ended.iter(self.now_ns).cloned().collect(),
        };
        let clients = self.conns.iter().filter_map(|(id, conn)| conn.client().map(|_| *id)).collect();
        Looking { sight, askers: std::mem::take(&mut self.teller.waiting), clients, from: 0, took_ns: 0 }
    }

    /// Looks at some clients: at so many groups and queues as a piece has.
    fn look_on(&self, looking: &mut Looking) {
        let mut room = SIGHT_PIECE;
        while let Some(&id) = looking.clients.last().filter(|_| room > 0) {
            // One that has left meanwhile is not told.
            let Some(client) = self.conns.get(&id).and_then(Conn::client) else {
                looking.clients.pop();
                looking.from = 0;
                continue;
            };
            if looking.from == 0 {
                let seen = self.see(id, client);
                room = room.saturating_sub(1 + seen.groups.len());
                looking.sight.programs.push(seen);
            }
            let Some(seen) = looking.sight.programs.last_mut() else { return };
            let before = seen.queues.len();
            seen.queues.extend(client.seen_queues(looking.from).take(room.max(1)));
            room = room.saturating_sub(seen.queues.len() - before);
            // Further ones come with the next piece.
            let last = seen.queues[before..].last().map(|queue| queue.slot);
            match last.and_then(|slot| client.queues.range(slot.checked_add(1)?..).next()) {
                Some((next, _)) => looking.from = *next,
                None => {
                    looking.from = 0;
                    looking.clients.pop();
                }
            }
        }
    }

    fn deliver(&mut self, looking: Looking) {
        let Looking { sight, askers, took_ns, .. } = looking;
        let (mut told, mut refused) = (Vec::new(), Vec::new());
        for (id, all) in askers {
            let Some(conn) = self.conns.get(&id).filter(|c| matches!(c.role, Role::Command(Some(Answer::OfTeller))))
            else {
                continue;
            };
            match conn.socket.as_fd().try_clone_to_owned() {
                Ok(socket) => told.push(Asker { conn: id, epoch: 0, user: conn.user, all, socket }),
                Err(_) => refused.push(id),
            }
        }
        if let Err(all) = self.teller.deliver(sight, told, took_ns) {
            refused.extend(all.into_iter().map(|asker| asker.conn));
        }
        for id in refused {
            let why = Error::environment("the daemon has no descriptor or no thread left for this answer: try again");
            self.finish(id, &DaemonMsg::Refused(why));
        }
    }

    /// Answers have ended.
    pub(crate) fn hear_teller(&mut self) {
        while let Some(told) = self.teller.take() {
            let Some(conn) = self.conns.get_mut(&told.conn) else {
                // This may be the last descriptor of it.
                self.closer.close_socket(told.socket);
                continue;
            };
            if !self.teller.accept(&told) {
                continue;
            }
            match told.failed {
                None => conn.role = Role::Command(None),
                Some(Failed::Gone) => self.doomed.push((told.conn, None)),
                Some(Failed::Unread) => self.doomed.push((told.conn, Some(Error::input(UNREAD)))),
            }
            self.watch_socket(told.conn);
        }
    }

    /// A program as it is now, without its queues.
    fn see(&self, conn: u64, client: &Client) -> Seen {
        let groups = client.groups.iter().filter_map(|id| {
            let group = self.groups.get(id)?;
            let arbiter = self.gatekeeper.arbiter();
            Some(SeenGroup {
                id: *id,
                words: group.words.clone(),
                slot: group.slot,
                device: group.device.clone(),
                platform: group.platform,
                share: group.share(),
                system: group.system,
                level: group.level,
                status: arbiter.status(self.now_us(), *id)?,
                policy: arbiter.policy_of(&group.device).entry,
            })
        });
        client.seen(conn, groups.collect())
    }

    /// What is told of a program that is about to be forgotten.
    pub(crate) fn last_info(&mut self, conn: u64, client: &Client) -> ProgramInfo {
        let shares = self.recent_shares();
        let mut seen = self.see(conn, client);
        seen.queues.extend(client.seen_queues(0));
        let mut info = seen.info(self.now_ns, self.started_ns, &shares);
        // What was launched on them is counted in their groups.
        if client.queues.len() > ENDED_QUEUES_MAX {
            info.groups.iter_mut().for_each(|group| group.queues = Vec::new());
        }
        info
    }

    /// Sums of a moment ago, or new ones: many programs may end at once.
    fn recent_shares(&mut self) -> Rc<Shares> {
        if self.shares.is_recent(self.now_ns) {
            return self.shares.clone();
        }
        let (now_us, recent) = (self.now_us(), &self.recent);
        let groups = self.gatekeeper.arbiter().used_us(now_us).filter_map(|(id, used_us)| {
            let device = &*self.groups.get(&id)?.device;
            Some((id, device, recent.charged_us(self.now_ns, id, used_us)))
        });
        let programs = self.clients().map(|client| {
            let devices = client.groups.iter().filter_map(|id| Some(&*self.groups.get(id)?.device));
            (client.hints.part(), devices.collect())
        });
        self.shares = Rc::new(Shares::of(self.now_ns, groups, programs));
        self.shares.clone()
    }

    /// Notes what is charged to each group by now.
    pub(crate) fn look_at_shares(&mut self) {
        let used = self.gatekeeper.arbiter().used_us(self.now_us());
        self.recent.look(self.now_ns, used);
    }
}

impl Client {
    /// What is seen of it, with its groups, without its queues.
    fn seen(&self, conn: u64, groups: Vec<SeenGroup>) -> Seen {
        Seen {
            conn,
            peer: self.peer.clone(),
            command: self.command.clone(),
            title: self.title.clone(),
            job: self.job.clone(),
            segment: self.segment.clone(),
            attached_ns: self.attached_ns,
            class_from: self.class_from,
            limited: self.limited,
            priority: self.priority,
            hints: self.hints,
            domains: self.domains,
            timeslice_us: self.told_timeslice_us,
            groups,
            queues: Vec::new(),
        }
    }

    /// Its queues from a place on.
    fn seen_queues(&self, from: u16) -> impl Iterator<Item = SeenQueue> {
        self.queues.range(from..).map(|(slot, queue)| SeenQueue { slot: *slot, id: queue.id, group: queue.group })
    }
}
