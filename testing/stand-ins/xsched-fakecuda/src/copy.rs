//! Copies and sets: their representation and execution.

use crate::context::Ctx;
use crate::given::{Given, give};
use crate::memory::{self, check_device};
use crate::result::{Error, Result};
use crate::stats::{COUNTERS, Counters};
use std::ffi::c_void;
use std::sync::Arc;
use xsched_sim::client::Slot;
use xsched_sim::command::{Action, KernelOp, transfer_ns};

/// Rows of any kind of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) address: u64,
    /// Distance of rows, in bytes.
    pub(crate) pitch: usize,
    /// Distance of planes, in bytes, if there are several.
    pub(crate) plane: usize,
}

impl Rows {
    fn row(self, index: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize + index * self.pitch)
    }
}

/// A copy of planes of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) dst: Rows,
    pub(crate) src: Rows,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    pub(crate) planes: usize,
}

/// Access of the device to one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// In the arena, at this offset.
    Arena(u64),
    /// Registered memory: the host copies when the stream reaches the copy.
    Registered,
    /// Any other memory: the host copies at once.
    Pageable,
}

impl Copy {
    pub(crate) fn new(dst: u64, src: u64, bytes: usize) -> Self {
        let line = |address| Rows { address, pitch: bytes, plane: 0 };
        Self { dst: line(dst), src: line(src), bytes, rows: 1, planes: 1 }
    }

    pub(crate) fn extent(&self, pitch: usize) -> usize {
        self.rows.saturating_sub(1).saturating_mul(pitch).saturating_add(self.bytes)
    }

    fn side(&self, ctx: &Ctx, rows: Rows) -> Side {
        let extent = self.extent(rows.pitch);
        let pointer = std::ptr::with_exposed_provenance::<c_void>(rows.address as usize);
        match ctx.sim.offset(pointer, extent) {
            Some(offset) => Side::Arena(offset),
            None if memory::is_registered(rows.address, extent) => Side::Registered,
            None => Side::Pageable,
        }
    }

    /// Copies by the processor between the program's memory and a contiguous stage.
    fn by_host(&self, dst: Rows, src: Rows) {
        for row in 0..self.rows {
            // SAFETY: memory that the program gave for a copy of this size; a stage is of that size.
            unsafe { std::ptr::copy(src.row(row), dst.row(row), self.bytes) };
        }
    }

    /// Submits the copy to the device. In a graph nothing may wait for the host.
    pub(crate) fn run(&self, ctx: &Arc<Ctx>, slot: Slot, graph: bool) -> Result<Given> {
        Counters::add(&COUNTERS.copies);
        if graph {
            Counters::add(&COUNTERS.graph_copies);
        }
        for z in 1..self.planes {
            self.plane(z - 1).run_plane(ctx, slot, graph)?.finish()?;
        }
        self.plane(self.planes - 1).run_plane(ctx, slot, graph)
    }

    fn plane(&self, z: usize) -> Self {
        let of = |rows: Rows| Rows { address: rows.address + (z * rows.plane) as u64, ..rows };
        Self { dst: of(self.dst), src: of(self.src), planes: 1, ..*self }
    }

    fn run_plane(&self, ctx: &Arc<Ctx>, slot: Slot, graph: bool) -> Result<Given> {
        let (copy, bytes, rows) = (*self, self.bytes as u64, self.rows as u64);
        let (dst_side, src_side) = (self.side(ctx, self.dst), self.side(ctx, self.src));
        let device = |dst: u64, dst_pitch: usize, src: u64, src_pitch: usize| {
            let (dst_pitch, src_pitch) = (dst_pitch as u64, src_pitch as u64);
            give(ctx, slot, Action::Copy { dst, src, bytes, rows, dst_pitch, src_pitch })
        };
        let stage = || {
            let offset = ctx.memory.stage(ctx.sim, self.bytes * self.rows)?;
            let address = ctx.sim.address(offset).expose_provenance() as u64;
            Ok::<_, Error>((offset, Rows { address, pitch: self.bytes, plane: 0 }))
        };
        match (dst_side, src_side) {
            (Side::Arena(dst), Side::Arena(src)) => device(dst, self.dst.pitch, src, self.src.pitch).map(Given::from),
            (Side::Arena(dst), side) => {
                let (offset, between) = stage()?;
                if side == Side::Registered {
                    ctx.sim.call(slot, Box::new(move || copy.by_host(between, copy.src)))?;
                } else {
                    copy.by_host(between, copy.src);
                }
                let mark = device(dst, self.dst.pitch, offset, self.bytes)?;
                ctx.memory.unstage(mark, offset);
                Ok(mark.into())
            }
            (side, Side::Arena(src)) => {
                let (offset, between) = stage()?;
                let mark = device(offset, self.bytes, src, self.src.pitch)?;
                if side == Side::Registered || graph {
                    let mark = ctx.sim.call(slot, Box::new(move || copy.by_host(copy.dst, between)))?;
                    ctx.memory.unstage(mark, offset);
                    return Ok(mark.into());
                }
                let ctx = ctx.clone();
                Ok(Given::and_then(mark, move || {
                    ctx.wait(mark)?;
                    copy.by_host(copy.dst, between);
                    ctx.memory.unstage(mark, offset);
                    Ok(())
                }))
            }
            (dst, src) => {
                let duration_ns = transfer_ns(bytes * rows);
                let kernel = Action::Kernel { op: KernelOp::Nop, count: 0, duration_ns, x: 0, y: 0, a: 0.0 };
                let mark = give(ctx, slot, kernel)?;
                let body = move || copy.by_host(copy.dst, copy.src);
                if graph || (dst, src) == (Side::Registered, Side::Registered) {
                    return Ok(ctx.sim.call(slot, Box::new(body))?.into());
                }
                let ctx = ctx.clone();
                Ok(Given::and_then(mark, move || {
                    ctx.wait(mark)?;
                    body();
                    Ok(())
                }))
            }
        }
    }
}

/// A set: fills rows with a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) address: u64,
    pub(crate) unit: u8,
    pub(crate) pattern: u32,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    pub(crate) pitch: usize,
}

impl Set {
    /// Checks that the set is aligned and in memory of the device.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.address.is_multiple_of(self.unit.into()) || (self.rows > 1 && self.pitch < self.bytes) {
            return Err(Error::INVALID_VALUE);
        }
        let extent = self.rows.saturating_sub(1).saturating_mul(self.pitch).saturating_add(self.bytes);
        check_device(self.address, extent)
    }

    pub(crate) fn action(&self, ctx: &Ctx) -> Result<Action> {
        let extent = self.rows.saturating_sub(1).saturating_mul(self.pitch).saturating_add(self.bytes);
        let pointer = std::ptr::with_exposed_provenance::<c_void>(self.address as usize);
        let dst = ctx.sim.offset(pointer, extent).ok_or(Error::INVALID_VALUE)?;
        let (bytes, rows, pitch) = (self.bytes as u64, self.rows as u64, self.pitch as u64);
        Ok(Action::Set { dst, unit: self.unit, pattern: self.pattern, bytes, rows, pitch })
    }
}
