//! Memory of the device that a client uses, as it tells the device.

use super::connect::greet;
use super::context::{Context, Heaps, LARGE};
use super::error::{Error, Result};
use super::heap::Heap;
use super::wait::lock;
use crate::layout::DEVICE_BYTES;
use crate::wire::Request;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Blocks of the device's heap that the device knows as memory in use: offset → bytes.
#[derive(Default)]
pub(super) struct Account(Mutex<BTreeMap<u64, u64>>);

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Capacity of the device.
    pub capacity: u64,
    /// Memory in use, by all processes.
    pub used: u64,
}

impl DeviceMemory {
    /// Memory of a device. Starts the device if need be.
    pub fn of(device: u64) -> Result<Self> {
        let [_, capacity, used, ..] = greet(Request::MemoryOf { device })?.reply;
        Ok(Self { capacity, used })
    }

    /// Memory that is not in use, in bytes.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

impl Context {
    /// Allocates a block of device memory, and returns its offset.
    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        let offset = lock(&self.heaps).device.alloc(bytes).ok_or(Error::OutOfMemory)?;
        let length = lock(&self.heaps).device.block_of(offset).map_or(0, |(_, length)| length);
        if let Err(error) = self.take(length) {
            lock(&self.heaps).device.free(offset);
            return Err(error);
        }
        lock(&self.account.0).insert(offset, length);
        Ok(offset)
    }

    /// Ends the account of a block that was freed. What remains when the device is gone does not matter.
    fn unpaid(&self, offset: u64) {
        if offset < DEVICE_BYTES as u64
            && let Some(bytes) = lock(&self.account.0).remove(&offset)
        {
            let _ = self.give(bytes);
        }
    }

    /// Frees a block of one of the heaps, and the device's memory behind it, if there is any.
    pub fn release(&self, offset: u64, heap: impl Fn(&mut Heaps) -> &mut Heap) -> Result<()> {
        let mut heaps = lock(&self.heaps);
        let bytes = heap(&mut heaps).free(offset).ok_or(Error::InvalidValue)?;
        // Only whole pages, since the first and the last may be shared with neighbouring blocks.
        let (start, end) = (offset.next_multiple_of(4096), (offset + bytes) & !4095);
        if bytes >= LARGE {
            // SAFETY: pages of our own mapping of a memfd, all inside a block that is free now and locked.
            let _ = unsafe {
                rustix::mm::madvise(self.address(start), (end - start) as usize, rustix::mm::Advice::LinuxRemove)
            };
        }
        drop(heaps);
        self.unpaid(offset);
        Ok(())
    }

    /// Takes memory of the device into account as in use, without a place for it.
    pub fn take(&self, bytes: u64) -> Result<()> {
        self.ask(Request::Take { bytes }, None).map(drop)
    }

    /// Takes memory out of the account again.
    pub fn give(&self, bytes: u64) -> Result<()> {
        self.ask(Request::Give { bytes }, None).map(drop)
    }

    /// Takes a sealed memfd into account as memory of the device, once for all processes that do so. Returns the memory's
    /// number and its device.
    pub fn hold(&self, fd: &OwnedFd) -> Result<(u64, u64)> {
        let [number, device, ..] = self.ask(Request::Hold, Some(fd))?;
        Ok((number, device))
    }

    /// Ends a hold of memory with this number.
    pub fn drop_hold(&self, number: u64) -> Result<()> {
        self.ask(Request::Drop { number }, None).map(drop)
    }

    /// Memory of the context's device.
    pub fn memory(&self) -> Result<DeviceMemory> {
        let [capacity, used, ..] = self.ask(Request::Memory, None)?;
        Ok(DeviceMemory { capacity, used })
    }
}
