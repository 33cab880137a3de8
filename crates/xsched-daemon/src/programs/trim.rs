//! Release of memory that programs have left free. An allocator keeps free memory while something lies behind it, so that a daemon that
//! once had many programs would keep as much memory for ever. Releasing takes some ms, so it is done when nothing waits for the loop.

use crate::tuning::{TRIM_NS, TRIM_PROGRAMS, TRIM_QUIET_NS, USAGE_NS};

/// Number of programs that have left since free memory was last released.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    left: usize,
    /// Time at which the last of them left, in ns.
    last_ns: u64,
    /// True if memory was released since then: it is released once more after the accounts of the last programs are closed.
    once: bool,
}

impl Trim {
    /// Counts a program that has left.
    pub(crate) fn left(&mut self, now_ns: u64) {
        (self.left, self.last_ns, self.once) = (self.left + 1, now_ns, false);
    }

    /// Time of the next attempt, in ns.
    pub(crate) fn deadline_ns(&self, some_attached: bool) -> Option<u64> {
        let after_ns = if some_attached { TRIM_QUIET_NS } else { TRIM_NS };
        (self.left >= TRIM_PROGRAMS).then_some(self.last_ns + after_ns)
    }

    /// Releases free memory, or tries again later where a decision may be waited for.
    pub(crate) fn give_back(&mut self, now_ns: u64, is_quiet: bool) {
        if is_quiet {
            if std::mem::replace(&mut self.once, true) {
                *self = Trim::default();
            } else {
                self.last_ns = now_ns + USAGE_NS;
            }
            give_back();
        } else {
            self.last_ns = now_ns;
        }
    }
}

#[cfg(target_env = "gnu")]
fn give_back() {
    // SAFETY: no more than a hint to the allocator, which locks what it works on.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators release memory by themselves.
#[cfg(not(target_env = "gnu"))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_many_have_left_and_nothing_waits() {
        let mut trim = Trim::default();
        (1..TRIM_PROGRAMS as u64).for_each(|n| trim.left(n));
        assert_eq!(trim.deadline_ns(false), None, "few leave little");
        trim.left(1_000);
        assert_eq!(trim.deadline_ns(false), Some(1_000 + TRIM_NS));
        assert_eq!(trim.deadline_ns(true), Some(1_000 + TRIM_QUIET_NS));
        let now_ns = 1_000 + TRIM_QUIET_NS;
        trim.give_back(now_ns, false);
        assert_eq!(trim.deadline_ns(true), Some(now_ns + TRIM_QUIET_NS), "some program waits at its gate");
        trim.give_back(now_ns + TRIM_QUIET_NS, true);
        let again_ns = now_ns + TRIM_QUIET_NS + USAGE_NS + TRIM_NS;
        assert_eq!(trim.deadline_ns(false), Some(again_ns), "once more, when their time is recorded");
        trim.give_back(again_ns, true);
        assert_eq!(trim.deadline_ns(true), None);
    }
}
