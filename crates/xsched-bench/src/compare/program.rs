//! Running command of the user's: its output with times, and its end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use regex_lite::Regex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Error, Result};

/// Longest time that a program may take to end when it is asked to.
const POLITE: Duration = Duration::from_secs(2);
/// Number of lines of its stderr that are kept.
const KEPT: usize = 5;

/// Time of CLOCK_MONOTONIC in µs, the clock of the daemon's bursts.
pub(super) fn now_us() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1_000
}

/// Line that counts, with its number: that of the expression's group, else 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// Time at which the line was read, in µs.
    pub(super) at_us: u64,
    pub(super) number: f64,
}

/// Lines that the readers of the two streams have found.
#[derive(Debug, Default)]
struct Seen {
    marks: Vec<Mark>,
    /// Line that matched and whose group is no number.
    wrong: Option<String>,
    /// Last lines of stderr.
    tail: VecDeque<String>,
}

/// Resources that a program used until it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Time from its start to its end, in s.
    pub(super) run_s: f64,
    /// Processor time of the program's processes, in s.
    pub(super) processor_s: f64,
    /// True if it ended by itself.
    pub(super) finished: bool,
}

/// Running command, in a process group of its own. Ended when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    what: &'static str,
    pid: Pid,
    seen: Arc<Mutex<Seen>>,
    began: Instant,
    ended: Option<(ExitStatus, Cost)>,
    /// Resources of its first run, if it has ended and was started again.
    first: Option<Cost>,
}

impl Program {
    /// Starts a command. Lines of its output that match `counts` are counted.
    pub(super) fn start(command: Command, what: &'static str, counts: Option<&Regex>) -> Result<Program> {
        let seen = Arc::default();
        let pid = spawn(command, what, counts, &seen)?;
        Ok(Program { what, pid, seen, began: Instant::now(), ended: None, first: None })
    }

    /// Starts a program again that has ended. Its lines so far stay.
    pub(super) fn again(&mut self, command: Command, counts: Option<&Regex>) -> Result<()> {
        let cost = self.stop();
        self.first.get_or_insert(cost);
        self.pid = spawn(command, self.what, counts, &self.seen)?;
        (self.began, self.ended) = (Instant::now(), None);
        Ok(())
    }

    /// Number of its lines that have counted.
    pub(super) fn lines(&self) -> u64 {
        self.seen().marks.len() as u64
    }

    /// Time since its start.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reports whether one of its lines has counted.
    pub(super) fn has_spoken(&self) -> bool {
        !self.seen().marks.is_empty()
    }

    /// Lines that counted in a time.
    pub(super) fn marks(&self, from_us: u64, to_us: u64) -> Vec<Mark> {
        self.seen().marks.iter().copied().filter(|mark| (from_us..to_us).contains(&mark.at_us)).collect()
    }

    /// Reports whether it has ended by itself, and well.
    ///
    /// # Errors
    /// Returns its status and the last line of its stderr if it has failed; or the line that should count and has no number.
    pub(super) fn has_finished(&mut self) -> Result<bool> {
        if let Some(line) = &self.seen().wrong {
            return Err(Error::input(format!(
                "{} printed '{line}': what the expression takes is no number",
                self.what
            )));
        }
        if self.ended.is_none() && self.is_dead() {
            self.reap(true);
        }
        match self.ended {
            None => Ok(false),
            Some((status, _)) if status.success() => Ok(true),
            Some((status, _)) => Err(self.failed(status)),
        }
    }

    fn failed(&self, status: ExitStatus) -> Error {
        // The thread that reads stderr may be behind the program.
        let seen = self.seen();
        let last = seen.tail.iter().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
        Error::environment(format!("{} failed ({status}){last}", self.what))
    }

    /// Ends the command, unless it has ended, and the rest of its process group. Returns the cost of its first run.
    pub(super) fn end(mut self) -> Cost {
        let cost = self.stop();
        self.first.unwrap_or(cost)
    }

    fn stop(&mut self) -> Cost {
        if let Some((_, cost)) = self.ended {
            return cost;
        }
        let finished = self.is_dead();
        let processor_s = group_processor_s(self.pid);
        let _ = kill_process_group(self.pid, Signal::TERM);
        let deadline = Instant::now() + POLITE;
        while !self.is_dead() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut cost = self.reap(finished);
        if !finished {
            cost.processor_s = processor_s;
        }
        cost
    }

    /// Reports whether the command itself has ended. It stays a zombie, so that its number is not given to another.
    fn is_dead(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }

