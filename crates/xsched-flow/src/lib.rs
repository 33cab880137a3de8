//! Models that decide when a launch goes on. They are pure functions, as the policies are.
//!
//! Each model is a function from a plain snapshot (an *ask*) to a plain answer. Nothing here reads a clock, does I/O, starts a
//! thread or touches an atomic: the core takes the snapshot, publishes the answer and settles races.
//!
//! - [`admission`]: whether a command may enter the driver, and the completion fence and the device gate that go with it.
//! - [`backlog`]: when an urgent program's queues are behind, and when those that yield to it go on.
//! - [`timeline`]: how far a queue is, and which of its commands may be presumed complete.
//! - [`estimate`]: how long a kind of command keeps the device busy, learned from completions.
//! - [`activity`]: whether a group is idle, ready, draining, drained or in its grace time.
//! - [`gaps`]: through which gaps within its requests an urgent program keeps the device.
//! - [`watchdog`]: limits of everything that must not last for ever: waits for the budget, held commands, a silent daemon.
//! - [`signals`]: which signals end a wait.
//! - [`tuning`]: every constant of these models, with its unit and its reason.
//! - [`journal`]: asks and answers as a file, and the replay that compares a file with the models.

#![forbid(unsafe_code)]

pub mod activity;
pub mod admission;
pub mod backlog;
pub mod estimate;
pub mod gaps;
pub mod journal;
pub mod signals;
pub mod timeline;
pub mod tuning;
pub mod watchdog;
