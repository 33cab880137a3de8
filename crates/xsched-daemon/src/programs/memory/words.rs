//! Words of a client's segment, as the engine uses them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_engine::{LaunchSum, Memory};
use xsched_proto::account::MemorySlot;
use xsched_proto::histogram::Histogram;
use xsched_proto::segment::GroupSlot;

use super::heartbeat::HeartbeatPage;
use super::segment::ClientSegment;

/// Segment of a program, as the engine uses it.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<ClientSegment>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Memory for Shared {
    type Words = GroupWords;
    type Account = Account;
    type Heartbeat = HeartbeatPage;

    fn group(&self, slot: u16) -> GroupWords {
        GroupWords { segment: self.0.clone(), slot: slot.into() }
    }

    fn account(&self, slot: u16) -> Account {
        Account { segment: self.0.clone(), slot: slot.into() }
    }

    fn announce(&self, slot: u16) {
        self.0.announce(slot);
    }

    fn add_launches(&self, sum: &mut LaunchSum, places: usize) -> bool {
        self.0.add_launches(sum, places)
    }
}

/// Words on memory of one device in a client's segment.
pub(crate) struct Account {
    segment: Arc<ClientSegment>,
    slot: usize,
}

impl Deref for Account {
    type Target = MemorySlot;

    fn deref(&self) -> &MemorySlot {
        self.segment.account(self.slot)
    }
}

/// Words of one group in its client's segment.
#[derive(Clone)]
pub(crate) struct GroupWords {
    segment: Arc<ClientSegment>,
    slot: usize,
}

impl GroupWords {
    /// Times that the group's threads have waited at the gate.
    pub(crate) fn waits(&self) -> &Histogram {
        self.segment.waits(self.slot)
    }
}

impl xsched_engine::GroupWords for GroupWords {
    fn completed(&self, completed: &mut Vec<u32>) {
        completed.clear();
        completed.extend(self.segment.looked_at().map(|queue| queue.completed_word.load(Relaxed)));
    }

    // Returns false where gates may hold commands that no word announces.
    fn is_executing(&self, completed: &[u32]) -> bool {
        let slot = self.slot as u32 + 1;
        let known = self.untold_gates.load(Relaxed) == 0;
        let mut queues = self.segment.looked_at().zip(completed).filter(|(queue, _)| queue.group.load(Relaxed) == slot);
        known && self.held_inside.load(Relaxed) == 0 && queues.any(|(queue, completed)| queue.is_executing(*completed))
    }
}

impl std::fmt::Debug for GroupWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "words of group slot {}", self.slot)
    }
}

impl Deref for GroupWords {
    type Target = GroupSlot;

    fn deref(&self) -> &GroupSlot {
        self.segment.group(self.slot)
    }
}
