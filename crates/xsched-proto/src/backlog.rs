//! The page on which an urgent program tells whether its queues keep up, for those that make room for it in the same hardware
//! context.
//!
//! The daemon makes one for each such program ([`crate::wire::DaemonMsg::Backlog`]): the program writes it, others map it for reading
//! only. Each queue has two numbers there. The host stores *wanted* before a command after which the device will be behind; the
//! device stores *done* when it has come as far. A queue is behind while *done* comes before *wanted*. Numbers are those of the
//! queue's completion fences, and are compared modulo 2^32. A program that stores nonsense gains nothing: the best that it can do is
//! to hold those that the daemon would hold for it anyway.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::*;

use crate::memory::{Hardware, Memory, Word};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Queues of a program that have a place on its page. One with more tells nothing more, and counts as behind.
pub const PLACES: usize = (PAGE_BYTES - 64) / size_of::<Backlog>();
/// Pages that a program can be told of: one bit each in [`crate::segment::GroupSlot::yields_to`].
pub const PAGES: usize = 32;

/// The two numbers of one queue.
#[repr(C)]
pub struct Backlog<M: Memory = Hardware> {
    /// Stored by the host: as far the device must come to have caught up.
    wanted: M::U32,
    /// Stored by the device: as far it has come.
    done: M::U32,
}

impl<M: Memory> Default for Backlog<M> {
    fn default() -> Self {
        Backlog { wanted: M::U32::new(0), done: M::U32::new(0) }
    }
}

/// Whether one fence's number comes before another's, modulo 2^32.
pub fn is_before(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) as i32) > 0
}

impl<M: Memory> Backlog<M> {
    /// Host: before it gives the command that fence `number` will cover. What is wanted only grows.
    pub fn want(&self, number: u32) {
        let mut seen = self.wanted.load(Relaxed);
        while is_before(seen, number) {
            match self.wanted.compare_exchange(seen, number, SeqCst, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Host: as far as is wanted, to be given to [`Backlog::settle`] once all is seen complete.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(SeqCst)
    }

    /// Host: all commands up to the one that `wanted` was stored for are complete, though the device has not said so: the fence was
    /// refused, or the call itself waited. Nothing happens where more is wanted since.
    pub fn settle(&self, wanted: u32) {
        let _ = self.wanted.compare_exchange(wanted, self.done.load(Acquire), SeqCst, Relaxed);
    }

    /// Device: it has reached a fence.
    pub fn reach(&self, number: u32) {
        self.done.store(number, SeqCst);
    }

    /// Anyone: whether the device is behind.
    pub fn is_behind(&self) -> bool {
        // In this order what happens in between makes it look behind, never the other way round.
        let done = self.done.load(SeqCst);
        is_before(done, self.wanted.load(SeqCst))
    }
}

impl Backlog {
    /// Where the device stores.
    pub fn done_ptr(&self) -> *mut u32 {
        self.done.as_ptr()
    }
}

/// The page of one program.
#[repr(C, align(4096))]
pub struct Page {
    /// Places in use; [`u32::MAX`] = there are too few.
    used: AtomicU32,
    _pad: [u32; 15],
    queues: [Backlog; PLACES],
}

const _: () = assert!(size_of::<Page>() == PAGE_BYTES);

impl Page {
    /// Host: the place of a queue.
    pub fn queue(&self, index: u16) -> Option<&Backlog> {
        let place = self.queues.get(usize::from(index));
        self.used.fetch_max(if place.is_some() { u32::from(index) + 1 } else { u32::MAX }, Release);
        place
    }

    /// Anyone: whether some queue is behind, or has no place.
    pub fn is_behind(&self) -> bool {
        let used = self.used.load(Acquire) as usize;
        used > PLACES || self.queues[..used].iter().any(Backlog::is_behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_behind_until_the_device_has_come_as_far_as_is_wanted() {
        let backlog = Backlog::<Hardware>::default();
        assert!(!backlog.is_behind());
        backlog.want(4);
        backlog.want(2);
        backlog.reach(2);
        assert!(backlog.is_behind());
        backlog.reach(6);
        assert!(!backlog.is_behind());
        backlog.want(8);
        let wanted = backlog.wanted();
        backlog.want(10);
        backlog.settle(wanted);
        assert!(backlog.is_behind(), "more is wanted since");
        backlog.settle(10);
        assert!(!backlog.is_behind());
    }

    #[test]
    fn numbers_go_round() {
        let backlog = Backlog::<Hardware>::default();
        for number in [0x7fff_fff0, 0xffff_ffd0, 4] {
            backlog.want(number);
            assert!(backlog.is_behind());
            backlog.reach(number);
            assert!(!backlog.is_behind());
        }
    }

    #[test]
    fn a_program_with_too_many_queues_counts_as_behind() {
        // SAFETY: atomics and padding, for which zeros are valid.
        let page: Box<Page> = unsafe { Box::new(core::mem::zeroed()) };
        assert!(!page.is_behind());
        page.queue(7).unwrap().want(2);
        assert!(page.is_behind());
        page.queue(7).unwrap().reach(2);
        assert!(!page.is_behind());
        assert!(page.queue(PLACES as u16).is_none() && page.is_behind());
    }
}
