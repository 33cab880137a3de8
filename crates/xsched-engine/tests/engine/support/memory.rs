//! Memory that programs share with the engine, within one process.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use xsched_engine::{GroupWords, LaunchSum, Memory};
use xsched_proto::account::{MEMORY_SLOTS, MemorySlot};
use xsched_proto::segment::{Counter, DEVICE_PLACES, GROUPS, GroupSlot, Heartbeat, QueueSlot};

/// Places for queues that are kept; those beyond count nothing.
pub const QUEUES: usize = 8;

/// The memory of one program.
#[derive(Clone)]
pub struct Segment(Arc<Words>);

/// Words of a program.
pub struct Words {
    groups: Vec<GroupSlot>,
    accounts: Vec<MemorySlot>,
    /// Queues by slot.
    pub queues: Vec<QueueSlot>,
    /// Places that are read in one piece at most.
    pub piece: AtomicUsize,
}

impl Default for Segment {
    fn default() -> Segment {
        let counter = || Counter {
            launches: AtomicU64::new(0),
            tracked: AtomicU64::new(0),
            system: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
        };
        let queue = || QueueSlot {
            group: AtomicU32::new(0),
            completed_word: AtomicU32::new(0),
            shared: counter(),
            go: AtomicU32::new(0),
            reached: AtomicU32::new(0),
            fence: AtomicU32::new(0),
        };
        Segment(Arc::new(Words {
            groups: (0..GROUPS).map(|_| GroupSlot::default()).collect(),
            accounts: (0..MEMORY_SLOTS).map(|_| MemorySlot::default()).collect(),
            queues: (0..QUEUES).map(|_| queue()).collect(),
            piece: AtomicUsize::new(usize::MAX),
        }))
    }
}

impl Segment {
    /// The words of the group in a slot.
    pub fn slot(&self, slot: u16) -> &GroupSlot {
        &self.0.groups[usize::from(slot)]
    }

    /// The words on memory in a slot.
    pub fn account(&self, slot: u16) -> &MemorySlot {
        &self.0.accounts[usize::from(slot)]
    }

    /// Says that the queue in a slot is of a group.
    pub fn use_queue(&self, slot: u16, group: u16) {
        if let Some(queue) = self.0.queues.get(usize::from(slot)) {
            queue.group.store(u32::from(group) + 1, Relaxed);
        }
    }
}

impl Deref for Segment {
    type Target = Words;

    fn deref(&self) -> &Words {
        &self.0
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Segment")
    }
}

impl Memory for Segment {
    type Words = Group;
    type Account = Account;
    type Heartbeat = Arc<Heartbeat>;

    fn group(&self, slot: u16) -> Group {
        Group { segment: self.clone(), slot }
    }

    fn account(&self, slot: u16) -> Account {
        Account { segment: self.clone(), slot }
    }

    fn announce(&self, _slot: u16) {}

    fn add_launches(&self, sum: &mut LaunchSum, places: usize) -> bool {
        if sum.at == 0 {
            for (launches, group) in sum.launches.iter_mut().zip(&self.0.groups) {
                *launches = group.launches_retired.load(Relaxed);
            }
        }
        let (begin, places) = (sum.at.min(QUEUES), places.min(self.0.piece.load(Relaxed)).max(1));
        let end = begin.saturating_add(places).min(QUEUES);
        for queue in &self.0.queues[begin..end] {
            let group = (queue.group.load(Relaxed) as usize).checked_sub(1);
            if let Some(launches) = group.and_then(|group| sum.launches.get_mut(group)) {
                *launches = launches.wrapping_add(queue.shared.total());
            }
        }
        sum.at = end;
        end == QUEUES
    }
}

/// The words on memory of one device.
#[derive(Clone)]
pub struct Account {
    segment: Segment,
    slot: u16,
}

impl Deref for Account {
    type Target = MemorySlot;

    fn deref(&self) -> &MemorySlot {
        self.segment.account(self.slot)
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "words on memory in slot {}", self.slot)
    }
}

/// The words of one group.
#[derive(Clone)]
pub struct Group {
    segment: Segment,
    slot: u16,
}

impl Deref for Group {
    type Target = GroupSlot;

    fn deref(&self) -> &GroupSlot {
        self.segment.slot(self.slot)
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "words of group slot {}", self.slot)
    }
}

impl GroupWords for Group {
    fn completed(&self, completed: &mut Vec<u32>) {
        completed.clear();
        completed.extend(self.segment.queues.iter().map(|queue| queue.completed_word.load(Relaxed)));
    }

    fn is_executing(&self, completed: &[u32]) -> bool {
        let slot = u32::from(self.slot) + 1;
        let is_known = self.untold_gates.load(Relaxed) == 0 && self.held_inside.load(Relaxed) == 0;
        let queues = self.segment.queues.iter().zip(completed);
        let mut own = queues.filter(|(queue, _)| queue.group.load(Relaxed) == slot);
        is_known && own.any(|(queue, completed)| queue.is_executing(*completed))
    }
}

/// A heartbeat page that was never stored to.
pub fn heartbeat() -> Arc<Heartbeat> {
    Arc::new(Heartbeat {
        beat_ns: AtomicU64::new(0),
        best_effort: [const { AtomicU32::new(0) }; DEVICE_PLACES],
        clock_offset_ns: AtomicI64::new(0),
    })
}
