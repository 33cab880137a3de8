//! Server: the daemon as one value, with the engine, the connections, and the services beside. [`turn`] is its loop, [`due`] the work at
//! set times.

pub(crate) mod clock;
mod due;
mod effects;
mod faults;
mod optional;
mod precedence;
pub(crate) mod service;
mod signals;
mod start;
#[cfg(test)]
mod tests;
pub(crate) mod timers;
mod turn;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use xsched_proto::wire::{ProgramOptions, Request};

use crate::commands::Commands;
use crate::config::Config;
use crate::config::kept::Kept;
use crate::config::sources::Sources;
use crate::devices::Devices;
use crate::history::bursts::Bursts;
use crate::history::ended::Ended;
use crate::history::recent::Recent;
use crate::history::refusals::Refusals;
use crate::history::shares::Shares;
use crate::identity::User;
use crate::metrics::Metrics;
use crate::net::Net;
use crate::net::socket::ProgramFds;
use crate::pool::Pools;
use crate::pool::trusted::Trusting;
use crate::pool::unsuitable::Unsuitable;
use crate::programs::client::{Abandoned, Client, Expected};
use crate::programs::pages::PageFile;
use crate::programs::trim::Trim;
use crate::scheduler::process::Host;
use crate::server::precedence::Precedence;
use crate::server::service::Service;
use crate::server::signals::Signals;
use crate::server::timers::Timers;
use crate::services::configuration::Configuration;
use crate::services::events::EventLog;
use crate::services::identify::{Identify, Who};
use crate::services::snapshot::Snapshots;
use crate::services::trust::Trust;
use crate::services::usage::UsageBooks;
use crate::services::warnings::Warnings;
use crate::usage::Accounting;
use crate::{Engine, Error};

/// State of the whole daemon.
pub(crate) struct Server {
    /// Decisions about devices.
    pub(crate) engine: Engine,
    /// Connections and the work for them.
    pub(crate) net: Net,
    /// Commands and their answers.
    pub(crate) commands: Commands,
    pub(crate) programs: Programs,
    pub(crate) places: Places,
    pub(crate) services: Services,
    pub(crate) history: History,
    pub(crate) life: Life,
    pub(crate) config: Config,
    pub(crate) sources: Sources,
    /// Settings by commands that outlive the daemon.
    pub(crate) kept: Kept,
    pub(crate) timers: Timers,
    /// Release of memory that programs have left free.
    pub(crate) trim: Trim,
    /// Time of the current piece of work, in ns.
    pub(crate) now_ns: u64,
}

/// Programs as the daemon keeps them, by connection.
#[derive(Default)]
pub(crate) struct Programs {
    /// Attached processes.
    pub(crate) clients: HashMap<u64, Client>,
    /// First messages of connections whose users are being identified.
    pub(crate) openings: HashMap<u64, Opening>,
    /// Users that were just identified.
    pub(crate) found: HashMap<u64, Result<Who, Error>>,
    /// Segments of processes that left their connections but still run, by the numbers of those connections.
    pub(crate) abandoned: HashMap<u64, Abandoned>,
    /// Memory of backlog pages, by the programs that own them.
    pub(crate) pages: HashMap<u64, PageFile>,
}

/// Announced programs, and places in pools.
pub(crate) struct Places {
    /// Programs that were announced, by number.
    pub(crate) expected: HashMap<u64, Expected>,
    /// Number of attached programs of each job.
    pub(crate) jobs: HashMap<String, usize>,
    /// Programs that must not join a pool, after faults or long commands.
    pub(crate) unsuitable: Unsuitable,
    pub(crate) pools: Pools,
    pub(crate) trusting: Trusting,
    /// True after a program has left, or an announced process has come or ended: pools may be unused now.
    pub(crate) has_left: bool,
}

/// Workers and other services beside the loop.
pub(crate) struct Services {
    pub(crate) identify: Identify,
    pub(crate) snapshots: Snapshots,
    pub(crate) usage: UsageBooks,
    pub(crate) trust: Trust,
    pub(crate) configuration: Configuration,
    /// Log of the daemon.
    pub(crate) events: EventLog,
    /// File of bursts, if they are recorded.
    pub(crate) bursts: Option<Bursts>,
    pub(crate) devices: Devices,
    /// Metrics, if the configuration allows them.
    pub(crate) metrics: Option<Metrics>,
    /// Operator's own scheduler, while it works.
    pub(crate) scheduler: Option<Host>,
    /// Optional parts that do not work.
    pub(crate) warnings: Warnings,
}

/// Records of the past.
pub(crate) struct History {
    pub(crate) accounting: Accounting,
    pub(crate) recent: Recent,
    pub(crate) shares: Rc<Shares>,
    pub(crate) ended: Ended,
    pub(crate) refusals: Refusals,
    pub(crate) dropped_clients: u64,
    /// Number of panics that were caught.
    pub(crate) panics: u64,
    pub(crate) started_ns: u64,
    /// Names of the configuration files in force.
    pub(crate) configuration: Vec<String>,
    /// Fault for which the configuration was not read again.
    pub(crate) configuration_fault: Option<String>,
    /// End of the operator's own scheduler.
    pub(crate) scheduler_failure: Option<String>,
}

/// Life of the loop: its timer, its end, its precedence among threads.
pub(crate) struct Life {
    timer: OwnedFd,
    /// Time at which the kernel's timer goes off, in ns.
    armed: Option<u64>,
    signals: Signals,
    pub(crate) service: Service,
    /// Precedence, while the daemon serves.
    precedence: Option<Precedence>,
    /// True if the daemon was started from a terminal.
    pub(crate) has_terminal: bool,
    pub(crate) stop: bool,
    idle_exit_ns: Option<u64>,
    idle_since: Option<u64>,
    /// Longest piece of work since events were last taken, in ns, and its name.
    longest: (u64, &'static str),
}

/// First message of a connection.
pub(crate) enum Opening {
    Program(ProgramOptions, ProgramFds),
    Command(Request),
}

impl Server {
    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    /// Logs an event caused by a user.
    pub(crate) fn record(&mut self, user: User, line: &str) {
        self.services.events.of_user(self.now_ns, user, line);
    }

    /// Logs the change that a command of a connection has made.
    pub(crate) fn record_command(&mut self, conn: u64, what: &str) {
        if let Some((user, pid)) = self.net.conns.get(&conn).map(|c| (c.user, c.pid)) {
            self.record(user, &format!("{what}: by user {user} (process {pid})"));
        }
    }

    /// Logs a problem, at most once a second.
    pub(crate) fn log(&mut self, line: &str) {
        self.services.events.complain(self.now_ns, line);
    }

    /// Logs a line for the operator.
    pub(crate) fn say(&self, line: &str) {
        self.services.events.say(line);
    }
}
