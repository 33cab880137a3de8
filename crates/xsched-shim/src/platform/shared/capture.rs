//! Stream capture: a command for a capturing stream is recorded, not run. It is neither held nor counted, and no
//! command of ours is recorded with it.
//!
//! Streams are asked whether they take part in a capture only while one is active: a capture spreads to other streams
//! through events.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use super::Stream;
use crate::lock::Lock;

/// The captures of one platform.
#[repr(C)]
pub(crate) struct Captures {
    /// Number of active captures. First member, for code that reads nothing else.
    active: AtomicUsize,
    /// Streams on which a capture began and has not ended.
    origins: Lock<Vec<usize>>,
    /// Set after a failed attempt to end a capture, until the driver was asked whether it goes on.
    doubt: AtomicBool,
}

impl Captures {
    /// No active capture.
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

    /// Reports whether a capture is active.
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed) != 0
    }

    /// Records that a capture began on this stream.
    pub(crate) fn began(&self, stream: Stream) {
        self.change(|origins| origins.push(stream as usize));
    }

    /// Records that an attempt to end the capture on some stream failed, so that it may go on.
    pub(crate) fn doubt(&self) {
        self.doubt.store(true, Release);
    }

    /// Records the driver's answer that a stream captures nothing.
    pub(crate) fn found_none(&self, stream: Stream) {
        if self.doubt.load(Acquire) {
            self.forget(stream);
        }
    }

    /// Records that a stream no longer captures, for instance because it is destroyed.
    pub(crate) fn forget(&self, stream: Stream) {
        if self.active.load(Acquire) != 0 {
            self.change(|origins| origins.retain(|s| *s != stream as usize));
        }
    }

    /// Abandons all captures, in a forked child.
    pub(crate) fn forget_all(&self) {
        self.origins.forget();
        self.active.store(0, Release);
    }
}
