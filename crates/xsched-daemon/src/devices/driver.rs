//! Drivers, as the sampler uses them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xsched_proto::device::{DeviceProcess, DeviceState, Source};

/// State of one device, as a driver reported it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Time at which the driver was asked, in ns.
    pub(crate) at_ns: u64,
    pub(crate) device: String,
    pub(crate) source: Source,
    pub(crate) name: Option<String>,
    pub(crate) label: DeviceLabel,
    pub(crate) state: DeviceState,
    pub(crate) processes: Option<Vec<DeviceProcess>>,
}

/// Name of a device in other monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceLabel {
    /// UUID of the GPU, or of the GPU that it is a part of.
    pub(crate) uuid: Option<String>,
    /// Number of the GPU instance, if the device is a part of a GPU.
    pub(crate) instance: Option<u32>,
}

/// Source of the state of devices. Lives on the thread that uses it.
pub(crate) trait Driver {
    /// Reads the state of these devices, as far as the driver knows them. May take any time.
    fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look>;
}

/// Function that makes a driver; none = it is not on this machine.
pub(crate) type Open = Arc<dyn Fn() -> Option<Box<dyn Driver>> + Send + Sync>;
