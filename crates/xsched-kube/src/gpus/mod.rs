//! Which GPUs the node has.

pub mod nvml;

/// A GPU, or a part of one that MIG has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its UUID, as NVIDIA's driver tells it: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// The board that it is, or is part of.
    pub board: String,
    /// The number of the board's device node; none where it has none or it is not known.
    pub minor: Option<u32>,
    /// The board's NUMA node.
    pub numa: Option<i64>,
    /// A simulated one has no nodes and no driver.
    pub is_simulated: bool,
}

/// So many simulated ones.
pub fn simulated(count: u32) -> Vec<Gpu> {
    let gpu = |n| {
        let uuid = format!("SIM-{n}");
        Gpu { board: uuid.clone(), uuid, minor: None, numa: None, is_simulated: true }
    };
    (0..count).map(gpu).collect()
}
