//! One situation of one round: the programs start, warm up, are measured, and end.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

use regex_lite::Regex;
use xsched_proto::wire::{DaemonMsg, ProgramInfo, Request};

use super::bursts::{self, Log};
use super::program::{Cost, Program, now_us};
use crate::children::check;
use crate::client;
use crate::failure::{Error, Result};
use crate::private::{Daemon, Private, clean};

/// Pause between two polls of the programs.
const STEP: Duration = Duration::from_millis(10);
/// Longest wait for the lines of a program that has ended.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Program of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The program that must be quick.
    High,
    /// The program that takes the rest of the device.
    Low,
}

impl Part {
    fn what(self) -> &'static str {
        match self {
            Part::High => "the high program",
            Part::Low => "the low program",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Part::High => "high",
            Part::Low => "low",
        }
    }
}

/// Situation of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// High program alone.
    Alone,
    /// Low program alone.
    LowAlone,
    /// Low and high program together, without xsched.
    Native,
    /// Low and high program together, under xsched.
    Xsched,
}

impl Case {
    /// All situations, in the order of the first round.
    pub(super) const ALL: [Case; 4] = [Case::Alone, Case::Native, Case::Xsched, Case::LowAlone];

    /// Name of the situation in output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Case::Alone => "alone",
            Case::LowAlone => "the low program alone",
            Case::Native => "together, without xsched",
            Case::Xsched => "together, under xsched",
        }
    }

    fn parts(self) -> &'static [Part] {
        match self {
            Case::Alone => &[Part::High],
            Case::LowAlone => &[Part::Low],
            Case::Native | Case::Xsched => &[Part::High, Part::Low],
        }
    }
}

/// A comparison to be made.
#[derive(Debug)]
pub struct Wish {
    /// The program that must be quick, as a line for the shell.
    pub high: String,
    /// The program that takes what is left.
    pub low: String,
    /// Lines of the high program that are requests, with a group that takes the latency in ms; none = busy spells are.
    pub requests: Option<Regex>,
    /// Lines of the low program that are work, with a group, if any, that takes how much; none = launches are.
    pub work: Option<Regex>,
    /// Pause that ends a request, where requests are busy spells, µs.
    pub gap_us: u64,
    /// Seconds measured in each situation of each round.
    pub secs: u64,
    /// Time between the first work of both programs and the beginning of what is measured.
    pub warm_up: Duration,
    /// Longest wait for the first work of a program.
    pub start: Duration,
}

impl Wish {
    /// Part of the wish that a picture names.
    pub(super) fn subject(&self) -> Subject {
        Subject { high: self.high.clone(), low: self.low.clone(), requests_are_lines: self.requests.is_some() }
    }

    fn of(&self, part: Part) -> (&str, Option<&Regex>) {
        match part {
            Part::High => (&self.high, self.requests.as_ref()),
            Part::Low => (&self.low, self.work.as_ref()),
        }
    }
}

/// Subject of a comparison.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) high: String,
    pub(super) low: String,
    /// True if latencies are those that the high program prints, not its busy spells.
    pub(super) requests_are_lines: bool,
}

/// Result of a situation in a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    /// Time that was measured, in s.
    pub(super) seconds: f64,
    /// Latency of each request of the high program, in ms.
    pub(super) latencies_ms: Vec<f64>,
    /// Number of busy spells whose length is not known.
    pub(super) missed: u64,
    /// Amount of work that the low program did.
    pub(super) work: f64,
    /// Number of launches of both programs under xsched, and number of those that were not scheduled.
    pub(super) launches: u64,
    pub(super) unscheduled: u64,
    /// Number of times that programs ended and were started again.
    pub(super) again: u64,
    /// Resources that the high program used, alone.
    pub(super) cost: Option<Cost>,
}

/// Daemon, and the bursts that it records.
struct Watch {
    daemon: Daemon,
    log: Log,
}

/// Way in which a program is started, and the daemon that observes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Without xsched.
    Bare,
    /// With gates open: the daemon only watches.
    Observed,
    /// As scheduled by a daemon.
    Scheduled,
}

