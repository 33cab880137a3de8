//! What a command does to memory when it completes.

use crate::command::{Action, Condition, KernelOp, Place, transfer_ns};
use crate::layout::{EVENTS, STREAMS};
use crate::memory::Mapping;
use crate::model::Work;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A checked command, with the memory it needs: it stays valid whatever the client unregisters meanwhile.
#[derive(Debug)]
pub(super) enum Effect {
    None,
    Kernel { op: KernelOp, count: u32, x: *mut u8, y: *mut u8, a: f32 },
    Copy { dst: *mut u8, src: *mut u8, bytes: usize },
    Set { dst: *mut u8, byte: u8, bytes: usize },
    Record { event: usize, record: u64 },
    WaitValue { word: Word, condition: Condition, value: u32 },
    WriteValue { word: Word, value: u32 },
}

/// A word the device can reach, and the mapping that keeps it there.
#[derive(Debug)]
pub(super) struct Word {
    at: *mut u32,
    _mapping: Rc<Mapping>,
}

impl Word {
    fn get(&self) -> &AtomicU32 {
        // SAFETY: `at` is aligned and lies inside the mapping, which lives as long as this value.
        unsafe { AtomicU32::from_ptr(self.at) }
    }
}

/// The memory of one context as the device sees it. Region 0 is the arena.
pub(super) type Regions = HashMap<u32, Rc<Mapping>>;

fn word(regions: &Regions, place: Place) -> Option<Word> {
    let mapping = regions.get(&place.region)?;
    let at = mapping.at(place.offset, 4)?;
    place.offset.is_multiple_of(4).then(|| Word { at: at.cast(), _mapping: mapping.clone() })
}

/// Checks a command; `None` if it reaches outside the context's memory or names what cannot be.
pub(super) fn prepare(action: Action, regions: &Regions) -> Option<(Work, Effect)> {
    let arena = regions.get(&0)?;
    let floats =
        |offset: u64, count: u32| offset.is_multiple_of(4).then(|| arena.at(offset, u64::from(count) * 4)).flatten();
    Some(match action {
        Action::Kernel { op, count, duration_ns, x, y, a } => {
            let effect = match op {
                KernelOp::Nop => Effect::None,
                KernelOp::Fill | KernelOp::AddIndex => {
                    let y = floats(y, count)?;
                    Effect::Kernel { op, count, x: y, y, a }
                }
                KernelOp::Axpy => Effect::Kernel { op, count, x: floats(x, count)?, y: floats(y, count)?, a },
            };
            (Work::Run(duration_ns), effect)
        }
        Action::Copy { dst, src, bytes } => {
            let (dst, src) = (arena.at(dst, bytes)?, arena.at(src, bytes)?);
            (Work::Run(transfer_ns(bytes)), Effect::Copy { dst, src, bytes: usize::try_from(bytes).ok()? })
        }
        Action::Set { dst, byte, bytes } => {
            let dst = arena.at(dst, bytes)?;
            (Work::Run(transfer_ns(bytes)), Effect::Set { dst, byte, bytes: usize::try_from(bytes).ok()? })
        }
        Action::Record { event, record } => {
            let event = usize::try_from(event).ok().filter(|&e| e < EVENTS)?;
            (Work::Instant, Effect::Record { event, record })
        }
        Action::WaitStream { stream, count } => {
            ((stream as usize) < STREAMS).then_some((Work::After { stream, count }, Effect::None))?
        }
        Action::WaitValue { place, condition, value } => {
            (Work::Poll, Effect::WaitValue { word: word(regions, place)?, condition, value })
        }
        Action::WriteValue { place, value } => {
            (Work::Instant, Effect::WriteValue { word: word(regions, place)?, value })
        }
        Action::Call => (Work::Call, Effect::None),
        Action::Returned => return None,
    })
}

impl Effect {
    /// Is the wait over?
    pub(super) fn holds(&self) -> bool {
        match self {
            Self::WaitValue { word, condition, value } => condition.holds(word.get().load(Acquire), *value),
            _ => true,
        }
    }

    /// Does what is to be done in memory. Called only while the context exists, and its arena with it.
    pub(super) fn apply(&self) {
        match *self {
            Self::None | Self::Record { .. } | Self::WaitValue { .. } => {}
            Self::Kernel { op, count, x, y, a } => kernel(op, count, x.cast(), y.cast(), a),
            // SAFETY: both ends were checked to lie in the arena, which is mapped. The client may write there at the
            // same time; then the bytes are whatever they are, as on a real device.
            Self::Copy { dst, src, bytes } => unsafe { std::ptr::copy(src, dst, bytes) },
            // SAFETY: as above.
            Self::Set { dst, byte, bytes } => unsafe { std::ptr::write_bytes(dst, byte, bytes) },
            Self::WriteValue { ref word, value } => word.get().store(value, Release),
        }
    }
}

fn kernel(op: KernelOp, count: u32, x: *mut u32, y: *mut u32, a: f32) {
    for i in 0..count {
        // SAFETY: `count` floats from `x` and from `y` on were checked to be aligned and in the arena, which is mapped.
        let (x, y) = unsafe { (AtomicU32::from_ptr(x.add(i as usize)), AtomicU32::from_ptr(y.add(i as usize))) };
        let old = f32::from_bits(y.load(Relaxed));
        let new = match op {
            KernelOp::Nop => old,
            KernelOp::Fill => a,
            KernelOp::Axpy => old + a * f32::from_bits(x.load(Relaxed)),
            KernelOp::AddIndex => old * a + i as f32,
        };
        y.store(new.to_bits(), Relaxed);
    }
}
