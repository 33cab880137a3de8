//! The event loop: connections, wake-ups, timers.

#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, Timespec, timerfd_create};
use xsched_gatekeeper::Gatekeeper;
use xsched_policy::registry::Entry;
use xsched_policy::{Arbiter, Choice, Event, GroupId};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::trust;
use xsched_proto::usage::UsageRow;
use xsched_proto::wire::{self, ClientMsg, DaemonMsg, MAX_PACKET, ProgramOptions, Request};

use crate::bursts::Bursts;
use crate::clerk::{Clerk, Who};
use crate::client::{Client, Expected, Group, Question};
use crate::clock::now_ns;
use crate::closer::{Closer, MAX_FDS};
use crate::config::Config;
use crate::devices::Devices;
use crate::ended::Ended;
use crate::events::EventLog;
use crate::fair::{FairQueue, Rationed};
use crate::host::Host;
use crate::identity::User;
use crate::kept::Kept;
use crate::memory::{GroupWords, HeartbeatPage};
use crate::metrics::Metrics;
use crate::pool::Pools;
use crate::recent::Recent;
use crate::service::{self, Service};
use crate::shares::Shares;
use crate::signals::{Signal, Signals};
use crate::socket::{self, Listener, Passed, Received};
use crate::sources::Sources;
use crate::teller::Teller;
use crate::traced::{LeftGroup, Telling};
use crate::tuning::{
    ACCEPTED_MAX, CLIENT_OUT_MAX_BYTES, COMMAND_OUT_MAX_BYTES, EVENTS_MAX, KEPT_BYTES, OWN_FDS, QUEUED_MAX,
    RATION_CREDIT_NS, RATION_TIMES, ROOT_PART, SILENT_NS, SLICE_NS, STALL_NS, TRACE_BYTES, UNREAD_NS,
    USER_OUT_MAX_BYTES, of_user,
};
use crate::unsuitable::Unsuitable;
use crate::usage::{Accounting, UsageBooks};
use crate::{Error, Options};

/// Kinds of descriptors, in the low bits of an epoll token; the connection's number is above.
pub(crate) mod kind {
    pub(crate) const SOCKET: u64 = 0;
    pub(crate) const WAKE: u64 = 1;
    pub(crate) const DEATH: u64 = 2;
    /// The daemon's own descriptors, told apart by number.
    pub(crate) const OWN: u64 = 3;
}
const LISTENER: u64 = kind::OWN;
const CLERK: u64 = (u64::MAX >> 3) << 2 | kind::OWN;
const TIMER: u64 = 1 << 2 | kind::OWN;
const SIGNALS: u64 = 2 << 2 | kind::OWN;
pub(crate) const LOGS: u64 = 3 << 2 | kind::OWN;
const USAGE: u64 = (u64::MAX >> 4) << 2 | kind::OWN;
const METRICS: u64 = (u64::MAX >> 5) << 2 | kind::OWN;
const TELLER: u64 = (u64::MAX >> 6) << 2 | kind::OWN;
const SCHEDULER: u64 = u64::MAX << 2 | kind::OWN;
/// Why a connection ends that takes nothing.
pub(crate) const UNREAD: &str = "it does not read its messages";
/// Announced processes are numbered from here.
pub(crate) const EXPECTED: u64 = 3;

