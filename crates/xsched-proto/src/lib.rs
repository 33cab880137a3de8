//! Protocol between xsched processes: the messages on the socket, the shared memory segment with its gate words, the scale of classes and
//! priorities, and the path of the socket.
//!
//! - [`account`]: memory of a process on its devices, as client and daemon share it.
//! - [`ask`]: one request to the daemon and its answer.
//! - [`backlog`]: reports of an urgent program to others on whether its queues keep up.
//! - [`bounded`]: limits of the lists in messages.
//! - [`class`]: five classes over the priorities -255..=255.
//! - [`clock`]: clocks of time namespaces.
//! - [`described`]: schema and reference of [`statistics`], made from their declaration.
//! - [`device`]: state of a device.
//! - [`domains`]: treatment of launches that come from vendors' libraries.
//! - [`entitlement`]: priority that a program gets, by its wish, the operator's rules and its user's limits.
//! - [`error`]: errors as an operator reads them.
//! - [`files`]: opening of files that an environment variable names.
//! - [`gate`]: gate word, its bits, and the side that stores each of them.
//! - [`hint`]: hints of a program to the policy.
//! - [`histogram`]: durations in buckets.
//! - [`host`]: messages between the daemon and an operator's own scheduler.
//! - [`info`]: parts of [`wire::DaemonMsg`] that report programs to commands.
//! - [`memory`]: words, barriers and sleeps of protocols over shared memory.
//! - [`paths`]: path of the socket.
//! - [`platform`]: vendor interfaces and preemption levels.
//! - [`preload`]: library in `LD_PRELOAD`.
//! - [`program`]: names of programs.
//! - [`rendezvous`]: second address of a daemon, for when its socket's file is gone.
//! - [`segment`]: memory that a client shares with the daemon; a [`segment::GroupSlot`] holds one gate.
//! - [`settings`]: settings from the environment.
//! - [`similar`]: suggestions for a misspelt word.
//! - [`statistics`]: figures of groups, each declared once.
//! - [`text`]: display of strings of others.
//! - [`trace`]: records of the daemon's decisions.
//! - [`transitions`]: stream of events of groups, and the words that follow from it.
//! - [`trust`]: check that a daemon is this user's or root's.
//! - [`units`]: times as users write and read them.
//! - [`usage`]: time on devices.
//! - [`variables`]: names and values of environment variables.
//! - [`wakeup`]: prompt scheduling of threads that other programs wait for.
//! - [`wire`]: messages [`wire::ClientMsg`] and [`wire::DaemonMsg`], one per packet of a `SOCK_SEQPACKET` unix socket.
//! - [`writing`]: writes in a process that is not ours, which must not end it.

pub mod account;
pub mod ask;
pub mod backlog;
pub mod bounded;
pub mod class;
pub mod clock;
pub mod described;
pub mod device;
pub mod domains;
pub mod entitlement;
pub mod error;
pub mod files;
pub mod gate;
pub mod hint;
pub mod histogram;
pub mod host;
pub mod info;
pub mod memory;
pub mod paths;
pub mod platform;
pub mod preload;
pub mod program;
pub mod rendezvous;
pub mod segment;
pub mod settings;
pub mod similar;
pub mod statistics;
pub mod text;
pub mod trace;
pub mod transitions;
pub mod trust;
pub mod units;
pub mod usage;
pub mod variables;
pub mod wakeup;
pub mod wire;
pub mod writing;

pub use error::Error;

/// Version of the socket protocol and of the segment layout; both sides must agree on it exactly.
pub const PROTOCOL_VERSION: u32 = 30;
