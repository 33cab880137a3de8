//! Clock that the whole daemon uses.

use rustix::time::{ClockId, clock_gettime};

/// Time of CLOCK_MONOTONIC, in ns.
pub(crate) fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// Processor time that this thread has used, in ns.
pub(crate) fn own_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
