//! Words that a simulated program shares with the engine: one group on one device, with one queue.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use xsched_engine::{GroupWords, LaunchSum, Memory};
use xsched_proto::account::MemorySlot;
use xsched_proto::segment::{DEVICE_PLACES, GroupSlot, Heartbeat};

/// The memory of one program.
#[derive(Clone)]
pub(crate) struct Segment(Arc<Words>);

#[derive(Default)]
struct Words {
    group: GroupSlot,
    /// Launches that the driver has accepted, and the one that waits.
    launches: AtomicU64,
    /// Launches of which the device knows nothing any more.
    completed: AtomicU32,
    /// Launches that the device has.
    issued: AtomicU32,
}

impl Default for Segment {
    fn default() -> Segment {
        let words = Words::default();
        words.group.gate.begin(false);
        words.group.inherited_priority.store(i32::MIN, Relaxed);
        Segment(Arc::new(words))
    }
}

impl Segment {
    /// Counts a launch, before its gate is looked at.
    pub(crate) fn count_launch(&self) {
        self.0.launches.fetch_add(1, Relaxed);
    }

    /// Counts a launch that the device has got.
    pub(crate) fn count_issue(&self) {
        self.0.issued.fetch_add(1, Relaxed);
    }

    /// Counts a command that the device has completed.
    pub(crate) fn count_completion(&self) {
        self.0.completed.fetch_add(1, Relaxed);
        self.0.group.completed.fetch_add(1, Relaxed);
    }

    /// Launches so far.
    pub(crate) fn launches(&self) -> u64 {
        self.0.launches.load(Relaxed)
    }

    /// Commands that the device has completed.
    pub(crate) fn completed_commands(&self) -> u64 {
        self.0.group.completed.load(Relaxed)
    }

    /// Counts the commands of a burst, which the device has as one.
    pub(crate) fn count_burst(&self, commands: u32) {
        self.0.launches.fetch_add(commands.into(), Relaxed);
        self.0.issued.fetch_add(commands, Relaxed);
    }

    /// Writes how many commands of the burst are not complete.
    pub(crate) fn set_left(&self, left: u64) {
        let launches = self.0.launches.load(Relaxed);
        let completed = launches.saturating_sub(left);
        self.0.completed.store(completed as u32, Relaxed);
        self.0.group.completed.fetch_max(completed, Relaxed);
    }
}

impl Deref for Segment {
    type Target = GroupSlot;

    fn deref(&self) -> &GroupSlot {
        &self.0.group
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Segment")
    }
}

impl Memory for Segment {
    type Words = Segment;
    type Account = Box<MemorySlot>;
    type Heartbeat = Arc<Heartbeat>;

    fn group(&self, _slot: u16) -> Segment {
        self.clone()
    }

    /// Words of no one: simulated programs hold no memory that is counted.
    fn account(&self, _slot: u16) -> Box<MemorySlot> {
        Box::default()
    }

    fn announce(&self, _slot: u16) {}

    fn add_launches(&self, sum: &mut LaunchSum, _places: usize) -> bool {
        sum.launches[0] = self.0.launches.load(Relaxed);
        true
    }
}

impl GroupWords for Segment {
    fn completed(&self, completed: &mut Vec<u32>) {
        completed.clear();
        completed.push(self.0.completed.load(Relaxed));
    }

    fn is_executing(&self, completed: &[u32]) -> bool {
        let now = self.0.completed.load(Relaxed);
        // Gates on the device stand before each command of a group that is held there, and let the running one end.
        now != self.0.issued.load(Relaxed) && completed.first() == Some(&now)
    }
}

/// A page by which programs see that the daemon lives.
pub(crate) fn heartbeat() -> Arc<Heartbeat> {
    Arc::new(Heartbeat {
        beat_ns: AtomicU64::new(0),
        best_effort: [const { AtomicU32::new(0) }; DEVICE_PLACES],
        clock_offset_ns: AtomicI64::new(0),
    })
}
