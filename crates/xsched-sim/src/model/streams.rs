//! Numbers of streams in a context: that of the member in the upper bits, that of the stream within its member in the lower ones.

use std::ops::RangeInclusive;

/// Number of low bits of a stream's number that hold its number within its member. The bits above hold the member, 0
/// for the context itself.
const MEMBER_SHIFT: u32 = 16;

/// Number in the context of a member's stream.
pub const fn stream_of(member: u32, stream: u32) -> u32 {
    member << MEMBER_SHIFT | stream
}

/// Member that a context's stream belongs to.
pub const fn member_of(stream: u32) -> u32 {
    stream >> MEMBER_SHIFT
}

/// Number of a stream within its member.
pub const fn own_number(stream: u32) -> u32 {
    stream & ((1 << MEMBER_SHIFT) - 1)
}

/// Numbers of all streams of a member.
pub(super) fn streams_of(member: u32) -> RangeInclusive<u32> {
    stream_of(member, 0)..=stream_of(member, (1 << MEMBER_SHIFT) - 1)
}
