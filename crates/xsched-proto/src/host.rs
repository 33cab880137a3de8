//! Messages between the daemon and the process that runs an operator's own scheduler: one in each packet of a `SOCK_SEQPACKET` socket pair,
//! in the encoding of [`crate::wire`].

use serde::{Deserialize, Serialize};

use crate::device::DeviceState;

/// Question of the daemon: which groups shall have a device?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Device key.
    pub device: String,
    /// Number of the question, to be given back in the answer.
    pub number: u64,
    /// All groups on the device.
    pub groups: Vec<Group>,
    /// State of the device; none = unknown.
    pub state: Option<DeviceState>,
}

/// Suspension unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Number of the group.
    pub id: u64,
    /// Number of its process, never used again.
    pub program: u64,
    /// Process id.
    pub pid: u32,
    /// Weight of a fair share, 1..=10000.
    pub weight: u32,
    /// Effective priority, -255..=255.
    pub priority: i32,
    /// True if the group wants the device.
    pub ready: bool,
    /// True if its gate is open.
    pub running: bool,
    /// Time slice, in µs.
    pub timeslice_us: u64,
    /// Time at which the group came to want the device, by CLOCK_MONOTONIC in µs.
    pub ready_since_us: u64,
    /// Device time charged so far, in µs.
    pub used_us: u64,
    /// Stream of the group, for a scheduler that decides stream by stream; none = it has no stream now.
    pub stream: Option<Stream>,
}

/// Stream of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Number of the stream, never used again.
    pub id: u64,
    /// Priority that the program gave the stream, in steps; 0 = default, positive = more urgent.
    pub priority: i32,
    /// Number of launches so far.
    pub launches: u64,
}

/// Message of the scheduler's process to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromHost {
    /// The library has registered its scheduler.
    Loaded {
        /// True if the scheduler decides stream by stream.
        per_stream: bool,
    },
    /// The library did not register a scheduler, for this reason in one line.
    Failed(String),
    /// Answer to a [`Question`].
    Answer {
        /// Device key of the question.
        device: String,
        /// Number of the question.
        number: u64,
        /// Numbers of the groups that may have the device.
        run: Vec<u64>,
        /// Time after which the daemon asks again though nothing has changed, in µs.
        again_in_us: Option<u64>,
    },
}
