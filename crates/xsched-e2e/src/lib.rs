//! Programs under test, run as a user runs them: through the `xsched` command, with the preload library, a daemon and
//! the simulated device or an OpenCL platform, all real.
//!
//! A [`Place`] is a folder with sockets of its own; one at a time, since times are measured. In it a test starts
//! [`Process`]es: a daemon, and C programs of `testing/hazards`, to which it talks by lines.

mod gpu;
mod hip;
mod place;
mod process;

pub use gpu::Gpu;
pub use hip::HipGpu;
pub use place::{Place, beside};
pub use process::{Process, TIMEOUT, now_ns};

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    kill_process(pid, signal).expect("the process exists");
}

/// Waits until something is so, looking every 2 ms, and returns how long that took.
pub fn until(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < TIMEOUT, "waited {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    begin.elapsed()
}

/// The value at a quantile (0 to 1) of some values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}
