//! Memory and events that several processes share, by means of the driver's handles.

use crate::driver::params::Handle;
use crate::event;
use crate::memory::{self, Kind, OPENED, is_opened};
use crate::result::{Error, Result};
use crate::runtime::{current_number, driver, lock, on_device};
use crate::stats;
use fakecuda::Out;
use std::ffi::c_uint;

/// hipIpcMemLazyEnablePeerAccess, a flag that must be set.
const LAZY: c_uint = 1;

/// Returns a handle for device memory. `address` must be its first: an offset does not fit into the handle.
pub(crate) fn get_memory(out: Out<Handle>, address: u64) -> Result<()> {
    let out = out.required()?;
    let range = memory::range_of(address).filter(|range| range.kind == Kind::Device && range.start == address);
    let range = range.filter(|_| !is_opened(address)).ok_or(Error::INVALID_VALUE)?;
    let mut handle = Handle([0; 64]);
    on_device(range.device, || driver()?.ipc_get_memory(&raw mut handle, address))?;
    Ok(out.put(handle)?)
}

pub(crate) fn open_memory(out: Out<u64>, handle: Handle, flags: c_uint) -> Result<()> {
    let out = out.required()?;
    if flags != LAZY {
        return Err(Error::INVALID_VALUE);
    }
    let (mut address, mut start, mut bytes) = (0, 0, 0);
    driver()?.ipc_open_memory(&raw mut address, handle, flags)?;
    driver()?.address_range(&raw mut start, &raw mut bytes, address)?;
    let mut opened = lock(&OPENED);
    let times = opened.entry((address, current_number())).or_default();
    *times += 1;
    if *times == 1 {
        memory::note_opened(address, bytes);
    }
    Ok(out.put(address)?)
}

/// Closes memory of another process. The driver waits for the device, as real runtimes do.
pub(crate) fn close_memory(address: u64) -> Result<()> {
    if address == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let key = (address, current_number());
    let Some(times) = lock(&OPENED).get(&key).copied() else {
        return stats::wrong(&format!("{address:#x} is no memory of another process"), Error::INVALID_HANDLE);
    };
    driver()?.ipc_close_memory(address)?;
    let mut opened = lock(&OPENED);
    if times == 1 {
        opened.remove(&key);
        memory::closed(address);
    } else {
        opened.insert(key, times - 1);
    }
    Ok(())
}

pub(crate) fn get_event(out: Out<Handle>, event: usize) -> Result<()> {
    let out = out.required()?;
    if event == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let event = event::find(event)?;
    if !event.is_shared() {
        return Err(Error::INVALID_CONFIGURATION);
    }
    let mut handle = Handle([0; 64]);
    driver()?.ipc_get_event(&raw mut handle, event.real)?;
    Ok(out.put(handle)?)
}

pub(crate) fn open_event(out: Out<usize>, handle: Handle) -> Result<()> {
    let out = out.required()?;
    let mut real = 0;
    driver()?.ipc_open_event(&raw mut real, handle)?;
    Ok(out.put(event::add(real, true)?)?)
}