/// State with which situations are played.
pub(super) struct Stage {
    pub(super) wish: Wish,
    private: Private,
    scheduler: Watch,
    /// Observing daemons, one for each program: all counts of a daemon then belong to its program.
    high_observer: Watch,
    low_observer: Watch,
}

impl Stage {
    /// Starts the daemons, and prepares the situations.
    pub(super) fn new(wish: Wish) -> Result<Stage> {
        let private = Private::new("compare")?;
        let watch = |name: &str, policy: &str| {
            let file = private.join(&format!("{name}.bursts"));
            let args: [&OsStr; 4] = ["--policy".as_ref(), policy.as_ref(), "--bursts".as_ref(), file.as_ref()];
            let daemon = private.daemon(name, &args)?;
            Ok::<_, Error>(Watch { daemon, log: Log::open(&file)? })
        };
        let (scheduler, high_observer, low_observer) =
            (watch("xsched", "hpf")?, watch("high", "observe")?, watch("low", "observe")?);
        Ok(Stage { wish, private, scheduler, high_observer, low_observer })
    }

    fn way(&self, case: Case, part: Part) -> Way {
        match case {
            Case::Xsched => Way::Scheduled,
            _ if self.wish.of(part).1.is_some() => Way::Bare,
            _ => Way::Observed,
        }
    }

    fn observer(&mut self, part: Part) -> &mut Watch {
        match part {
            Part::High => &mut self.high_observer,
            Part::Low => &mut self.low_observer,
        }
    }

    fn command(&self, way: Way, part: Part) -> Command {
        let mut command = match way {
            Way::Bare => {
                let mut command = clean(Command::new("sh"));
                command.env("XSCHED_DISABLE", "1");
                command
            }
            Way::Observed | Way::Scheduled => {
                let mut command = clean(Command::new(&self.private.exe));
                command.args(["run", "--require", "--socket"]);
                match (way, part) {
                    (Way::Scheduled, _) => {
                        command.arg(&self.scheduler.daemon.socket).args(["--priority", part.class()]);
                    }
                    (_, Part::High) => {
                        command.arg(&self.high_observer.daemon.socket);
                    }
                    (_, Part::Low) => {
                        command.arg(&self.low_observer.daemon.socket);
                    }
                }
                if way == Way::Observed {
                    // Without gates on the device, time slices and pools: only fences are used.
                    command.args(["--level", "1", "--share", "time"]);
                }
                command.args(["--", "sh"]).env("XSCHED_PRELOAD", &self.private.library);
                command
            }
        };
        command.arg("-c").arg(self.wish.of(part).0);
        // Lines must arrive when they are printed, not when a buffer is full.
        command.env("PYTHONUNBUFFERED", "1");
        command
    }

    fn start(&self, way: Way, part: Part) -> Result<Program> {
        Program::start(self.command(way, part), part.what(), self.wish.of(part).1)
    }

    /// Counts of a program, and of those of its kind that have ended, at the daemon that watches it.
    fn seen(&mut self, way: Way, part: Part) -> Result<Seen> {
        let socket = match way {
            Way::Bare => return Ok(Seen::default()),
            Way::Scheduled => &self.scheduler.daemon.socket,
            Way::Observed => &self.observer(part).daemon.socket,
        };
        let answer = client::ask(Some(socket), Request::PsAll)?;
        let is_its = |p: &&ProgramInfo| way == Way::Observed || (p.priority > 0) == (part == Part::High);
        let programs = answer.iter().filter_map(|m| if let DaemonMsg::Program(p) = m { Some(&**p) } else { None });
        let mut seen = Seen::default();
        for program in programs.filter(is_its) {
            let counts = seen.entry(program.pid).or_default();
            for group in &program.groups {
                counts.launches += group.launches;
                let u = &group.unscheduled;
                counts.unscheduled += u.attach + u.passthrough + u.error;
            }
        }
        Ok(seen)
    }

