//! Multicast objects, with memory bound to them. Nothing is written through them here: they only hold memory.

use crate::edge::{In, Out};
use crate::process::device;
use crate::result::{Error, Result};
use crate::vmm::{self, GRANULARITY, Physical};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::{Arc, Mutex};
use xsched_sim::client::lock;

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    devices: c_uint,
    bytes: usize,
    handles: u64,
    flags: u64,
}

/// An object: memory by its device and its offset.
struct Object {
    properties: Properties,
    devices: Vec<c_int>,
    bound: BTreeMap<(c_int, usize), Arc<Physical>>,
}

/// First handle, among those of memory.
const FIRST: u64 = 0x5b << 40;

static OBJECTS: Mutex<BTreeMap<u64, Object>> = Mutex::new(BTreeMap::new());

fn with<T>(handle: u64, work: impl FnOnce(&mut Object) -> Result<T>) -> Result<T> {
    lock(&OBJECTS).get_mut(&handle).map_or(Err(Error::INVALID_VALUE), work)
}

impl Properties {
    fn check(self) -> Result<Self> {
        let fits = self.bytes > 0 && (self.bytes as u64).is_multiple_of(GRANULARITY);
        if self.devices > 0 && fits && self.flags == 0 { Ok(self) } else { Err(Error::INVALID_VALUE) }
    }
}

pub(crate) fn create(out: Out<u64>, properties: In<Properties>) -> Result<()> {
    let (out, properties) = (out.required()?, properties.get()?.check()?);
    let mut objects = lock(&OBJECTS);
    let handle = objects.last_key_value().map_or(FIRST, |(last, _)| last + 1);
    objects.insert(handle, Object { properties, devices: Vec::new(), bound: BTreeMap::new() });
    out.put(handle)
}

pub(crate) fn add_device(handle: u64, number: c_int) -> Result<()> {
    device(number)?;
    with(handle, |object| {
        if object.devices.contains(&number) || object.devices.len() as c_uint == object.properties.devices {
            return Err(Error::INVALID_VALUE);
        }
        object.devices.push(number);
        Ok(())
    })
}

/// Binds memory of the one device, or of the named one, once all devices were added.
fn bind(handle: u64, number: Option<c_int>, at: usize, bytes: usize, memory: Arc<Physical>) -> Result<()> {
    with(handle, |object| {
        let is_whole = object.devices.len() as c_uint == object.properties.devices;
        let number = number.or(object.devices.first().copied()).filter(|number| object.devices.contains(number));
        let fits = at.checked_add(bytes).is_some_and(|end| end <= object.properties.bytes);
        let number = number.filter(|_| is_whole && fits && bytes > 0).ok_or(Error::INVALID_VALUE)?;
        object.bound.insert((number, at), memory);
        Ok(())
    })
}

pub(crate) fn bind_memory(handle: u64, at: usize, memory: u64, _: usize, bytes: usize, _: c_ulonglong) -> Result<()> {
    bind(handle, None, at, bytes, vmm::memory_of(memory)?)
}

pub(crate) fn bind_memory_v2(
    handle: u64,
    number: c_int,
    at: usize,
    memory: u64,
    _: usize,
    bytes: usize,
    _: c_ulonglong,
) -> Result<()> {
    bind(handle, Some(number), at, bytes, vmm::memory_of(memory)?)
}

pub(crate) fn bind_address(handle: u64, at: usize, address: u64, bytes: usize, _: c_ulonglong) -> Result<()> {
    bind(handle, None, at, bytes, vmm::memory_at(address, bytes)?)
}

pub(crate) fn bind_address_v2(
    handle: u64,
    number: c_int,
    at: usize,
    address: u64,
    bytes: usize,
    _: c_ulonglong,
) -> Result<()> {
    bind(handle, Some(number), at, bytes, vmm::memory_at(address, bytes)?)
}

pub(crate) fn unbind(handle: u64, number: c_int, at: usize, _: usize) -> Result<()> {
    with(handle, |object| object.bound.remove(&(number, at)).map(drop).ok_or(Error::INVALID_VALUE))
}

pub(crate) fn granularity(out: Out<usize>, properties: In<Properties>, _: c_uint) -> Result<()> {
    properties.get()?.check()?;
    out.put(GRANULARITY as usize)
}

/// Releases an object, or memory of another kind.
pub(crate) fn release(handle: u64) -> Result<()> {
    let object = lock(&OBJECTS).remove(&handle);
    if object.is_some() { Ok(()) } else { vmm::release(handle) }
}
