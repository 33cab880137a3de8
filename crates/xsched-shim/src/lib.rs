//! `libxsched.so`, the preload library.
//!
//! - [`interpose`] stands between callers and vendor libraries: the stubs that callers reach, and the search for the
//!   function that the caller would have reached without them.
//! - [`domain`] attributes launches to libraries, for pass-through rules and scheduling domains.
//! - [`platform`] has one folder for each vendor interface: which functions enqueue, wait, create or destroy, and how
//!   each is reported to the core.
//! - [`process`] holds the one runtime of this process: started at the first device call (`platform/start.rs`), abandoned
//!   after `fork` (`fork.rs`). [`enabled`] decides which platforms are scheduled in it.
//! - [`capi`]: the C API, to which the small libraries that programs link forward.
//! - [`follow`]: propagation of the library into programs that the program executes.
//! - [`exports`]: `dlsym`, `dlclose`, `ioctl`, `execve` and its like, and the interface of scheduling domains.
//!
//! Before the first device call this library starts no thread, opens no socket and prints nothing, except for
//! `platform/shadowed.rs`. Its constructors only register a fork handler, check whether another library comes before this
//! one, and copy the program's command line and variables.
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
