//! Backlog pages of programs that share a hardware context: they say if the more urgent ones keep up.
//!
//! The urgent program stores the fence that it wants before it gives a command, its device the fence that is reached; a group whose
//! gate yields compares both before each of its own commands ([`xsched_proto::backlog`]; `xsched_flow::backlog` decides).

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xsched_flow::backlog::Yielding;
use xsched_proto::backlog::{Backlog, PAGES, Page};
use xsched_proto::segment::GroupSlot;

/// Backlog pages that this process knows. Mappings stay until the process ends: a new page takes the place of the former.
pub(crate) struct BacklogPages {
    own: AtomicPtr<Page>,
    others: [AtomicPtr<Page>; PAGES],
    /// Number of the newest page of another process.
    newest: AtomicU32,
}

impl BacklogPages {
    pub(crate) fn new() -> BacklogPages {
        BacklogPages {
            own: AtomicPtr::new(core::ptr::null_mut()),
            others: [const { AtomicPtr::new(core::ptr::null_mut()) }; PAGES],
            newest: AtomicU32::new(0),
        }
    }

    /// The page of this process.
    pub(crate) fn own(&self) -> Option<&'static Page> {
        // SAFETY: null, or a page that stays mapped until the process ends.
        unsafe { self.own.load(Acquire).as_ref() }
    }

    /// Sets the page of this process.
    pub(crate) fn set_own(&self, page: &'static Page) {
        self.own.store(core::ptr::from_ref(page).cast_mut(), Release);
    }

    /// Sets the page of another process, in its place and with its number.
    pub(crate) fn set(&self, place: u8, epoch: u32, page: &'static Page) {
        if let Some(known) = self.others.get(usize::from(place)) {
            known.store(core::ptr::from_ref(page).cast_mut(), Release);
        }
        self.newest.store(epoch, Release);
    }

    /// Backlog of a queue of this process, if it publishes one.
    pub(crate) fn backlog(&self, queue: u16) -> Option<&'static Backlog> {
        self.own()?.queue(queue)
    }

    /// Ends the backlog of a queue that goes: nothing of it is behind.
    pub(crate) fn leave(&self, queue: u16) {
        if let Some(backlog) = self.backlog(queue) {
            backlog.settle(backlog.wanted());
        }
    }

    /// True: all programs that a group yields to are known and keep up.
    pub(crate) fn is_clear(&self, slot: &GroupSlot) -> bool {
        let epoch = slot.yields_epoch.load(SeqCst);
        if (self.newest.load(Acquire).wrapping_sub(epoch) as i32) < 0 {
            return false;
        }
        let mut left = slot.yields_to.load(SeqCst);
        while left != 0 {
            let page = self.others[left.trailing_zeros() as usize].load(Acquire);
            // SAFETY: null, or a page that stays mapped until the process ends.
            if unsafe { page.as_ref() }.is_none_or(Page::is_behind) {
                return false;
            }
            left &= left - 1;
        }
        true
    }
}

/// State and counts of a group that yields.
#[derive(Default)]
pub(crate) struct Yields {
    state: Mutex<Yielding>,
    pub(crate) holds: AtomicU64,
}

impl Yields {
    pub(crate) fn state(&self) -> MutexGuard<'_, Yielding> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of all groups of a process that yield.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Yielded {
    /// Times that commands were held because some queue was behind.
    pub holds: u64,
    /// Time that threads waited for that queue to catch up, added up, in µs.
    pub held_us: u64,
    /// Commands given while the gate yielded.
    pub passed: u64,
}
