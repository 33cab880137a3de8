//! Ranges of memory that are given out for other hardware.

use crate::edge::Out;
use crate::memory;
use crate::result::{Error, Result};
use crate::vmm;
use rustix::fd::{IntoRawFd, RawFd};
use std::ffi::{c_int, c_ulonglong};
use xsched_sim::memory::sealed_memfd;

/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF: c_int = 1;

/// Gives a range out: a descriptor of the whole memory here, or of nothing if the memory is plain.
pub(crate) fn handle(out: Out<RawFd>, address: u64, bytes: usize, kind: c_int, flags: c_ulonglong) -> Result<()> {
    let out = out.required()?;
    if kind != DMA_BUF || flags > 1 || bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let file = match vmm::check(address, bytes) {
        Some(found) => found.and_then(|()| vmm::copy_at(address, bytes))?,
        None => {
            memory::owner(address, bytes).ok_or(Error::INVALID_VALUE)?;
            sealed_memfd("fakecuda-range", bytes).map_err(|_| Error::OUT_OF_MEMORY)?
        }
    };
    out.put(file.into_raw_fd())
}
