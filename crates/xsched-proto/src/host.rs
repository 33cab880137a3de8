//! Messages between the daemon and the process that runs an operator's own scheduler: one per packet of a
//! `SOCK_SEQPACKET` socket pair, encoded as [`crate::wire`]'s are.

use serde::{Deserialize, Serialize};

use crate::device::DeviceState;

/// From the daemon: who shall have a device?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Device key.
    pub device: String,
    /// To be given back.
    pub number: u64,
    /// All groups on the device.
    pub groups: Vec<Group>,
    /// The device's state; none = not known.
    pub state: Option<DeviceState>,
}

/// One suspension unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Which.
    pub id: u64,
    /// Its process, by a number that is never used again.
    pub program: u64,
    /// Its process.
    pub pid: u32,
    /// Weight of a fair share, 1..=10000.
    pub weight: u32,
    /// Effective priority, -255..=255.
    pub priority: i32,
    /// Wants the device.
    pub ready: bool,
    /// Its gate is open.
    pub running: bool,
    /// In µs.
    pub timeslice_us: u64,
    /// CLOCK_MONOTONIC in µs.
    pub ready_since_us: u64,
    /// Device time charged so far, in µs.
    pub used_us: u64,
    /// The stream that it is, for a scheduler that decides stream by stream; none = it has no stream now.
    pub stream: Option<Stream>,
}

/// The stream of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Which, by a number that is never used again.
    pub id: u64,
    /// Priority that the program gave it, in steps; 0 = a plain one, positive is more urgent.
    pub priority: i32,
    /// Launches so far.
    pub launches: u64,
}

/// To the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromHost {
    /// The library registered its scheduler.
    Loaded {
        /// It decides stream by stream.
        per_stream: bool,
    },
    /// It did not: one line.
    Failed(String),
    /// The answer to a [`Question`].
    Answer {
        /// As in the question.
        device: String,
        /// As in the question.
        number: u64,
        /// Who may have the device.
        run: Vec<u64>,
        /// Ask again after this time though nothing changes, in µs.
        again_in_us: Option<u64>,
    },
}
