//! Start of a daemon.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use crate::commands::Commands;
use crate::config::kept::Kept;
use crate::config::sources::Sources;
use crate::devices::Devices;
use crate::history::bursts::Bursts;
use crate::history::ended::Ended;
use crate::history::recent::Recent;
use crate::history::refusals::Refusals;
use crate::net::socket::Listener;
use crate::net::{Net, Own};
use crate::pool::Pools;
use crate::pool::trusted::Trusting;
use crate::pool::unsuitable::Unsuitable;
use crate::programs::memory::HeartbeatPage;
use crate::programs::pages;
use crate::programs::trim::Trim;
use crate::scheduler::process::Host;
use crate::server::clock::now_ns;
use crate::server::service::{self, Service};
use crate::server::signals::Signals;
use crate::server::timers::Timers;
use crate::services::configuration::Configuration;
use crate::services::events::EventLog;
use crate::services::identify::Identify;
use crate::services::snapshot::Snapshots;
use crate::services::trust::Trust;
use crate::services::usage::UsageBooks;
use crate::services::warnings::{OptionalPart, Warnings};
use crate::usage::Accounting;
use crate::{Engine, Error, Options};

use super::{History, Life, Places, Programs, Server, Services};

impl Server {
    pub(crate) fn new(options: &Options) -> Result<Server, Error> {
        // Set up before there are threads, so that none of them takes a signal.
        let signals = made("a signal descriptor", Signals::new())?;
        let sources = Sources::new(options);
        let (config, policy) = sources.read()?;
        let may_yield = pages::may_yield()?;
        let events = EventLog::new(options.log.as_deref(), options.log_details)?;
        let (scheduler, without_scheduler) = or_reason(options.scheduler.as_deref().map(Host::start));
        let (bursts, without_bursts) = or_reason(options.bursts.as_deref().map(Bursts::create));
        let now_ns = now_ns();
        let net = Net::new(Listener::new(&options.socket)?, now_ns)?;
        let idle_exit = options.idle_exit.or(config.idle_exit_s.map(Duration::from_secs));
        let life = Life::new(signals, idle_exit, now_ns)?;
        let heartbeat = made("the heartbeat page", HeartbeatPage::new())?;
        let settings = config.settings(policy, may_yield, events.has_details);
        let engine = Engine::new(settings, heartbeat, options.seed, bursts.is_some());
        let services = Services::new(options, events, bursts, scheduler)?;
        life.watch(&net)?;
        services.watch(&net)?;
        let mut server = Server {
            engine,
            net,
            commands: Commands::default(),
            programs: Programs::default(),
            places: Places::new(options),
            services,
            history: History::new(&sources, now_ns),
            life,
            config,
            sources,
            kept: Kept::read(options.state.as_deref(), &options.socket),
            timers: Timers::default(),
            trim: Trim::default(),
            now_ns,
        };
        server.note_part(OptionalPart::Bursts, without_bursts.as_deref());
        server.begin(options, without_scheduler.as_deref());
        Ok(server)
    }

    /// Restores settings made at run time, starts metrics, and logs the start.
    fn begin(&mut self, options: &Options, without_scheduler: Option<&str>) {
        self.engine.set_now(self.now_ns);
        self.config.notices.iter().for_each(|line| self.say(line));
        if let Some(why) = without_scheduler {
            self.do_without_scheduler(why);
        }
        self.note_parts();
        self.restore_policies();
        self.start_metrics();
        let (at, policy) = (options.socket.display(), self.engine.arbiter().policy());
        self.say(&format!("listens at {at}, policy {policy}, configuration {}", self.sources.text()));
    }
}

impl Places {
    fn new(options: &Options) -> Places {
        Places {
            expected: HashMap::new(),
            jobs: HashMap::new(),
            unsuitable: Unsuitable::read(options.state.as_deref()),
            pools: Pools::new(options.library.clone(), options.pool_keeper.clone()),
            trusting: Trusting::default(),
            has_left: false,
        }
    }
}

impl Services {
    /// Makes all services but metrics, which need the server. None has a thread before its first task.
    fn new(
        options: &Options,
        events: EventLog,
        bursts: Option<Bursts>,
        scheduler: Option<Host>,
    ) -> Result<Services, Error> {
        const EVENT: &str = "an event descriptor";
        let state = options.state.as_deref();
        Ok(Services {
            identify: made(EVENT, Identify::new(&options.socket))?,
            snapshots: made(EVENT, Snapshots::new())?,
            usage: made(EVENT, UsageBooks::new(state, &options.socket))?,
            trust: made(EVENT, Trust::new(state))?,
            configuration: made(EVENT, Configuration::new())?,
            events,
            bursts,
            devices: made(EVENT, Devices::new(options.device_host.clone()))?,
            metrics: None,
            scheduler,
            warnings: Warnings::default(),
        })
    }

    /// Has the loop woken by the services' results.
    fn watch(&self, net: &Net) -> Result<(), Error> {
        net.watch_own(&self.identify, Own::Identified)?;
        net.watch_own(&self.usage, Own::Usage)?;
        net.watch_own(&self.snapshots, Own::Snapshots)?;
        net.watch_own(&self.trust, Own::Trust)?;
        net.watch_own(&self.configuration, Own::Configuration)?;
        self.devices.watch(|samples| net.watch_own(&samples, Own::Devices))?;
        self.scheduler.iter().try_for_each(|host| net.watch_own(&host.socket, Own::Scheduler))
    }
}

impl History {
    fn new(sources: &Sources, now_ns: u64) -> History {
        History {
            accounting: Accounting::default(),
            recent: Recent::default(),
            shares: Rc::default(),
            ended: Ended::default(),
            refusals: Refusals::default(),
            dropped_clients: 0,
            panics: 0,
            started_ns: now_ns,
            configuration: sources.names(),
            configuration_fault: None,
            scheduler_failure: None,
        }
    }
}

impl Life {
    fn new(signals: Signals, idle_exit: Option<Duration>, now_ns: u64) -> Result<Life, Error> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Life {
            timer: made("a timer", timerfd_create(TimerfdClockId::Monotonic, flags))?,
            armed: None,
            signals,
            service: Service::new(),
            precedence: None,
            has_terminal: service::has_terminal(),
            stop: false,
            idle_exit_ns: idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            idle_since: Some(now_ns),
            longest: (0, ""),
        })
    }

    /// Has the loop woken by the timer and by signals.
    fn watch(&self, net: &Net) -> Result<(), Error> {
        net.watch_own(&self.timer, Own::Timer)?;
        net.watch_own(&self.signals, Own::Signals)
    }
}

/// Returns an optional part if it could be made, or the reason why not.
fn or_reason<T>(made: Option<Result<T, Error>>) -> (Option<T>, Option<String>) {
    match made {
        None => (None, None),
        Some(Ok(part)) => (Some(part), None),
        Some(Err(why)) => (None, Some(why.to_string())),
    }
}

/// Returns a part of the daemon, or the error that names the part that could not be made.
fn made<T>(part: &str, result: rustix::io::Result<T>) -> Result<T, Error> {
    result.map_err(|e| Error::Environment(format!("cannot make {part}: {e}")))
}
