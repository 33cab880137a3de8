//! Waits with a deadline, and measurements that other work on the machine can only lengthen.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that anything may take before a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until a condition is true, and returns how long that took. Panics after [`TIMEOUT`].
#[track_caller]
pub fn until(what: &str, so: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    assert!(so_within(TIMEOUT, so), "waited {TIMEOUT:?}: {what}");
    begin.elapsed()
}

/// Reports whether a condition becomes true before a time is over. It polls often at first, for conditions that are true at once, and every
/// 2 ms later: a wait that never sleeps takes a processor from the process that it waits for.
pub fn so_within(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let (begin, mut pause) = (Instant::now(), Duration::from_micros(50));
    while !so() {
        if begin.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(2));
    }
    true
}

/// Largest number of threads in a chain, each of which may be as late as the control: device, daemon, agent, program, and each of them
/// twice.
const HOPS: u32 = 8;

/// Control beside a measurement: how late this machine wakes and runs a thread that sleeps and computes in turn, as the threads under test
/// do. The lateness is close to zero on a machine without other work.
pub struct Lateness {
    worst_ns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lateness {
    const SLEEP: Duration = Duration::from_millis(4);
    const WORK: Duration = Duration::from_millis(1);

    /// Starts the control.
    pub fn begin() -> Lateness {
        let (worst_ns, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (worst_ns, stop) = (worst_ns.clone(), stop.clone());
            move || {
                while !stop.load(Relaxed) {
                    let begin = Instant::now();
                    std::thread::sleep(Self::SLEEP); // what is measured
                    let computed = own_time();
                    while own_time() - computed < Self::WORK {}
                    let late = begin.elapsed().saturating_sub(Self::SLEEP + Self::WORK);
                    worst_ns.fetch_max(late.as_nanos() as u64, Relaxed);
                }
            }
        });
        Lateness { worst_ns, stop, thread: Some(thread) }
    }

    /// Largest lateness so far.
    pub fn worst(&self) -> Duration {
        Duration::from_nanos(self.worst_ns.load(Relaxed))
    }

    /// Longest time that this machine may need for something that takes `time` on an idle one, from the lateness so far.
    pub fn allows(&self, time: Duration) -> Duration {
        time + HOPS * self.worst()
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Processor time of the calling thread, which other work on the machine does not lengthen.
pub fn own_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Checks that something takes less than `within` on a machine that is never late. Other work on the machine can only lengthen the measured
/// time: each try adds the lateness of its own control to the limit. The first try below that limit ends the check.
#[track_caller]
pub fn least_of(tries: u32, within: Duration, what: &str, mut once: impl FnMut() -> Duration) {
    one_of(tries, what, || {
        let control = Lateness::begin();
        let (took, allowed) = (once(), control.allows(within));
        println!("{what}: {took:?}, allowed {allowed:?}");
        if took < allowed { Ok(()) } else { Err(format!("{took:?}, allowed {allowed:?}")) }
    });
}

/// Checks that one of several tries succeeds, for conditions that a fault violates in each try, but other work on the machine only in some.
/// The first success ends the check.
#[track_caller]
pub fn one_of(tries: u32, what: &str, mut once: impl FnMut() -> Result<(), String>) {
    let mut all = Vec::new();
    for _ in 0..tries {
        match once() {
            Ok(()) => return,
            Err(why) => {
                println!("{what}: {why}");
                all.push(why);
            }
        }
    }
    panic!("{what}: not once in {tries} tries: {all:?}");
}

/// State letter in a file like `/proc/PID/stat`.
fn state(stat: &str) -> Option<char> {
    std::fs::read_to_string(stat).ok()?.rsplit(')').next()?.trim_start().chars().next()
}

/// Reports whether a thread of a process sleeps. The first thread's id is the process's.
pub fn is_asleep(pid: u32, tid: u32) -> bool {
    state(&format!("/proc/{pid}/task/{tid}/stat")) == Some('S')
}

/// Reports whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    state(&format!("/proc/{pid}/stat")).is_some_and(|state| state != 'Z')
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_busy_machine_allows_more_and_one_that_is_never_late_no_more() {
        let within = Duration::from_millis(50);
        let control = Lateness::begin();
        assert!(control.allows(within) >= within);
        control.worst_ns.store(1_000_000_000, Relaxed);
        assert!(control.allows(within) >= within + Duration::from_secs(8));
    }

    #[test]
    fn what_always_takes_too_long_fails_and_what_is_quick_once_does_not() {
        // No machine is ever so late.
        let long = Duration::from_secs(1_000_000);
        let mut times = [long, long, Duration::ZERO, long].into_iter();
        least_of(3, Duration::from_millis(1), "quick once", || times.next().expect("no more tries than needed"));
        assert_eq!(times.len(), 1, "the first that is quick ends them");
        let slow = || least_of(3, Duration::from_millis(1), "always slow", || long);
        assert!(catch_unwind(slow).is_err());
    }

    #[test]
    fn own_time_stands_still_while_a_thread_sleeps() {
        let (begin, own) = (Instant::now(), own_time());
        std::thread::sleep(Duration::from_millis(50)); // what is measured
        assert!(own_time() - own < begin.elapsed() / 2);
    }
}
