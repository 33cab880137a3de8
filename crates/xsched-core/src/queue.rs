//! One hardware queue: its words, and what they say by themselves. `admit` lets a command in, `completion` tells what is complete.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use xsched_flow::admission::InFlight;
use xsched_flow::estimate::Fence;
use xsched_flow::timeline::Point;
use xsched_flow::tuning::FENCES;
use xsched_proto::segment::GATE_FOLLOWS;

use crate::clock::now_ns;
use crate::origin::{Domain, Leaning};
use crate::timeline::Timeline;

/// Vendors' own names of default streams are no greater than this; no handle is so small.
const DEFAULT_HANDLES: usize = 2;

/// Whether a handle is a name of a default stream.
pub(crate) fn is_default(handle: *mut c_void) -> bool {
    handle.addr() <= DEFAULT_HANDLES
}

/// A point in a queue whose completion will be known.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletionFence {
    pub(crate) queue: u16,
    pub(crate) group: u16,
    pub(crate) generation: u32,
    /// What the device writes into the queue's completion word when it gets there: each fence of a queue has a greater
    /// one than those before it (modulo 2^32).
    pub number: u32,
    /// The commands up to it that no fence before it covers.
    pub(crate) covers: Fence,
    /// Commands that were only counted, up to here.
    pub(crate) counted: u64,
}

/// How a fence stands to what is around it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FenceKind {
    /// It was not placed directly with the last command that it covers.
    pub(crate) apart: bool,
    /// A gate of the group on the device follows directly, with the next command.
    pub(crate) gate_follows: bool,
}

/// A preemptible command queue over one hardware queue.
///
/// Launches that find the gate plainly open are only counted. The others are numbered, their device time is estimated, and they
/// are followed to completion by fences.
pub struct XQueue {
    pub(crate) index: u16,
    /// Odd while in use; changes whenever what threads remember of this queue is outdated.
    pub(crate) generation: AtomicU32,
    pub(crate) key: AtomicUsize,
    pub(crate) handle: AtomicPtr<c_void>,
    pub(crate) group: AtomicU16,
    pub(crate) platform: AtomicU8,
    pub(crate) in_order: AtomicBool,
    calls_back: AtomicBool,
    /// 1 + index of the first counter of this queue.
    pub(crate) counters: AtomicU32,
    pub(crate) timeline: Timeline,
    /// Summed time of the commands before the last gate on the device.
    pub(crate) gated_ns: AtomicU64,
    /// Number of the last command behind such a gate.
    pub(crate) gated: AtomicU64,
    /// The epoch in which such a gate was placed while the host's was closed; 0 = never.
    pub(crate) gated_epoch: AtomicU32,
    /// Number of the last fence, but for its lowest bit.
    fence_number: AtomicU32,
    /// Number of the last fence that the device stores for other programs too.
    pub(crate) published: AtomicU32,
    /// Summed time up to the last command that other programs wait for, in ns.
    pub(crate) wanted_ns: AtomicU64,
    /// That fence is the last thing in the queue and says that a gate follows.
    pub(crate) gate_follows: AtomicBool,
    /// When completions were seen last, and how much earlier that may have been, in ns.
    pub(crate) last_done_at: AtomicU64,
    pub(crate) last_late_ns: AtomicU64,
    /// When the completion word was last looked at.
    pub(crate) looked_at: AtomicU64,
    /// See [`xsched_flow::estimate::Pace`].
    pub(crate) busy_since: AtomicU64,
    pub(crate) busy_from_ns: AtomicU64,
    /// Launches at the last of the agent's rare looks.
    pub(crate) seen_launches: AtomicU64,
    /// For how long launches waited for the budget before the gate closed, in ns, with nothing complete since so many
    /// completions of the group.
    pub(crate) waited_ns: AtomicU64,
    pub(crate) waited_since: AtomicU32,
    pub(crate) fences: Mutex<VecDeque<CompletionFence>>,
    /// Why the program itself holds it, see [`crate::Hold`]. A futex.
    pub(crate) held: AtomicU32,
    /// It was made under the system domain, by an explicit call.
    pub(crate) made_system: AtomicBool,
    leaning: Leaning,
}

