//! CUDA, as claims on its devices' memory need it.

use super::super::types::*;
use super::calls::OUT_OF_MEMORY;
use super::{driver, graphs, instead, pools};
use crate::platform::shared::memory::Keeper;

/// The CUDA driver.
pub(super) struct Cuda;

impl Keeper for Cuda {
    const OUT_OF_MEMORY: CUresult = OUT_OF_MEMORY;

    fn info() -> Option<(u64, u64)> {
        driver::info()
    }

    fn trim(slot: u16) {
        pools::trim(slot);
        graphs::trim(slot);
    }

    fn may_use_host() -> bool {
        instead::served().is_some_and(|served| (served.may_use_host)())
    }

    fn on_host(call: &dyn Fn() -> CUresult) -> CUresult {
        instead::served().map_or_else(call, |served| (served.on_host)(call))
    }
}
