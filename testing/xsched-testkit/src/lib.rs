//! Parts that tests share: processes, daemons and devices of a test's own, and waits with a deadline.
//!
//! A [`Place`] is a folder with sockets of its own; one at a time, since times are measured. In it a test starts
//! [`Process`]es: a daemon, and C programs of `testing/programs/hazards`, to which it talks by lines.
#![forbid(unsafe_code)]

mod files;
mod gpu;
mod hip;
mod kept;
mod place;
mod process;
mod random;
mod wait;

pub use files::beside;
pub use gpu::Gpu;
pub use hip::HipGpu;
pub use place::Place;
pub use process::{Process, finish, now_ns};
pub use random::Random;
pub use wait::{Lateness, TIMEOUT, is_alive, is_asleep, least_of, one_of, own_time, so_within, until};

use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    kill_process(pid, signal).expect("the process exists");
}

/// Says that a test, or a part of it, cannot run here. `cargo xtask test` counts and lists such lines; they go past what the
/// test harness keeps of a test that passes.
pub fn skipped(reason: &str) {
    let line = format!("SKIPPED: {}\n", reason.trim().replace('\n', " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Value at a quantile (0 to 1) of some values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}
