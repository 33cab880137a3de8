//! Random kills: programs and their daemon are killed, stopped or ended in random order, and the results of the programs are checked.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::{Place, Process, Random, TIMEOUT, now_ns, quantile, signal, so_within, until};

/// Event of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// A program is killed.
    Kill,
    /// A program is stopped for a while.
    Stop,
    /// A program is killed while it is stopped.
    StopAndKill,
    /// A program ends by itself, and its results are checked.
    End,
    /// A program is killed while it starts.
    KillAtStart,
    /// The daemon is killed, and another one started.
    KillDaemon,
    /// The daemon is stopped until the programs have noticed.
    StopDaemon,
}

/// Numbers of each event in twenty, which come in random order.
const TWENTY: [(Act, usize); 7] = [
    (Act::Kill, 6),
    (Act::Stop, 4),
    (Act::StopAndKill, 2),
    (Act::End, 3),
    (Act::KillAtStart, 3),
    (Act::KillDaemon, 1),
    (Act::StopDaemon, 1),
];

const CLASSES: [&str; 3] = ["low", "normal", "high"];

/// Promised time, with a batch of kernels included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Another program makes progress after one was killed or stopped.
    RivalsResume,
    /// Every program makes progress after the daemon was killed.
    DeadDaemon,
    /// Every program makes progress after the daemon stopped answering.
    SilentDaemon,
}

impl Promise {
    /// All promises.
    pub const ALL: [Promise; 3] = [Promise::RivalsResume, Promise::DeadDaemon, Promise::SilentDaemon];

    /// Promised time.
    pub fn within(self) -> Duration {
        match self {
            Promise::RivalsResume => Duration::from_millis(50),
            Promise::DeadDaemon => Duration::from_millis(100),
            Promise::SilentDaemon => Duration::from_secs(1),
        }
    }

    /// Event that the promise is about.
    fn act(self) -> Act {
        match self {
            Promise::RivalsResume => Act::Kill,
            Promise::DeadDaemon => Act::KillDaemon,
            Promise::SilentDaemon => Act::StopDaemon,
        }
    }
}

/// Result of the rounds.
#[derive(Default)]
pub struct Report {
    /// Number of events.
    pub acts: usize,
    /// Number of programs whose results were checked.
    pub checked: usize,
    took: [Vec<Duration>; 3],
}

impl Report {
    /// Times measured for this promise.
    pub fn took(&self, promise: Promise) -> &[Duration] {
        &self.took[promise as usize]
    }

    /// Number of the times, and their median, P99 and maximum in ms.
    pub fn summary(&self, promise: Promise) -> (usize, [f64; 3]) {
        let all: Vec<f64> = self.took(promise).iter().map(|took| took.as_secs_f64() * 1e3).collect();
        let at = |q| if all.is_empty() { f64::NAN } else { quantile(&all, q) };
        (all.len(), [at(0.5), at(0.99), at(1.0)])
    }
}

/// Numbers of descriptors, mapped memfds and threads of a process.
fn holdings(pid: u32) -> [usize; 3] {
    let entries = |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).expect("a process").count();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    [entries("fd"), maps.lines().filter(|line| line.contains("/memfd:")).count(), entries("task")]
}

/// Processes whose environment names a folder, except this one.
fn processes_of(folder: &Path) -> BTreeSet<u32> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let knows = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(folder.len()).any(|part| part == folder)
    };
    pids.filter(|pid| *pid != std::process::id()).filter(knows).collect()
}

/// Names of all files below a folder.
fn files_of(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |entry: std::fs::DirEntry| {
        let mut names = files_of(&entry.path());
        names.insert(entry.path().display().to_string());
        names
    };
    entries.flat_map(below).collect()
}

/// Running program that works without end.
struct Slot {
    class: &'static str,
    program: Process,
    /// True once the program has done a batch: its times from then on are not those of a start.
    works: bool,
}

impl Slot {
    /// First time after `when` at which the program reports a finished batch, if it has reported one by now.
    fn progress(&mut self, when: u64) -> Option<u64> {
        let mut first = None;
        while let Some(line) = self.program.line_within(Duration::ZERO) {
            let stamp = line.parse::<u64>().ok();
            self.works |= stamp.is_some();
            first = first.or(stamp.filter(|stamp| *stamp > when));
        }
        first
    }
}

