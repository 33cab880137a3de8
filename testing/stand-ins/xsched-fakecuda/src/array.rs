//! Arrays and mipmapped arrays: memory of the device behind a handle. No command reads or writes them.

use crate::context::{Ctx, current};
use crate::edge::{In, Out};
use crate::memory;
use crate::result::{Error, Result};
use crate::slab::Slab;
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Weak};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Rectangle {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Cuboid {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

struct Array {
    ctx: Weak<Ctx>,
    address: u64,
}

static ARRAYS: Slab<Array> = Slab::new(0x5b);

impl Cuboid {
    /// Size of a level in bytes. Only floats of 32 bits are supported.
    fn bytes(&self, level: c_uint) -> Result<usize> {
        if self.format != 0x20 || ![1, 2, 4].contains(&self.channels) || self.width == 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.flags != 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        let measures = [self.width, self.height, self.depth].map(|measure| (measure >> level).max(1));
        let texels = measures.into_iter().try_fold(1usize, usize::checked_mul);
        texels.and_then(|texels| texels.checked_mul(4 * self.channels as usize)).ok_or(Error::OUT_OF_MEMORY)
    }
}

/// Allocates an array with this many bytes. The device takes memory in units of 2 MiB, but for small arrays.
fn make(out: Out<usize>, bytes: usize) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    let unit = if bytes < 1 << 20 { 512 } else { 2 << 20 };
    let mut address = 0;
    memory::alloc(Out::to(&mut address), bytes.checked_next_multiple_of(unit).ok_or(Error::OUT_OF_MEMORY)?)?;
    let mut made = 0;
    ARRAYS.add(|handle| {
        made = handle;
        Arc::new(Array { ctx: Arc::downgrade(&ctx), address })
    });
    out.put(made)
}

pub(crate) fn create(out: Out<usize>, descriptor: In<Rectangle>) -> Result<()> {
    let Rectangle { width, height, format, channels } = descriptor.get()?;
    make(out, Cuboid { width, height, depth: 0, format, channels, flags: 0 }.bytes(0)?)
}

pub(crate) fn create_3d(out: Out<usize>, descriptor: In<Cuboid>) -> Result<()> {
    make(out, descriptor.get()?.bytes(0)?)
}

pub(crate) fn create_mipmapped(out: Out<usize>, descriptor: In<Cuboid>, levels: c_uint) -> Result<()> {
    let descriptor = descriptor.get()?;
    let sizes: Result<Vec<usize>> = (0..levels.clamp(1, 16)).map(|level| descriptor.bytes(level)).collect();
    make(out, sizes?.into_iter().sum())
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    let array = ARRAYS.get(handle).ok_or(Error::INVALID_HANDLE)?;
    if array.ctx.upgrade().is_some_and(|ctx| ctx.is_alive()) {
        memory::free(array.address)?;
    }
    ARRAYS.remove(handle);
    Ok(())
}