/// The daemon.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) sources: Sources,
    /// What the configuration or the command line says of devices that have no policy of their own.
    pub(crate) default_policy: Choice,
    pub(crate) events: EventLog,
    pub(crate) kept: Kept,
    pub(crate) service: Service,
    /// Started from a terminal.
    pub(crate) has_terminal: bool,
    pub(crate) gatekeeper: Gatekeeper<GroupWords>,
    /// Whose slices are to be set again, see [`Server::reassert_timeslice`].
    pub(crate) reassert: Vec<GroupId>,
    pub(crate) conns: HashMap<u64, Conn>,
    /// Whose they are, of those that it was just found out of.
    found: HashMap<u64, Result<Who, Error>>,
    pub(crate) groups: HashMap<GroupId, Group>,
    /// How many queues the programs of a user have.
    pub(crate) queues_of: HashMap<User, usize>,
    /// Groups that are gone, of which there may be records.
    pub(crate) left: VecDeque<LeftGroup>,
    pub(crate) heartbeat: HeartbeatPage,
    /// Connections of clients that have woken the daemon.
    wakes: Rationed<User, u64>,
    /// Whose wake-ups the next decision is for.
    woken: Vec<User>,
    /// Connections of programs whose groups' counters are to be looked at.
    pub(crate) looks: Rationed<User, u64>,
    /// What else is to be done for connections.
    pub(crate) work: FairQueue<User, Work>,
    /// Connections to end after the current event, and why if it is their fault.
    pub(crate) doomed: Vec<(u64, Option<Error>)>,
    /// Programs that were announced, by number.
    pub(crate) expected: HashMap<u64, Expected>,
    /// Those that do not suit others of a pool.
    pub(crate) unsuitable: Unsuitable,
    /// The operator's own scheduler, while it works.
    pub(crate) scheduler: Option<Host>,
    pub(crate) pools: Pools,
    pub(crate) devices: Devices,
    pub(crate) accounting: Accounting,
    pub(crate) usage: UsageBooks,
    /// What monitors are told, if there may be any.
    pub(crate) metrics: Option<Metrics>,
    /// Times that gates were decided, counted for monitors.
    pub(crate) decisions: u64,
    pub(crate) recent: Recent,
    pub(crate) shares: Rc<Shares>,
    pub(crate) ended: Ended,
    pub(crate) teller: Teller,
    /// Where bursts are written, if they are.
    pub(crate) bursts: Option<Bursts>,
    /// Questions passed on to clients.
    pub(crate) questions: Vec<Question>,
    /// Last number given to a connection, group, queue or question.
    pub(crate) last_id: u64,
    pub(crate) dropped_clients: u64,
    pub(crate) started_ns: u64,
    pub(crate) stop: bool,
    /// When the current events were received.
    pub(crate) now_ns: u64,
    pub(crate) beat_at: Option<u64>,
    look_at: Option<u64>,
    /// Programs whose progress was of interest at the last look.
    pub(crate) looked_at: BTreeSet<u64>,
    /// When to look for connections that do not read; perhaps too early.
    unread_at: Option<u64>,
    idle_exit_ns: Option<u64>,
    pub(crate) idle_since: Option<u64>,
    /// When to look at nice values.
    pub(crate) nice_at: Option<u64>,
    /// The process that each user's active window belongs to, as far as was said, by user id.
    pub(crate) active_windows: HashMap<u32, u32>,
    /// When the timer goes off.
    armed: Option<u64>,
    pub(crate) max_conns: usize,
    pub(crate) closer: Closer,
    pub(crate) clerk: Clerk,
    /// When to look after it.
    tend_at: Option<u64>,
    /// Connections wait in the backlog until it has caught up.
    deaf: bool,
    /// Given up to be able to refuse a connection when no descriptor is left.
    spare: Option<OwnedFd>,
    /// The longest piece of work since events were last taken, ns, and what it was.
    longest: (u64, &'static str),
    /// When to look for connections that have not said what they are.
    silent_at: Option<u64>,
    /// When to write what is kept over a restart.
    pub(crate) remember_at: Option<u64>,
    pub(crate) epoll: OwnedFd,
    pub(crate) listener: Listener,
    timer: OwnedFd,
    signals: Signals,
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) socket: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) user: User,
    /// The same at length, of a command.
    pub(crate) who: Option<Rc<Who>>,
    /// When it was accepted, ns.
    since_ns: u64,
    pub(crate) role: Role,
    /// What the other side has not taken yet.
    out: VecDeque<Vec<u8>>,
    out_bytes: usize,
    /// Since when it takes nothing of that.
    unread_since_ns: u64,
    /// Nothing is to be taken from it or said to it any more.
    gone: bool,
    /// What is listened for.
    flags: EventFlags,
}

/// A piece of work for a connection, of bounded size.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Send what is kept for it; else go on with its answer; else take one packet.
    Serve(u64),
    /// Do what it has opened with.
    Introduce(u64),
}

