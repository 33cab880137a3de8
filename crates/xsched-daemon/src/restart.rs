//! What was set at run time and outlives the daemon: suspended programs, hints, policies. Kept in a file of the state folder, by the
//! boot, and of a program by its pid, its start and its user: a pid that is given away again inherits nothing.
//!
//! What a program says of itself is not kept: it says so again to the next daemon.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xsched_policy::{Choice, Event};

use crate::Error;
use crate::client::Changes;
use crate::follow::start_ticks;
use crate::server::Server;
use crate::tuning::STATE_MAX_BYTES;

const HEAD: &str =
    "# What was set while xsched ran, for the daemon that comes after a restart. Written by the daemon.\n";

/// What is kept of the daemon before, and where it is written.
#[derive(Debug, Default)]
pub(crate) struct Restart {
    file: Option<PathBuf>,
    /// Policies that commands have set, by device; `""` is all that have none of their own.
    policies: BTreeMap<String, Policy>,
    /// Programs that have not come back yet.
    absent: Vec<Program>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    boot: String,
    #[serde(default)]
    policies: BTreeMap<String, Policy>,
    #[serde(default)]
    programs: Vec<Program>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    /// Name and parameters, as it is shown.
    is: String,
    /// What was in force by the configuration: once that says something else, it counts.
    instead_of: String,
}

/// What commands have said of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pid: u32,
    /// Clock ticks from the boot to its start.
    start: u64,
    /// As [`crate::identity::User`] is told.
    user: String,
    held: bool,
    hinted: Changes,
}

impl Restart {
    /// What an earlier daemon of this socket left in a folder, if it is of this boot. What cannot be read counts as nothing; the reason
    /// comes beside it.
    pub(crate) fn read(folder: Option<&Path>, socket: &Path) -> (Restart, Option<Error>) {
        let Some(folder) = folder else { return (Restart::default(), None) };
        let name = socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let file = folder.join(format!("runtime-{name}.toml"));
        let (kept, why) = match read(&file) {
            Ok(kept) => (kept.unwrap_or_default(), None),
            Err(why) => {
                let line = format!("{} is not used: {why}", file.display());
                (Kept::default(), Some(Error::environment(line)))
            }
        };
        let kept = if kept.boot == boot() { kept } else { Kept::default() };
        (Restart { file: Some(file), policies: kept.policies, absent: kept.programs }, why)
    }

    /// The policies that commands had set, and that what the configuration says now does not replace, with their devices.
    pub(crate) fn policies(&mut self, configured: impl Fn(Option<&str>) -> String) -> Vec<(Option<String>, Choice)> {
        self.policies.retain(|device, policy| policy.instead_of == configured(named(device)));
        let choice = |text: &str| {
            let mut words = text.split(' ');
            let name = words.next().unwrap_or_default();
            Choice::with(name, words.filter_map(|word| word.split_once('='))).ok()
        };
        let known = self.policies.iter().filter_map(|(device, policy)| Some((device, choice(&policy.is)?)));
        known.map(|(device, choice)| (named(device).map(str::to_owned), choice)).collect()
    }
}

fn named(device: &str) -> Option<&str> {
    (!device.is_empty()).then_some(device)
}

fn read(file: &Path) -> Result<Option<Kept>, String> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let open = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(file);
    let opened = match open {
        Ok(opened) => opened,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let meta = opened.metadata().map_err(|e| e.to_string())?;
    let us = rustix::process::geteuid().as_raw();
    if !meta.is_file() || meta.uid() != us {
        return Err("it is not a file of the daemon's user".into());
    }
    let mut text = String::new();
    let got = opened.take(STATE_MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if got as u64 > STATE_MAX_BYTES {
        return Err("it is too large".into());
    }
    toml::from_str(&text).map(Some).map_err(|e| e.message().lines().collect::<Vec<_>>().join("; "))
}

/// What tells this boot from others.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

impl Server {
    /// A command has set a policy, of one device or of all.
    pub(crate) fn remember_policy(&mut self, device: Option<&str>, choice: &Choice) {
        if device.is_none() {
            // It is that of every device.
            self.restart.policies.clear();
        }
        let policy = Policy { is: choice.to_string(), instead_of: self.configured(device) };
        self.restart.policies.insert(device.unwrap_or_default().to_owned(), policy);
        self.remember();
    }

    /// Puts the policies in force that commands had set before the restart.
    pub(crate) fn restore_policies(&mut self) {
        let configured: BTreeMap<String, String> =
            self.restart.policies.keys().map(|device| (device.clone(), self.configured(named(device)))).collect();
        let known = |device: Option<&str>| configured.get(device.unwrap_or_default()).cloned().unwrap_or_default();
        for (device, choice) in self.restart.policies(known) {
            if choice.entry.name == crate::host::POLICY && self.scheduler.is_none() {
                continue;
            }
            self.say(&format!("policy {choice}{}: kept over the restart", on(device.as_deref())));
            self.gatekeeper.set_policy(self.now_us(), device.as_deref(), choice);
        }
    }

    /// What the configuration says is in force.
    fn configured(&self, device: Option<&str>) -> String {
        let own = device.and_then(|device| self.config.devices.get(device));
        own.map_or_else(|| self.default_policy.to_string(), Choice::to_string)
    }

    /// A program has come that may have been there before.
    pub(crate) fn restore_program(&mut self, conn: u64) {
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return };
        let (pid, user, program) = (client.peer.pid, client.peer.user, client.program);
        let is = |p: &Program| p.pid == pid && p.user == user.to_string() && start_ticks(pid) == Some(p.start);
        let Some(at) = self.restart.absent.iter().position(is) else { return };
        let known = self.restart.absent.swap_remove(at);
        // No more than the configuration allows now, but for what root gave.
        let allowed = client.allowed;
        let mut hinted = known.hinted;
        if !hinted.by_root {
            hinted.priority = hinted.priority.map(|priority| priority.min(allowed));
        }
        self.hint_client(conn, hinted);
        if known.held {
            if let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()) {
                client.held = true;
            }
            self.gatekeeper.event(self.now_us(), Event::Hold(program));
        }
        self.act();
    }

    /// A program that commands have said something of has left: it may come back.
    pub(crate) fn may_come_back(&mut self, client: &crate::client::Client) {
        if let Some(known) = program(client) {
            self.restart.absent.push(known);
            self.remember();
        }
    }

    /// Has all that is to be kept written.
    pub(crate) fn remember(&mut self) {
        let Some(file) = self.restart.file.clone() else { return };
        self.restart.absent.retain(|p| start_ticks(p.pid) == Some(p.start));
        let mut programs: Vec<Program> = self.clients().filter_map(program).collect();
        programs.extend(self.restart.absent.iter().cloned());
        let kept = Kept { boot: boot(), policies: self.restart.policies.clone(), programs };
        match toml::to_string(&kept) {
            Ok(text) => self.events.writer.state(&file, format!("{HEAD}{text}")),
            Err(e) => self.log(&format!("cannot keep what was set: {e}")),
        }
    }
}

/// What is to be kept of a program, if anything is.
fn program(client: &crate::client::Client) -> Option<Program> {
    let is_news = client.held || client.hinted != Changes::default();
    let start = start_ticks(client.peer.pid).filter(|_| is_news)?;
    Some(Program { pid: client.peer.pid, start, user: client.peer.user.to_string(), held: client.held, hinted: client.hinted })
}

/// Of which devices something is said, to be put behind it.
pub(crate) fn on(device: Option<&str>) -> String {
    device.map_or_else(String::new, |device| format!(" on {device}"))
}
