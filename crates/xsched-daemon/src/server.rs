//! The daemon as one value: the engine, the connections, and the services beside. [`turn`] is its loop, [`due`] what it does at its time.

mod due;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use xsched_proto::wire::{ProgramOptions, Request};

use crate::answers::Commands;
use crate::bursts::Bursts;
use crate::client::{Abandoned, Client, Expected};
use crate::clock::now_ns;
use crate::config::Config;
use crate::devices::Devices;
use crate::ended::Ended;
use crate::events::EventLog;
use crate::host::Host;
use crate::kept::Kept;
use crate::memory::HeartbeatPage;
use crate::metrics::Metrics;
use crate::net::socket::{Listener, ProgramFds};
use crate::net::{Net, Own};
use crate::pages::{self, PageFiles};
use crate::pool::Pools;
use crate::precedence::Precedence;
use crate::recent::Recent;
use crate::service::{self, Service};
use crate::services::identify::{Identify, Who};
use crate::services::snapshot::Snapshots;
use crate::services::usage::UsageBooks;
use crate::shares::Shares;
use crate::signals::Signals;
use crate::sources::Sources;
use crate::timers::Timers;
use crate::unsuitable::Unsuitable;
use crate::usage::Accounting;
use crate::{Engine, Error, Options};

/// The daemon.
pub(crate) struct Server {
    /// What is decided.
    pub(crate) engine: Engine,
    /// Connections.
    pub(crate) net: Net,
    /// Commands and their answers.
    pub(crate) commands: Commands,
    /// Attached processes, by connection.
    pub(crate) clients: HashMap<u64, Client>,
    /// First messages of connections whose owners are being identified.
    pub(crate) openings: HashMap<u64, Opening>,
    /// Owners that were just identified.
    pub(crate) found: HashMap<u64, Result<Who, Error>>,
    /// Segments of processes that have left and live on, by the connections that they had.
    pub(crate) abandoned: HashMap<u64, Abandoned>,
    /// Memory of backlog pages, by the programs that own them.
    pub(crate) pages: HashMap<u64, PageFiles>,
    /// Programs that were announced, by number.
    pub(crate) expected: HashMap<u64, Expected>,
    /// Number of attached programs of each job.
    pub(crate) jobs: HashMap<String, usize>,
    /// Programs that do not suit others of a pool.
    pub(crate) unsuitable: Unsuitable,
    pub(crate) pools: Pools,
    /// A program has left, or a process was announced or has ended: pools may have become unused.
    pub(crate) has_left: bool,

    pub(crate) config: Config,
    pub(crate) sources: Sources,
    pub(crate) events: EventLog,
    pub(crate) kept: Kept,
    pub(crate) clerk: Identify,
    /// The operator's own scheduler, while it works.
    pub(crate) scheduler: Option<Host>,
    pub(crate) devices: Devices,
    pub(crate) accounting: Accounting,
    pub(crate) usage: UsageBooks,
    /// Figures for monitors, if there may be any.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) recent: Recent,
    pub(crate) shares: Rc<Shares>,
    pub(crate) ended: Ended,
    pub(crate) teller: Snapshots,
    /// The file of bursts, if they are written.
    pub(crate) bursts: Option<Bursts>,

