//! End-to-end tests: programs run as a user runs them, through the `xsched` command, with the preload library, a daemon and the simulated
//! device or an OpenCL platform, all real. The tests are in `tests/`; their shared parts are in the testkit.
#![forbid(unsafe_code)]

pub mod kills;

pub use xsched_testkit::*;
