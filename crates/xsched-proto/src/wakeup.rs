//! Scheduling by the kernel of threads that others wait for: the daemon's loop and the agents.

/// The kernel's `struct sched_attr`, first published form.
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

/// Asks the kernel to run the calling thread soon after it wakes up, at the cost of short turns: a slice of 0.1 ms under the ordinary
/// scheduler (Linux 6.12 and newer; others refuse or ignore it, which is fine), and timers without the default slack of 50 µs. Needs no
/// privilege. Without it a thread that wakes on a busy processor may wait for a whole slice of the running thread, some 3 ms.
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

/// Asks the kernel to run the calling thread before all ordinary ones whenever it wants a processor: the lowest real-time priority. Threads
/// that it starts are ordinary. Returns false if the process may not (it needs `CAP_SYS_NICE`, or a limit on real-time priorities).
///
/// For a thread that sleeps most of the time and that others rely on. Under the ordinary scheduler such a thread may be left without a
/// processor for more than half a second on a machine with many busy sessions, however little time it needs.
pub fn run_first() -> bool {
    // SAFETY: asks about the calling thread only.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    // A service manager may have set a policy that the process itself may not set.
    matches!(policy, libc::SCHED_RR | libc::SCHED_FIFO) || set_policy(libc::SCHED_RR, 1)
}

/// Makes the calling thread an ordinary one again, after [`run_first`].
pub fn run_with_others() {
    if set_policy(libc::SCHED_OTHER, 0) {
        run_promptly();
    }
}

fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: concerns the calling thread only; the structure lives through the call. A thread that has the flag and no right keeps it.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    /// Scheduling policy of the calling thread, without the flag.
    fn policy() -> i32 {
        // SAFETY: asks about the calling thread only.
        unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
    }

    #[test]
    fn a_thread_that_runs_first_starts_ordinary_ones_and_becomes_one_again() {
        if super::run_first() {
            assert_eq!(policy(), libc::SCHED_RR);
            assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
        }
        super::run_with_others();
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

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
