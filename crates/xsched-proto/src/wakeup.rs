//! Threads that others wait for: the daemon's loop and the agents.

/// What the kernel calls `struct sched_attr`, first published form.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks the kernel to run the calling thread soon after it wakes up, at the cost of short turns: a slice of 0.1 ms
/// under the ordinary scheduler (Linux 6.12 and newer; others refuse or ignore it, which is fine), and timers without
/// the default slack of 50 µs. Needs no privilege. Without it a thread that wakes on a busy processor may wait for
/// a whole slice of what runs there, some 3 ms.
pub fn run_promptly() {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: both calls concern the calling thread and get a structure of the size they are told.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize);
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0
            && attributes.policy == libc::SCHED_OTHER as u32
        {
            attributes.size = size as u32;
            attributes.runtime = 100_000;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_that_runs_promptly_keeps_its_policy_and_nice_value() {
        let nice = || rustix::process::nice(0).ok();
        let before = nice();
        super::run_promptly();
        assert_eq!(nice(), before);
        // SAFETY: asks about the calling process only.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
    }
}