/// What a command is still to be told: a message at a time, each when it has taken the one before. What it has to say meanwhile
/// stays in its socket.
pub(crate) enum Answer {
    /// One for each of these policies.
    Policies(std::slice::Iter<'static, &'static Entry>),
    /// Groups, then records of what happened to them.
    Trace(Box<Telling>),
    /// What a client says.
    OfClient,
    /// Whether there is a pool.
    OfPool,
    /// What `ps` is told.
    OfTeller,
    /// What the records of usage say.
    OfUsage,
    /// One for each of these rows.
    Usage(VecDeque<UsageRow>),
}

/// What a connection has opened with.
pub(crate) enum Opening {
    Program(ProgramOptions, [OwnedFd; 3]),
    Command(Request),
}

/// What a connection turned out to be.
pub(crate) enum Role {
    Unknown,
    /// It has opened; whose it is will be known soon. What it has to say besides stays in its socket.
    Unlisted(Box<Opening>),
    Client(Box<Client>),
    /// With what is still to be answered.
    Command(Option<Answer>),
}

impl Conn {
    pub(crate) fn client(&self) -> Option<&Client> {
        match &self.role {
            Role::Client(client) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn client_mut(&mut self) -> Option<&mut Client> {
        match &mut self.role {
            Role::Client(client) => Some(client),
            _ => None,
        }
    }

    /// Whether something is still to be answered, and whether that waits for something else than for the other side.
    fn answering(&self) -> (bool, bool) {
        match &self.role {
            Role::Unlisted(_) => (true, true),
            Role::Command(Some(answer)) => {
                (true, matches!(answer, Answer::OfClient | Answer::OfPool | Answer::OfTeller | Answer::OfUsage))
            }
            _ => (false, false),
        }
    }
}

impl Server {
    pub(crate) fn new(options: &Options) -> Result<Server, Error> {
        let fail = |what: &str, e: Errno| Error::Environment(format!("cannot make {what}: {e}"));
        // Before there are threads, so that none of them takes a signal.
        let signals = Signals::new().map_err(|e| fail("a signal descriptor", e))?;
        let sources = Sources::new(options);
        let (config, policy) = sources.read()?;
        let events = EventLog::new(options.log.as_deref(), options.log_details)?;
        let host = options.scheduler.as_deref().map(Host::start).transpose()?;
        let bursts = options.bursts.as_deref().map(Bursts::create).transpose()?;
        let mut arbiter = Arbiter::new(policy.clone(), options.seed);
        arbiter.set_classes(0, config.class_rules(), &mut Vec::new());
        arbiter.set_guard(config.guard_us());
        arbiter.set_evenness(config.pool_evenness());
        for (device, choice) in &config.devices {
            arbiter.set_policy(0, Some(device), choice.clone(), &mut Vec::new());
        }
        let listener = Listener::new(&options.socket)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| fail("an epoll instance", e))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(|e| fail("a timer", e))?;
        let heartbeat = HeartbeatPage::new().map_err(|e| fail("the heartbeat page", e))?;
        let add = |fd: BorrowedFd<'_>, token, flags| {
            epoll::add(&epoll, fd, EventData::new_u64(token), flags).map_err(|e| fail("an epoll entry", e))
        };
        add(listener.as_fd(), LISTENER, EventFlags::IN)?;
        add(timer.as_fd(), TIMER, EventFlags::IN | EventFlags::ET)?;
        add(signals.as_fd(), SIGNALS, EventFlags::IN)?;
        let clerk = Clerk::new(&options.socket).map_err(|e| fail("an event descriptor", e))?;
        add(clerk.as_fd(), CLERK, EventFlags::IN)?;
        let usage = UsageBooks::new(options.state.as_deref(), &options.socket);
        let usage = usage.map_err(|e| fail("an event descriptor", e))?;
        add(usage.as_fd(), USAGE, EventFlags::IN)?;
        let teller = Teller::new().map_err(|e| fail("an event descriptor", e))?;
        add(teller.as_fd(), TELLER, EventFlags::IN)?;
        let now_ns = now_ns();
        let from_config = config.idle_exit_s.map(Duration::from_secs);
        let idle_exit = options.idle_exit.or(from_config);
        let (kept, unreadable) = Kept::read(options.state.as_deref(), &options.socket);
        let mut server = Server {
            gatekeeper: Gatekeeper::new(arbiter, config.budget_us()).recording(TRACE_BYTES),
            config,
            sources,
            default_policy: policy,
            events,
            kept,
            service: Service::new(),
            has_terminal: service::has_terminal(),
            reassert: Vec::new(),
            conns: HashMap::new(),
            found: HashMap::new(),
            groups: HashMap::new(),
            queues_of: HashMap::new(),
            left: VecDeque::new(),
            heartbeat,
            wakes: Rationed::new(RATION_TIMES, RATION_CREDIT_NS),
            woken: Vec::new(),
            looks: Rationed::new(RATION_TIMES, RATION_CREDIT_NS),
            work: FairQueue::new(),
            doomed: Vec::new(),
            expected: HashMap::new(),
            unsuitable: Unsuitable::read(options.state.as_deref()),
            scheduler: host,
            pools: Pools::new(options.library.clone(), options.pool_keeper.clone()),
            devices: Devices::new(options.device_host.clone()),
            accounting: Accounting::default(),
            usage,
            metrics: None,
            decisions: 0,
            recent: Recent::default(),
            shares: Rc::default(),
            ended: Ended::default(),
            teller,
            bursts,
            questions: Vec::new(),
            last_id: 0,
            dropped_clients: 0,
            started_ns: now_ns,
            stop: false,
            now_ns,
            beat_at: None,
            look_at: None,
            looked_at: BTreeSet::new(),
            unread_at: None,
            idle_exit_ns: idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            idle_since: Some(now_ns),
            nice_at: None,
            active_windows: HashMap::new(),
            armed: None,
            max_conns: max_conns(raise_descriptor_limit() as usize),
            closer: Closer::new(),
            clerk,
            tend_at: None,
            deaf: false,
            spare: spare(),
            longest: (0, ""),
            silent_at: None,
            remember_at: None,
            epoll,
            listener,
            timer,
            signals,
        };
        server.config.notices.iter().for_each(|line| server.say(line));
        unreadable.iter().for_each(|why| server.say(&why.to_string()));
        server.restore_policies();
        server.watch_scheduler_socket(SCHEDULER)?;
        server.start_metrics(METRICS)?;
        server.detail_of_own(|| {
            let (at, policy) = (options.socket.display(), &server.default_policy.entry.name);
            format!("listens at {at}, policy {policy}, configuration {}", server.sources.text())
        });
        Ok(server)
    }

