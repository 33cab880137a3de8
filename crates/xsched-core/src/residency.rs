//! Memory that leaves the device and comes back: the latch that threads pass before they touch it.

pub use crate::protocol::residency::{Entry, Goal, Inside, LOOK_NS, Latch, Moves, Place, Seen, Turn};
