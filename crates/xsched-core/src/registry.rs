//! Registry of the process: its queues, its groups, the counters of its launches, and the tables that say which belongs to which.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::Mutex;

use xsched_proto::segment::{COUNTERS, GROUPS, QUEUES, Segment};

use crate::Platform;
use crate::blocks::Blocks;
use crate::group::Group;
use crate::queue::XQueue;

mod counters;
mod holds;
mod lookup;
mod outbox;
mod placement;
mod tables;
mod totals;

pub(crate) use placement::Move;
pub use placement::QueueSpec;

use counters::CounterPlace;
use tables::Tables;

/// Queues and groups of this process, with their places in the segment. Lives until the process ends.
pub struct Registry {
    pub(crate) segment: &'static Segment,
    pub(crate) platforms: &'static [&'static dyn Platform],
    pub(crate) groups: Box<[Group]>,
    pub(crate) queues: Blocks<XQueue>,
    counters: Blocks<CounterPlace>,
    tables: Mutex<Tables>,
    group_count: AtomicU32,
    /// Number of queue places that were ever used; they are used from the first on.
    queue_places_used: AtomicU32,
    /// The program's own priority. New groups are ranked by it.
    base_priority: AtomicI32,
    /// Streams get an XQueue without being asked for one.
    makes_queues: bool,
    /// Each queue has a group of its own.
    streams_apart: AtomicBool,
    /// No daemon holds the gates: groups begin with an open one.
    detached: AtomicBool,
    /// Commands of unknown queues, launched before there was a group.
    unplaced: AtomicU64,
}

impl Registry {
    /// Empty registry over a zeroed segment.
    pub(crate) fn new(
        segment: &'static Segment,
        platforms: &'static [&'static dyn Platform],
        base_priority: i32,
    ) -> Registry {
        Registry {
            segment,
            platforms,
            groups: (0..GROUPS as u16).map(Group::new).collect(),
            queues: Blocks::new(QUEUES, XQueue::new),
            counters: Blocks::new(COUNTERS, |_| CounterPlace::default()),
            tables: Mutex::new(Tables::new()),
            group_count: AtomicU32::new(0),
            queue_places_used: AtomicU32::new(0),
            base_priority: AtomicI32::new(base_priority),
            makes_queues: true,
            streams_apart: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            unplaced: AtomicU64::new(0),
        }
    }

    /// Leaves streams without XQueues unless the program asks for one: their commands reach the driver uncounted.
    pub(crate) fn without_queues(&mut self) {
        self.makes_queues = false;
    }
}
