//! Functions of vendors' libraries, found by name when they are needed: nothing here is linked against a vendor.
//!
//! [`functions!`] declares a table of functions with the signatures of a header. Where their addresses come from is the caller's
//! business: commands and daemon open a [`Library`], the preload library asks for the copy that its program uses. [`nvml`] tells of
//! NVIDIA's GPUs without opening them; [`cuda`], [`hip`] and [`opencl`] are the few functions of each interface that commands call,
//! and [`simulated`] is the library of the simulated device.

pub mod cuda;
pub mod hip;
mod library;
pub mod nvml;
pub mod opencl;
pub mod simulated;
mod table;

pub use library::Library;

use xsched_proto::Error;

type Result<T> = std::result::Result<T, Error>;
