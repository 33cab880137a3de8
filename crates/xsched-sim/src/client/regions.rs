//! Registration of the program's own memory with the device.

use super::context::Context;
use super::error::{Error, Result};
use super::maps::backing;
use super::wait::lock;
use crate::command::Place;
use crate::wire::Request;
use std::ffi::c_void;
use std::sync::Mutex;

struct Region {
    number: u32,
    start: u64,
    bytes: u64,
    /// Offset of `start` in the region, in bytes.
    skip: u64,
}

#[derive(Default)]
struct Table {
    regions: Vec<Region>,
    /// Highest number used so far; none is reused.
    last: u32,
}

/// The registered regions of a context.
#[derive(Default)]
pub struct Regions(Mutex<Table>);

impl Regions {
    /// Location of the word at this address, if it is registered.
    fn find(&self, pointer: *const c_void, bytes: u64) -> Option<Place> {
        let address = pointer.addr() as u64;
        let table = lock(&self.0);
        let inside = |r: &&Region| address >= r.start && address + bytes <= r.start + r.bytes;
        let region = table.regions.iter().find(inside)?;
        Some(Place { region: region.number, offset: address - region.start + region.skip })
    }

    /// Registers a range with the device.
    pub fn add(&self, context: &Context, pointer: *const c_void, bytes: usize) -> Result<()> {
        let (start, bytes) = (pointer.addr() as u64, bytes as u64);
        if bytes == 0 || start == 0 {
            return Err(Error::InvalidValue);
        }
        let end = start.checked_add(bytes).ok_or(Error::InvalidValue)?;
        let mut table = lock(&self.0);
        if table.regions.iter().any(|r| start < r.start + r.bytes && r.start < end) {
            return Err(Error::InvalidValue);
        }
        let backing = backing(start, bytes)?;
        let number = table.last + 1;
        let request = Request::Register { region: number, offset: backing.offset, bytes: backing.bytes };
        context.ask(request, Some(&backing.fd))?;
        table.last = number;
        table.regions.push(Region { number, start, bytes, skip: start - backing.base });
        Ok(())
    }

    /// Ends the registration of the range that begins here.
    pub fn remove(&self, context: &Context, pointer: *const c_void) -> Result<()> {
        let mut table = lock(&self.0);
        let start = pointer.addr() as u64;
        let index = table.regions.iter().position(|r| r.start == start).ok_or(Error::InvalidValue)?;
        let region = table.regions.swap_remove(index);
        context.ask(Request::Unregister { region: region.number }, None).map(drop)
    }
}

impl Context {
    /// Location of the word of 4 or 8 bytes at this address, if the device can reach it.
    pub fn place(&self, pointer: *const c_void, bytes: usize) -> Result<Place> {
        if !pointer.addr().is_multiple_of(bytes) {
            return Err(Error::InvalidValue);
        }
        let arena = self.offset(pointer, bytes).map(|offset| Place { region: 0, offset });
        arena.or_else(|| self.regions.find(pointer, bytes as u64)).ok_or(Error::InvalidValue)
    }
}
