//! Waits, each with a deadline, and times that a machine's noise can only lengthen.

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until something is so, and returns how long that took.
#[track_caller]
pub fn until(what: &str, so: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    assert!(so_within(TIMEOUT, so), "waited {TIMEOUT:?}: {what}");
    begin.elapsed()
}

/// Whether something is so before a time is over. It looks often at first, for what is there at once, and every 2 ms later: a
/// wait that never sleeps takes a processor from what it waits for.
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

/// Checks that something can be done within a time. Other work on the machine only lengthens what is measured, so that the
/// least of a few tries stands for the code under test; the first one within the time ends them.
#[track_caller]
pub fn least_of(tries: u32, within: Duration, what: &str, mut once: impl FnMut() -> Duration) {
    let mut all = Vec::new();
    for _ in 0..tries {
        let took = once();
        println!("{what}: {took:?}");
        if took < within {
            return;
        }
        all.push(took);
    }
    panic!("{what}: not once within {within:?}: {all:?}");
}

/// The state letter of `/proc/PID/stat` or the like.
fn state(stat: &str) -> Option<char> {
    std::fs::read_to_string(stat).ok()?.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether a thread of a process sleeps. The first thread's id is the process's.
pub fn is_asleep(pid: u32, tid: u32) -> bool {
    state(&format!("/proc/{pid}/task/{tid}/stat")) == Some('S')
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    state(&format!("/proc/{pid}/stat")).is_some_and(|state| state != 'Z')
}
