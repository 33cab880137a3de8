//! Memory that this library has in place of the driver's, which the account asks about.

use std::sync::OnceLock;

use super::super::types::{CUdeviceptr, CUresult};

/// Answers about memory that this library has in place of the driver's.
pub(in super::super) struct Served {
    /// Beginning and size of the memory that contains an address.
    pub(in super::super) range: fn(CUdeviceptr) -> Option<(u64, u64)>,
    /// Bytes that a pool has beside the driver's, and that are in use of them.
    pub(in super::super) pool_figures: fn(usize) -> (u64, u64),
    /// Releases what a pool has beside the driver's and does not use, but for so many bytes.
    pub(in super::super) trim_pool: fn(usize, u64),
    /// Reports whether the process may have memory of the host in place of the device's.
    pub(in super::super) may_use_host: fn() -> bool,
    /// Makes an allocation of the host's memory.
    pub(in super::super) on_host: fn(&dyn Fn() -> CUresult) -> CUresult,
}

static SERVED: OnceLock<&'static Served> = OnceLock::new();

/// Sets the answers, while this library is loaded.
pub(in super::super) fn put(served: &'static Served) {
    let _ = SERVED.set(served);
}

pub(super) fn served() -> Option<&'static Served> {
    SERVED.get().copied()
}
