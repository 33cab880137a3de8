//! Page on which an urgent program reports whether its queues keep up, for programs that yield to it in the same hardware context.
//!
//! The daemon makes one page for each such program ([`crate::wire::DaemonMsg::Backlog`]): the program writes it, others map it read-only.
//! Each queue has two numbers there. The host stores *wanted* before a command after which the device will be behind; the device stores
//! *done* when it has reached that command's end. A queue is behind while *done* comes before *wanted*. Numbers are those of the queue's
//! completion fences, and are compared modulo 2^32. A program that stores nonsense gains nothing: at best it holds programs that the daemon
//! would hold for it anyway.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::*;

use crate::memory::{Hardware, Memory, Word};

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Number of queues that have a place on their program's page. A program with more queues reports nothing more, and counts as behind.
pub const PLACES: usize = (PAGE_BYTES - 64) / size_of::<Backlog>();
/// Number of pages that a program can be told of: one bit each in [`crate::segment::GroupSlot::yields_to`].
pub const PAGES: usize = 32;

/// Two numbers of one queue, from which its backlog follows.
#[repr(C)]
pub struct Backlog<M: Memory = Hardware> {
    /// Fence number that the device must reach to have caught up. Stored by the host.
    wanted: M::U32,
    /// Fence number that the device has reached. Stored by the device.
    done: M::U32,
}

impl<M: Memory> Default for Backlog<M> {
    fn default() -> Self {
        Backlog { wanted: M::U32::new(0), done: M::U32::new(0) }
    }
}

/// Reports whether one fence's number comes before another's, modulo 2^32.
pub fn is_before(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) as i32) > 0
}

impl<M: Memory> Backlog<M> {
    /// Host: raises *wanted* to the number of the fence that will cover the next command, before launching it. *wanted* never falls.
    pub fn want(&self, number: u32) {
        let mut seen = self.wanted.load(Relaxed);
        while is_before(seen, number) {
            match self.wanted.compare_exchange(seen, number, SeqCst, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Host: returns *wanted*, to be given to [`Backlog::settle`] once all commands are seen complete.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(SeqCst)
    }

    /// Host: marks all commands up to `wanted` as complete though the device has not stored so, because the fence was refused or the call
    /// itself waited. Does nothing if *wanted* has grown since.
    pub fn settle(&self, wanted: u32) {
        let _ = self.wanted.compare_exchange(wanted, self.done.load(Acquire), SeqCst, Relaxed);
    }

    /// Device: stores the number of a fence that it has reached.
    pub fn reach(&self, number: u32) {
        self.done.store(number, SeqCst);
    }

    /// Reports whether the device is behind. Any side may ask.
    pub fn is_behind(&self) -> bool {
        // With this order, a change between the two loads can make the queue look behind, never the other way round.
        let done = self.done.load(SeqCst);
        is_before(done, self.wanted.load(SeqCst))
    }
}

impl Backlog {
    /// Address at which the device stores *done*.
    pub fn done_ptr(&self) -> *mut u32 {
        self.done.as_ptr()
    }
}

/// Backlog page of one program.
#[repr(C, align(4096))]
pub struct Page {
    /// Number of places in use; [`u32::MAX`] = there are too few.
    used: AtomicU32,
    _pad: [u32; 15],
    queues: [Backlog; PLACES],
}

const _: () = assert!(size_of::<Page>() == PAGE_BYTES);

impl Page {
    /// Host: returns the place of a queue, and marks it as used.
    pub fn queue(&self, index: u16) -> Option<&Backlog> {
        let place = self.queues.get(usize::from(index));
        self.used.fetch_max(if place.is_some() { u32::from(index) + 1 } else { u32::MAX }, Release);
        place
    }

    /// Reports whether some queue is behind or has no place. Any side may ask.
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
