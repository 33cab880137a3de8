//! One hardware queue, and what is in flight on it.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::collections::VecDeque;
use std::sync::Mutex;

use xsched_flow::admission::{AtGate, Place, Placed};
use xsched_flow::journal::Record;
use xsched_flow::timeline::{Evidence, Presumed};
use xsched_proto::segment::{Counter, QueueSlot, gate};

use crate::estimate::UNKNOWN_NS;
use crate::group::{Group, Left, wake_all_private};
use crate::inherit::Lend;
use crate::runtime::Runtime;
use crate::{Platform, inspect, journal, now_ns, thread};

mod bound;
mod learn;

use crate::device_gates::after;
use bound::fits_ahead;

/// A completion is followed at least every so many commands …
const MARK_COMMANDS: u64 = 32;
/// … or so much estimated device time, in ns, where there is a bound …
const MARK_NS: u64 = 50_000;
/// … or this, in ns, where more is in flight than the next mark can hold up, or where a mark costs as much as a launch.
const SPARSE_MARK_NS: u64 = 200_000;
/// Marks on their way, for a device that reports completion through memory. Few: they take room in the driver's own
/// queue, where a program that waits for itself may have counted on all of it.
const MARKS: usize = 32;
/// Of a thread that nothing bounds, so many commands of a queue have a mark each, to begin with …
const FIRST_MARKS: u64 = 64;
/// … while fewer than so many are on their way: the rest is for those that follow many commands.
const FEW_MARKS: usize = 8;
/// So many commands into a queue, what its kernels take is known.
const SETTLED: u64 = 1 << 16;

/// What the core must know of one command before it is handed to the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Names the kind of command (function and grid) for the estimate of its device time; 0 = unknown.
    pub key: u64,
    /// The call returns when the command is complete.
    pub blocking: bool,
    /// The command waits for something that only the application provides (a user event): the bound leaves it alone.
    pub unbounded: bool,
    /// The driver takes the command at once, whatever its queue waits for: it may be given while the gate is closed, to wait
    /// behind a gate on the device.
    pub ahead: bool,
    /// The driver may load code for it.
    pub loads: bool,
}

/// Permission to call the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    /// The command's completion is to be followed: give its event to [`XQueue::commit`]'s [`Mark`].
    pub mark: bool,
    /// Put a device gate before the command (level 2).
    pub device_gate: bool,
    /// The host gate is closed: without that gate the command must wait, see [`XQueue::wait_turn`].
    pub ahead: bool,
    /// The call is to be made between [`Runtime::begin_load`] and [`Runtime::end_load`].
    pub loads: bool,
    tracked: bool,
    seq: u64,
    estimate_ns: u64,
    key: u64,
    blocking: bool,
    group: u16,
}

impl Admission {
    /// The command is not followed to its completion.
    fn set_untracked(&mut self, group: &Group, work: &Work) {
        *self = Admission { blocking: work.blocking, group: group.index, ..Admission::default() };
    }
}

/// A point in a queue whose completion will be known.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    queue: u16,
    generation: u32,
    /// What the device writes into the queue's completion word when it gets there: each mark of a queue has a greater
    /// one than those before it (modulo 2^32).
    pub number: u32,
    /// Number of the command among the tracked ones of its queue.
    pub seq: u64,
    issued_ns: u64,
    estimate_ns: u64,
    fast_upto: u64,
    commands: u64,
    key: u64,
    at: u64,
    /// The turn it belongs to; none = given while the gate was closed.
    turn: Option<u32>,
    group: u16,
}

/// A synchronising call in progress; see [`XQueue::sync_begin`].
#[must_use]
pub struct Waiting {
    tracked: u64,
    issued_ns: u64,
    fast: u64,
    group: u16,
    _lend: Option<Lend<'static>>,
}

