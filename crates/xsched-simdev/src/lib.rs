//! `libsimdev.so`: the simulated device, called like a vendor's library. `include/simdev.h` is its documentation for
//! programs; `xsched-sim` has the device itself.
//!
//! How one launch flows: `api` checks the arguments and finds the context and stream that a handle names
//! (`process`, `handle`); `context` writes a command into the ring under a short lock and rings the device's
//! doorbell only if it may sleep without knowing; whoever waits sleeps on the stream's completion word. Of a context's
//! two threads, one notices the end of the device and the other, made on demand, runs host functions (`calls`).
//!
//! Contexts are never freed: a reset or a fork leaves the old one behind, closed, since another thread may be inside.

mod api;
mod calls;
mod connect;
mod context;
mod error;
mod handle;
mod heap;
mod maps;
mod process;
mod regions;
mod spawn;
mod transfer;
