//! The server of a pool: `nvidia-cuda-mps-server` with this library preloaded. Nothing is scheduled in it; this module
//! sets the time slice of its channel groups, and reports to the daemon whether the setting took effect.
//!
//! Layouts and numbers: NVIDIA's open kernel modules, `ctrl2080gpu.h`, `ctrl2080mc.h`, `cl2080.h` (MIT).

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Duration;

use xsched_proto::ask;
use xsched_proto::variables;
use xsched_proto::wire::Request;

use crate::enabled::pool_served;

/// NV20_SUBDEVICE_0: object for queries of a GPU.
pub(super) const SUBDEVICE: u32 = 0x2080;
/// NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES; its parameter is one word, 0 = any process may make contexts.
pub(super) const COMPUTE_MODE: u32 = 0x2080_0131;
/// NV2080_CTRL_CMD_MC_GET_ARCH_INFO; its parameters are four words, the first of which is the architecture.
pub(super) const ARCHITECTURE: u32 = 0x2080_1701;
/// NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GV100: before Volta clients of MPS share an address space.
const VOLTA: u32 = 0x140;
/// Longest wait for the daemon, which normally answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last subdevice that the driver created, as (client, object).
static CLIENT: AtomicU32 = AtomicU32::new(0);
static OBJECT: AtomicU32 = AtomicU32::new(0);

/// Time slice that the channel groups of this process are to have, in µs; `None` if this is no server of a pool.
pub(super) fn wanted_us() -> Option<u64> {
    pool_served()?;
    variables::text("XSCHED_POOL_TIMESLICE_US")?.parse().ok()
}

/// Records a subdevice that the driver created.
pub(super) fn note_subdevice(client: u32, object: u32) {
    CLIENT.store(client, Release);
    OBJECT.store(object, Release);
}

/// Reports the outcome of setting a channel group's time slice to the daemon. `ask` sends a query to the GPU: (client,
/// object, command, words).
pub(super) fn report(wanted_us: u64, read_us: Option<u64>, ask: impl Fn(u32, u32, u32, &mut [u32]) -> bool) {
    let Some(pool) = pool_served() else { return };
    let (client, object) = (CLIENT.load(Acquire), OBJECT.load(Acquire));
    let (mut rules, mut architecture) = ([0; 1], [0; 4]);
    let fault = if read_us != Some(wanted_us) {
        let has = read_us.map_or("is refused".to_owned(), |us| format!("is {us} µs"));
        Some(format!("the time slice of {wanted_us} µs does not hold: it {has}"))
    } else if object != 0 && ask(client, object, COMPUTE_MODE, &mut rules) && rules[0] != 0 {
        Some("the GPU is not in its default compute mode".to_owned())
    } else if object != 0 && ask(client, object, ARCHITECTURE, &mut architecture) && architecture[0] < VOLTA {
        Some("the GPU is older than Volta".to_owned())
    } else {
        None
    };
    let Some(socket) = variables::get("XSCHED_SOCKET").map(PathBuf::from) else { return };
    // If no report arrives, the daemon's wait for it times out, and it does without the pool.
    let _ = ask::ask(&socket, Request::PoolServer { pool, fault }, PATIENCE);
}
