//! Stream capture: what enters a capturing stream is recorded, not run. It is neither held nor counted, and nothing of
//! ours is recorded with it.
//!
//! Only while some capture is active are streams asked whether they take part in it: a capture spreads to other streams
//! through events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::Stream;

/// The captures of one platform.
pub(crate) struct Captures {
    /// Streams on which a capture began and has not ended.
    origins: Mutex<Vec<usize>>,
    active: AtomicUsize,
}

impl Captures {
    /// None.
    pub(crate) const fn new() -> Captures {
        Captures { origins: Mutex::new(Vec::new()), active: AtomicUsize::new(0) }
    }

    fn change(&self, what: impl FnOnce(&mut Vec<usize>)) {
        let mut origins = self.origins.lock().unwrap_or_else(|e| e.into_inner());
        what(&mut origins);
        self.active.store(origins.len(), Release);
    }

    /// Whether there is any.
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed) != 0
    }

    /// One began on this stream.
    pub(crate) fn began(&self, stream: Stream) {
        self.change(|origins| origins.push(stream as usize));
    }

    /// A stream that is destroyed captures no more.
    pub(crate) fn forget(&self, stream: Stream) {
        if self.active.load(Acquire) != 0 {
            self.change(|origins| origins.retain(|s| *s != stream as usize));
        }
    }

    /// In a forked child nothing captures. A lock that another thread of the parent held is left alone.
    pub(crate) fn forget_all(&self) {
        if let Ok(mut origins) = self.origins.try_lock() {
            origins.clear();
        }
        self.active.store(0, Release);
    }
}
