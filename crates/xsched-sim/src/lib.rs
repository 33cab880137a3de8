//! A simulated GPU that ordinary programs of several processes share: the device for tests on machines without one.
//!
//! [`model::Model`] is the device as a state machine in virtual time; it has no clock and no memory. [`server::run`] is
//! the device as a process: it owns the models and plays them against CLOCK_MONOTONIC. [`layout::Shared`] is the memory
//! shared by a client and the server: each context has a ring of [`command::Command`]s, which the client fills and the
//! server empties, and words that show which commands are complete. [`client::Context`] is the client's side;
//! `libsimdev.so` and `libfakecuda.so` put a C API on it.
//!
//! ```
//! use xsched_sim::model::{Board, ContextId, Model, Timing, Work};
//!
//! #[derive(Default)]
//! struct Log(Vec<(u64, &'static str)>);
//! impl Board<&'static str> for Log {
//!     fn complete(&mut self, at: u64, _: ContextId, _stream: u32, _count: u64, name: &'static str) {
//!         self.0.push((at, name));
//!     }
//!     fn holds(&mut self, _: &&'static str) -> bool {
//!         false
//!     }
//!     fn call(&mut self, _: ContextId, _stream: u32, _count: u64) {}
//! }
//!
//! let (mut model, mut log) = (Model::new(Timing::default()), Log::default());
//! let (a, b) = (model.add_context(), model.add_context());
//! model.submit(a, 0, Work::Run(3_000_000), "long", &mut log);
//! model.submit(b, 0, Work::Run(100_000), "short", &mut log);
//! model.run_until(10_000_000, &mut log);
//! // Two ms of the long one, a switch, the short one, a switch, and the rest.
//! assert_eq!(log.0, [(2_150_000, "short"), (3_200_000, "long")]);
//! ```
//!
//! # Why a process of its own
//! A client may be stopped or killed at any instruction. If clients drove a device in shared memory themselves, such a
//! client might hold the device's lock. The server holds no lock that a client can take, and waits for none; a client
//! that ends takes only its own context with it, as on hardware. The server is single-threaded, as is a device.
//!
//! # Time
//! Every command carries the time at which it was submitted. The server first reads all rings, then plays all due
//! events in the order of those times, then sleeps. So a server that the operating system wakes late reports a
//! completion late, but the device's own times (those of events, and which kernel ran when) are exact: no kernel is
//! stretched, and no time slice is lengthened. Two events have no time of their own, and count from when the server
//! sees them: the end of a process, and a store to memory that a stream waits for, which is polled.
//!
//! # What an H200 does natively, and what is simplified here
//! | H200 | here |
//! |---|---|
//! | Contexts of different processes take turns: a slice of 2 ms, a switch of about 50 µs | the same, adjustable |
//! | A context without runnable work gives the device up before its slice ends | the same, at once |
//! | The running kernel is cut at the end of a slice and continued later | the same; the cost is the switch's |
//! | The slice can be set per context, without privilege | `simContextSetTimeslice`, 1 µs to 10 s |
//! | Kernels of one context may run side by side if they leave room | only those of clients that share it, by a width of each client; with `SIMDEV_SHARES=1` all of them, slower where they are too wide |
//! | Copies have engines of their own | copies and sets take their turn with the kernels, at 10 GB/s |
//! | Stream priorities reorder within a context | kept and reported, without effect |
//! | Event records, value writes and waits need the context on the device | free, at once, also while another runs |
//! | A stream blocked on a value still has its context scheduled, to look at it | it is not runnable; the server looks |
//! | No call stops a context's running kernel | `simContextSetRunnable` does, within a switch |
//! | A memory wait is seen within about 7 µs | within 10 µs at first, 200 µs once it has lasted for long |
//! | A launch costs the caller some µs, and the device starts it some µs later | tens of ns, and at once |

pub mod client;
pub mod command;
pub mod layout;
pub mod memory;
pub mod model;
pub mod server;
pub mod wire;
