//! Memory shared with clients: their segments, and the heartbeat page.
//!
//! Each word of a client's segment may change at any time, to any value. [`ClientSegment`] is the only way to read one: it limits lengths to
//! the places that exist, and finds words by slots of any value.

#[cfg(feature = "fuzzing")]
mod between;
mod heartbeat;
mod launches;
mod mapping;
mod segment;
mod words;

#[cfg(feature = "fuzzing")]
pub use between::between_reads;
pub(crate) use heartbeat::HeartbeatPage;
pub(crate) use launches::Launches;
pub(crate) use mapping::{FileId, discard, file_id};
pub(crate) use segment::ClientSegment;
pub(crate) use words::{GroupWords, Shared};
