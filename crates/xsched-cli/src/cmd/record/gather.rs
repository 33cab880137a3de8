//! Bursts of programs, and what the daemon knows of the programs, for some time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use xsched_command::progress::Progress;
use xsched_proto::bounded::TARGETS_MAX;
use xsched_proto::trace::Burst;
use xsched_proto::units;
use xsched_proto::wire::{DaemonInfo, DaemonMsg, ProgramInfo, Request};

use crate::client::Connection;
use crate::cmd::trace::{monotonic_us, stop_on_signals};
use crate::failure::{Error, Result};

/// Time between two questions for bursts, far shorter than the daemon keeps them.
const PERIOD: Duration = Duration::from_millis(200);
/// Questions for bursts between two for programs.
const BETWEEN_LISTS: u32 = 5;

/// Programs to record; none named = all.
#[derive(Debug)]
pub(super) struct Whom {
    pub(super) pids: Vec<u32>,
    pub(super) jobs: Vec<String>,
}

/// A program, as it was seen first and last.
#[derive(Debug)]
pub(super) struct Sighting {
    pub(super) first: ProgramInfo,
    pub(super) last: ProgramInfo,
    /// True if the recording began with it.
    pub(super) from_begin: bool,
    /// True if it ran to the end of the recording.
    pub(super) to_end: bool,
}

/// Programs and bursts of a time.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) daemon: DaemonInfo,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
    /// Programs by process id.
    pub(super) programs: BTreeMap<u32, Sighting>,
    pub(super) bursts: Vec<Burst>,
    /// Lines for the user.
    pub(super) notes: Vec<String>,
    /// Failure that ended it early.
    pub(super) failure: Option<Error>,
}

impl Whom {
    /// Checks that there are such programs.
    ///
    /// # Errors
    /// Names the first that there is not.
    pub(super) fn check(&self, connection: &Connection) -> Result<()> {
        let (_, programs) = list(connection, Request::Ps)?;
        for pid in &self.pids {
            if !programs.iter().any(|program| program.pid == *pid) {
                return Err(Error::input(format!("no process {pid} of yours is attached: see xsched ps")));
            }
        }
        for job in &self.jobs {
            if !programs.iter().any(|program| program.job.as_ref() == Some(job)) {
                return Err(Error::input(format!("no program has the job '{job}': see xsched ps")));
            }
        }
        self.among(&programs).map(drop)
    }

    fn means(&self, program: &ProgramInfo) -> bool {
        let all = self.pids.is_empty() && self.jobs.is_empty();
        all || self.pids.contains(&program.pid) || program.job.as_ref().is_some_and(|job| self.jobs.contains(job))
    }

    /// Process ids for the daemon; none = all.
    fn among(&self, programs: &[ProgramInfo]) -> Result<Vec<u32>> {
        if self.pids.is_empty() && self.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut pids = self.pids.clone();
        pids.extend(programs.iter().filter(|program| self.means(program)).map(|program| program.pid));
        pids.sort_unstable();
        pids.dedup();
        if pids.len() > TARGETS_MAX {
            return Err(Error::input(format!("{} programs are meant, {TARGETS_MAX} at most: use --all", pids.len())));
        }
        Ok(pids)
    }
}

fn list(connection: &Connection, request: Request) -> Result<(Option<DaemonInfo>, Vec<ProgramInfo>)> {
    let (mut daemon, mut programs) = (None, Vec::new());
    for part in connection.ask(request)? {
        match part {
            DaemonMsg::Daemon(info) => daemon = Some(info),
            DaemonMsg::Program(info) => programs.push(*info),
            _ => {}
        }
    }
    Ok((daemon, programs))
}

impl Gathered {
    /// Takes a list of programs.
    fn see(&mut self, whom: &Whom, listed: Vec<ProgramInfo>, from_begin: bool) {
        for info in listed.into_iter().filter(|info| whom.means(info)) {
            let to_end = info.ended_s.is_none();
            match self.programs.get_mut(&info.pid) {
                Some(seen) => (seen.last, seen.to_end) = (info, to_end),
                None => {
                    let seen = Sighting { first: info.clone(), last: info, from_begin, to_end };
                    self.programs.insert(seen.last.pid, seen);
                }
            }
        }
    }

    /// Fetches all bursts from a number on; `ends`: besides, once, those that go on. Returns the number after them.
    fn fetch(&mut self, connection: &Connection, pids: &[u32], mut from: u64, ends: bool) -> Result<u64> {
        loop {
            let before = from;
            for part in connection.ask(Request::Record { pids: pids.to_vec(), from, ends })? {
                let DaemonMsg::Bursts { next, lost, bursts } = part else { continue };
                if lost > 0 && from > 0 {
                    self.notes.push(format!("{lost} requests came too fast to be recorded"));
                }
                from = next;
                self.bursts.extend(bursts);
            }
            if from == before || ends {
                return Ok(from);
            }
        }
    }
}

/// Gathers for some time. A signal, or the loss of the daemon, ends it early: what was gathered by then is kept.
pub(super) fn gather(connection: &Connection, whom: &Whom, time: Duration) -> Result<Gathered> {
    let ended = stop_on_signals()?;
    let (daemon, programs) = list(connection, Request::PsAll)?;
    let (programs, gone): (Vec<_>, Vec<_>) = programs.into_iter().partition(|program| program.ended_s.is_none());
    let gone: BTreeSet<u32> = gone.into_iter().map(|program| program.pid).collect();
    let daemon = daemon.ok_or_else(|| Error::environment("the daemon does not say who it is"))?;
    let mut pids = whom.among(&programs)?;
    let (begin, from_us) = (Instant::now(), monotonic_us());
    let mut gathered = Gathered {
        daemon,
        from_us,
        to_us: from_us,
        programs: BTreeMap::new(),
        bursts: Vec::new(),
        notes: Vec::new(),
        failure: None,
    };
    gathered.see(whom, programs, true);
    // Bursts of earlier recordings are not of this one.
    let mut from = gathered.fetch(connection, &pids, 0, false)?;
    gathered.bursts.clear();
    let about = format!("takes {}; Ctrl-C ends it early", units::of(time));
    let progress = Progress::new("record", Some(about.as_str()).filter(|_| std::io::stderr().is_terminal()));
    for round in 1.. {
        let left = time.saturating_sub(begin.elapsed());
        std::thread::sleep(left.min(PERIOD));
        let is_last = left <= PERIOD || ended.load(Relaxed);
        let mut look = || -> Result<()> {
            from = gathered.fetch(connection, &pids, from, false)?;
            if is_last || round % BETWEEN_LISTS == 0 {
                let (_, programs) = list(connection, Request::PsAll)?;
                let here = |program: &&ProgramInfo| program.ended_s.is_none();
                pids = whom.among(&programs.iter().filter(here).cloned().collect::<Vec<_>>())?;
                let lately = programs.into_iter().filter(|program| here(&program) || !gone.contains(&program.pid));
                gathered.see(whom, lately.collect(), false);
            }
            if is_last {
                from = gathered.fetch(connection, &pids, from, true)?;
            }
            Ok(())
        };
        let done = look();
        gathered.to_us = monotonic_us();
        gathered.failure = done.err();
        progress.show(&format!("{} left, {} requests", units::of_s(left.as_secs()), gathered.bursts.len()));
        if is_last || gathered.failure.is_some() {
            break;
        }
    }
    Ok(gathered)
}
