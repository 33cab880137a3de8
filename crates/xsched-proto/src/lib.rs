//! Protocol between xsched processes: the messages on the socket, the shared memory segment with its gate words, the scale of classes and
//! priorities, and the path of the socket.
//!
//! - [`wire`]: [`wire::ClientMsg`] and [`wire::DaemonMsg`], one per packet of a `SOCK_SEQPACKET` unix socket; [`info`]: the parts of these
//!   messages that report programs to commands; [`platform`]: interfaces and levels.
//! - [`segment`]: the memory a client shares with the daemon; a [`segment::GroupSlot`] holds one gate.
//! - [`files`]: opening files that an environment variable names.
//! - [`gate`]: the gate word, its bits, and which side stores each of them.
//! - [`ask`]: one request to the daemon and its answer.
//! - [`memory`]: the words, barriers and sleeps that protocols over shared memory are made of.
//! - [`backlog`]: how an urgent program reports to others whether its queues keep up.
//! - [`bounded`]: limits of the lists in messages.
//! - [`class`]: five classes over the priorities -255..=255.
//! - [`clock`]: clocks of time namespaces.
//! - [`statistics`]: figures of groups, each declared once; [`described`]: how schema and reference follow from that.
//! - [`device`]: the state of a device.
//! - [`domains`]: treatment of launches that come from vendors' libraries.
//! - [`error`]: errors as an operator reads them.
//! - [`hint`]: hints of a program to the policy.
//! - [`histogram`]: durations in buckets; [`program`]: names of programs.
//! - [`host`]: messages between the daemon and an operator's own scheduler.
//! - [`paths`]: the path of the socket.
//! - [`rendezvous`]: a second address of a daemon, for when its socket's file is gone.
//! - [`preload`]: the library in `LD_PRELOAD`.
//! - [`settings`]: what the environment asks for; [`variables`]: which variables there are.
//! - [`similar`]: what was probably meant.
//! - [`text`]: strings of others, as they are shown.
//! - [`trace`]: the daemon's record of its decisions; [`transitions`]: the stream that it is made of, and what that means.
//! - [`trust`]: whether a daemon is this user's or root's.
//! - [`units`]: times as users write and read them.
//! - [`usage`]: time on devices.
//! - [`wakeup`]: how a thread that other programs wait for gets to run soon.
//! - [`writing`]: writes in a process that is not ours, which must not end it.

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
pub const PROTOCOL_VERSION: u32 = 24;