    /// Serves until told to stop.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        self.service.ready();
        while !self.stop {
            self.turn(&mut events, &mut buffer)?;
        }
        self.service.ending();
        if self.remember_at.is_some() {
            self.write_kept();
        }
        self.let_all_go();
        self.finish_usage();
        self.closer.end();
        Ok(())
    }

    /// Waits for events unless there is work, and does a slice of it.
    fn turn(&mut self, events: &mut Vec<epoll::Event>, buffer: &mut [u8]) -> Result<(), Error> {
        self.arm();
        events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let has_work = self.rations_due_ns().is_some_and(|at| at <= self.now_ns)
            || !self.work.is_empty()
            || self.makes_snapshot()
            || self.teller.is_due(self.now_ns);
        let timeout = has_work.then_some(&at_once);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(Error::Environment(format!("cannot wait for events: {e}"))),
        }
        self.now_ns = now_ns();
        let began_ns = self.now_ns;
        self.notice_delay();
        for event in events.iter() {
            let (token, flags) = (event.data.u64(), event.flags);
            match token & 3 {
                kind::OWN => (),
                kind => self.note(token >> 2, kind, flags),
            }
        }
        // Gates first: a program waits for each of these.
        self.heed_wakes();
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => self.accept(),
                TIMER => self.armed = None,
                SIGNALS => self.heed_signals(),
                SCHEDULER => self.hear_scheduler(),
                LOGS => self.hear_logs(),
                CLERK => self.hear_clerk(),
                USAGE => self.hear_usage(),
                METRICS => self.hear_metrics(),
                TELLER => self.hear_teller(),
                token if token & 3 == kind::OWN => self.expected_ended((token >> 2) - EXPECTED),
                _ => continue,
            }
            self.bury();
            self.piece_done("events of its own");
        }
        self.in_slices("messages", |server| {
            match server.work.pop() {
                Some(Work::Serve(id)) => server.serve(id, buffer),
                Some(Work::Introduce(id)) => match server.found.remove(&id) {
                    Some(who) => server.introduced(id, who),
                    None => return true,
                },
                None => return false,
            }
            true
        });
        self.in_slices("looks at programs", |server| {
            let Some((user, id)) = server.looks.pop(server.now_ns) else { return false };
            server.look(id);
            if !user.is_own() {
                let now_ns = now_ns();
                server.looks.charge(user, now_ns, now_ns - server.now_ns);
            }
            true
        });
        if self.makes_snapshot() {
            self.go_on_with_snapshot();
            self.piece_done("metrics");
        }
        if self.teller.is_due(self.now_ns) {
            self.look_around();
            self.piece_done("looks for ps");
        }
        self.timers();
        self.bury();
        self.ask_scheduler();
        self.piece_done("timers");
        self.service.turned(self.now_ns);
        let (took_ns, (longest_ns, what)) = (self.now_ns - began_ns, std::mem::take(&mut self.longest));
        if took_ns >= STALL_NS {
            let (all, longest) = (took_ns / 1_000_000, longest_ns / 1_000_000);
            self.say(&format!("no decision for {all} ms: one of its {what} took {longest} ms"));
        }
        Ok(())
    }

    /// Says so when the machine did not run the daemon for long: the timer has gone off long ago.
    fn notice_delay(&mut self) {
        let late_ns = self.armed.map_or(0, |armed| self.now_ns.saturating_sub(armed));
        if late_ns >= STALL_NS {
            let ms = late_ns / 1_000_000;
            self.say(&format!("no decision for {ms} ms: the daemon was stopped or the machine did not run it"));
        }
    }

    /// Takes the time after a piece of work.
    fn piece_done(&mut self, what: &'static str) {
        let before_ns = std::mem::replace(&mut self.now_ns, now_ns());
        self.longest = self.longest.max((self.now_ns - before_ns, what));
    }

    fn heed_signals(&mut self) {
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::End => {
                    self.detail_of_own(|| "ends: it was told to by a signal".to_owned());
                    self.stop = true;
                }
                Signal::Reload => self.reload(),
            }
        }
    }

    /// Takes what is found out, as work for the connections it is about.
    fn hear_clerk(&mut self) {
        while let Some((id, who)) = self.clerk.take() {
            // Of one that is gone nothing more needs to be known.
            let Some(user) = self.conns.get(&id).map(|conn| conn.user) else { continue };
            self.found.insert(id, who);
            self.work.push(user, Work::Introduce(id));
        }
    }

    /// Reads the words of programs that have woken the daemon, and decides once for all of them: all at the time when that begins.
    fn heed_wakes(&mut self) {
        let until_ns = self.now_ns + SLICE_NS;
        while let Some((user, id)) = self.wakes.pop(self.now_ns) {
            self.woken.push(user);
            self.read_words(id);
            self.bury();
            if now_ns() >= until_ns || self.stop {
                break;
            }
        }
        if self.woken.is_empty() {
            return;
        }
        self.act();
        let began_ns = self.now_ns;
        self.piece_done("decisions");
        let each_ns = (self.now_ns - began_ns) / self.woken.len() as u64;
        for user in self.woken.drain(..).filter(|user| !user.is_own()) {
            self.wakes.charge(user, self.now_ns, each_ns);
        }
    }

    /// When the first wake-up may be heeded, or the first program looked at, that waits.
    fn rations_due_ns(&self) -> Option<u64> {
        [self.wakes.due_ns(), self.looks.due_ns()].into_iter().flatten().min()
    }

    /// Notes that there is something to do for a connection.
    fn note(&mut self, id: u64, kind: u64, flags: EventFlags) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if kind == kind::WAKE {
            return self.wakes.push(conn.user, id);
        }
        // What was sent before a hang-up is still done; an answer has nowhere to go.
        let is_answered = conn.answering().0 && !matches!(conn.role, Role::Unlisted(_));
        let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR) && is_answered;
        conn.gone |= kind == kind::DEATH || hung_up;
        self.work.push(conn.user, Work::Serve(id));
    }

    /// Does pieces of work while there are some and a slice of time lasts, one at least.
    fn in_slices(&mut self, what: &'static str, mut piece: impl FnMut(&mut Server) -> bool) {
        let until = self.now_ns + SLICE_NS;
        while piece(self) {
            self.bury();
            self.piece_done(what);
            if self.now_ns >= until || self.stop {
                return;
            }
        }
    }

    /// The attached processes.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.conns.values().filter_map(Conn::client)
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Tells the arbiter and does what it says.
    pub(crate) fn event(&mut self, event: Event) {
        self.gatekeeper.event(self.now_us(), event);
        self.act();
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            if self.closer.is_full() {
                return self.listen(false);
            }
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Without this the listener would stay readable and the loop would spin.
                    self.spare = None;
                    if let Ok(socket) = self.listener.accept() {
                        self.closer.close_socket(socket);
                    }
                    self.spare = spare();
                    return;
                }
                Err(_) => return,
            };
            let Some((pid, uid)) = trust::peer(socket.as_fd()) else {
                self.closer.close_socket(socket);
                continue;
            };
            let user = User::unknown(uid);
            if let Some(why) = self.too_many_connections(pid, user) {
                self.record(uid, &format!("turned process {pid} of user {user} away: {why}"));
                self.closer.close_socket(socket);
                continue;
            }
            let id = self.next_id();
            let flags = EventFlags::IN | EventFlags::RDHUP;
            if self.watch(&socket, id, kind::SOCKET, flags).is_err() {
                self.closer.close_socket(socket);
                continue;
            }
            let (role, out) = (Role::Unknown, VecDeque::new());
            let since_ns = self.now_ns;
            let conn = Conn {
                socket,
                pid,
                user,
                who: None,
                since_ns,
                role,
                out,
                out_bytes: 0,
                unread_since_ns: 0,
                gone: false,
                flags,
            };
            self.conns.insert(id, conn);
            self.silent_at.get_or_insert(since_ns + SILENT_NS);
            self.idle_since = None;
        }
    }

    /// Why a user may not have a further connection.
    fn too_many_connections(&self, pid: u32, user: User) -> Option<&'static str> {
        // Root finds a place whatever the others do. Whose a connection is takes a look at its process, for the last places only.
        let few = self.max_conns - self.max_conns / ROOT_PART;
        let is_root = self.conns.len() >= few && user.uid == 0 && User::of(pid, 0).is_root();
        let for_all = if is_root { self.max_conns } else { few };
        if self.conns.len() >= for_all {
            return Some("all connections are taken");
        }
        let own = user.uid == 0 || user.uid == rustix::process::geteuid().as_raw();
        let of_one = if own { for_all } else { self.max_conns / 4 };
        let most = self.config.bounds(user.uid, own).connections.min(of_one);
        let of_user = self.conns.values().filter(|c| c.user.uid == user.uid).count();
        (of_user >= most).then_some("its user has as many connections as a user may have")
    }

    /// Accepts connections, or lets them wait in the backlog.
    fn listen(&mut self, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        match epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags) {
            Ok(()) => self.deaf = !on,
            Err(e) => self.log(&format!("cannot watch the socket: {e}")),
        }
    }

    pub(crate) fn watch(&self, fd: &OwnedFd, conn: u64, kind: u64, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(conn << 2 | kind), flags)
    }

    /// Watches a descriptor of the daemon's own.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn watch_own(&self, fd: &impl AsFd, token: u64) -> Result<(), Error> {
        let fail = |e| Error::environment(format!("cannot make an epoll entry: {e}"));
        epoll::add(&self.epoll, fd.as_fd(), EventData::new_u64(token), EventFlags::IN).map_err(fail)
    }

    pub(crate) fn unwatch(&self, fd: &OwnedFd) {
        // Gone already is as good.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Does one thing for a connection, see [`Work::Serve`]. Others have their turn before the next.
    fn serve(&mut self, id: u64, buffer: &mut [u8]) {
        if self.conns.get(&id).is_some_and(|c| !c.out.is_empty()) {
            self.flush(id);
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.gone {
            return self.doomed.push((id, None));
        }
        let (user, answering) = (conn.user, conn.answering());
        match answering {
            (true, waits) if waits || !conn.out.is_empty() => return,
            (true, _) => self.go_on(id),
            (false, _) => {
                // Only a greeting carries any.
                let wanted = matches!(conn.role, Role::Unknown) && self.closer.admits(user.uid, user.is_own());
                match socket::receive(&conn.socket, buffer, user.uid, &self.closer, wanted) {
                    Received::Packet(len, _) if self.is_of_another_version(id, &buffer[..len]) => return,
                    Received::Packet(len, fds) => {
                        let taken = wire::decode(&buffer[..len]).and_then(|message| self.message(id, message, fds));
                        if let Err(why) = taken {
                            return self.doomed.push((id, Some(why)));
                        }
                    }
                    Received::Nothing => return,
                    Received::HangUp => return self.doomed.push((id, None)),
                    Received::TooMuch => {
                        return self.doomed.push((id, Some(Error::input("its message is too large"))));
                    }
                    Received::Unwanted => {
                        let why = Error::input("its message carries descriptors for no purpose");
                        return self.doomed.push((id, Some(why)));
                    }
                }
            }
        }
        self.work.push(user, Work::Serve(id));
    }

    /// Whether a first packet is of another version, whose rest cannot be read: then its sender is told, and the connection ends.
    fn is_of_another_version(&mut self, id: u64, packet: &[u8]) -> bool {
        let is_first = self.conns.get(&id).is_some_and(|c| matches!(c.role, Role::Unknown));
        let other = wire::version_of(packet).filter(|version| is_first && *version != PROTOCOL_VERSION);
        if let Some(version) = other {
            let line = format!(
                "the daemon (xsched {}) speaks protocol {PROTOCOL_VERSION}, this program {version}: install one version, and restart \
                 the daemon",
                env!("CARGO_PKG_VERSION")
            );
            self.refuse(id, Error::Environment(line));
            self.doomed.push((id, None));
        }
        other.is_some()
    }

    /// Takes one message. An error is the sender's fault and ends its connection.
    fn message(&mut self, id: u64, message: ClientMsg, fds: Passed) -> Result<(), Error> {
        if !fds.is_empty() && !matches!(message, ClientMsg::Hello { .. }) {
            return Err(Error::input("its message carries descriptors for no purpose"));
        }
        let conn = self.conns.get(&id).ok_or_else(|| Error::input("it is gone"))?;
        match (&conn.role, message) {
            (Role::Unknown, ClientMsg::Hello { options, .. }) => self.hello(id, options, fds),
            (Role::Unknown | Role::Command(_), ClientMsg::Control { request, .. }) => {
                self.ask(id, request);
                Ok(())
            }
            (Role::Client(_), message) => self.client_message(id, message),
            _ => Err(Error::input("its messages come in an order that makes no sense")),
        }
    }

    /// Sends without waiting. What the other side does not read yet is kept for it, up to a bound.
    pub(crate) fn send(&mut self, id: u64, message: &DaemonMsg, fds: &[BorrowedFd<'_>]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let packet = match wire::encode(message) {
            Ok(packet) => packet,
            Err(e) => return self.log(&e.to_string()),
        };
        if conn.out.is_empty() {
            match socket::send(&conn.socket, &packet, fds) {
                Ok(()) => return,
                Err(Errno::AGAIN) => (),
                Err(_) => return self.doomed.push((id, None)),
            }
        }
        let most = if matches!(conn.role, Role::Client(_)) { CLIENT_OUT_MAX_BYTES } else { COMMAND_OUT_MAX_BYTES };
        let (user, bytes) = (conn.user, packet.len() + KEPT_BYTES);
        let kept = conn.out_bytes + bytes;
        let of_user_now: usize = self.conns.values().filter(|c| c.user == user).map(|c| c.out_bytes).sum();
        // Descriptors are not kept: they come with the first message, for which there is room.
        let too_much = kept > most || of_user_now + bytes > of_user(USER_OUT_MAX_BYTES, user.is_own());
        if too_much || !fds.is_empty() {
            return self.doomed.push((id, Some(Error::input(UNREAD))));
        }
        let now_ns = self.now_ns;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.out_bytes = kept;
        if conn.out.is_empty() {
            conn.unread_since_ns = now_ns;
            self.unread_at.get_or_insert(now_ns + UNREAD_NS);
        }
        conn.out.push_back(packet);
        self.watch_socket(id);
    }

    pub(crate) fn refuse(&mut self, id: u64, why: Error) {
        self.send(id, &DaemonMsg::Refused(why), &[]);
    }

    fn flush(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        while let Some(packet) = conn.out.front() {
            match socket::send(&conn.socket, packet, &[]) {
                Ok(()) => {
                    conn.unread_since_ns = self.now_ns;
                    conn.out_bytes -= packet.len() + KEPT_BYTES;
                    conn.out.pop_front();
                }
                Err(Errno::AGAIN) => return,
                Err(_) => return self.doomed.push((id, None)),
            }
        }
        // Its memory goes, too.
        conn.out = VecDeque::new();
        self.watch_socket(id);
    }

    /// Listens for what can be acted on: a command that is being answered is not read from.
    pub(crate) fn watch_socket(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, !conn.answering().0);
        flags.set(EventFlags::OUT, !conn.out.is_empty());
        // A hang-up is always told: once is enough while nothing can be done about it.
        flags.set(EventFlags::ET, matches!(conn.role, Role::Unlisted(_)));
        if std::mem::replace(&mut conn.flags, flags) == flags {
            return;
        }
        if epoll::modify(&self.epoll, &conn.socket, EventData::new_u64(id << 2 | kind::SOCKET), flags).is_err() {
            self.doomed.push((id, None));
        }
    }

    /// Ends the connections marked for it; others may be marked on the way.
    pub(crate) fn bury(&mut self) {
        while let Some((id, fault)) = self.doomed.pop() {
            self.note_kernels(id);
            let Some(conn) = self.conns.remove(&id) else { continue };
            self.found.remove(&id);
            if let Some(fault) = fault {
                self.dropped_clients += 1;
                self.record(conn.user.uid, &format!("dropped process {} of user {}: {fault}", conn.pid, conn.user));
                let refused = DaemonMsg::Refused(fault);
                if let Ok(packet) = wire::encode(&refused) {
                    let _ = socket::send(&conn.socket, &packet, &[]);
                }
            }
            // Other processes may hold these files too, so that closing ours would not end the entries.
            let _ = epoll::delete(&self.epoll, &conn.socket);
            let was_client = matches!(conn.role, Role::Client(_));
            if let Role::Client(client) = conn.role {
                self.record(conn.user.uid, &format!("process {} of user {} has left", conn.pid, conn.user));
                let _ = epoll::delete(&self.epoll, &client.eventfd);
                let _ = epoll::delete(&self.epoll, &client.pidfd);
                self.forget(id, *client);
            }
            self.closer.close_socket(conn.socket);
            self.questions.retain(|q| q.asker != id);
            if was_client || self.conns.is_empty() {
                self.settle();
            }
        }
    }

    /// Writes down what a user has caused.
    pub(crate) fn record(&mut self, uid: u32, line: &str) {
        self.events.of_user(self.now_ns, uid, line);
    }

    /// Writes down what a command of a connection has changed.
    pub(crate) fn record_command(&mut self, conn: u64, what: &str) {
        if let Some((user, pid)) = self.conns.get(&conn).map(|c| (c.user, c.pid)) {
            self.record(user.uid, &format!("{what}: by user {user} (process {pid})"));
        }
    }

    /// Tells the operator of trouble, at most once a second.
    pub(crate) fn log(&mut self, line: &str) {
        self.events.complain(self.now_ns, line);
    }

    /// Tells the operator.
    pub(crate) fn say(&self, line: &str) {
        self.events.say(line);
    }
}

/// How many connections there may be with this many descriptors. A client takes three and was perhaps announced; one more
/// passes by while it attaches. Besides there are the daemon's own, those of one packet, and those that wait to be closed.
fn max_conns(descriptors: usize) -> usize {
    let besides = OWN_FDS + MAX_FDS + QUEUED_MAX;
    descriptors.saturating_sub(besides.min(descriptors / 2)) / 5
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Returns how many descriptors there may be.
fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // No limit at all would still leave memory as one.
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 16).min(1 << 16)
}
