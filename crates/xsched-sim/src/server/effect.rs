//! Effects of commands on memory when they complete.

use crate::command::{Action, Condition, Fault, KernelOp, Place, TensorOp, Width, transfer_ns};
use crate::layout::{EVENTS, STREAMS};
use crate::memory::Mapping;
use crate::model::Work;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Effect of a checked command, with the memory it needs: it stays valid whatever the client unregisters meanwhile.
#[derive(Debug)]
pub(super) enum Effect {
    None,
    Kernel { op: KernelOp, count: u32, x: *mut u8, y: *mut u8, a: f32 },
    Tensor { op: TensorOp, sizes: [u32; 4], x: *const f32, w: *const f32, y: *mut f32 },
    Fault(Fault),
    Stamp { word: Word },
    Copy { dst: Rows, src: Rows, bytes: usize, rows: usize },
    Set { dst: Rows, unit: u8, pattern: u32, bytes: usize, rows: usize },
    Record { event: usize, record: u64 },
    WaitValue { word: Word, condition: Condition, value: u64 },
    WriteValue { word: Word, value: u64 },
}

/// Rows of memory in the arena, at a fixed distance from each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    first: *mut u8,
    pitch: usize,
}

impl Rows {
    fn new(arena: &Mapping, offset: u64, bytes: u64, rows: u64, pitch: u64) -> Option<Self> {
        let extent = rows.checked_sub(1)?.checked_mul(pitch)?.checked_add(bytes)?;
        Some(Self { first: arena.at(offset, extent)?, pitch: usize::try_from(pitch).ok()? })
    }

    fn row(&self, index: usize) -> *mut u8 {
        self.first.wrapping_add(index * self.pitch)
    }
}

/// A word that the device can reach, and the mapping that holds it.
#[derive(Debug)]
pub(super) struct Word {
    at: *mut u8,
    width: Width,
    _mapping: Rc<Mapping>,
}

impl Word {
    fn load(&self) -> u64 {
        match self.width {
            // SAFETY: `at` is aligned for this width and lies inside the mapping, which lives as long as this value.
            Width::Word => unsafe { AtomicU32::from_ptr(self.at.cast()) }.load(Acquire).into(),
            // SAFETY: as above.
            Width::Double => unsafe { AtomicU64::from_ptr(self.at.cast()) }.load(Acquire),
        }
    }

    fn store(&self, value: u64) {
        match self.width {
            // SAFETY: as in `load`.
            Width::Word => unsafe { AtomicU32::from_ptr(self.at.cast()) }.store(value as u32, Release),
            // SAFETY: as in `load`.
            Width::Double => unsafe { AtomicU64::from_ptr(self.at.cast()) }.store(value, Release),
        }
    }
}

/// The memory of one context, by region, as the device sees it. Region 0 is the arena.
pub(super) type Regions = HashMap<u32, Rc<Mapping>>;

fn word(regions: &Regions, place: Place, width: Width) -> Option<Word> {
    let mapping = regions.get(&place.region)?;
    let at = mapping.at(place.offset, width as u64)?;
    place.offset.is_multiple_of(width as u64).then(|| Word { at, width, _mapping: mapping.clone() })
}

/// Checks a command; `None` if it reaches outside the context's memory or has impossible operands.
pub(super) fn prepare(action: Action, regions: &Regions) -> Option<(Work, Effect)> {
    let arena = regions.get(&0)?;
    let floats =
        |offset: u64, count: u32| offset.is_multiple_of(4).then(|| arena.at(offset, u64::from(count) * 4)).flatten();
    let transfer = |bytes: u64, rows: u64| Some(Work::Run(transfer_ns(bytes.checked_mul(rows)?)));
    Some(match action {
        Action::Kernel { op, count, duration_ns, x, y, a } => {
            let effect = match op {
                KernelOp::Nop => Effect::None,
                KernelOp::Fault => Effect::Fault(Fault::Address),
                KernelOp::Assert => Effect::Fault(Fault::Assert),
                KernelOp::Fill | KernelOp::AddIndex => {
                    let y = floats(y, count)?;
                    Effect::Kernel { op, count, x: y, y, a }
                }
                KernelOp::Axpy => Effect::Kernel { op, count, x: floats(x, count)?, y: floats(y, count)?, a },
                KernelOp::Sum => Effect::Kernel { op, count, x: floats(x, count)?, y: floats(y, 1)?, a },
            };
            (Work::Run(duration_ns), effect)
        }
        Action::Stamp { place, duration_ns } => {
            (Work::Run(duration_ns), Effect::Stamp { word: word(regions, place, Width::Double)? })
        }
        Action::Tensor { op, sizes, duration_ns, x, w, y } => {
            let [in_x, in_w, in_y] = op.floats(sizes)?;
            let at =
                |offset: u64, count: u64| arena.at(offset, count.checked_mul(4)?).filter(|_| offset.is_multiple_of(4));
            let (x, w, y) = (at(x, in_x)?.cast_const().cast(), at(w, in_w)?.cast_const().cast(), at(y, in_y)?.cast());
            (Work::Run(duration_ns), Effect::Tensor { op, sizes, x, w, y })
        }
        Action::Copy { dst, src, bytes, rows, dst_pitch, src_pitch } => {
            let (dst, src) =
                (Rows::new(arena, dst, bytes, rows, dst_pitch)?, Rows::new(arena, src, bytes, rows, src_pitch)?);
            let work = transfer(bytes, rows)?;
            (work, Effect::Copy { dst, src, bytes: usize::try_from(bytes).ok()?, rows: usize::try_from(rows).ok()? })
        }
        Action::Set { dst, unit, pattern, bytes, rows, pitch } => {
            let multiple = |value: u64| value.is_multiple_of(unit.into());
            let whole = multiple(dst) && multiple(bytes) && (rows == 1 || multiple(pitch));
            let dst = Rows::new(arena, dst, bytes, rows, pitch).filter(|_| whole)?;
            let (bytes, work) = (usize::try_from(bytes).ok()?, transfer(bytes, rows)?);
            (work, Effect::Set { dst, unit, pattern, bytes, rows: usize::try_from(rows).ok()? })
        }
        Action::Record { event, record } => {
            let event = usize::try_from(event).ok().filter(|&e| e < EVENTS)?;
            (Work::Instant, Effect::Record { event, record })
        }
        Action::WaitStream { stream, count } => {
            ((stream as usize) < STREAMS).then_some((Work::After { stream, count }, Effect::None))?
        }
        Action::WaitValue { place, width, condition, value } => {
            (Work::Poll, Effect::WaitValue { word: word(regions, place, width)?, condition, value })
        }
        Action::WriteValue { place, width, value } => {
            (Work::Instant, Effect::WriteValue { word: word(regions, place, width)?, value })
        }
        Action::Call => (Work::Call, Effect::None),
        Action::Returned => return None,
    })
}

