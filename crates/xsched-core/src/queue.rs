//! One hardware queue: its words, and facts that follow from them alone. `admit` lets a command in, `completion` finds what is complete.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xsched_flow::admission::InFlight;
use xsched_flow::estimate::Fence;
use xsched_flow::timeline::Point;
use xsched_flow::tuning::{FENCES, FEW_FENCES};
use xsched_proto::segment::GATE_FOLLOWS;

use crate::clock::now_ns;
use crate::origin::{Domain, Leaning};
use crate::timeline::Timeline;

/// Vendors' own names of default streams are no greater than this; no handle is so small.
const DEFAULT_HANDLES: usize = 2;

/// Tells if a handle is a vendor's name of a default stream.
pub(crate) fn is_default(handle: *mut c_void) -> bool {
    handle.addr() <= DEFAULT_HANDLES
}

/// A point in a queue whose completion will be known.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletionFence {
    pub(crate) queue: u16,
    pub(crate) group: u16,
    pub(crate) generation: u32,
    /// Value of the queue's completion word once the device gets there: each fence of a queue has a greater one than those
    /// before it (modulo 2^32).
    pub number: u32,
    /// The commands up to it that no fence before it covers.
    pub(crate) covers: Fence,
    /// Commands that were only counted, up to here.
    pub(crate) counted: u64,
}

/// Place of a fence among the commands and gates around it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FenceKind {
    /// The fence was placed some time after the last command that it covers.
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
    /// Odd while in use; changes whenever the entries that threads remember of this queue are outdated.
    pub(crate) generation: AtomicU32,
    pub(crate) vendor: VendorQueue,
    pub(crate) group: AtomicU16,
    /// 1 + index of the first counter of this queue.
    pub(crate) counters: AtomicU32,
    pub(crate) timeline: Timeline,
    pub(crate) device_gates: PlacedGates,
    pub(crate) fences: Fences,
    pub(crate) publication: Publication,
    pub(crate) seen: Sightings,
    pub(crate) budget_wait: BudgetWait,
    /// Reasons for which the program itself holds the queue, see [`crate::Hold`]. A futex.
    pub(crate) held: AtomicU32,
    leaning: Leaning,
}

/// The vendor's queue that an XQueue stands over.
pub(crate) struct VendorQueue {
    pub(crate) key: AtomicUsize,
    pub(crate) handle: AtomicPtr<c_void>,
    /// Index into the platforms.
    pub(crate) platform: AtomicU8,
    pub(crate) in_order: AtomicBool,
    calls_back: AtomicBool,
    /// The queue was made under the system domain, by an explicit call.
    pub(crate) made_system: AtomicBool,
}

/// The last gate that was placed in the queue on the device.
#[derive(Default)]
pub(crate) struct PlacedGates {
    /// Summed time of the commands before that gate, in ns.
    pub(crate) before_ns: AtomicU64,
    /// Number of the command behind that gate.
    pub(crate) seq: AtomicU64,
    /// Grant epoch in which a gate was placed while the group's gate on the host was closed; 0 = never.
    pub(crate) prequeued_epoch: AtomicU32,
}

/// Fences of a queue that the device has not reached, as far as is known.
pub(crate) struct Fences {
    open: Mutex<VecDeque<CompletionFence>>,
    /// Number of the last fence, without its lowest bit ([`GATE_FOLLOWS`]).
    number: AtomicU32,
    /// The last fence is the last entry of the queue so far, and announces a gate behind it.
    pub(crate) gate_follows: AtomicBool,
}

/// Fences that the device stores for other programs, which wait until this queue has caught up.
#[derive(Default)]
pub(crate) struct Publication {
    /// Number of the last fence that the device stores for other programs too.
    pub(crate) published: AtomicU32,
    /// Summed time up to the last command that other programs wait for, in ns.
    pub(crate) wanted_ns: AtomicU64,
}

impl Publication {
    /// Has the next command get a fence if the queue is behind still: the one that others wait for was not placed.
    pub(crate) fn want_again(&self) {
        self.wanted_ns.store(0, Relaxed);
    }
}

/// Times at which completions of a queue were looked for and seen.
pub(crate) struct Sightings {
    /// Time at which completions were seen last, and the most that they may have come earlier, in ns.
    pub(crate) done_at: AtomicU64,
    pub(crate) late_ns: AtomicU64,
    /// Time of the last refresh from the completion word, in ns.
    pub(crate) looked_at: AtomicU64,
    /// See [`xsched_flow::estimate::Pace`].
    pub(crate) busy_since: AtomicU64,
    pub(crate) busy_from_ns: AtomicU64,
    /// Launches at the last of the agent's rare polls.
    pub(crate) launches: AtomicU64,
}

/// Time that launches waited for the in-flight budget before the gate closed, with nothing complete meanwhile.
#[derive(Default)]
pub(crate) struct BudgetWait {
    ns: AtomicU64,
    /// Count of the group's completions ([`crate::group::Group::progress`]) during that wait.
    completions: AtomicU32,
}

impl BudgetWait {
    /// Time waited in earlier grants, in ns; 0 if something is complete since, as the group's count of `completions` shows.
    pub(crate) fn waited_ns(&self, completions: u32) -> u64 {
        if self.completions.load(Relaxed) == completions { self.ns.load(Relaxed) } else { 0 }
    }

    /// Keeps the time waited so far, in ns, for the next grant.
    pub(crate) fn keep(&self, ns: u64, completions: u32) {
        self.ns.store(ns, Relaxed);
        self.completions.store(completions, Relaxed);
    }

