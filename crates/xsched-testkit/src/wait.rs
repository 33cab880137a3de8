//! Waits, each with a deadline, and times that a machine's noise can only lengthen.

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until something is so, looking every 2 ms, and returns how long that took.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < TIMEOUT, "waited {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    begin.elapsed()
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
