//! What `ps` is told: the daemon, devices, programs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::GroupId;
use xsched_proto::class::Class;
use xsched_proto::hint::Hint;
use xsched_proto::histogram::quantile_us;
use xsched_proto::segment::state;
use xsched_proto::wire::{
    DaemonInfo, DaemonMsg, GroupInfo, GroupState, ProgramInfo, QueueDomain, QueueInfo, Unscheduled, Waits,
};

use crate::client::{Client, Group};
use crate::clock::now_ns;
use crate::identity::User;
use crate::memory::Launches;
use crate::naming::{called, may, named_job};
use crate::server::{Answer, Conn, Role, Server};
use crate::shares::Shares;
use crate::timeslices::is_short;
use crate::tuning::PS_QUEUES;

/// The number of each queue and its launches, by the slot of its group.
type QueuesByGroup = BTreeMap<u16, Vec<(u64, Launches)>>;

impl Server {
    /// Tells the first part of the answer. `all` = with programs that ended lately.
    pub(crate) fn ps(&mut self, id: u64, user: User, all: bool) -> Answer {
        let hidden = self.conns.values().filter_map(Conn::client).filter(|c| !may(user, c)).count();
        let daemon = DaemonInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            policy: self.gatekeeper.arbiter().policy().to_string(),
            device_policies: self
                .gatekeeper
                .arbiter()
                .policies()
                .map(|(device, choice)| (device.to_owned(), choice.to_string()))
                .collect(),
            uptime_s: self.now_ns.saturating_sub(self.started_ns) / 1_000_000_000,
            dropped_clients: self.dropped_clients,
            hidden_programs: u32::try_from(hidden).unwrap_or(u32::MAX),
        };
        self.send(id, &DaemonMsg::Daemon(daemon), &[]);
        let mut clients: Vec<_> =
            self.conns.iter().filter_map(|(id, c)| Some((*id, c.client().filter(|c| may(user, c))?))).collect();
        clients.sort_unstable_by_key(|(id, c)| (c.peer.pid, *id));
        let clients = clients.into_iter().map(|(id, _)| id).collect();
        self.look_at_devices();
        self.sum_shares();
        let now_ns = self.now_ns;
        let mut ended = VecDeque::new();
        if all {
            ended.extend(self.ended.iter(now_ns).filter(|e| user.is_root() || user == e.user).cloned());
        }
        Answer::Ps { devices: self.devices.keys().cloned().collect::<VecDeque<_>>(), clients, more: None, ended }
    }

    /// What the user of a command is told of a device. Its driver names processes to everybody, but not which are attached.
    pub(crate) fn device_info(&self, command: u64, device: &str) -> Option<DaemonMsg> {
        let user = self.conns.get(&command)?.user;
        let hidden: BTreeSet<u32> = self.clients().filter(|c| !may(user, c)).map(|c| c.peer.pid).collect();
        let info = self.devices.info(device, self.now_ns, |pid| !hidden.contains(&pid))?;
        Some(DaemonMsg::Device(Box::new(info)))
    }

    /// What is told of a program, with as many of its queues as a message has room for.
    pub(crate) fn first_of(&mut self, command: u64, conn: u64) -> Option<DaemonMsg> {
        let shares = self.shares.clone();
        let client = self.conns.get(&conn)?.client()?;
        let mut info = self.program_info(client, &shares);
        let rest = client.queues.keys().nth(PS_QUEUES).copied();
        if rest.is_some() {
            let told: BTreeSet<String> = client.queues.values().take(PS_QUEUES).map(|q| format!("q{}", q.id)).collect();
            info.groups.iter_mut().for_each(|group| group.queues.retain(|queue| told.contains(&queue.id)));
        }
        self.go_on_with(command, conn, rest);
        Some(DaemonMsg::Program(Box::new(info)))
    }

    /// Further queues of a program, from a slot on.
    pub(crate) fn more_queues(&mut self, command: u64, conn: u64, from: u16) -> Option<DaemonMsg> {
        let client = self.conns.get(&conn)?.client()?;
        let launches = client.segment.queue_launches();
        let group = |slot: u16| {
            let id = client.groups.iter().find(|id| self.groups.get(id).is_some_and(|group| group.slot == slot));
            id.map(|id| format!("g{}", id.0))
        };
        let told = client.queues.range(from..).take(PS_QUEUES).filter_map(|(slot, queue)| {
            let info = QueueInfo { id: format!("q{}", queue.id), launches: of_queue(&launches, *slot).all };
            Some((group(queue.group)?, info))
        });
        let told = told.collect();
        let rest = client.queues.range(from..).nth(PS_QUEUES).map(|(slot, _)| *slot);
        self.go_on_with(command, conn, rest);
        Some(DaemonMsg::MoreQueues(told))
    }

    /// What a command is to be told next: further queues of a program, if it has any.
    fn go_on_with(&mut self, command: u64, conn: u64, rest: Option<u16>) {
        if let Some(Conn { role: Role::Command(Some(Answer::Ps { more, .. })), .. }) = self.conns.get_mut(&command) {
            *more = rest.map(|from| (conn, from));
        }
    }

    /// What is told of a program.
    pub(crate) fn program_info(&self, client: &Client, shares: &Shares) -> ProgramInfo {
        let groups = || client.groups.iter().filter_map(|id| self.groups.get(id));
        // By group; the counters of all queues are added up once.
        let mut queues = QueuesByGroup::new();
        if !client.queues.is_empty() {
            let launches = client.segment.queue_launches();
            for (slot, queue) in &client.queues {
                queues.entry(queue.group).or_default().push((queue.id, of_queue(&launches, *slot)));
            }
        }
        ProgramInfo {
            pid: client.peer.pid,
            uid: client.peer.uid,
            exe: client.peer.exe.clone(),
            name: called(client).to_owned(),
            command: client.command.clone(),
            job: named_job(client).map(str::to_owned),
            container: client.peer.place.container(),
            container_name: client.peer.place.name().map(str::to_owned),
            pod: client.peer.place.pod().map(str::to_owned),
            namespace: client.peer.place.namespace().map(str::to_owned),
            attached_s: self.now_ns.saturating_sub(client.attached_ns) / 1_000_000_000,
            ended_s: None,
            class: Class::of(client.priority),
            class_from: client.class_from,
            limited: client.limited,
            priority: client.priority,
            weight: client.hints.weight(),
            hints: client
                .hints
                .given()
                .filter_map(|hint| Some((hint.name().to_owned(), client.hints.text(hint)?)))
                .collect(),
            share: groups().find_map(Group::share),
            domains: client.domains,
            groups: client.groups.iter().filter_map(|id| self.group_info(client, *id, &queues, shares)).collect(),
        }
    }

    /// Makes the sums anew: for an answer that begins.
    pub(crate) fn sum_shares(&mut self) -> Rc<Shares> {
        let (now_us, arbiter) = (self.now_us(), self.gatekeeper.arbiter());
        let groups = arbiter.used_us(now_us).filter_map(|(id, used_us)| {
            let device = self.groups.get(&id)?.device.as_str();
            Some((id, device, self.recent.charged_us(self.now_ns, id, used_us)))
        });
        let programs = self.clients().map(|client| {
            let devices = client.groups.iter().filter_map(|id| Some(self.groups.get(id)?.device.as_str()));
            (client.hints.part(), devices.collect())
        });
        let shares = Rc::new(Shares::of(self.now_ns, groups, programs));
        self.shares = shares.clone();
        shares
    }

    /// The sums of a moment ago, or new ones: many programs may end at once.
    pub(crate) fn recent_shares(&mut self) -> Rc<Shares> {
        if self.shares.is_recent(self.now_ns) { self.shares.clone() } else { self.sum_shares() }
    }

    /// A program's part of a device by what the programs there ask for, in percent; none where the policy looks at nothing of that.
    pub(crate) fn share_asked(&self, shares: &Shares, client: &Client, device: &str) -> Option<f64> {
        let entry = self.gatekeeper.arbiter().policy_of(device).entry;
        let looks_at = |hint| entry.overlooks([hint]).is_empty();
        if looks_at(Hint::Utilization) || looks_at(Hint::Weight) {
            shares.asked_percent(client.hints.part(), device)
        } else {
            None
        }
    }

    /// Notes what is charged to each group by now.
    pub(crate) fn look_at_shares(&mut self) {
        let used = self.gatekeeper.arbiter().used_us(self.now_us());
        self.recent.look(self.now_ns, used);
    }

    fn group_info(&self, client: &Client, id: GroupId, queues: &QueuesByGroup, shares: &Shares) -> Option<GroupInfo> {
        let group = self.groups.get(&id)?;
        let status = self.gatekeeper.arbiter().status(self.now_us(), id)?;
        let words = &group.words;
        let state = if status.held {
            GroupState::Suspended
        } else if words.gate.peek().is_detached() {
            GroupState::Detached
        } else if words.state.load(Relaxed) == state::IDLE {
            GroupState::Idle
        } else if status.granted {
            GroupState::Running
        } else {
            GroupState::Ready
        };
        let queues = queues.get(&group.slot).map_or(&[][..], Vec::as_slice);
        let inspected = words.gate.peek().is_inspected();
        let system_launches = inspected.then(|| {
            let living = queues.iter().map(|(_, launches)| launches.system);
            living.fold(words.system_retired.load(Relaxed), u64::wrapping_add)
        });
        let queues: Vec<QueueInfo> =
            queues.iter().map(|(id, launches)| QueueInfo { id: format!("q{id}"), launches: launches.all }).collect();
        let retired = words.launches_retired.load(Relaxed);
        Some(GroupInfo {
            id: format!("g{}", id.0),
            device: group.device.clone(),
            platform: group.platform,
            domain: if group.system { QueueDomain::System } else { QueueDomain::Application },
            system_launches,
            exempt_launches: words.exempt.load(Relaxed),
            priority: status.priority,
            level: group.level,
            threshold: words.budget_commands.load(Relaxed),
            batch: words.batch_commands.load(Relaxed),
            state,
            launches: queues.iter().fold(retired, |sum, q| sum.wrapping_add(q.launches)),
            queues,
            unscheduled: Unscheduled {
                attach: words.unscheduled_attach.load(Relaxed),
                passthrough: words.unscheduled_passthrough.load(Relaxed),
                error: words.unscheduled_error.load(Relaxed),
            },
            liveness_overrides: words.liveness_overrides.load(Relaxed),
            signal_overrides: words.signal_overrides.load(Relaxed),
            suspensions: status.suspensions,
            device_us: status.used_us as u64,
            share_asked_percent: self.share_asked(shares, client, &group.device),
            share_got_percent: shares.got_percent(id, &group.device),
            waits: waits(group, self.started_ns),
            wait_us: words.wait_ns.load(Relaxed).saturating_add(words.waiting_ns(now_ns(), self.started_ns)) / 1_000,
            longest_us: words.longest_us.load(Relaxed),
            short: is_short(group),
            timeslice_us: client.told_timeslice_us,
            completed: words.completed.load(Relaxed),
            alone_us: status.alone_us,
        })
    }
}

/// What was launched on a queue: nothing, if the program has not said that its place is used.
fn of_queue(launches: &[Launches], slot: u16) -> Launches {
    launches.get(usize::from(slot)).copied().unwrap_or(Launches { all: 0, system: 0 })
}

fn waits(group: &Group, started_ns: u64) -> Waits {
    let counts = group.words.waits().counts();
    let now = group.words.waiting.load(Relaxed);
    Waits {
        now,
        now_us: group.words.waiting_ns(now_ns(), started_ns) / 1_000 / u64::from(now.max(1)),
        count: counts.iter().map(|count| u64::from(*count)).sum(),
        p50_us: quantile_us(&counts, 0.5),
        p99_us: quantile_us(&counts, 0.99),
    }
}