struct Kills<'a> {
    place: &'a Place,
    policy: &'a str,
    steady: std::path::PathBuf,
    daemon: Option<Process>,
    programs: Vec<Slot>,
    random: Random,
    report: Report,
}

/// Makes random events happen under a policy, in an order that the seed decides; fails if a program hangs, computes something wrong, or
/// anything is left behind.
pub fn random_kills(seed: u64, count: usize, policy: &str) -> Report {
    let place = Place::new();
    let steady = place.sim_program("steady");
    // The longest time that a less urgent program gets no device while a more urgent one works without end.
    std::fs::write(place.join("config.toml"), "starvation_s = 1\n").expect("a file");
    let alone = processes_of(&place.join(""));
    let random = Random(seed);
    let (programs, report) = (Vec::new(), Report::default());
    let mut kills = Kills { place: &place, policy, steady, daemon: None, programs, random, report };

    // Resources that a daemon and the device keep once a program has come and gone.
    kills.start_daemon();
    kills.start_program("normal");
    kills.end_program(0);
    kills.until_shown(0);
    let device = *alone.first().expect("the device");
    let before = [kills.daemon_pid(), device].map(holdings);
    kills.stop_daemon();
    let files = files_of(&place.join(""));

    kills.start_daemon();
    CLASSES.into_iter().for_each(|class| kills.start_program(class));
    let mut acts: Vec<Act> = Vec::new();
    while kills.report.acts < count {
        if acts.is_empty() {
            acts = TWENTY.iter().flat_map(|(act, times)| std::iter::repeat_n(*act, *times)).collect();
            for i in (1..acts.len()).rev() {
                acts.swap(i, kills.random.below(i + 1));
            }
        }
        let act = acts.pop().expect("one of twenty");
        kills.perform(act);
    }
    // A busy machine only lengthens a time: the least of a few tries counts as that of the code.
    for promise in Promise::ALL {
        for _ in 0..5 {
            if !kills.report.took(promise).iter().any(|took| *took < promise.within()) {
                kills.perform(promise.act());
            }
        }
    }

    while !kills.programs.is_empty() {
        kills.end_program(0);
    }
    kills.until_shown(0);
    let mut left = before;
    let pids = [kills.daemon_pid(), device];
    let nothing = |left: &mut [[usize; 3]; 2]| {
        *left = pids.map(holdings);
        left.as_flattened().iter().zip(before.as_flattened()).all(|(now, then)| now <= then)
    };
    let is_nothing = so_within(TIMEOUT, || nothing(&mut left));
    assert!(is_nothing, "daemon and device have [descriptors, mapped memfds, threads] {left:?}, before {before:?}");
    kills.stop_daemon();
    until("no process is left but the device", || processes_of(&place.join("")) == alone);
    let more: Vec<String> = files_of(&place.join("")).difference(&files).cloned().collect();
    assert!(more.is_empty(), "files that are left: {more:?}");
    kills.report
}

