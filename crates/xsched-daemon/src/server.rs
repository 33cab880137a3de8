//! The daemon as one value, on which all of its parts work: what it knows, and its loop ([`turn`]), its connections ([`connections`]), what
//! it does at its time ([`timers`]).

mod connections;
#[cfg(test)]
mod tests;
mod timers;
mod turn;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use xsched_gatekeeper::Gatekeeper;
use xsched_policy::registry::Entry;
use xsched_policy::{Arbiter, Choice, Event, GroupId};
use xsched_proto::usage::UsageRow;
use xsched_proto::wire::{ProgramOptions, Request};

use crate::bursts::Bursts;
use crate::changes::Changing;
use crate::clerk::{Clerk, Who};
use crate::client::{Abandoned, Client, Expected, Group, Question};
use crate::clock::now_ns;
use crate::closer::Closer;
use crate::config::Config;
use crate::devices::Devices;
use crate::ended::Ended;
use crate::events::EventLog;
use crate::fair::{FairQueue, Rationed};
use crate::host::Host;
use crate::identity::User;
use crate::kept::Kept;
use crate::memory::{GroupWords, HeartbeatPage, LaunchSum};
use crate::metrics::Metrics;
use crate::pages::{Beside, Pages};
use crate::pool::Pools;
use crate::precedence::Precedence;
use crate::recent::Recent;
use crate::service::{self, Service};
use crate::shares::Shares;
use crate::signals::Signals;
use crate::socket::{Listener, ProgramFds};
use crate::sources::Sources;
use crate::teller::Teller;
use crate::traced::{LeftGroup, Telling};
use crate::trim::Trim;
use crate::tuning::{RATION_CREDIT_NS, RATION_TIMES, TRACE_BYTES};
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
const SITES: u64 = (u64::MAX >> 7) << 2 | kind::OWN;
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
    /// While it serves.
    precedence: Option<Precedence>,
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
    /// Connection and slot of each queue, by its number.
    pub(crate) queue_owners: HashMap<u64, (u64, u16)>,
    /// Groups that are gone, of which there may be records.
    pub(crate) left: VecDeque<Arc<LeftGroup>>,
    pub(crate) heartbeat: HeartbeatPage,
    pub(crate) beside: Beside,
    pub(crate) pages: Pages,
    /// Connections of clients that have woken the daemon.
    wakes: Rationed<User, u64>,
    /// Counters of clients, as far as they are read: see [`Server::look`].
    pub(crate) counting: HashMap<u64, LaunchSum>,
    /// Connections of programs whose groups' counters are to be looked at.
    pub(crate) looks: Rationed<User, u64>,
    /// Connections of other users' commands for which something is to be done.
    pub(crate) commands: Rationed<User, u64>,
    /// Work for their programs, and for connections that have not opened yet: a user's commands do not put its programs off.
    pub(crate) messages: Rationed<User, Work>,
    /// Work for connections of root and of the daemon's own user, and for those that are gone.
    pub(crate) work: FairQueue<User, Work>,
    /// Connections to end after the current event, and why if it is their fault.
    pub(crate) doomed: Vec<(u64, Option<Error>)>,
    /// Programs that were announced, by number.
    pub(crate) expected: HashMap<u64, Expected>,
    /// By the connections that they had.
    pub(crate) abandoned: HashMap<u64, Abandoned>,
    /// How many attached programs each job has.
    pub(crate) jobs: HashMap<String, usize>,
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
    /// Commands that wait for others to be answered, see [`Answer::Waits`].
    pub(crate) waiting: VecDeque<(User, u64)>,
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
    /// Memory that programs have left free.
    pub(crate) trim: Trim,
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
    pub(crate) since_ns: u64,
    pub(crate) role: Role,
    /// What the other side has not taken yet.
    out: VecDeque<Vec<u8>>,
    out_bytes: usize,
    /// Since when it takes nothing of that.
    unread_since_ns: u64,
    /// The other side has ended or hung up: nothing is to be taken from it or said to it any more.
    gone: bool,
    /// True once it has ended while it changed programs: it stays until that is done, and hears nothing.
    unheard: bool,
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
    /// What was asked for is begun once others are answered: see [`Server::has_room`].
    Waits(Box<Request>),
    /// One for each of these policies.
    Policies(std::slice::Iter<'static, &'static Entry>),
    /// Groups, then records of what happened to them.
    Trace(Box<Telling>),
    /// One for each of the programs that are still to be changed.
    Changing(Box<Changing>),
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
    Program(ProgramOptions, ProgramFds),
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

    /// Tells whether what it says has a ration: that of root and of the daemon's own user has none. A connection of theirs that has not
    /// opened yet is told by the number of its user.
    fn is_rationed(&self) -> bool {
        let is_own = match self.role {
            Role::Unknown | Role::Unlisted(_) => self.user.has_own_uid(),
            Role::Client(_) | Role::Command(_) => self.user.is_own(),
        };
        (!self.gone || self.is_changing()) && !is_own
    }

    /// Tells whether it changes programs, which is carried through whatever becomes of the connection.
    fn is_changing(&self) -> bool {
        matches!(self.role, Role::Command(Some(Answer::Changing(_))))
    }

    /// Whether something is still to be answered, and whether that waits for something else than for the other side.
    fn answering(&self) -> (bool, bool) {
        match &self.role {
            Role::Unlisted(_) => (true, true),
            Role::Command(Some(answer)) => {
                let waits = matches!(
                    answer,
                    Answer::Waits(_) | Answer::OfClient | Answer::OfPool | Answer::OfTeller | Answer::OfUsage
                );
                (true, waits)
            }
            _ => (false, false),
        }
    }

    /// Tells whether memory is kept for an answer that takes some time.
    pub(crate) fn has_long_answer(&self) -> bool {
        let is_long = |answer: &Answer| {
            matches!(answer, Answer::Trace(_) | Answer::Changing(_) | Answer::OfUsage | Answer::Usage(_))
        };
        matches!(&self.role, Role::Command(Some(answer)) if is_long(answer))
    }
}

