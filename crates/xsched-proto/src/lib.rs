//! What two xsched processes agree on: the messages on the socket, the shared memory segment with its gate
//! words, the scale of classes and priorities, and where the socket lies.
//!
//! - [`wire`]: [`wire::ClientMsg`] and [`wire::DaemonMsg`], one per packet of a `SOCK_SEQPACKET` unix socket; [`info`]: the parts of
//!   them that tell commands of programs; [`platform`]: interfaces and levels.
//! - [`segment`]: the memory a client shares with the daemon; a [`segment::GroupSlot`] holds one gate.
//! - [`files`]: opening what a variable names.
//! - [`gate`]: the gate word, its bits, and who stores what.
//! - [`ask`]: one request to the daemon and its answer.
//! - [`memory`]: the words, barriers and sleeps that protocols over shared memory are made of.
//! - [`backlog`]: how an urgent program tells others whether its queues keep up.
//! - [`bounded`]: how many entries the lists in messages may have.
//! - [`class`]: five classes over the priorities -255..=255.
//! - [`clock`]: clocks of time namespaces.
//! - [`statistics`]: figures of groups, each declared once; [`described`]: how schema and reference follow from that.
//! - [`device`]: the state of a device.
//! - [`domains`]: what becomes of launches of vendors' libraries.
//! - [`error`]: what an operator is told.
//! - [`hint`]: what a program may say about itself to the policy.
//! - [`histogram`]: durations in buckets; [`program`]: what a program is called.
//! - [`host`]: what the daemon and an operator's own scheduler say to each other.
//! - [`paths`]: where the socket lies.
//! - [`rendezvous`]: where a daemon is found whose socket's file is gone.
//! - [`preload`]: the library in `LD_PRELOAD`.
//! - [`settings`]: what the environment asks for; [`variables`]: which variables there are.
//! - [`similar`]: what was probably meant.
//! - [`text`]: strings of others, as they are shown.
//! - [`trace`]: the daemon's record of its decisions; [`transitions`]: the stream that it is made of, and what that means.
//! - [`trust`]: whether a daemon is this user's or root's.
//! - [`usage`]: time on devices.
//! - [`wakeup`]: how a thread that other programs wait for gets to run soon.
//! - [`writing`]: writes that must not end a process that is not ours.

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
pub mod usage;
pub mod variables;
pub mod wakeup;
pub mod wire;
pub mod writing;

pub use error::Error;

/// Version of the socket protocol and of the segment layout; both sides must agree on it exactly.
pub const PROTOCOL_VERSION: u32 = 23;
