//! Start of a daemon.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
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
use crate::programs::pages::{self};
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
use crate::usage::Accounting;
use crate::{Engine, Error, Options};

use super::{History, Life, Places, Programs, Server, Services};

impl Server {
    pub(crate) fn new(options: &Options) -> Result<Server, Error> {
        let fail = |what: &str, e: Errno| Error::Environment(format!("cannot make {what}: {e}"));
        // Set up before there are threads, so that none of them takes a signal.
        let signals = Signals::new().map_err(|e| fail("a signal descriptor", e))?;
        let sources = Sources::new(options);
        let (config, policy) = sources.read()?;
        let may_yield = pages::may_yield()?;
        let events = EventLog::new(options.log.as_deref(), options.log_details)?;
        let host = options.scheduler.as_deref().map(Host::start).transpose()?;
        let bursts = options.bursts.as_deref().map(Bursts::create).transpose()?;
        let now_ns = now_ns();
        let net = Net::new(Listener::new(&options.socket)?, now_ns)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|e| fail("a timer", e))?;
        let heartbeat = HeartbeatPage::new().map_err(|e| fail("the heartbeat page", e))?;
        let identify = Identify::new(&options.socket).map_err(|e| fail("an event descriptor", e))?;
        let usage = UsageBooks::new(options.state.as_deref(), &options.socket);
        let usage = usage.map_err(|e| fail("an event descriptor", e))?;
        let snapshots = Snapshots::new().map_err(|e| fail("an event descriptor", e))?;
        net.watch_own(&timer, Own::Timer)?;
        net.watch_own(&signals, Own::Signals)?;
        net.watch_own(&identify, Own::Identified)?;
        net.watch_own(&usage, Own::Usage)?;
        net.watch_own(&snapshots, Own::Snapshots)?;
        let trust = Trust::new(options.state.as_deref()).map_err(|e| fail("an event descriptor", e))?;
        net.watch_own(&trust, Own::Trust)?;
        let configuration = Configuration::new().map_err(|e| fail("an event descriptor", e))?;
        net.watch_own(&configuration, Own::Configuration)?;
        if let Some(host) = &host {
            net.watch_own(&host.socket, Own::Scheduler)?;
        }
        let from_config = config.idle_exit_s.map(Duration::from_secs);
        let idle_exit = options.idle_exit.or(from_config);
        let (kept, unreadable) = Kept::read(options.state.as_deref(), &options.socket);
        let settings = config.settings(policy, may_yield, events.has_details);
        let places = Places {
            expected: HashMap::new(),
            jobs: HashMap::new(),
            unsuitable: Unsuitable::read(options.state.as_deref()),
            pools: Pools::new(options.library.clone(), options.pool_keeper.clone()),
            trusting: Trusting::default(),
            has_left: false,
        };
        let engine = Engine::new(settings, heartbeat, options.seed, bursts.is_some());
        let services = Services {
            identify,
            snapshots,
            usage,
            trust,
            configuration,
            events,
            bursts,
            devices: Devices::new(options.device_host.clone()).map_err(|e| fail("an event descriptor", e))?,
            metrics: None,
            scheduler: host,
        };
        let history = History {
            accounting: Accounting::default(),
            recent: Recent::default(),
            shares: Rc::default(),
            ended: Ended::default(),
            refusals: Refusals::default(),
            dropped_clients: 0,
            started_ns: now_ns,
            configuration: sources.names(),
            configuration_fault: None,
            scheduler_failure: None,
        };
        let life = Life {
            timer,
            armed: None,
            signals,
            service: Service::new(),
            precedence: None,
            has_terminal: service::has_terminal(),
            stop: false,
            idle_exit_ns: idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            idle_since: Some(now_ns),
            longest: (0, ""),
        };
        let mut server = Server {
            engine,
            net,
            commands: Commands::default(),
            programs: Programs::default(),
            places,
            services,
            history,
            life,
            config,
            sources,
            kept,
            timers: Timers::default(),
            trim: Trim::default(),
            now_ns,
        };
        server.engine.set_now(now_ns);
        server.config.notices.iter().for_each(|line| server.say(line));
        unreadable.iter().for_each(|why| server.say(&why.to_string()));
        server.restore_policies();
        server.start_metrics()?;
        let (at, policy) = (options.socket.display(), server.engine.arbiter().policy());
        server.say(&format!("listens at {at}, policy {policy}, configuration {}", server.sources.text()));
        Ok(server)
    }
}