    /// Starts a program, with the counts of earlier ones of its kind, which do not belong to it.
    fn enter(&mut self, case: Case, part: Part) -> Result<Running> {
        let way = self.way(case, part);
        let before = self.seen(way, part)?;
        let program = self.start(way, part)?;
        Ok(Running { part, way, program, before, now: Seen::default(), worked: 0, again: 0 })
    }

    /// Reads a program's counts.
    fn count(&mut self, running: &mut Running) -> Result<Counts> {
        for (pid, counts) in self.seen(running.way, running.part)? {
            running.now.insert(pid, counts);
        }
        Ok(running.counts())
    }

    /// Starts programs again that have ended well.
    ///
    /// # Errors
    /// Fails if a program failed, or ended without any work since it was started.
    fn start_again(&mut self, running: &mut [Running]) -> Result<()> {
        for running in running.iter_mut() {
            if !running.program.has_finished()? {
                continue;
            }
            let part = running.part;
            let is_line = self.wish.of(part).1.is_some();
            // Its last lines may be on their way still.
            let until = Instant::now() + LAST_LINES;
            let works = loop {
                let counts = self.count(running)?;
                let works = if is_line { running.program.lines() } else { counts.launches };
                if works > running.worked || Instant::now() > until {
                    break works;
                }
                pause()?;
            };
            if works == running.worked {
                let why = format!("{} was started again, and ended before it was seen to work", part.what());
                return Err(Error::environment(why));
            }
            running.worked = works;
            running.again += 1;
            let command = self.command(running.way, part);
            running.program.again(command, self.wish.of(part).1)?;
        }
        Ok(())
    }

    /// Plays one situation.
    pub(super) fn play(&mut self, case: Case) -> Result<Played> {
        let mut running = Vec::new();
        for &part in case.parts() {
            running.push(self.enter(case, part)?);
        }
        // Bursts of earlier situations do not belong to this one.
        for part in [Part::High, Part::Low] {
            self.observer(part).log.read()?;
        }
        self.scheduler.log.read()?;
        self.wait_until_all_work(&mut running)?;
        self.warm_up(&mut running)?;
        let before = self.counts(&mut running)?;
        let begin_us = now_us();
        self.measure(&mut running)?;
        let after = self.counts(&mut running)?;
        let end_us = now_us();
        let mut played = Played { seconds: (end_us - begin_us) as f64 / 1e6, ..Played::default() };
        for (running, (before, after)) in running.into_iter().zip(before.into_iter().zip(after)) {
            let Running { part, way, program, again, .. } = running;
            played.again += u64::from(again);
            let marks = program.marks(begin_us, end_us);
            let by_lines = self.wish.of(part).1.is_some();
            if way == Way::Scheduled {
                let launches = after.launches;
                if launches == 0 {
                    let why = format!("{} gave the device nothing under xsched; see `xsched doctor`", part.what());
                    return Err(Error::environment(why));
                }
                played.launches += launches;
                played.unscheduled += after.unscheduled;
            }
            match part {
                Part::High if by_lines => played.latencies_ms = marks.iter().map(|mark| mark.number).collect(),
                Part::High => {
                    let log = if way == Way::Scheduled { &mut self.scheduler.log } else { &mut self.high_observer.log };
                    let bursts = log.read()?;
                    let gap_us = self.wish.gap_us;
                    let busy = bursts::requests(&bursts, way == Way::Scheduled, gap_us, begin_us, end_us);
                    (played.latencies_ms, played.missed) = (busy.latencies_ms, busy.missed);
                }
                Part::Low if by_lines => played.work = marks.iter().map(|mark| mark.number).sum(),
                Part::Low => played.work = after.launches.saturating_sub(before.launches) as f64,
            }
            let cost = program.end();
            played.cost = (case == Case::Alone).then_some(cost).or(played.cost);
        }
        self.look_at(case, &played)?;
        Ok(played)
    }

    /// Runs the high program alone and without a daemon, for as long as it ran with one.
    pub(super) fn play_bare(&mut self, observed: Cost) -> Result<Cost> {
        let mut program = self.start(Way::Bare, Part::High)?;
        let until = Instant::now() + Duration::from_secs_f64(observed.run_s);
        // A program that ended by itself does so again.
        while !program.has_finished()? && (observed.finished || Instant::now() < until) {
            pause()?;
        }
        Ok(program.end())
    }

