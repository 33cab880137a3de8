//! The driver's answers on memory: under a limit a device has that much, and what is left of it is free.

use super::super::types::*;
use super::super::{real, sig};
use super::calls::memory_calls;
use super::{device, graphs, pools};
use crate::interpose::hooks;
use crate::platform::shared::memory::account;
use crate::process;

/// Free and total memory as the program is to see them, from the driver's figures.
pub(super) fn seen(slot: u16, free: u64, total: u64) -> (u64, u64) {
    let Some(words) = account::words(slot) else { return (free, total) };
    if device::has_pools(slot) {
        pools::refresh(slot);
    }
    graphs::refresh(slot);
    account::renew(slot, words);
    words.seen(free, total)
}

/// A place for a number of bytes: `usize`, or 32 bits in the versions before CUDA 3.2.
trait Figure: Copy {
    fn bytes(self) -> u64;
    fn of(bytes: u64) -> Self;
}

impl Figure for usize {
    fn bytes(self) -> u64 {
        self as u64
    }
    fn of(bytes: u64) -> usize {
        bytes as usize
    }
}

impl Figure for c_uint {
    fn bytes(self) -> u64 {
        self.into()
    }
    fn of(bytes: u64) -> c_uint {
        c_uint::try_from(bytes).unwrap_or(c_uint::MAX)
    }
}

fn info<T: Figure>(real: *mut c_void, free: *mut T, total: *mut T, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS && !free.is_null() && !total.is_null() {
        process::guarded("after free memory was told", || {
            let here = device::current(real)?;
            // SAFETY: the caller's own places, which the driver just wrote.
            unsafe {
                let (left, all) = seen(here.slot, (*free).bytes(), (*total).bytes());
                (*free, *total) = (T::of(left), T::of(all));
            }
            Some(())
        });
    }
    rc
}

fn total<T: Figure>(real: *mut c_void, bytes: *mut T, device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let rc = call();
    if rc == SUCCESS && !bytes.is_null() {
        process::guarded("after memory was told", || {
            // SAFETY: the caller's own place, which the driver just wrote.
            let all = unsafe { (*bytes).bytes() };
            let slot = device::slot_of(device).or_else(|| device::by_number(real, device))?;
            let (_, seen) = account::words(slot)?.seen(all, all);
            // SAFETY: as above.
            unsafe { *bytes = T::of(seen) };
            Some(())
        });
    }
    rc
}

memory_calls! {
    FIGURES: Memory;
    fn cuDeviceTotalMem(bytes: *mut c_void, dev: CUdevice) [total(bytes.cast::<c_uint>(), dev)];
    fn cuDeviceTotalMem_v2(bytes: *mut c_void, dev: CUdevice) [total(bytes.cast::<usize>(), dev)];
    fn cuMemGetInfo(free: *mut c_void, total_bytes: *mut c_void) [info(free.cast::<c_uint>(), total_bytes.cast::<c_uint>())];
    fn cuMemGetInfo_v2(free: *mut c_void, total_bytes: *mut c_void) [info(free.cast::<usize>(), total_bytes.cast::<usize>())];
}
