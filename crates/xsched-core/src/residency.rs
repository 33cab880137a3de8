//! Memory that leaves the device and comes back: the latch that threads pass before they touch it, and the calls that move it.

mod carry;
mod choice;

pub use crate::protocol::residency::{Entry, Goal, Inside, LOOK_NS, Latch, Moves, Place, Seen, Turn};
pub use carry::{Body, Chunk, Driver, Moved, Pieces, Residents, Stored};
pub use choice::{Touch, heats};