    /// Forgets the wait.
    pub(crate) fn forget(&self) {
        self.ns.store(0, Relaxed);
    }
}

impl Fences {
    /// Locks the fences that the device has not reached, as far as is known.
    pub(crate) fn open(&self) -> MutexGuard<'_, VecDeque<CompletionFence>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks them if no other thread has done so.
    pub(crate) fn try_open(&self) -> Option<MutexGuard<'_, VecDeque<CompletionFence>>> {
        self.open.try_lock().ok()
    }

    /// True: so few fences are open that one more does not matter. False if another thread has them locked.
    pub(crate) fn are_few(&self) -> bool {
        self.try_open().is_some_and(|fences| fences.len() < FEW_FENCES)
    }

    /// Number of a new fence. Its lowest bit says that a gate follows.
    pub(crate) fn next_number(&self, gate_follows: bool) -> u32 {
        self.number.fetch_add(2, Relaxed).wrapping_add(2) | if gate_follows { GATE_FOLLOWS } else { 0 }
    }

    /// Lower limit of the next fence's number.
    pub(crate) fn upcoming_number(&self) -> u32 {
        self.number.load(Relaxed).wrapping_add(2)
    }
}

impl XQueue {
    pub(crate) fn new(index: u16) -> Self {
        XQueue {
            index,
            generation: AtomicU32::new(0),
            vendor: VendorQueue {
                key: AtomicUsize::new(0),
                handle: AtomicPtr::new(core::ptr::null_mut()),
                platform: AtomicU8::new(0),
                in_order: AtomicBool::new(true),
                calls_back: AtomicBool::new(false),
                made_system: AtomicBool::new(false),
            },
            group: AtomicU16::new(0),
            counters: AtomicU32::new(0),
            timeline: Timeline::default(),
            device_gates: PlacedGates::default(),
            fences: Fences {
                open: Mutex::new(VecDeque::with_capacity(FENCES)),
                number: AtomicU32::new(0),
                gate_follows: AtomicBool::new(false),
            },
            publication: Publication::default(),
            seen: Sightings {
                done_at: AtomicU64::new(0),
                late_ns: AtomicU64::new(0),
                looked_at: AtomicU64::new(0),
                busy_since: AtomicU64::new(0),
                busy_from_ns: AtomicU64::new(0),
                launches: AtomicU64::new(u64::MAX),
            },
            budget_wait: BudgetWait::default(),
            held: AtomicU32::new(0),
            leaning: Leaning::default(),
        }
    }

    /// Forgets the former user of this place.
    pub(crate) fn reset(&self) {
        self.timeline.reset();
        self.device_gates.before_ns.store(self.timeline.issued_ns(), Relaxed);
        self.device_gates.prequeued_epoch.store(0, Relaxed);
        self.fences.gate_follows.store(false, Relaxed);
        self.seen.busy_since.store(0, Relaxed);
        self.publication.want_again();
        self.seen.launches.store(u64::MAX, Relaxed);
        self.counters.store(0, Relaxed);
        self.held.store(0, Relaxed);
        self.leaning.reset();
        self.fences.open().clear();
    }

    /// Index of its slot in the segment.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The key it is found by.
    pub fn key(&self) -> usize {
        self.vendor.key.load(Relaxed)
    }

    /// The vendor's handle.
    pub fn handle(&self) -> *mut c_void {
        self.vendor.handle.load(Relaxed)
    }

    /// True: its commands complete in the order in which they were given.
    pub fn in_order(&self) -> bool {
        self.vendor.in_order.load(Relaxed)
    }

    /// True: completions are reported by calls; else the device writes them into memory, or nothing reports them.
    pub(crate) fn calls_back(&self) -> bool {
        self.vendor.calls_back.load(Relaxed)
    }

    /// Overrides [`crate::Platform::reports_completion`] for this queue, before its first command: an interface of several drivers
    /// may have queues of both kinds. A queue without completion word or reports gets no fences: what it was given is complete
    /// after a wait for all of it, or after a while without launches.
    pub fn set_reports_completion(&self, reports: bool) {
        self.vendor.calls_back.store(reports, Relaxed);
    }

    /// Notes a launch of a domain while the queue is in the group of the system domain or not. True: the queue is to move to the
    /// other. Default streams stay: they belong to all of the process.
    pub(crate) fn leans_to(&self, domain: Domain, is_system: bool) -> bool {
        !is_default(self.handle()) && self.leaning.moves(domain, is_system)
    }

    /// True: the queue is in the group of this index.
    pub(crate) fn is_in(&self, group: u16) -> bool {
        self.group.load(Acquire) == group
    }

    /// Numbered commands in flight whose completion will be known.
    #[inline]
    pub(crate) fn in_flight(&self) -> InFlight {
        self.timeline.in_flight(self.in_order())
    }

    /// Makes the record of a fence, which no device has to reach yet.
    pub(crate) fn covering(&self, covers: Fence, group: u16, counted: u64, kind: FenceKind) -> CompletionFence {
        let (numbered, only_counted) = self.timeline.fence(Point { seq: covers.seq, ns: covers.issued_ns, counted });
        // A fence placed apart gives no time sample of a command: it counts one more than it covers.
        let commands = if kind.apart { numbered + 1 } else { numbered + only_counted };
        CompletionFence {
            queue: self.index,
            group,
            generation: self.generation.load(Relaxed),
            number: self.fences.next_number(kind.gate_follows),
            covers: Fence { commands, at_ns: now_ns(), ..covers },
            counted,
        }
    }
}
