//! `libsimdev.so`: the simulated device, called like a vendor's library. `include/simdev.h` is its documentation for
//! programs; `xsched-sim` has the device itself.
//!
//! The path of a launch: `api` checks the arguments and finds the context and stream of a handle (`process`, `handle`);
//! [`xsched_sim::client`] does the rest.

mod api;
mod context;
mod error;
mod handle;
mod process;
mod transfer;
