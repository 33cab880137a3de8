//! A lock that survives `fork`.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A mutex that a forked child can replace. A thread that held it at the `fork` does not exist in the child, and would
/// never unlock it there.
pub(crate) struct Lock<T>(AtomicPtr<Mutex<T>>);

/// Reports whether any lock was ever locked in this process or, if it was forked, in its parent.
pub(crate) fn any_locked() -> bool {
    LOCKED.load(Acquire)
}

static LOCKED: AtomicBool = AtomicBool::new(false);

impl<T: Default> Lock<T> {
    pub(crate) const fn new() -> Lock<T> {
        Lock(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Reports whether the lock was never locked.
    pub(crate) fn is_untouched(&self) -> bool {
        self.0.load(Acquire).is_null()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let mut known = self.0.load(Acquire);
        if known.is_null() {
            LOCKED.store(true, Release);
            let fresh = Box::into_raw(Box::<Mutex<T>>::default());
            match self.0.compare_exchange(known, fresh, AcqRel, Acquire) {
                Ok(_) => known = fresh,
                Err(other) => {
                    // SAFETY: made above and not given away.
                    drop(unsafe { Box::from_raw(fresh) });
                    known = other;
                }
            }
        }
        // SAFETY: leaked when set, never freed.
        unsafe { &*known }.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Abandons the value and its holder, in a forked child. The next use starts with a default value.
    pub(crate) fn forget(&self) {
        self.0.store(std::ptr::null_mut(), Release);
    }

    /// Abandons the value as [`Self::forget`] does, but only if another thread of the parent held the lock. Returns
    /// whether it did; if not, the value stays.
    pub(crate) fn forget_if_held(&self) -> bool {
        // SAFETY: leaked when set, never freed.
        let known = unsafe { self.0.load(Acquire).as_ref() };
        let held = known.is_some_and(|known| matches!(known.try_lock(), Err(TryLockError::WouldBlock)));
        if held {
            self.forget();
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_somebody_held_is_free_and_empty_after_it_was_forgotten() {
        static LOCK: Lock<Vec<u8>> = Lock::new();
        assert!(LOCK.is_untouched());
        let mut held = LOCK.lock();
        held.push(1);
        LOCK.forget();
        assert!(LOCK.lock().is_empty());
        held.push(2);
    }

    #[test]
    fn what_nobody_held_stays() {
        static LOCK: Lock<Vec<u8>> = Lock::new();
        assert!(!LOCK.forget_if_held(), "untouched");
        LOCK.lock().push(1);
        assert!(!LOCK.forget_if_held());
        let held = LOCK.lock();
        assert_eq!(*held, [1]);
        assert!(LOCK.forget_if_held());
        assert!(LOCK.lock().is_empty());
    }
}