impl Server {
    pub(crate) fn new(options: &Options) -> Result<Server, Error> {
        let fail = |what: &str, e: Errno| Error::Environment(format!("cannot make {what}: {e}"));
        // Before there are threads, so that none of them takes a signal.
        let signals = Signals::new().map_err(|e| fail("a signal descriptor", e))?;
        let sources = Sources::new(options);
        let (config, policy) = sources.read()?;
        let beside = Beside::of_process()?;
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
        for socket in listener.sockets() {
            add(socket.as_fd(), LISTENER, EventFlags::IN)?;
        }
        add(listener.rendezvous().as_fd(), SITES, EventFlags::IN)?;
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
            precedence: None,
            has_terminal: service::has_terminal(),
            reassert: Vec::new(),
            conns: HashMap::new(),
            found: HashMap::new(),
            groups: HashMap::new(),
            queues_of: HashMap::new(),
            queue_owners: HashMap::new(),
            left: VecDeque::new(),
            heartbeat,
            beside,
            pages: Pages::default(),
            wakes: Rationed::new(RATION_TIMES, RATION_CREDIT_NS),
            counting: HashMap::new(),
            looks: Rationed::new(RATION_TIMES, RATION_CREDIT_NS),
            commands: Rationed::new(RATION_TIMES, RATION_CREDIT_NS),
            messages: Rationed::new(RATION_TIMES, RATION_CREDIT_NS),
            work: FairQueue::new(),
            doomed: Vec::new(),
            expected: HashMap::new(),
            abandoned: HashMap::new(),
            jobs: HashMap::new(),
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
            waiting: VecDeque::new(),
            last_id: 0,
            dropped_clients: 0,
            started_ns: now_ns,
            stop: false,
            now_ns,
            beat_at: None,
            look_at: None,
            looked_at: BTreeSet::new(),
            unread_at: None,
            trim: Trim::default(),
            idle_exit_ns: idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            idle_since: Some(now_ns),
            nice_at: None,
            active_windows: HashMap::new(),
            armed: None,
            max_conns: connections::max_conns(connections::raise_descriptor_limit() as usize),
            closer: Closer::new(),
            clerk,
            tend_at: None,
            deaf: false,
            spare: connections::spare(),
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
