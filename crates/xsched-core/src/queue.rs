//! One hardware queue, and what is in flight on it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use xsched_flow::estimate::Fence;
use xsched_flow::journal::Record;
use xsched_flow::timeline::{Evidence, Point, Presumed, presumes};
use xsched_flow::tuning::{FENCE_COMMANDS, FENCES};
use xsched_proto::segment::QueueSlot;

use crate::group::Group;
use crate::inherit::Inheritance;
use crate::runtime::Runtime;
use crate::timeline::Timeline;
use crate::{Platform, journal, now_ns};

mod admit;
mod budget;
mod learn;

pub use admit::{Admission, Work};

/// A point in a queue whose completion will be known.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletionFence {
    queue: u16,
    group: u16,
    generation: u32,
    /// What the device writes into the queue's completion word when it gets there: each fence of a queue has a greater
    /// one than those before it (modulo 2^32).
    pub number: u32,
    /// The commands up to it that no fence before it covers.
    covers: Fence,
    /// Commands that were only counted, up to here.
    counted: u64,
}

/// A synchronising call in progress; see [`XQueue::sync_begin`].
#[must_use]
pub struct Waiting {
    at: Point,
    group: u16,
    _lend: Option<Inheritance<'static>>,
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
    gated_ns: AtomicU64,
    /// Number of the last command behind such a gate.
    gated: AtomicU64,
    /// The epoch in which such a gate was placed while the host's was closed; 0 = never.
    gated_epoch: AtomicU32,
    /// Number of the last fence.
    fence_number: AtomicU32,
    /// When completions were seen last, and how much earlier that may have been, in ns.
    last_done_at: AtomicU64,
    last_late_ns: AtomicU64,
    /// When the completion word was last looked at.
    looked_at: AtomicU64,
    /// See [`xsched_flow::estimate::Pace`].
    busy_since: AtomicU64,
    busy_from_ns: AtomicU64,
    /// Launches at the last of the agent's rare looks.
    seen_launches: AtomicU64,
    /// For how long launches waited for the budget before the gate closed, in ns, with nothing complete since so many
    /// completions of the group.
    waited_ns: AtomicU64,
    waited_since: AtomicU32,
    fences: Mutex<VecDeque<CompletionFence>>,
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
            last_done_at: AtomicU64::new(0),
            last_late_ns: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            busy_from_ns: AtomicU64::new(0),
            seen_launches: AtomicU64::new(u64::MAX),
            waited_ns: AtomicU64::new(0),
            waited_since: AtomicU32::new(0),
            fences: Mutex::new(VecDeque::with_capacity(FENCES)),
        }
    }

    /// Forgets the former user of this place.
    pub(crate) fn reset(&self) {
        self.timeline.reset();
        self.gated_ns.store(self.timeline.issued_ns(), Relaxed);
        self.gated_epoch.store(0, Relaxed);
        self.busy_since.store(0, Relaxed);
        self.seen_launches.store(u64::MAX, Relaxed);
        self.counters.store(0, Relaxed);
        self.fences().clear();
    }

    fn fences(&self) -> MutexGuard<'_, VecDeque<CompletionFence>> {
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

    /// For an interface of several drivers, before the first command: what [`Platform::reports_completion`] says may not hold for
    /// this queue. One of which neither is so gets no fences: what it was given is complete after a wait for all of it, or after a
    /// while without launches.
    pub fn set_reports_completion(&self, reports: bool) {
        self.calls_back.store(reports, Relaxed);
    }

    /// The group it is suspended with.
    pub fn group<'a>(&self, rt: &'a Runtime) -> &'a Group {
        &rt.groups[usize::from(self.group.load(Relaxed))]
    }

    /// Its vendor interface.
    pub fn platform(&self, rt: &Runtime) -> &'static dyn Platform {
        rt.platforms[usize::from(self.platform.load(Relaxed))]
    }

    /// Its slot in the segment.
    pub fn slot<'a>(&self, rt: &'a Runtime) -> &'a QueueSlot {
        &rt.segment.queues[usize::from(self.index)]
    }

    /// Launches that were only counted.
    pub(crate) fn counted(&self, rt: &Runtime) -> u64 {
        rt.counters_of(self).fold(0, |n, c| n.wrapping_add(c.launches.load(Relaxed)))
    }

    /// Launches so far. Reads the counts first: a launch that is numbered after all appears among the numbered ones only after it
    /// was taken from those.
    pub(crate) fn launches(&self, rt: &Runtime) -> u64 {
        let counted = self.counted(rt);
        counted.wrapping_add(self.timeline.issued())
    }

    /// Looks at a queue that the program fills by itself, which must not be destroyed meanwhile. `None` if it is no such
    /// queue; else whether the device has something left to take.
    pub(crate) fn look_inside(&self, rt: &Runtime) -> Option<bool> {
        let (given, taken) = self.platform(rt).filled(self)?;
        self.slot(rt).shared.launches.store(given, Release);
        let at = Point { counted: taken, ..Point::default() };
        let commands = self.timeline.advance_to(at, Evidence::Taken, true);
        self.group(rt).slot(rt).completed.fetch_add(commands, Relaxed);
        Some(given > taken)
    }

    pub(crate) fn is_quiet(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.timeline.is_complete(self.counted(rt))
    }

    fn next_fence_number(&self) -> u32 {
        self.fence_number.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// A fence that could not be placed after all: the next command becomes one.
    pub fn withdraw(&self, fence: &CompletionFence) {
        self.fences().retain(|m| m.number != fence.number);
        self.timeline.unfence(fence.covers.seq, fence.covers.commands.max(FENCE_COMMANDS));
    }

    /// The device has completed everything up to a fence (of an out-of-order queue: that one command).
    /// May be called on any thread.
    pub fn complete(rt: &'static Runtime, fence: &CompletionFence) {
        let queue = &rt.queues[usize::from(fence.queue)];
        if queue.generation.load(Acquire) == fence.generation {
            queue.learn(rt, fence, now_ns());
            queue.finish(rt, fence);
            if queue.timeline.is_numbered_complete() {
                queue.group(rt).update_idle_state(rt);
            }
        }
    }

    fn finish(&self, rt: &Runtime, fence: &CompletionFence) {
        let commands = if self.in_order() {
            let at = Point { seq: fence.covers.seq, ns: fence.covers.issued_ns, counted: fence.counted };
            self.timeline.advance_to(at, Evidence::Fence, true)
        } else {
            self.timeline.complete_one(fence.covers.estimate_ns);
            1
        };
        let group = &rt.groups[usize::from(fence.group)];
        group.slot(rt).completed.fetch_add(commands, Relaxed);
        group.progress.advance();
    }

    /// Looks at the word the device writes, where completion is reported that way.
    pub(crate) fn refresh(&self, rt: &Runtime) {
        if self.calls_back() {
            return;
        }
        let Ok(mut fences) = self.fences.try_lock() else { return };
        if fences.is_empty() {
            return;
        }
        let word = self.slot(rt).completed_word.load(Acquire);
        let now = now_ns();
        let late_ns = now.saturating_sub(self.looked_at.swap(now, Relaxed));
        let n = fences.iter().take_while(|fence| word.wrapping_sub(fence.number) as i32 >= 0).count();
        if n == 0 {
            return;
        }
        let mut reached = [CompletionFence::default(); FENCES];
        let mut covered = [Fence::default(); FENCES];
        for (at, fence) in fences.drain(..n).enumerate() {
            (reached[at], covered[at]) = (fence, fence.covers);
        }
        let next = fences.front().map(|fence| fence.covers);
        drop(fences);
        self.learn_reached(rt, &covered[..n], next.as_ref(), now, late_ns);
        for fence in &reached[..n] {
            self.finish(rt, fence);
        }
    }

    /// Whether commands that the driver has already may be held by a gate on the device. In a process of several groups
    /// those only that date from before there were several.
    pub fn is_held_on_device(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.gated.load(Relaxed) > self.timeline.done().seq
    }

    /// Whether a gate on the device holds some of its commands now, as far as is known.
    pub fn waits_for_turn(&self, rt: &Runtime) -> bool {
        !self.group(rt).slot(rt).gate.load().is_open_on_device() && self.is_held_on_device(rt)
    }

    /// Whether the completion of some of its commands will be told.
    pub(crate) fn is_followed(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.timeline.is_fenced()
    }

    /// Agent: presumes the queue's commands complete, if the evidence allows it. [`Evidence::Silence`] is for the rare looks: a
    /// program that uses a stream once and never waits for it would be busy for ever otherwise. [`Evidence::Overdue`] is for a
    /// group that drains, see [`Group::is_late`].
    pub(crate) fn presume(&self, rt: &Runtime, evidence: Evidence) {
        let fenced = self.is_followed(rt);
        let end = self.timeline.end(self.counted(rt));
        let launches = end.counted.wrapping_add(end.seq);
        let silent = evidence == Evidence::Silence && self.seen_launches.swap(launches, Relaxed) == launches;
        let ask = Presumed {
            fenced,
            held: self.waits_for_turn(rt),
            in_order: self.in_order(),
            counted_done: self.timeline.open_counted(end.counted) == 0,
            silent,
        };
        let presumed = presumes(&ask, evidence);
        journal::record(|| Record::Presumes(ask, evidence, presumed));
        if presumed {
            self.timeline.advance_to(end, evidence, ask.in_order);
        }
    }

    /// To be called before a call that waits for this queue. Everything launched before is complete if it succeeds.
    pub fn sync_begin(&self, rt: &'static Runtime) -> Waiting {
        self.begin(rt, Inheritance::for_sync(rt, self.group(rt)))
    }

    /// The same for a call that waits for everything, this queue included: what the driver has runs without help, and what other
    /// threads go on to launch is not waited for. So only what is held on the device needs a loan.
    pub fn sync_all_begin(&self, rt: &'static Runtime) -> Waiting {
        let lend = self.is_held_on_device(rt).then(|| Inheritance::for_sync(rt, self.group(rt)));
        self.begin(rt, lend.flatten())
    }

    fn begin(&self, rt: &'static Runtime, lend: Option<Inheritance<'static>>) -> Waiting {
        let group = self.group(rt);
        group.syncing.fetch_add(1, AcqRel);
        Waiting { at: self.timeline.end(self.counted(rt)), group: group.index, _lend: lend }
    }

    /// The counterpart of [`XQueue::sync_begin`]; `complete` = the call waited for the whole queue and succeeded.
    pub fn sync_end(&self, rt: &'static Runtime, sync: Waiting, complete: bool) {
        let group = &rt.groups[usize::from(sync.group)];
        if complete {
            let commands = self.timeline.advance_to(sync.at, Evidence::Sync, self.in_order());
            group.slot(rt).completed.fetch_add(commands, Relaxed);
        }
        group.syncing.fetch_sub(1, AcqRel);
        // Also if it failed, or waited for something else: the agent may have looked meanwhile and left it to this thread.
        group.update_idle_state(rt);
    }

    /// A fence for the end of what was numbered so far, if no fence follows it yet. The caller places it, as a marker
    /// command or the like, and completes it.
    pub fn fence_suffix(&self, rt: &Runtime) -> Option<CompletionFence> {
        if !self.in_order() || self.timeline.is_all_fenced(self.counted(rt)) || self.is_quiet(rt) {
            return None;
        }
        let covers = || {
            let end = self.timeline.end(0);
            Fence { seq: end.seq, issued_ns: end.ns, ..Fence::default() }
        };
        self.new_fence(rt, covers, self.group.load(Relaxed), true)
    }

    /// A fence behind a command or, `apart`, behind all of them; none if too many are under way. It covers all up to it, and
    /// is made with the fences locked, so that their order is that of their numbers.
    fn new_fence(
        &self,
        rt: &Runtime,
        covers: impl FnOnce() -> Fence,
        group: u16,
        apart: bool,
    ) -> Option<CompletionFence> {
        let told = self.calls_back();
        let mut fences = (!told).then(|| self.fences());
        if fences.as_ref().is_some_and(|fences| fences.len() >= FENCES) {
            return None;
        }
        let fence = self.covering(covers(), group, self.counted(rt), apart);
        if let Some(fences) = &mut fences {
            fences.push_back(fence);
        }
        Some(fence)
    }
    /// The fence itself, which no device has to reach yet.
    fn covering(&self, covers: Fence, group: u16, counted: u64, apart: bool) -> CompletionFence {
        let (numbered, only_counted) = self.timeline.fence(Point { seq: covers.seq, ns: covers.issued_ns, counted });
        // One apart measures nothing: it covers one command more than there are.
        let commands = if apart { numbered + 1 } else { numbered + only_counted };
        CompletionFence {
            queue: self.index,
            group,
            generation: self.generation.load(Relaxed),
            number: self.next_fence_number(),
            covers: Fence { commands, at_ns: now_ns(), ..covers },
            counted,
        }
    }
}
