//! `libxsched.so`, the preload library.
//!
//! - [`interpose`] stands between callers and vendor libraries: their stubs, and the search for the function the caller would
//!   have got without us.
//! - [`domain`] tells whose work a launch is, for pass-through rules and scheduling domains.
//! - [`platform`] holds one folder per vendor interface: which functions enqueue, wait, create or destroy, and what
//!   the core must be told about each.
//! - [`process`] has the one runtime of this process: started at the first device call (`platform/start.rs`), forgotten after
//!   `fork` (`fork.rs`). [`enabled`]: which platforms are scheduled in it.
//! - [`capi`]: the C API, which the small libraries that programs link forward to.
//! - [`follow`]: how the library stays in what the program starts.
//! - [`exports`]: `dlsym`, `dlclose`, `ioctl`, `execve` and its like, and the interface of scheduling domains.
//!
//!
//! Until the first device call nothing happens here: no thread, no socket, and no output but for `platform/shadowed.rs`. The constructors
//! tell the C library what to call in a forked child, look what stands before this library, and remember how the program was started.
#![allow(clippy::missing_safety_doc)]

mod capi;
pub mod domain;
pub mod enabled;
pub mod exports;
pub(crate) mod follow;
mod fork;
pub mod interpose;
mod lock;
pub mod platform;
pub mod process;
mod python;
pub mod scheduler;
mod stage;
mod stats;
mod wiped;
