//! Processors and priority of the agent thread. A new thread inherits the processors and the policy of the thread that starts it: on
//! one processor beside a thread that spins there under SCHED_FIFO it would never run again.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// Number of words in a set of processors: 8,192 processors, the most that Linux can be built for.
const WORDS: usize = 128;

type Processors = [u64; WORDS];

/// Lets a thread, which need not have run yet, run on every processor that the process may use, under the ordinary policy. The
/// kernel cuts the set to the process's cpuset. A setting that it refuses stays as it was inherited.
pub(crate) fn free(thread: &JoinHandle<()>) {
    let pthread = thread.as_pthread_t();
    let (mut policy, mut priority) = (0, libc::sched_param { sched_priority: 0 });
    // SAFETY: a thread that is neither joined nor detached, and places for the answers.
    let is_ordinary =
        unsafe { libc::pthread_getschedparam(pthread, &mut policy, &mut priority) } == 0 && policy == libc::SCHED_OTHER;
    if !is_ordinary {
        priority.sched_priority = 0;
        // SAFETY: as above.
        unsafe { libc::pthread_setschedparam(pthread, libc::SCHED_OTHER, &raw const priority) };
        // Off this processor, which the thread that starts it may not leave again.
        let here = rustix::thread::sched_getcpu();
        let mut elsewhere = [u64::MAX; WORDS];
        if let Some(word) = elsewhere.get_mut(here / 64) {
            *word &= !(1 << (here % 64));
        }
        allow(pthread, &elsewhere);
    }
    allow(pthread, &[u64::MAX; WORDS]);
}

fn allow(thread: libc::pthread_t, processors: &Processors) {
    // SAFETY: as above; the set has the size given.
    unsafe { libc::pthread_setaffinity_np(thread, size_of::<Processors>(), processors.as_ptr().cast()) };
}

/// Gives the calling thread the nice value of the process's main thread: the thread that starts the agent may have lowered its own.
pub(crate) fn take_nice_value() {
    // SAFETY: both concern a thread of this process; -1 is a nice value too, and does no harm as one.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, libc::getpid().cast_unsigned());
        libc::setpriority(libc::PRIO_PROCESS, rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(), nice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Allowed processors of the calling thread, from the kernel.
    fn allowed() -> Processors {
        let mut processors = [0; WORDS];
        // SAFETY: fills the set, of the size given.
        let rc = unsafe { libc::sched_getaffinity(0, size_of::<Processors>(), processors.as_mut_ptr().cast()) };
        assert_eq!(rc, 0);
        processors
    }

    #[test]
    fn a_thread_of_one_that_is_pinned_has_all_processors_and_the_ordinary_policy() {
        let whole = allowed();
        std::thread::spawn(move || {
            let mut one = [0; WORDS];
            let at = whole.iter().position(|word| *word != 0).unwrap();
            one[at] = whole[at] & whole[at].wrapping_neg();
            // SAFETY: takes nothing, and cannot fail.
            allow(unsafe { libc::pthread_self() }, &one);
            // Needs no privilege, and is inherited as the others are.
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: concerns this thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const none) }, 0);
            let (go, may_go) = channel::<()>();
            let look = move || {
                let _ = may_go.recv();
                // SAFETY: asks about the calling thread.
                (allowed(), unsafe { libc::sched_getscheduler(0) })
            };
            let (tell, told) = channel();
            let inherits = std::thread::spawn(look);
            drop(go);
            assert_eq!(inherits.join().unwrap(), (one, libc::SCHED_BATCH), "the control");
            let (go, may_go) = channel::<()>();
            let freed = std::thread::spawn(move || {
                let _ = may_go.recv();
                // SAFETY: as above.
                tell.send((allowed(), unsafe { libc::sched_getscheduler(0) })).unwrap();
            });
            free(&freed);
            drop(go);
            assert_eq!(told.recv().unwrap(), (whole, libc::SCHED_OTHER));
        })
        .join()
        .unwrap();
    }
}
