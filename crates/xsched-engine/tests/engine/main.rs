//! The engine under a host in virtual time. One program, since each would compile the engine for the host's memory anew.

mod hostile;
mod memory;
mod properties;
mod recordings;
mod rooms;
mod scheduling;
mod support;
mod swapping;