    pub(crate) service: Service,
    /// While it serves.
    precedence: Option<Precedence>,
    /// Started from a terminal.
    pub(crate) has_terminal: bool,
    pub(crate) dropped_clients: u64,
    pub(crate) started_ns: u64,
    pub(crate) stop: bool,
    /// Time of the current piece of work, ns.
    pub(crate) now_ns: u64,
    pub(crate) timers: Timers,
    timer: OwnedFd,
    /// Time at which the kernel's timer goes off.
    armed: Option<u64>,
    signals: Signals,
    idle_exit_ns: Option<u64>,
    idle_since: Option<u64>,
    /// The longest piece of work since events were last taken, ns, and its name.
    longest: (u64, &'static str),
}

/// The first message of a connection.
pub(crate) enum Opening {
    Program(ProgramOptions, ProgramFds),
    Command(Request),
}

impl Server {
    pub(crate) fn new(options: &Options) -> Result<Server, Error> {
        let fail = |what: &str, e: Errno| Error::Environment(format!("cannot make {what}: {e}"));
        // Before there are threads, so that none of them takes a signal.
        let signals = Signals::new().map_err(|e| fail("a signal descriptor", e))?;
        let sources = Sources::new(options);
        let (config, policy) = sources.read()?;
        let beside = pages::beside()?;
        let events = EventLog::new(options.log.as_deref(), options.log_details)?;
        let host = options.scheduler.as_deref().map(Host::start).transpose()?;
        let bursts = options.bursts.as_deref().map(Bursts::create).transpose()?;
        let now_ns = now_ns();
        let net = Net::new(Listener::new(&options.socket)?, now_ns)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|e| fail("a timer", e))?;
        let heartbeat = HeartbeatPage::new().map_err(|e| fail("the heartbeat page", e))?;
        let clerk = Identify::new(&options.socket).map_err(|e| fail("an event descriptor", e))?;
        let usage = UsageBooks::new(options.state.as_deref(), &options.socket);
        let usage = usage.map_err(|e| fail("an event descriptor", e))?;
        let teller = Snapshots::new().map_err(|e| fail("an event descriptor", e))?;
        net.watch_own(&timer, Own::Timer)?;
        net.watch_own(&signals, Own::Signals)?;
        net.watch_own(&clerk, Own::Identified)?;
        net.watch_own(&usage, Own::Usage)?;
        net.watch_own(&teller, Own::Snapshots)?;
        if let Some(host) = &host {
            net.watch_own(&host.socket, Own::Scheduler)?;
        }
        let from_config = config.idle_exit_s.map(Duration::from_secs);
        let idle_exit = options.idle_exit.or(from_config);
        let (kept, unreadable) = Kept::read(options.state.as_deref(), &options.socket);
        let settings = config.settings(policy, beside, events.has_details);
        let mut server = Server {
            engine: Engine::new(settings, heartbeat, options.seed, bursts.is_some()),
            net,
            commands: Commands::default(),
            clients: HashMap::new(),
            openings: HashMap::new(),
            found: HashMap::new(),
            abandoned: HashMap::new(),
            pages: HashMap::new(),
            expected: HashMap::new(),
            jobs: HashMap::new(),
            unsuitable: Unsuitable::read(options.state.as_deref()),
            pools: Pools::new(options.library.clone(), options.pool_keeper.clone()),
            has_left: false,
            config,
            sources,
            events,
            kept,
            clerk,
            scheduler: host,
            devices: Devices::new(options.device_host.clone()).map_err(|e| fail("an event descriptor", e))?,
            accounting: Accounting::default(),
            usage,
            metrics: None,
            recent: Recent::default(),
            shares: Rc::default(),
            ended: Ended::default(),
            teller,
            bursts,
            service: Service::new(),
            precedence: None,
            has_terminal: service::has_terminal(),
            dropped_clients: 0,
            started_ns: now_ns,
            stop: false,
            now_ns,
            timers: Timers::default(),
            timer,
            armed: None,
            signals,
            idle_exit_ns: idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            idle_since: Some(now_ns),
            longest: (0, ""),
        };
        server.engine.set_now(now_ns);
        server.config.notices.iter().for_each(|line| server.say(line));
        unreadable.iter().for_each(|why| server.say(&why.to_string()));
        server.restore_policies();
        server.start_metrics()?;
        server.detail_of_own(|| {
            let (at, policy) = (options.socket.display(), &server.engine.settings().policy.entry.name);
            format!("listens at {at}, policy {policy}, configuration {}", server.sources.text())
        });
        Ok(server)
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    /// Logs a line that a user has caused.
    pub(crate) fn record(&mut self, uid: u32, line: &str) {
        self.events.of_user(self.now_ns, uid, line);
    }

    /// Logs what a command of a connection has changed.
    pub(crate) fn record_command(&mut self, conn: u64, what: &str) {
        if let Some((user, pid)) = self.net.conns.get(&conn).map(|c| (c.user, c.pid)) {
            self.record(user.uid, &format!("{what}: by user {user} (process {pid})"));
        }
    }

    /// Logs trouble, at most once a second.
    pub(crate) fn log(&mut self, line: &str) {
        self.events.complain(self.now_ns, line);
    }

    /// Logs a line for the operator.
    pub(crate) fn say(&self, line: &str) {
        self.events.say(line);
    }
}
