//! Words of events shared by processes.

use crate::context::Ctx;
use crate::given::give;
use crate::result::{Error, Result};
use rustix::thread::futex;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU32, AtomicU64};
use xsched_sim::client::{self, PAGE, Slot, lock};
use xsched_sim::command::{Action, Condition, Place, Width};

/// Size of an event's words, in bytes.
pub(crate) const PAIR: u64 = 16;

/// Allocates room in the arena for whole pages of this many bytes. Returns the offset of the pages, and the block.
pub(crate) fn room(ctx: &Ctx, bytes: u64, heap: fn(&mut client::Heaps) -> &mut client::Heap) -> Result<(u64, u64)> {
    let wanted = bytes.checked_add(PAGE).ok_or(Error::INVALID_VALUE)?;
    let block = heap(&mut lock(&ctx.sim.heaps)).alloc(wanted).ok_or(Error::OUT_OF_MEMORY)?;
    Ok((block.next_multiple_of(PAGE), block))
}

/// Words of an event shared by processes.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) sim: &'static client::Context,
    /// Offset in the arena, in bytes.
    pub(crate) offset: u64,
    /// Set if the page is the context's own.
    pub(crate) own: bool,
}

impl Shared {
    /// Allocates the words of a new event.
    pub(crate) fn new(ctx: &Ctx) -> Result<Self> {
        let mut words = lock(&ctx.ipc.words);
        if words.free.is_empty() {
            let (page, _) = room(ctx, PAGE, |heaps| &mut heaps.host)?;
            // SAFETY: a page of the arena that was allocated for this just now.
            unsafe { ctx.sim.address(page).cast::<u8>().write_bytes(0, PAGE as usize) };
            let export = ctx.sim.export(page, PAGE)?;
            words.pages.insert(page, export);
            words.free.extend((0..PAGE / PAIR).rev().map(|index| page + index * PAIR));
        }
        let offset = words.free.pop().ok_or(Error::OUT_OF_MEMORY)?;
        Ok(Self { sim: ctx.sim, offset, own: true })
    }

    /// Frees the words of an event that is gone.
    pub(crate) fn end(self, ctx: &Ctx) {
        if self.own {
            lock(&ctx.ipc.words).free.push(self.offset);
        }
    }

    fn word(&self, index: u64) -> &'static AtomicU64 {
        let at = self.sim.address(self.offset + 8 * index);
        // SAFETY: an aligned word of a page that stays as long as the context, which is never freed.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Number of the last record that is complete.
    fn completed(&self) -> &'static AtomicU64 {
        self.word(1)
    }

    /// Number of the last record; 0 = there was none.
    pub(crate) fn recorded(&self) -> u64 {
        self.word(0).load(Acquire)
    }

    /// Low half of the number of the last complete record; processes sleep on it.
    fn wake_word(&self) -> &'static AtomicU32 {
        let at = self.sim.address(self.offset + 8);
        // SAFETY: as above; futexes are of 4 bytes, and nothing but the kernel looks at this half alone.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Records the event when a stream reaches the record.
    pub(crate) fn record(self, ctx: &Ctx, slot: Slot) -> Result<client::Mark> {
        let number = self.word(0).fetch_add(1, AcqRel) + 1;
        let arrived = move || {
            // Of records in several streams or processes, the later one counts.
            self.completed().fetch_max(number, AcqRel);
            let _ = futex::wake(self.wake_word(), futex::Flags::empty(), i32::MAX as u32);
        };
        Ok(ctx.sim.call(slot, Box::new(arrived))?)
    }

    /// Makes a stream wait for the last record.
    pub(crate) fn hold(self, ctx: &Ctx, slot: Slot) -> Result<client::Mark> {
        if !std::ptr::eq(ctx.sim, self.sim) {
            return Err(Error::NOT_SUPPORTED);
        }
        let number = self.recorded();
        if self.completed().load(Acquire) >= number {
            return Ok(ctx.sim.end(slot)?);
        }
        let place = Place { region: 0, offset: self.offset + 8 };
        let action = Action::WaitValue { place, width: Width::Double, condition: Condition::Geq, value: number };
        give(ctx, slot, action)
    }

    pub(crate) fn query(self) -> Result<()> {
        if self.completed().load(Acquire) >= self.recorded() { Ok(()) } else { Err(Error::NOT_READY) }
    }

    /// Waits for the last record, which may be another process's.
    pub(crate) fn synchronize(self, ctx: &Ctx) -> Result<()> {
        /// Interval at which a waiting thread checks that the context still exists.
        const LOOK: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let number = self.recorded();
        loop {
            let seen = self.completed().load(Acquire);
            if seen >= number {
                return Ok(());
            }
            ctx.check()?;
            let _ = futex::wait(self.wake_word(), futex::Flags::empty(), seen as u32, Some(&LOOK));
        }
    }
}