impl Effect {
    /// Reports whether the condition of a wait holds; true for other commands.
    pub(super) fn holds(&self) -> bool {
        match self {
            Self::WaitValue { word, condition, value } => condition.holds(word.width, word.load(), *value),
            _ => true,
        }
    }

    /// Performs the effect at `at` ns. Called only while the context exists, and its arena with it.
    pub(super) fn apply(&self, at: u64) {
        match *self {
            Self::None | Self::Fault(_) | Self::Record { .. } | Self::WaitValue { .. } => {}
            Self::Kernel { op, count, x, y, a } => kernel(op, count, x.cast(), y.cast(), a),
            Self::Tensor { op, sizes, x, w, y } => tensor(op, sizes, x, w, y),
            Self::Stamp { ref word } => word.store(at),
            Self::Copy { dst, src, bytes, rows } => (0..rows).for_each(|i| {
                // SAFETY: all rows were checked to lie in the arena, which is mapped. The client may write there at
                // the same time; then the bytes are whatever they are, as on a real device.
                unsafe { std::ptr::copy(src.row(i), dst.row(i), bytes) }
            }),
            Self::Set { dst, unit, pattern, bytes, rows } => {
                (0..rows).for_each(|i| set(dst.row(i), unit, pattern, bytes));
            }
            Self::WriteValue { ref word, value } => word.store(value),
        }
    }
}

/// Fills a row, which was checked to lie in the arena and to consist of whole patterns.
fn set(row: *mut u8, unit: u8, pattern: u32, bytes: usize) {
    let [low, high, ..] = pattern.to_le_bytes();
    // SAFETY: as for copies.
    unsafe {
        match unit {
            1 => row.write_bytes(low, bytes),
            2 => (0..bytes / 2).for_each(|i| row.cast::<[u8; 2]>().add(i).write([low, high])),
            _ => (0..bytes / 4).for_each(|i| row.cast::<[u8; 4]>().add(i).write(pattern.to_le_bytes())),
        }
    }
}

fn kernel(op: KernelOp, count: u32, x: *mut u32, y: *mut u32, a: f32) {
    // SAFETY: `count` floats from `x` and from `y` on (one for a sum) were checked to be aligned and in the arena,
    // which is mapped.
    let cell = |base: *mut u32, i: u32| unsafe { AtomicU32::from_ptr(base.add(i as usize)) };
    let get = |base, i| f32::from_bits(cell(base, i).load(Relaxed));
    let put = |i, value: f32| cell(y, i).store(value.to_bits(), Relaxed);
    match op {
        KernelOp::Nop | KernelOp::Fault | KernelOp::Assert => {}
        KernelOp::Fill => (0..count).for_each(|i| put(i, a)),
        KernelOp::Axpy => (0..count).for_each(|i| put(i, get(y, i) + a * get(x, i))),
        KernelOp::AddIndex => (0..count).for_each(|i| put(i, get(y, i) * a + i as f32)),
        KernelOp::Sum => put(0, (0..count).map(|i| f64::from(get(x, i))).sum::<f64>() as f32),
    }
}

fn tensor(op: TensorOp, sizes: [u32; 4], x: *const f32, w: *const f32, y: *mut f32) {
    let [a, b, c, d] = sizes.map(|n| n as usize);
    // SAFETY: the operands were checked to be aligned, of these sizes and in the arena, which is mapped. The client may
    // write there at the same time: then the numbers are whatever they are, as on a real device.
    let read = |base: *const f32, i: usize| unsafe { base.add(i).read_volatile() };
    // SAFETY: as above.
    let put = |i: usize, value: f32| unsafe { y.add(i).write_volatile(value) };
    match op {
        TensorOp::Gemm => {
            let right: Vec<f32> = (0..c * b).map(|i| read(w, i)).collect();
            for row in 0..a {
                let mut sums = vec![0.0; b];
                for k in 0..c {
                    let factor = read(x, row * c + k);
                    sums.iter_mut().zip(&right[k * b..]).for_each(|(sum, value)| *sum += factor * value);
                }
                sums.into_iter().enumerate().for_each(|(column, sum)| put(row * b + column, sum));
            }
        }
        TensorOp::Conv2d => {
            let (rows, columns) = (a + 1 - c, b + 1 - d);
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                let cells = (0..c).flat_map(|i| (0..d).map(move |j| (i, j)));
                let products = cells.map(|(i, j)| read(x, (row + i) * b + column + j) * read(w, i * d + j));
                put(row * columns + column, products.sum());
            }
        }
    }
}