    fn counts(&mut self, running: &mut [Running]) -> Result<Vec<Counts>> {
        running.iter_mut().map(|running| self.count(running)).collect()
    }

    fn wait_until_all_work(&mut self, running: &mut [Running]) -> Result<()> {
        let mut works = vec![false; running.len()];
        while works.contains(&false) {
            for (running, works) in running.iter_mut().zip(&mut works) {
                // A program that fails reports that before anything else.
                let (finished, part) = (running.program.has_finished()?, running.part);
                *works = *works
                    || match self.wish.of(part).1 {
                        Some(_) => running.program.has_spoken(),
                        None => self.count(running)?.launches > 0,
                    };
                if !*works && finished {
                    return Err(Error::environment(format!("{} ended before it was seen to work", part.what())));
                }
                if !*works && running.program.age() > self.wish.start {
                    return Err(self.idle(part));
                }
            }
            pause()?;
        }
        Ok(())
    }

    fn idle(&self, part: Part) -> Error {
        let (what, s) = (part.what(), self.wish.start.as_secs());
        Error::environment(match self.wish.of(part).1 {
            Some(expression) => {
                format!("{what} printed no line that '{expression}' matches within {s} s (--start)")
            }
            None => format!("{what} gave no device any work within {s} s (--start); see `xsched doctor`"),
        })
    }

    fn warm_up(&mut self, running: &mut [Running]) -> Result<()> {
        self.let_run(running, self.wish.warm_up)
    }

    fn measure(&mut self, running: &mut [Running]) -> Result<()> {
        self.let_run(running, Duration::from_secs(self.wish.secs))
    }

    /// Waits for some time. Programs that end in it are started again.
    fn let_run(&mut self, running: &mut [Running], time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.start_again(running)?;
            pause()?;
        }
        Ok(())
    }

    /// Checks that the measurement has enough data.
    fn look_at(&self, case: Case, played: &Played) -> Result<()> {
        let at = case.name();
        if case != Case::LowAlone && played.latencies_ms.len() < 2 {
            let (n, s) = (played.latencies_ms.len(), played.seconds);
            let advice = match &self.wish.requests {
                Some(_) => "raise --secs".to_owned(),
                None => {
                    let gap = self.wish.gap_us as f64 / 1e3;
                    format!(
                        "requests end with a pause of {gap} ms or more: lower --gap, raise --secs, or use --requests"
                    )
                }
            };
            return Err(Error::environment(format!("{at}: {n} requests in {s:.1} s; {advice}")));
        }
        if case != Case::Alone && played.work == 0.0 {
            let s = played.seconds;
            return Err(Error::environment(format!(
                "{at}: the low program got nothing done in {s:.1} s; raise --secs"
            )));
        }
        Ok(())
    }
}

/// Counts of a daemon for programs, by process.
type Seen = HashMap<u32, Counts>;

/// Counts of a daemon for a program.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    launches: u64,
    unscheduled: u64,
}

/// Program of a situation, with the earlier ones that it was started again for.
struct Running {
    part: Part,
    way: Way,
    program: Program,
    /// Counts of others at its start.
    before: Seen,
    now: Seen,
    /// Work up to its last start: lines or launches.
    worked: u64,
    /// Number of times that it was started again.
    again: u32,
}

impl Running {
    fn counts(&self) -> Counts {
        let since = |(pid, now): (&u32, &Counts)| {
            let before = self.before.get(pid).copied().unwrap_or_default();
            (now.launches.saturating_sub(before.launches), now.unscheduled.saturating_sub(before.unscheduled))
        };
        self.now.iter().map(since).fold(Counts::default(), |sum, (launches, unscheduled)| Counts {
            launches: sum.launches + launches,
            unscheduled: sum.unscheduled + unscheduled,
        })
    }
}

fn pause() -> Result<()> {
    check()?;
    std::thread::sleep(STEP);
    Ok(())
}