/// A preemptible command queue over one hardware queue.
///
/// Launches that find the gate plainly open are only counted ("fast"). The others are "tracked": numbered, with
/// their device time estimated, and followed to completion by marks.
pub struct XQueue {
    pub(crate) index: u16,
    /// Odd while in use; changes whenever what threads remember of this queue is outdated.
    pub(crate) generation: AtomicU32,
    pub(crate) key: AtomicUsize,
    pub(crate) handle: AtomicUsize,
    pub(crate) group: AtomicU16,
    pub(crate) platform: AtomicU8,
    pub(crate) in_order: AtomicBool,
    /// 1 + index of the first counter of this queue.
    pub(crate) counters: AtomicU32,
    tracked: AtomicU64,
    done: AtomicU64,
    fast_done: AtomicU64,
    issued_ns: AtomicU64,
    /// Cumulated time of the commands before the last gate on the device.
    gated_ns: AtomicU64,
    /// Number of the last command behind such a gate.
    gated: AtomicU64,
    /// 1 + the turn after which such a gate was placed while the host's was closed; 0 = never.
    gated_after: AtomicU32,
    done_ns: AtomicU64,
    /// The last mark's number and cumulated time: what came since is not followed yet.
    marked: AtomicU64,
    marked_ns: AtomicU64,
    /// Untracked commands that some mark follows.
    fast_marked: AtomicU64,
    /// Number of the last mark.
    mark_number: AtomicU32,
    last_done_at: AtomicU64,
    /// How much earlier than `last_done_at` it may have been, in ns.
    last_late_ns: AtomicU64,
    /// When the completion word was last looked at.
    looked_at: AtomicU64,
    /// Since when the device has been seen at work here without a pause, 0 = not, and the cumulated time of the commands
    /// that were complete then.
    busy_since: AtomicU64,
    busy_from_ns: AtomicU64,
    /// Launches at the last of the agent's rare looks.
    seen_launches: AtomicU64,
    /// For how long launches waited for the bound before the gate closed, in ns, with nothing complete since so many
    /// completions of the group.
    waited_ns: AtomicU64,
    waited_since: AtomicU32,
    marks: Mutex<VecDeque<Mark>>,
}

impl XQueue {
    pub(crate) fn new(index: u16) -> Self {
        XQueue {
            index,
            generation: AtomicU32::new(0),
            key: AtomicUsize::new(0),
            handle: AtomicUsize::new(0),
            group: AtomicU16::new(0),
            platform: AtomicU8::new(0),
            in_order: AtomicBool::new(true),
            counters: AtomicU32::new(0),
            tracked: AtomicU64::new(0),
            done: AtomicU64::new(0),
            fast_done: AtomicU64::new(0),
            issued_ns: AtomicU64::new(0),
            gated_ns: AtomicU64::new(0),
            gated: AtomicU64::new(0),
            gated_after: AtomicU32::new(0),
            done_ns: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            marked_ns: AtomicU64::new(0),
            fast_marked: AtomicU64::new(0),
            mark_number: AtomicU32::new(0),
            last_done_at: AtomicU64::new(0),
            last_late_ns: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            busy_from_ns: AtomicU64::new(0),
            seen_launches: AtomicU64::new(u64::MAX),
            waited_ns: AtomicU64::new(0),
            waited_since: AtomicU32::new(0),
            marks: Mutex::new(VecDeque::new()),
        }
    }

