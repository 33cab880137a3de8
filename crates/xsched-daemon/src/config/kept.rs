//! Settings made at run time that outlive the daemon: suspended programs, hints, policies, and places in pools. They are in a file of the
//! state folder, valid for one boot. A program is identified by its pid, its start and its user, so that another process with the same pid
//! inherits nothing.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xsched_engine::{Changes, Seat, Side, trim};
use xsched_policy::{Choice, PoolId};

use crate::Program;
use crate::identity::process::start_ticks;
use crate::pool::proven::Proven;
use crate::pool::unsuitable::Unsuitable;
use crate::services::writer::MakeText;
use crate::tuning::{ABSENT_MAX, STATE_MAX_BYTES};

const HEAD: &str =
    "# What was set while xsched ran, for the daemon that comes after a restart. Written by the daemon.\n";

/// Settings kept from the daemon before, and the file that they are written to.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    file: Option<PathBuf>,
    /// Policies that commands have set, by device; `""` is for all devices that have none of their own.
    policies: BTreeMap<String, Policy>,
    /// Programs of an earlier daemon that have not attached to this one yet.
    absent: VecDeque<KeptProgram>,
    /// Places in pools of earlier daemons.
    seats: Vec<KeptSeat>,
    /// Reason for which the file of an earlier daemon is not used.
    pub(crate) unread: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    boot: String,
    #[serde(default)]
    policies: BTreeMap<String, Policy>,
    #[serde(default)]
    programs: Vec<KeptProgram>,
    #[serde(default)]
    seats: Vec<KeptSeat>,
}

/// Place of a process in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptSeat {
    pid: u32,
    /// Start of the process, in clock ticks from the boot; 0 = still to be read.
    start: u64,
    uid: u32,
    /// Number of the pool's server, in later daemons too.
    server: u64,
    inner: bool,
}

impl KeptSeat {
    /// Place of a living process in the pool of a pipe directory. No two servers have the same number, not even one of a later pool.
    pub(crate) fn new(pid: u32, uid: u32, pipe: &str, side: Side) -> KeptSeat {
        let mut hasher = DefaultHasher::new();
        pipe.hash(&mut hasher);
        KeptSeat { pid, start: 0, uid, server: 1 << 62 | hasher.finish() >> 2, inner: side == Side::Inner }
    }

    fn seat(&self) -> Seat {
        Seat { server: PoolId(self.server), side: if self.inner { Side::Inner } else { Side::Outer } }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    /// Name and parameters of the policy, as shown.
    is: String,
    /// Policy that the configuration gave at the time: once the configuration names another one, that one is in force.
    instead_of: String,
}

/// Settings that commands made for a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptProgram {
    pid: u32,
    /// Start of the process, in clock ticks from the boot.
    start: u64,
    /// User in the text form of [`crate::identity::User`].
    user: String,
    pub(crate) held: bool,
    pub(crate) hinted: Changes,
}

impl KeptProgram {
    /// Settings of a program, if any have to be kept.
    fn of(program: &Program) -> Option<KeptProgram> {
        let is_news = program.held || program.hinted != Changes::default();
        let start = program.start.filter(|_| is_news)?;
        let (pid, user) = (program.pid, program.user.to_string());
        Some(KeptProgram { pid, start, user, held: program.held, hinted: program.hinted })
    }
}

/// State that the daemon of a socket takes over from an earlier one through a folder, one line each: policies (`configured` is that of the
/// configuration), programs that still run, programs that suit no pool, and those that may prove themselves.
pub fn kept_state(folder: &Path, socket: &Path, configured: &str) -> Vec<String> {
    let mut kept = Kept::read(Some(folder), socket);
    let policies = kept.policies(|_| configured.to_owned());
    let mut lines: Vec<String> = policies
        .iter()
        .map(|(device, choice)| format!("{}: {choice}", device.as_deref().unwrap_or_default()))
        .collect();
    lines.extend(kept.absent.iter().map(|program| format!("process {}", program.pid)));
    lines.extend(Unsuitable::read(Some(folder)).names().map(|name| format!("in no pool: {name}")));
    lines.extend(Proven::read(Some(folder)).names().map(|name| format!("may be proven: {name}")));
    lines
}

impl Kept {
    /// Reads the state that an earlier daemon of this socket left in a folder, if it is of this boot. Unreadable state counts as none.
    pub(crate) fn read(folder: Option<&Path>, socket: &Path) -> Kept {
        let Some(folder) = folder else { return Kept::default() };
        let name = socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let file = folder.join(format!("runtime-{name}.toml"));
        let (kept, unread) = match read(&file) {
            Ok(kept) => (kept.unwrap_or_default(), None),
            Err(why) => (Contents::default(), Some(format!("{} is not used: {why}", file.display()))),
        };
        let mut kept = if kept.boot == boot() { kept } else { Contents::default() };
        kept.programs.retain(|p| start_ticks(p.pid) == Some(p.start));
        kept.seats.retain(|seat| start_ticks(seat.pid) == Some(seat.start));
        let Contents { policies, programs, seats, .. } = kept;
        Kept { file: Some(file), policies, absent: programs.into(), seats, unread }
    }