impl Kills<'_> {
    fn start_daemon(&mut self) {
        let config = self.place.join("config.toml");
        let config = config.to_str().expect("text");
        self.daemon = Some(self.place.daemon(&["--policy", self.policy, "--config", config]));
    }

    fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon").pid()
    }

    fn stop_daemon(&mut self) {
        signal(self.daemon_pid(), Signal::TERM);
        let (code, _, errors) = self.daemon.take().expect("a daemon").wait();
        assert_eq!(code, 0, "{errors}");
    }

    fn start_program(&mut self, class: &'static str) {
        let program = self.place.run(&["--priority", class], &self.steady, &["200", "4"]);
        self.programs.push(Slot { class, program, works: false });
    }

    /// Ends a program, and checks its results and counts.
    fn end_program(&mut self, which: usize) {
        let Slot { mut program, .. } = self.programs.remove(which);
        program.tell("end");
        let (code, lines, errors) = program.wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
        let counts = lines.iter().find_map(|line| line.strip_prefix("launched ")).expect("its counts");
        let (pid, launched) = counts.split_once(' ').expect("launched PID N");
        let stats = self.place.stats_of(pid.parse().expect("a process id"));
        assert_eq!(stats["launches"].as_u64(), launched.parse().ok(), "{stats}");
        self.report.checked += 1;
    }

    fn until_shown(&self, count: usize) {
        until("the programs are shown", || {
            self.place.ps().is_some_and(|ps| ps["programs"].as_array().is_some_and(|all| all.len() == count))
        });
    }

    /// Waits for the first program that has done a batch after `when`, or until all have. Returns the time that this took; none if programs
    /// that are starting contributed to it.
    fn progress(&mut self, when: u64, of_all: bool) -> Option<Duration> {
        let (before, mut at) = (self.programs.iter().map(|slot| slot.works).collect::<Vec<_>>(), Vec::new());
        at.resize(before.len(), None);
        until("others go on", || {
            for (at, slot) in at.iter_mut().zip(&mut self.programs) {
                *at = at.or(slot.progress(when));
            }
            if of_all { at.iter().all(Option::is_some) } else { at.iter().any(Option::is_some) }
        });
        let of_working = at.iter().zip(before).filter(|(_, works)| *works).map(|(at, _)| *at);
        let stamp = if of_all { of_working.flatten().max() } else { of_working.flatten().min() };
        stamp.map(|stamp| Duration::from_nanos(stamp - when))
    }

    fn until_all_work(&mut self) {
        until("every program works", || {
            self.programs.iter_mut().for_each(|slot| _ = slot.progress(0));
            self.programs.iter().all(|slot| slot.works)
        });
    }

    fn note(&mut self, promise: Promise, took: Option<Duration>) {
        self.report.took[promise as usize].extend(took);
    }

    fn perform(&mut self, act: Act) {
        self.report.acts += 1;
        let which = self.random.below(self.programs.len());
        // At any point of the programs' work.
        std::thread::sleep(Duration::from_micros(self.random.below(20_000) as u64));
        match act {
            Act::Kill | Act::Stop | Act::StopAndKill => self.strike(which, act),
            Act::End => {
                let class = self.programs[which].class;
                self.end_program(which);
                self.start_program(class);
            }
            Act::KillAtStart => {
                let mut program = self.place.run(&["--priority", CLASSES[which]], &self.steady, &["200", "4"]);
                std::thread::sleep(Duration::from_micros(self.random.below(60_000) as u64));
                assert!(program.has_ended().is_none(), "it ended: {}", program.errors());
                signal(program.pid(), Signal::KILL);
                assert_eq!(program.wait().0, -9);
                self.progress(now_ns(), false);
            }
            Act::KillDaemon => {
                self.until_all_work();
                let when = now_ns();
                signal(self.daemon_pid(), Signal::KILL);
                let took = self.progress(when, true);
                self.note(Promise::DeadDaemon, took);
                assert_eq!(self.daemon.take().expect("a daemon").wait().0, -9);
                self.start_daemon();
                self.until_shown(self.programs.len());
            }
            Act::StopDaemon => {
                self.until_all_work();
                let when = now_ns();
                signal(self.daemon_pid(), Signal::STOP);
                let took = self.progress(when, true);
                self.note(Promise::SilentDaemon, took);
                signal(self.daemon_pid(), Signal::CONT);
                self.until_shown(self.programs.len());
            }
        }
    }

    /// Kills or stops a program: another one must go on.
    fn strike(&mut self, which: usize, act: Act) {
        let Slot { class, program, works } = self.programs.remove(which);
        let when = now_ns();
        signal(program.pid(), if act == Act::Kill { Signal::KILL } else { Signal::STOP });
        let took = self.progress(when, false);
        self.note(Promise::RivalsResume, took);
        if act == Act::Stop {
            // Longer or shorter than the time for which a program without progress keeps the device.
            std::thread::sleep(Duration::from_millis(self.random.below(60) as u64));
            signal(program.pid(), Signal::CONT);
            self.programs.push(Slot { class, program, works });
            return;
        }
        if act == Act::StopAndKill {
            signal(program.pid(), Signal::KILL);
        }
        assert_eq!(program.wait().0, -9);
        self.start_program(class);
    }
}
