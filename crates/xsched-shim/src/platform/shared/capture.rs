//! Stream capture: what enters a capturing stream is recorded, not run. It is neither held nor counted, and nothing of
//! ours is recorded with it.
//!
//! Only while some capture is active are streams asked whether they take part in it: a capture spreads to other streams
//! through events.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use super::Stream;
use crate::lock::Lock;

/// The captures of one platform.
#[repr(C)]
pub(crate) struct Captures {
    /// How many there are: first, for who looks at nothing else.
    active: AtomicUsize,
    /// Streams on which a capture began and has not ended.
    origins: Lock<Vec<usize>>,
    /// An attempt to end one failed, and it was not asked since whether it goes on.
    doubt: AtomicBool,
}

impl Captures {
    /// None.
    pub(crate) const fn new() -> Captures {
        Captures { origins: Lock::new(), active: AtomicUsize::new(0), doubt: AtomicBool::new(false) }
    }

    fn change(&self, what: impl FnOnce(&mut Vec<usize>)) {
        let mut origins = self.origins.lock();
        what(&mut origins);
        self.active.store(origins.len(), Release);
        if origins.is_empty() {
            self.doubt.store(false, Release);
        }
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

    /// An attempt to end the capture on some stream failed: it may go on.
    pub(crate) fn doubt(&self) {
        self.doubt.store(true, Release);
    }

    /// The driver says that a stream captures nothing.
    pub(crate) fn found_none(&self, stream: Stream) {
        if self.doubt.load(Acquire) {
            self.forget(stream);
        }
    }

    /// A stream that is destroyed captures no more.
    pub(crate) fn forget(&self, stream: Stream) {
        if self.active.load(Acquire) != 0 {
            self.change(|origins| origins.retain(|s| *s != stream as usize));
        }
    }

    /// In a forked child nothing captures.
    pub(crate) fn forget_all(&self) {
        self.origins.forget();
        self.active.store(0, Release);
    }
}