    /// Place of a program in a pool of an earlier daemon.
    pub(crate) fn seat(&self, program: &Program) -> Option<Seat> {
        let (pid, uid) = (program.pid, program.user.uid);
        let is = |seat: &&KeptSeat| seat.pid == pid && seat.uid == uid && program.start == Some(seat.start);
        self.seats.iter().find(is).map(KeptSeat::seat)
    }

    /// Notes the policy that a command has set, of one device or of all, and that of the configuration.
    pub(crate) fn set_policy(&mut self, device: Option<&str>, choice: &Choice, instead_of: String) {
        if device.is_none() {
            // A policy for all devices replaces those of single devices.
            self.policies.clear();
        }
        let policy = Policy { is: choice.to_string(), instead_of };
        self.policies.insert(device.unwrap_or_default().to_owned(), policy);
    }

    /// Policies that commands have set: the device, if it is of one, the policy, and that of the configuration at the time.
    pub(crate) fn policies_set(&self) -> impl Iterator<Item = (Option<&str>, &str, &str)> {
        self.policies.iter().map(|(device, policy)| (named(device), &*policy.is, &*policy.instead_of))
    }

    /// Policies that commands had set, with their devices, but for those where the configuration has changed since.
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

    /// Takes the settings of a program that has come back out of the list.
    pub(crate) fn take(&mut self, program: &Program) -> Option<KeptProgram> {
        let (pid, user) = (program.pid, program.user.to_string());
        let is = |p: &KeptProgram| p.pid == pid && p.user == user && program.start == Some(p.start);
        let at = self.absent.iter().position(is)?;
        self.absent.remove(at)
    }

    /// Notes the settings of a program that has left and may come back. Returns whether there are any.
    pub(crate) fn put(&mut self, program: &Program) -> bool {
        let Some(program) = KeptProgram::of(program) else { return false };
        self.absent.retain(|p| p.pid != program.pid);
        self.absent.push_back(program);
        trim(&mut self.absent, ABSENT_MAX, |p| p.user.clone());
        true
    }

    /// Path and text of the file, with the programs `there` and the seats of this daemon; none = nothing is kept. The text is made by the
    /// thread that writes it, since that of a thousand programs takes milliseconds.
    pub(crate) fn contents<'a>(
        &self,
        there: impl Iterator<Item = &'a Program>,
        mut seats: Vec<KeptSeat>,
    ) -> Option<(&Path, MakeText)> {
        let file = self.file.as_deref()?;
        let programs = there.filter_map(KeptProgram::of).chain(self.absent.iter().cloned()).collect();
        seats.extend(&self.seats);
        let contents = Contents { boot: String::new(), policies: self.policies.clone(), programs, seats };
        let text = move || {
            let mut contents = Contents { boot: boot(), ..contents };
            contents.seats.retain_mut(|seat| {
                let start = start_ticks(seat.pid);
                let is_there = start.is_some_and(|start| seat.start == 0 || seat.start == start);
                seat.start = start.unwrap_or(0);
                is_there
            });
            // All values of the contents can be expressed in TOML.
            let text = toml::to_string(&contents).unwrap_or_default();
            format!("{HEAD}{text}")
        };
        Some((file, Box::new(text)))
    }
}

fn named(device: &str) -> Option<&str> {
    (!device.is_empty()).then_some(device)
}

fn read(file: &Path) -> Result<Option<Contents>, String> {
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

/// Id of this boot.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_daemon_with_fewer_hints_is_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let (me, boot) = (std::process::id(), boot());
        let start = start_ticks(me).expect("this process");
        let text = format!(
            "boot = \"{boot}\"\n[policies.\"\"]\nis = \"cfs\"\ninstead_of = \"hpf\"\n[[programs]]\npid = {me}\nstart = {start}\nuser = \"0\"\nheld = true\nhinted = {{}}\n"
        );
        std::fs::write(folder.path().join("runtime-s.toml"), text).expect("a file");
        let taken = kept_state(folder.path(), Path::new("/s"), "hpf");
        assert_eq!(taken, [": cfs".to_owned(), format!("process {me}")]);
        assert_eq!(kept_state(folder.path(), Path::new("/s"), "fair"), [format!("process {me}")]);
    }
}
