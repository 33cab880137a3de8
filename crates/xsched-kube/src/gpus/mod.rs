//! GPUs of the node.

pub mod nvml;

/// A GPU, or a MIG part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// UUID, as NVIDIA's driver reports it: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// UUID of the board that this is, or is a part of.
    pub board: String,
    /// Number of the board's device node; `None` if there is none or it is unknown.
    pub minor: Option<u32>,
    /// NUMA node of the board.
    pub numa: Option<i64>,
    /// Set for a simulated GPU, which has no device nodes and no driver.
    pub is_simulated: bool,
}

/// The given number of simulated GPUs.
pub fn simulated(count: u32) -> Vec<Gpu> {
    let gpu = |n| {
        let uuid = format!("SIM-{n}");
        Gpu { board: uuid.clone(), uuid, minor: None, numa: None, is_simulated: true }
    };
    (0..count).map(gpu).collect()
}