impl XQueue {
    pub(crate) fn new(index: u16) -> Self {
        XQueue {
            index,
            generation: AtomicU32::new(0),
            key: AtomicUsize::new(0),
            handle: AtomicPtr::new(core::ptr::null_mut()),
            group: AtomicU16::new(0),
            platform: AtomicU8::new(0),
            in_order: AtomicBool::new(true),
            calls_back: AtomicBool::new(false),
            counters: AtomicU32::new(0),
            timeline: Timeline::default(),
            gated_ns: AtomicU64::new(0),
            gated: AtomicU64::new(0),
            gated_epoch: AtomicU32::new(0),
            fence_number: AtomicU32::new(0),
            published: AtomicU32::new(0),
            wanted_ns: AtomicU64::new(0),
            gate_follows: AtomicBool::new(false),
            last_done_at: AtomicU64::new(0),
            last_late_ns: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            busy_from_ns: AtomicU64::new(0),
            seen_launches: AtomicU64::new(u64::MAX),
            waited_ns: AtomicU64::new(0),
            waited_since: AtomicU32::new(0),
            fences: Mutex::new(VecDeque::with_capacity(FENCES)),
            held: AtomicU32::new(0),
            made_system: AtomicBool::new(false),
            leaning: Leaning::default(),
        }
    }

    /// Forgets the former user of this place.
    pub(crate) fn reset(&self) {
        self.timeline.reset();
        self.gated_ns.store(self.timeline.issued_ns(), Relaxed);
        self.gated_epoch.store(0, Relaxed);
        self.gate_follows.store(false, Relaxed);
        self.busy_since.store(0, Relaxed);
        self.wanted_ns.store(0, Relaxed);
        self.seen_launches.store(u64::MAX, Relaxed);
        self.counters.store(0, Relaxed);
        self.held.store(0, Relaxed);
        self.leaning.reset();
        self.fences().clear();
    }

    pub(crate) fn fences(&self) -> MutexGuard<'_, VecDeque<CompletionFence>> {
        self.fences.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Index of its slot in the segment.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The key it is found by.
    pub fn key(&self) -> usize {
        self.key.load(Relaxed)
    }

    /// The vendor's handle.
    pub fn handle(&self) -> *mut c_void {
        self.handle.load(Relaxed)
    }

    /// Whether its commands complete in the order in which they were given.
    pub fn in_order(&self) -> bool {
        self.in_order.load(Relaxed)
    }

    /// Whether its completions are told by calls; else the device writes them into memory, or nothing tells of them.
    pub(crate) fn calls_back(&self) -> bool {
        self.calls_back.load(Relaxed)
    }

    /// For an interface of several drivers, before the first command: what [`crate::Platform::reports_completion`] says may
    /// not hold for this queue. One of which neither is so gets no fences: what it was given is complete after a wait for all
    /// of it, or after a while without launches.
    pub fn set_reports_completion(&self, reports: bool) {
        self.calls_back.store(reports, Relaxed);
    }

    /// Notes a launch of a domain while the queue is in the group of the system domain or not. True: the queue is to move to the
    /// other. Default streams stay: they belong to all of the process.
    pub(crate) fn leans_to(&self, domain: Domain, is_system: bool) -> bool {
        !is_default(self.handle()) && self.leaning.moves(domain, is_system)
    }

    pub(crate) fn in_flight(&self) -> InFlight {
        self.timeline.in_flight(self.in_order())
    }

    /// The number of a new fence, and whether a gate follows that.
    pub(crate) fn next_fence_number(&self, gate_follows: bool) -> u32 {
        // The lowest bit is left to that.
        self.fence_number.fetch_add(2, Relaxed).wrapping_add(2) | if gate_follows { GATE_FOLLOWS } else { 0 }
    }

    /// The number that the next fence will have at least.
    pub(crate) fn upcoming_fence(&self) -> u32 {
        self.fence_number.load(Relaxed).wrapping_add(2)
    }

    /// The fence itself, which no device has to reach yet.
    pub(crate) fn covering(&self, covers: Fence, group: u16, counted: u64, kind: FenceKind) -> CompletionFence {
        let (numbered, only_counted) = self.timeline.fence(Point { seq: covers.seq, ns: covers.issued_ns, counted });
        // One apart measures nothing: it covers one command more than there are.
        let commands = if kind.apart { numbered + 1 } else { numbered + only_counted };
        CompletionFence {
            queue: self.index,
            group,
            generation: self.generation.load(Relaxed),
            number: self.next_fence_number(kind.gate_follows),
            covers: Fence { commands, at_ns: now_ns(), ..covers },
            counted,
        }
    }
}
