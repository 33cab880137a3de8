//! The body of a software `libamdhip64`: a HIP runtime for tests, where there is no AMD GPU. `cargo xtask hip-runtime DIR`
//! makes `libamdhip64.so.5`, `.so.6` and `.so.7` of it, each with the symbols and versions of that major
//! (`testing/ladders/hip/symbols.txt`); names that are not implemented answer `hipErrorNotSupported` and are counted.
//!
//! - [`table`]: every implemented function and its implementation; [`edge`]: the common beginning and end of all.
//! - [`driver`]: the layer underneath: the driver of `xsched-fakecuda`, built in (`FAKEHIP_BACKEND=cpu`, the default), or
//!   the machine's `libcuda.so.1` (`FAKEHIP_BACKEND=cuda`), called by the same names.
//! - [`runtime`]: devices and the state of the process; [`registry`]: handles; [`start`]: start and end of the process.
//! - [`stream`], [`event`], [`memory`], [`copy`], [`volume`], [`memops`], [`capture`], [`graph`], [`node`]: the objects and
//!   their commands.
//! - [`ipc`]: memory and events that processes share.
//! - [`register`]: registrations of compiled programs before `main`; [`code`]: their code objects; [`module`]: modules;
//!   [`launch`], [`arguments`] and [`kernel`]: launches, and the kernels that really run; [`note`]: parameters of graph
//!   nodes.
//! - [`lookup`]: `hipGetProcAddress`; [`rtc`]: the runtime compiler, which is AMD's or none; [`stats`]: counts of the
//!   operations performed.
//!
//! # Differences from hardware
//! No device code is executed: the kernels are those of [`kernel::Kernel`], found by plain or mangled name. A launch of
//! any other kernel is counted, takes device time (`FAKEHIP_UNKNOWN_NS`, default 5,000 ns) and does nothing. Arrays,
//! textures, virtual memory management and memory nodes of graphs are missing; hiprtc works only where AMD's own library
//! of it can be opened ([`rtc`]).
//!
//! # Environment
//! - `FAKEHIP_STRICT=1`: the first misuse (a handle that does not exist, freed memory, a copy against its stated
//!   direction) prints one line and aborts.
//! - `FAKEHIP_REENTER=1`: some functions call others of this library through its own exported symbols.
//! - `FAKEHIP_NAME=TEXT`: name of the devices, for software that depends on the vendor or model.
//! - `FAKEHIP_ARCH=gfx…`: architecture of the devices (default `gfx906:sramecc+:xnack-`), by which libraries choose code.
//! - `FAKEHIP_FAIL`, `FAKEHIP_FAIL_SPARED`: calls that fail, see [`fakecuda::Failures`].
//! - `FAKEHIP_STATS=FILE`: at the end of the process, a line of JSON with all counts is appended to this file.

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
