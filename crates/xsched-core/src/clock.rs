use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in ns.
pub fn now_ns() -> u64 {
    #[cfg(test)]
    if let Some(now) = virtual_time::now_ns() {
        return now;
    }
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Clock that a test controls on its own thread, so that its readings do not depend on the load of the machine.
#[cfg(test)]
pub(crate) mod virtual_time {
    use core::cell::Cell;
    use core::time::Duration;

    thread_local! {
        static NOW: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Stops this thread's clock; from now on only [`pass`] moves it.
    pub(crate) fn begin() {
        NOW.set(Some(super::now_ns()));
    }

    /// Advances this thread's clock.
    pub(crate) fn pass(time: Duration) {
        NOW.set(Some(super::now_ns() + time.as_nanos() as u64));
    }

    /// Reading of this thread's virtual clock in ns, if it has one.
    pub(super) fn now_ns() -> Option<u64> {
        NOW.get()
    }
}
