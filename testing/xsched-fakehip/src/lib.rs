//! The body of a software `libamdhip64`: a HIP runtime for tests, where there is no AMD GPU. `cargo xtask hip-runtime DIR`
//! makes `libamdhip64.so.5`, `.so.6` and `.so.7` of it, each with the symbols and versions of that major
//! (`testing/hip/symbols.txt`); names that are not implemented answer `hipErrorNotSupported` and are counted.
//!
//! - [`table`]: every implemented function and what implements it; [`edge`]: what every entry point does first and last.
//! - [`driver`]: what it stands on: the driver of `xsched-fakecuda`, built in (`FAKEHIP_BACKEND=cpu`, the default), or the
//!   machine's `libcuda.so.1` (`FAKEHIP_BACKEND=cuda`), called by the same names.
//! - [`runtime`]: devices and what belongs to the process; [`registry`]: handles; [`start`]: beginning and end.
//! - [`stream`], [`event`], [`memory`], [`copy`], [`volume`], [`memops`], [`capture`], [`graph`], [`node`]: the objects and
//!   their commands.
//! - [`ipc`]: memory and events that processes share.
//! - [`register`]: what compiled programs register before `main`; [`code`]: their code objects; [`module`]: modules;
//!   [`launch`], [`arguments`] and [`kernel`]: launches, and the kernels that really run; [`note`]: what graphs' nodes run.
//! - [`lookup`]: `hipGetProcAddress`; [`rtc`]: the compiler at run time, which is AMD's or none; [`stats`]: what was really done.
//!
//! # What is not as on hardware
//! No device code is executed: kernels are those of [`kernel::Kernel`], found by plain or mangled name; a launch of any
//! other kernel is counted, takes device time (`FAKEHIP_UNKNOWN_NS`, 5,000 ns) and does nothing. Not there: arrays,
//! textures, virtual memory management, memory nodes of graphs; hiprtc only where AMD's own library of it is at hand ([`rtc`]).
//!
//! # Environment
//! - `FAKEHIP_STRICT=1`: the first misuse (a handle that does not exist, memory that was freed, a direction that is not the
//!   copy's) says so in one line and aborts.
//! - `FAKEHIP_REENTER=1`: some functions call others of this library through its own exported symbols.
//! - `FAKEHIP_NAME=TEXT`: the devices' name, for what depends on whose device it is.
//! - `FAKEHIP_ARCH=gfx…`: the devices' architecture (`gfx906:sramecc+:xnack-`), by which libraries choose code.
//! - `FAKEHIP_FAIL`, `FAKEHIP_FAIL_SPARED`: calls that fail, see [`fakecuda::Failures`].
//! - `FAKEHIP_STATS=FILE`: at the end of the process a line of JSON with all counts is appended to the file.

mod arguments;
mod capture;
mod code;
mod context;
mod copy;
mod device;
mod driver;
mod edge;
mod event;
mod graph;
mod ipc;
mod kernel;
mod launch;
mod lookup;
mod memops;
mod memory;
mod module;
mod node;
mod note;
mod register;
mod registry;
mod result;
mod rtc;
mod runtime;
mod start;
mod stats;
mod stream;
mod table;
mod volume;
