//! The memory that programs share with the daemon, as the engine sees it. The daemon maps it; a test has it in a vector.

use std::ops::Deref;

use xsched_proto::account::MemorySlot;
use xsched_proto::segment::{GROUPS, GroupSlot, Heartbeat};

/// The memory of one program: its words, and counters that are read piece by piece.
pub trait Memory {
    /// The words of one group.
    type Words: GroupWords;
    /// The words on memory of one device.
    type Account: Deref<Target = MemorySlot>;
    /// The page by which programs see that the daemon lives.
    type Heartbeat: Deref<Target = Heartbeat>;

    /// The words of the group in a slot below [`GROUPS`].
    fn group(&self, slot: u16) -> Self::Words;

    /// The words on memory in a slot below [`xsched_proto::account::MEMORY_SLOTS`].
    fn account(&self, slot: u16) -> Self::Account;

    /// Marks the place of a queue as used: its counters are read from now on.
    fn announce(&self, slot: u16);

    /// Continues to add up launches, reading so many places of queues and counters at most. Returns true after the last one.
    fn add_launches(&self, sum: &mut LaunchSum, places: usize) -> bool;
}

/// The words of one group.
pub trait GroupWords: Deref<Target = GroupSlot> + Clone {
    /// Writes what each of the group's queues has completed into `completed`.
    fn completed(&self, completed: &mut Vec<u32>);

    /// Returns true if the device executes commands of the group, whose queues had completed this much when its gate closed.
    fn is_executing(&self, completed: &[u32]) -> bool;
}

/// Launches of a program's groups, added up piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSum {
    /// Launches by group.
    pub launches: [u64; GROUPS],
    /// Begin of the sum, in µs; 0 = not yet.
    pub began_us: u64,
    /// Places that are added: queues, then counters.
    pub at: usize,
    /// The group of each queue.
    pub of_queues: Vec<u8>,
    /// Number of places of queues and of counters, taken once: none = not yet.
    pub lengths: Option<(usize, usize)>,
}

impl Default for LaunchSum {
    fn default() -> LaunchSum {
        LaunchSum { launches: [0; GROUPS], began_us: 0, at: 0, of_queues: Vec::new(), lengths: None }
    }
}
