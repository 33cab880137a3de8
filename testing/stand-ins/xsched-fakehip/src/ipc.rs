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
    opens((address, current_number()), bytes);
    Ok(out.put(address)?)
}

/// Closes memory of another process. The driver waits for the device, as real runtimes do.
pub(crate) fn close_memory(address: u64) -> Result<()> {
    if address == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let key = (address, current_number());
    let Some(bytes) = closes(key) else {
        return stats::wrong(&format!("{address:#x} is no memory of another process"), Error::INVALID_HANDLE);
    };
    // Without the lock, since the driver may wait for work that ends only after another thread has opened or freed memory.
    let closed = driver()?.ipc_close_memory(address);
    if closed.is_err() {
        opens(key, bytes);
    }
    closed
}

/// Counts one opening of memory, and notes its range with the first.
fn opens(key: (u64, usize), bytes: usize) {
    let mut opened = lock(&OPENED);
    let times = opened.entry(key).or_default();
    *times += 1;
    if *times == 1 {
        memory::note_opened(key.0, bytes);
    }
}

/// Counts one opening less, and removes the range of the memory with the last. Returns the length in bytes; `None` if the memory
/// is not open.
fn closes(key: (u64, usize)) -> Option<usize> {
    let mut opened = lock(&OPENED);
    let times = opened.get_mut(&key)?;
    let bytes = memory::range_of(key.0).map_or(0, |range| range.bytes as usize);
    *times -= 1;
    if *times == 0 {
        opened.remove(&key);
        memory::closed(key.0);
    }
    Some(bytes)
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