    /// Kills the rest of the group and takes the command's status.
    fn reap(&mut self, finished: bool) -> Cost {
        let run_s = self.began.elapsed().as_secs_f64();
        let _ = kill_process_group(self.pid, Signal::KILL);
        let (status, processor_s) = wait(self.pid);
        let cost = Cost { run_s, processor_s, finished };
        self.ended = Some((status, cost));
        cost
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts a command in a process group of its own; its lines that match count.
fn spawn(mut command: Command, what: &str, counts: Option<&Regex>, seen: &Arc<Mutex<Seen>>) -> Result<Pid> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: prctl is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            // If this process is killed, at least the command itself is killed too.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|e| Error::environment(format!("cannot start {what}: {e}")))?;
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| Error::environment("a process without an id"))?;
    read(child.stdout.take(), counts.cloned(), seen, false);
    read(child.stderr.take(), counts.cloned(), seen, true);
    Ok(pid)
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reads a stream to its end, on a thread of its own. The thread is not joined: a process that left the group may keep the stream open.
fn read(stream: Option<impl Read + Send + 'static>, counts: Option<Regex>, seen: &Arc<Mutex<Seen>>, keep: bool) {
    let (Some(stream), seen) = (stream, Arc::clone(seen)) else { return };
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut bytes = Vec::new();
        while stream.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let at_us = now_us();
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_end();
            let mut seen = lock(&seen);
            match counts.as_ref().and_then(|counts| number_in(counts, line)) {
                Some(Some(number)) => seen.marks.push(Mark { at_us, number }),
                Some(None) => seen.wrong = Some(line.to_owned()),
                None => {}
            }
            if keep {
                seen.tail.push_back(line.to_owned());
                if seen.tail.len() > KEPT {
                    seen.tail.pop_front();
                }
            }
            drop(seen);
            bytes.clear();
        }
    });
}

/// Number in a line; none = the line does not count; some none = it counts and has no number.
fn number_in(counts: &Regex, line: &str) -> Option<Option<f64>> {
    let found = counts.captures(line)?;
    let Some(text) = found.get(1) else { return Some(Some(1.0)) };
    Some(text.as_str().parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0))
}

/// Waits for a child: its status, and the processor time of it and of its reaped children, in s.
fn wait(pid: Pid) -> (ExitStatus, f64) {
    let mut status = 0;
    // SAFETY: all-zero is a value of this structure of numbers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals.
    while unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, &raw mut used) } < 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (ExitStatus::from_raw(status), seconds(used.ru_utime) + seconds(used.ru_stime))
}

/// Processor time of the processes of a group, and of their reaped children, in s.
fn group_processor_s(group: Pid) -> f64 {
    let stats = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        std::fs::read_to_string(entry.path().join("stat")).ok()
    });
    let ticks: u64 = stats.filter_map(|stat| ticks_of(&stat, group.as_raw_nonzero().get())).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Sum of utime, stime, cutime and cstime in a line of `/proc/PID/stat`, if the process is of this group.
fn ticks_of(stat: &str, group: i32) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let of_group = fields.get(2)?.parse() == Ok(group);
    of_group.then(|| fields.get(11..15)?.iter().map(|n| n.parse::<u64>().ok()).sum())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_by_its_number_or_as_one() {
        let with = Regex::new(r"took ([0-9.]+) ms").unwrap();
        assert_eq!(number_in(&with, "request 3 took 4.5 ms"), Some(Some(4.5)));
        assert_eq!(number_in(&with, "request 3 took ... ms"), Some(None));
        assert_eq!(number_in(&with, "ready"), None);
        assert_eq!(number_in(&Regex::new("^step").unwrap(), "step 7"), Some(Some(1.0)));
    }

    #[test]
    fn processor_time_is_that_of_the_group() {
        let stat = "7 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 10 20 3 4 20 0 1 0 100 0 0";
        assert_eq!(ticks_of(stat, 42), Some(37));
        assert_eq!(ticks_of(stat, 43), None);
        assert_eq!(ticks_of("", 42), None);
    }

    #[test]
    fn a_failed_command_says_its_status_and_last_line() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 7"]);
        let mut program = Program::start(command, "the high program", Some(&Regex::new("^one").unwrap())).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !program.has_spoken() || program.seen().tail.is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let why = loop {
            match program.has_finished() {
                Ok(done) => assert!(!done && Instant::now() < deadline),
                Err(why) => break why,
            }
        };
        assert_eq!(why.line(), "the high program failed (exit status: 7): two");
        assert!(program.end().finished);
    }

    #[test]
    fn ending_a_command_ends_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 1000 & echo $! && wait"]);
        let counts = Regex::new("^([0-9]+)$").unwrap();
        let program = Program::start(command, "the low program", Some(&counts)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !program.has_spoken() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let child = program.marks(0, u64::MAX)[0].number as u32;
        assert!(!program.end().finished);
        while xsched_testkit::is_alive(child) {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}