    /// Forgets the former user of this place.
    pub(crate) fn reset(&self) {
        let tracked = self.tracked.load(Relaxed);
        self.done.store(tracked, Relaxed);
        let issued_ns = self.issued_ns.load(Relaxed);
        self.gated_ns.store(issued_ns, Relaxed);
        self.gated_after.store(0, Relaxed);
        self.done_ns.store(issued_ns, Relaxed);
        self.marked.store(tracked, Relaxed);
        self.marked_ns.store(issued_ns, Relaxed);
        self.fast_done.store(0, Relaxed);
        self.fast_marked.store(0, Relaxed);
        self.busy_since.store(0, Relaxed);
        self.seen_launches.store(u64::MAX, Relaxed);
        self.counters.store(0, Relaxed);
        self.marks.lock().unwrap_or_else(|e| e.into_inner()).clear();
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
    pub fn handle(&self) -> usize {
        self.handle.load(Relaxed)
    }

    /// Whether its commands complete in the order in which they were given.
    pub fn in_order(&self) -> bool {
        self.in_order.load(Relaxed)
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

    /// Launches that went by without being tracked.
    pub(crate) fn fast_launches(&self, rt: &Runtime) -> u64 {
        rt.counters_of(self).fold(0, |n, c| n.wrapping_add(c.launches.load(Relaxed)))
    }

    /// Launches so far. Reads the fast counts first: a launch that turns out to be tracked is counted among the
    /// tracked ones only after it was taken from those.
    pub(crate) fn launches(&self, rt: &Runtime) -> u64 {
        let fast = self.fast_launches(rt);
        fast.wrapping_add(self.tracked.load(Acquire))
    }

    /// Tracked commands in flight whose completion will be told, and their estimated device time in ns. What came after
    /// the last mark is left out, else somebody might wait for what nobody tells.
    fn in_flight(&self) -> (u64, u64) {
        // What is done is read first, so that it is never ahead of what was issued.
        let (done, done_ns) = (self.done.load(Acquire), self.done_ns.load(Acquire));
        let (told, told_ns) =
            if self.in_order() { (&self.marked, &self.marked_ns) } else { (&self.tracked, &self.issued_ns) };
        (told.load(Acquire).saturating_sub(done), told_ns.load(Acquire).saturating_sub(done_ns))
    }

    /// Looks at a queue that the program fills by itself, which must not be destroyed meanwhile. `None` if it is no such
    /// queue; else whether the device has something left to take.
    pub(crate) fn look_inside(&self, rt: &Runtime) -> Option<bool> {
        let (given, taken) = self.platform(rt).filled(self)?;
        self.slot(rt).shared.launches.store(given, Release);
        let before = self.fast_done.swap(taken, AcqRel);
        self.group(rt).slot(rt).completed.fetch_add(taken.saturating_sub(before), Relaxed);
        Some(given > taken)
    }

    pub(crate) fn is_quiet(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.done.load(Acquire) >= self.tracked.load(Acquire) && self.fast_done.load(Acquire) >= self.fast_launches(rt)
    }

    /// The careful way into the driver: announces, waits at the gate, obeys the bound. The caller counted the launch
    /// in `counter` already; a tracked launch is taken out of there again. Says how to go on in `admission`, which is written
    /// once, where it will be read: a copy of what was stored a moment ago costs as much as the rest.
    #[cold]
    #[inline(never)]
    pub fn admit(&self, rt: &'static Runtime, work: Work, counter: &Counter, admission: &mut Admission) {
        let slot = self.group(rt).slot(rt);
        if slot.gate.load(Relaxed) & gate::INSPECT != 0 && !thread::take_inspected() && inspect::launch(slot, counter) {
            return admission.set_untracked(self.group(rt), &work);
        }
        self.admit_scheduled(rt, work, counter, admission);
    }

    fn admit_scheduled(&self, rt: &'static Runtime, work: Work, counter: &Counter, admission: &mut Admission) {
        thread::stop_waiting(rt);
        let group = self.group(rt);
        let slot = group.slot(rt);
        let stays = || self.group.load(Acquire) == group.index;
        let mut word = slot.gate.load(Acquire);
        if word & gate::DETACHED != 0 {
            rt.await_registration(group);
            word = slot.gate.load(Acquire);
            if word & gate::DETACHED != 0 && !stays() {
                // Moved to another group meanwhile, see below.
                return self.admit_scheduled(rt, work, counter, admission);
            }
            if word & gate::DETACHED != 0 {
                slot.unscheduled_attach.fetch_add(1, Relaxed);
                return admission.set_untracked(group, &work);
            }
        }
        if word & gate::QUIET != 0 {
            group.announce(rt);
        }
        if word & gate::STALLED != 0 {
            group.go_on(rt);
        }
        group.disarm();
        word = slot.gate.load(Acquire);
        if word & gate::WATCHED == 0 && word & gate::OPEN_MASK != 0 {
            return admission.set_untracked(group, &work);
        }
        if word & gate::LOOSE != 0 {
            // What that was for may be over.
            group.set_device_gates(rt);
        }
        counter.launches.store(counter.launches.load(Relaxed).wrapping_sub(1), Release);
        let before = counter.total();
        let estimate = rt.estimates.get(work.key);
        let estimate_ns = estimate.unwrap_or(UNKNOWN_NS);
        let bound_ns = u64::from(slot.bound_us.load(Relaxed)) * 1000;
        let mut has_gates = self.has_gates(rt, slot.level.load(Relaxed));
        if has_gates && self.joins_others(rt) {
            rt.entangle();
            has_gates = self.has_gates(rt, slot.level.load(Relaxed));
        }
        let mut ahead = None;
        loop {
            // Before the gate: one that is closed then is that of this turn, or of a later one, which costs a gate too many.
            let turn = slot.turns.load(Acquire);
            let word = slot.gate.load(Acquire);
            if word & gate::OPEN_MASK == 0 {
                let held = work.ahead && !work.loads && has_gates && bound_ns != 0 && word & gate::LOOSE == 0;
                let fits = held && fits_ahead(rt, group);
                journal::record(|| {
                    let ask = AtGate {
                        word,
                        can_prequeue: work.ahead,
                        loads: work.loads,
                        has_gates,
                        budgeted: bound_ns != 0,
                    };
                    // Commands may complete meanwhile: where they did not fit, the number that counted is gone.
                    let issued = if fits { 0 } else { u64::MAX };
                    Record::AtGate(ask, issued, fits)
                });
                if fits {
                    ahead = Some(after(turn));
                    break;
                }
                if group.wait_open(rt, || rt.flush(group), stays) == Left::Signal {
                    break;
                }
            }
            if !stays() {
                // `hint --queue` gave it to another group, whose gate counts now; the old one may have nothing left.
                group.settle(rt);
                counter.launches.store(counter.launches.load(Relaxed).wrapping_add(1), Release);
                return self.admit_scheduled(rt, work, counter, admission);
            }
            if work.unbounded || self.within_bound(rt, group, estimate_ns) {
                break;
            }
        }
        // What comes behind a gate of this very turn waits with it.
        let first_ahead = ahead.is_some_and(|after| self.gated_after.swap(after, Relaxed) != after);
        let asked = journal::is_on().then(|| Place {
            estimate_ns: estimate,
            issued_ns: self.issued_ns.load(Relaxed),
            fenced: self.marked.load(Relaxed),
            fenced_ns: self.marked_ns.load(Relaxed),
            gated_ns: self.gated_ns.load(Relaxed),
            before,
            budget_us: slot.bound_us.load(Relaxed),
            budget_commands: slot.bound_commands.load(Relaxed),
            first_prequeued: first_ahead,
            has_gates,
            forced: rt.forced_level().is_some(),
            in_order: self.in_order(),
            calls_back: self.platform(rt).reports_completion_of(self),
            blocking: work.blocking,
            seq: 0,
        });
        let busy = if asked.is_some() { self.busy_others(rt) } else { 0 };
        let device_gate = first_ahead || has_gates && bound_ns != 0 && self.is_gated(rt, bound_ns, estimate_ns);
        let is_unbounded = bound_ns == 0 && slot.bound_commands.load(Relaxed) == 0;
        if bound_ns != 0
            && let Some(ns) = estimate
        {
            group.note_length(slot, ns);
        }
        let seq = self.tracked.fetch_add(1, SeqCst) + 1;
        let issued_ns = self.issued_ns.fetch_add(estimate_ns, Relaxed) + estimate_ns;
        if device_gate {
            self.gated_ns.store(issued_ns - estimate_ns, Relaxed);
            self.gated.store(seq, Relaxed);
        }
        // The agent may have called the group idle while this launch was counted nowhere. It looks at the count after
        // it set QUIET, we look at QUIET after the count.
        if slot.gate.load(SeqCst) & gate::QUIET != 0 {
            group.announce(rt);
        }
        let every = match u64::from(slot.bound_commands.load(Relaxed)) {
            0 => MARK_COMMANDS,
            commands => (commands / 2).clamp(1, MARK_COMMANDS),
        };
        // Where the driver tells of completions by calling back, each costs as much as a launch.
        let (samples, mark_ns) = if self.platform(rt).reports_completion_of(self) {
            (false, (bound_ns / 4).min(SPARSE_MARK_NS))
        } else {
            let every_ns = if has_gates { SPARSE_MARK_NS.min(bound_ns / 2).max(MARK_NS) } else { MARK_NS };
            (is_sample(seq) || is_sample(seq.wrapping_sub(1)), every_ns)
        };
        // Who is not bounded needs marks only to be seen as drained some time, and a few for the length of its kernels: the
        // more in the beginning, lest one whose kernels nobody can run beside is found out late.
        let mark = !work.blocking
            && (!self.in_order()
                || seq.saturating_sub(self.marked.load(Relaxed)) >= every
                || samples
                || is_unbounded
                    && (before < FIRST_MARKS && self.has_few_marks()
                        || !thread::is_beginning(before) && thread::is_followed(before))
                || bound_ns != 0
                    && (estimate.is_none() || issued_ns.saturating_sub(self.marked_ns.load(Relaxed)) >= mark_ns));
        if let Some(ask) = asked {
            let placed = Placed { fence: mark, device_gate };
            journal::record(|| Record::Place(Place { seq, ..ask }, busy, self.has_few_marks(), placed));
        }
        admission.mark = mark;
        admission.device_gate = device_gate;
        admission.ahead = ahead.is_some();
        admission.loads = work.loads && has_gates && bound_ns != 0;
        admission.tracked = true;
        admission.seq = seq;
        admission.estimate_ns = estimate_ns;
        admission.key = work.key;
        admission.blocking = work.blocking;
        admission.group = group.index;
    }

    fn has_few_marks(&self) -> bool {
        self.marks.try_lock().is_ok_and(|marks| marks.len() < FEW_MARKS)
    }

    /// Says what became of an admitted command. Returns the mark to complete later if the driver took it and its
    /// completion is to be followed. `counter` is the one given to [`XQueue::admit`].
    pub fn commit(
        &self,
        rt: &'static Runtime,
        admission: &Admission,
        accepted: bool,
        counter: &Counter,
    ) -> Option<Mark> {
        rt.poke_if_due();
        if !admission.tracked {
            if !accepted {
                counter.launches.store(counter.launches.load(Relaxed).wrapping_sub(1), Release);
            }
            return None;
        }
        if !accepted {
            self.withdraw(rt, admission);
            return None;
        }
        counter.tracked.store(counter.tracked.load(Relaxed).wrapping_add(1), Relaxed);
        if !admission.blocking && !admission.mark {
            return None;
        }
        let told = self.platform(rt).reports_completion_of(self) || admission.blocking;
        let mut marks = (!told).then(|| self.marks.lock().unwrap_or_else(|e| e.into_inner()));
        if marks.as_ref().is_some_and(|marks| marks.len() >= MARKS) {
            return None;
        }
        let issued_ns = self.issued_ns.load(Relaxed);
        let tracked = admission.seq.saturating_sub(self.marked.fetch_max(admission.seq, Relaxed));
        let (fast_upto, fast) = self.mark_all_fast(rt);
        let mark = Mark {
            queue: self.index,
            generation: self.generation.load(Relaxed),
            number: self.next_mark(),
            seq: admission.seq,
            issued_ns,
            estimate_ns: admission.estimate_ns,
            fast_upto,
            commands: tracked + fast,
            key: admission.key,
            at: now_ns(),
            turn: (!admission.ahead).then(|| self.group(rt).slot(rt).turns.load(Relaxed)),
            group: admission.group,
        };
        self.marked_ns.fetch_max(issued_ns, Relaxed);
        if admission.blocking {
            self.finish(rt, &mark);
            return None;
        }
        if let Some(marks) = &mut marks {
            marks.push_back(mark);
        }
        Some(mark)
    }

    fn next_mark(&self) -> u32 {
        self.mark_number.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// A mark follows all untracked commands so far: how many, and how many no mark had followed.
    fn mark_all_fast(&self, rt: &Runtime) -> (u64, u64) {
        let fast = self.fast_launches(rt);
        (fast, fast.saturating_sub(self.fast_marked.fetch_max(fast, Relaxed)))
    }

    /// A command that was admitted but that the driver refused: as if it had never been.
    fn withdraw(&self, rt: &'static Runtime, admission: &Admission) {
        if self.in_order() {
            if self.tracked.compare_exchange(admission.seq, admission.seq - 1, AcqRel, Relaxed).is_err() {
                // Somebody launched after us; their completion covers our number too.
                return;
            }
        } else {
            self.done.fetch_add(1, AcqRel);
        }
        self.issued_ns.fetch_sub(admission.estimate_ns, Relaxed);
        rt.groups[usize::from(admission.group)].settle(rt);
    }

    /// A mark that could not be placed after all: the next command becomes one.
    pub fn unmark(&self, mark: &Mark) {
        self.marks.lock().unwrap_or_else(|e| e.into_inner()).retain(|m| m.number != mark.number);
        self.fast_marked.store(self.fast_done.load(Relaxed), Relaxed);
        self.marked.store(mark.seq.saturating_sub(mark.commands.max(MARK_COMMANDS)), Relaxed);
    }

    /// The device has completed everything up to a mark (of an out-of-order queue: that one command).
    /// May be called on any thread.
    pub fn complete(rt: &'static Runtime, mark: &Mark) {
        let queue = &rt.queues[usize::from(mark.queue)];
        if queue.generation.load(Acquire) == mark.generation {
            let now = now_ns();
            queue.learn(rt, mark, now);
            queue.finish(rt, mark);
            if queue.done.load(Acquire) >= queue.tracked.load(Acquire) {
                queue.group(rt).settle(rt);
            }
        }
    }

    fn finish(&self, rt: &Runtime, mark: &Mark) {
        let commands = if self.in_order() {
            self.fast_done.fetch_max(mark.fast_upto, AcqRel);
            self.done_ns.fetch_max(mark.issued_ns, AcqRel);
            mark.seq.saturating_sub(self.done.fetch_max(mark.seq, AcqRel))
        } else {
            self.done_ns.fetch_add(mark.estimate_ns, AcqRel);
            self.done.fetch_add(1, AcqRel);
            1
        };
        let group = &rt.groups[usize::from(mark.group)];
        group.slot(rt).completed.fetch_add(commands, Relaxed);
        group.progress.fetch_add(1, AcqRel);
        if group.progress_waiters.load(Acquire) != 0 {
            wake_all_private(&group.progress);
        }
    }

    /// Looks at the word the device writes, where completion is reported that way.
    pub(crate) fn refresh(&self, rt: &Runtime) {
        if self.platform(rt).reports_completion_of(self) {
            return;
        }
        let Ok(mut marks) = self.marks.try_lock() else { return };
        if marks.is_empty() {
            return;
        }
        let word = self.slot(rt).completed_word.load(Acquire);
        let now = now_ns();
        let late_ns = now.saturating_sub(self.looked_at.swap(now, Relaxed));
        let passed = marks.iter().take_while(|mark| word.wrapping_sub(mark.number) as i32 >= 0).count();
        if passed == 0 {
            return;
        }
        let passed: Vec<Mark> = marks.drain(..passed).collect();
        let next = marks.front().copied();
        drop(marks);
        self.learn_passed(rt, &passed, now, late_ns);
        self.learn_pace(rt, &passed, next.as_ref(), now, late_ns);
        for mark in &passed {
            self.finish(rt, mark);
        }
    }

    /// Whether commands that the driver has already may be held by a gate on the device. In a process of several groups
    /// those only that date from before there were several.
    pub fn is_held_on_device(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.gated.load(Relaxed) > self.done.load(Acquire)
    }

    /// Whether a gate on the device holds some of its commands now, as far as is known.
    pub fn waits_for_turn(&self, rt: &Runtime) -> bool {
        self.group(rt).slot(rt).gate.load(Acquire) & gate::DEVICE_OPEN_MASK == 0 && self.is_held_on_device(rt)
    }

    /// Whether the completion of some of its commands will be told.
    pub(crate) fn is_followed(&self, rt: &Runtime) -> bool {
        self.refresh(rt);
        self.marked.load(Acquire) > self.done.load(Acquire)
    }

    /// Agent, rarely: takes for complete what no mark follows, once nothing was launched here since the last such look. A
    /// program that uses a stream once and never waits for it would be busy for ever otherwise.
    pub(crate) fn give_up_unfollowed(&self, rt: &Runtime) {
        let followed = self.is_followed(rt);
        let (tracked, issued_ns) = (self.tracked.load(Acquire), self.issued_ns.load(Acquire));
        let fast = self.fast_launches(rt);
        let launches = fast.wrapping_add(tracked);
        let since = self.seen_launches.swap(launches, Relaxed);
        let held = self.waits_for_turn(rt);
        let given_up = since == launches && !followed && !held;
        journal::record(|| {
            let ask = Presumed {
                fenced: followed,
                held,
                in_order: self.in_order(),
                counted_done: false,
                silent: since == launches,
            };
            Record::Presumes(ask, Evidence::Silence, given_up)
        });
        if !given_up {
            return;
        }
        self.fast_done.fetch_max(fast, AcqRel);
        if self.in_order() {
            self.done_ns.fetch_max(issued_ns, AcqRel);
            self.done.fetch_max(tracked, AcqRel);
        }
    }

    /// Agent, of a group that waits for its turn: takes for complete the last commands, too few and too short to get a mark,
    /// once all that is followed is complete and they should be. See [`Group::is_late`].
    pub(crate) fn give_up_tail(&self, rt: &Runtime) {
        self.refresh(rt);
        let (tracked, issued_ns) = (self.tracked.load(Acquire), self.issued_ns.load(Acquire));
        let followed = self.marked.load(Acquire) <= self.done.load(Acquire);
        // Of the time without rivals there may be much more.
        let (held, counted_done) = (self.waits_for_turn(rt), self.fast_done.load(Acquire) >= self.fast_launches(rt));
        let given_up = followed && !held && self.in_order() && counted_done;
        journal::record(|| {
            let ask = Presumed { fenced: !followed, held, in_order: self.in_order(), counted_done, silent: false };
            Record::Presumes(ask, Evidence::Overdue, given_up)
        });
        if given_up {
            self.done_ns.fetch_max(issued_ns, AcqRel);
            self.done.fetch_max(tracked, AcqRel);
        }
    }

    /// To be called before a call that waits for this queue. Everything launched before is complete if it succeeds.
    pub fn sync_begin(&self, rt: &'static Runtime) -> Waiting {
        self.begin(rt, Lend::for_sync(rt, self.group(rt)))
    }

    /// The same for a call that waits for everything, this queue included: what the driver has will run without anybody's
    /// help, and what others go on to launch is not waited for. So only what is held on the device needs a loan.
    pub fn sync_all_begin(&self, rt: &'static Runtime) -> Waiting {
        let lend = self.is_held_on_device(rt).then(|| Lend::for_sync(rt, self.group(rt)));
        self.begin(rt, lend.flatten())
    }

    fn begin(&self, rt: &'static Runtime, lend: Option<Lend<'static>>) -> Waiting {
        let group = self.group(rt);
        group.syncing.fetch_add(1, AcqRel);
        Waiting {
            tracked: self.tracked.load(Acquire),
            issued_ns: self.issued_ns.load(Acquire),
            fast: self.fast_launches(rt),
            group: group.index,
            _lend: lend,
        }
    }

    /// The counterpart of [`XQueue::sync_begin`]; `complete` = the call waited for the whole queue and succeeded.
    pub fn sync_end(&self, rt: &'static Runtime, sync: Waiting, complete: bool) {
        let group = &rt.groups[usize::from(sync.group)];
        if complete {
            self.fast_done.fetch_max(sync.fast, AcqRel);
            // Commands of an out-of-order queue are each followed by their own mark.
            if self.in_order() {
                self.done_ns.fetch_max(sync.issued_ns, AcqRel);
                let commands = sync.tracked.saturating_sub(self.done.fetch_max(sync.tracked, AcqRel));
                group.slot(rt).completed.fetch_add(commands, Relaxed);
            }
        }
        group.syncing.fetch_sub(1, AcqRel);
        // Also if it failed, or waited for something else: the agent may have looked meanwhile and left it for us.
        group.settle(rt);
    }

    /// A mark for the end of what was tracked so far, if no mark follows it yet. The caller places it, as a marker
    /// command or the like, and completes it.
    pub fn tail_mark(&self, rt: &Runtime) -> Option<Mark> {
        if !self.in_order() {
            return None;
        }
        // Commands of the time before there were rivals were not followed at all.
        let followed = self.marked.load(Relaxed) >= self.tracked.load(Acquire)
            && self.fast_marked.load(Relaxed).max(self.fast_done.load(Relaxed)) >= self.fast_launches(rt);
        if followed || self.is_quiet(rt) {
            return None;
        }
        let told = self.platform(rt).reports_completion_of(self);
        let mut marks = (!told).then(|| self.marks.lock().unwrap_or_else(|e| e.into_inner()));
        if marks.as_ref().is_some_and(|marks| marks.len() >= MARKS) {
            return None;
        }
        let (seq, issued_ns) = (self.tracked.load(Acquire), self.issued_ns.load(Acquire));
        let commands = seq.saturating_sub(self.marked.fetch_max(seq, Relaxed));
        self.marked_ns.fetch_max(issued_ns, Relaxed);
        let mark = Mark {
            queue: self.index,
            generation: self.generation.load(Relaxed),
            number: self.next_mark(),
            seq,
            issued_ns,
            estimate_ns: 0,
            fast_upto: self.mark_all_fast(rt).0,
            commands: commands + 1,
            key: 0,
            at: now_ns(),
            turn: None,
            group: self.group.load(Relaxed),
        };
        if let Some(marks) = &mut marks {
            marks.push_back(mark);
        }
        Some(mark)
    }
}

/// Some commands, chosen without regard to any period that the program may have, are followed by themselves, and so is
/// the next one: what they take is measured anew. Fewer once a queue has worked for a while, since the device pauses for
/// each.
fn is_sample(seq: u64) -> bool {
    let bits = if seq < SETTLED { 6 } else { 9 };
    seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits) == 0
}
