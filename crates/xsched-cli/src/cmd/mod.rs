//! The subcommands.

pub(crate) mod active_window;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod hint;
pub(crate) mod man;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod scheduler_host;
pub(crate) mod sim_device;
pub(crate) mod suspend;
pub(crate) mod trace;
