//! What a thread remembers: the XQueues it used last, and whether it is inside a vendor call already.

use core::cell::Cell;
use core::sync::atomic::Ordering::*;

use xsched_flow::admission;
use xsched_proto::gate::Gate;
use xsched_proto::memory::Hardware;
use xsched_proto::segment::{Counter, GroupSlot};

use crate::group::Group;
use crate::inspect;
use crate::protocol::idle;
use crate::queue::XQueue;
use crate::runtime::Runtime;

/// XQueues a thread finds without asking the [`Runtime`].
const ENTRIES: usize = 8;

/// All zero = unused. A cache line of its own.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry {
    key: usize,
    stamp: u64,
    known: Option<Known>,
}

/// An XQueue, and what of it a launch touches.
#[derive(Clone, Copy)]
struct Known {
    queue: &'static XQueue,
    slot: &'static GroupSlot,
    counter: &'static Counter,
}

/// State of one thread. Plain data, valid when zero and without a destructor, so that the C library need not know.
#[repr(C)]
pub struct Thread {
    /// Return address of the vendor call this thread is making; written by the preload library's stubs.
    pub caller: Cell<usize>,
    /// Which copy of the vendor's library that call is for; likewise.
    pub binding: Cell<usize>,
    /// Address of the [`Place`] of the outermost hook this thread is in; 0 = none.
    inside: Cell<usize>,
    /// [`Thread::caller`] of that hook.
    outer: Cell<usize>,
    /// 1 + index of the group that counts this thread as waiting; 0 = none. Outlives a wait left by `longjmp`.
    waits: Cell<u32>,
    /// What it lends to that group meanwhile, plus [`PRIORITY_BIAS`]; 0 = nothing.
    lends: Cell<i32>,
    entries: [Cell<Entry>; ENTRIES],
    /// The most urgent of those that had to make room, and its key.
    displaced: Cell<(usize, Option<&'static XQueue>)>,
    /// The preload library's own: what it knows of this thread's call sites.
    pub sites: Cell<usize>,
    /// The launch under way was looked at, see [`crate::inspect`].
    inspected: Cell<bool>,
}

/// Added to ranks (-255..=255), so that 0 stays free.
const PRIORITY_BIAS: i32 = 1000;

const _: () = assert!(size_of::<Thread>() <= 640 && core::mem::offset_of!(Thread, binding) == 8);

// Initial-exec thread-local storage costs one load where the compiler's own (general-dynamic, in a shared library)
// costs a call. A preloaded library is there from the start, so its block always finds room.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".hidden xsched_thread",
    ".globl xsched_thread",
    ".type xsched_thread, @object",
    ".size xsched_thread, 640",
    ".balign 64",
    "xsched_thread: .zero 640",
    ".text",
);

/// The calling thread's state.
#[inline(always)]
pub fn current() -> &'static Thread {
    #[cfg(target_arch = "x86_64")]
    {
        let at: *const Thread;
        // SAFETY: computes an address, the same each time on a thread; touches no memory but the linker's constant and the
        // thread pointer, which does not change.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + xsched_thread@GOTTPOFF]",
                "add {at}, qword ptr fs:[0]",
                at = out(reg) at,
                options(nostack, nomem, pure)
            );
        }
        // SAFETY: this thread's zero-initialised block of sufficient size and alignment; not `Send`, and no reference
        // outlives the call chain of the thread.
        unsafe { &*at }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        thread_local! {
            static THREAD: Thread = const {
                // SAFETY: valid when zero, see above.
                unsafe { core::mem::zeroed() }
            };
        }
        // SAFETY: never destroyed before the thread ends, since it has no destructor.
        THREAD.with(|t| unsafe { &*core::ptr::from_ref(t) })
    }
}

/// Deeper below the mark than this, in bytes, no vendor library calls itself.
const NESTING: usize = 256 * 1024;
/// What a living mark holds, beside its own address.
const TOKEN: usize = 0x5a17_ed1c_0de5_b33f;

/// A place on the stack of the hook that marks its thread as inside a vendor call.
pub struct Place(Cell<usize>);

impl Place {
    /// An unused place.
    #[inline(always)]
    pub fn new() -> Place {
        Place(Cell::new(0))
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

/// Marks this thread as inside a vendor call until dropped, or until the frame that holds its place is left by
/// `longjmp` or an exception: a mark below the finder's own frame, or one that was written over, shows that.
pub struct Inside<'a> {
    thread: &'static Thread,
    place: &'a Place,
    before: (usize, usize),
}

impl<'a> Inside<'a> {
    /// Enters; `None` when the thread is inside a vendor call already, whose own calls are not ours to judge.
    /// `related` says whether two callers belong together: a call by the caller of the outer one is no call of the
    /// vendor's, but one from a callback, or the outer one is long over.
    #[inline(always)]
    pub fn enter(place: &'a Place, related: fn(usize, usize) -> bool) -> Option<Inside<'a>> {
        let thread = current();
        let here = core::ptr::from_ref(place) as usize;
        let (before, outer, caller) = (thread.inside.get(), thread.outer.get(), thread.caller.get());
        let mut left = (0, 0);
        if before != 0 && !was_left(thread, here, before) {
            if !related(caller, outer) {
                return None;
            }
            left = (before, outer);
        }
        // SAFETY: an exclusive cell of the caller's; volatile, since it is read by address.
        unsafe { place.0.as_ptr().write_volatile(here ^ TOKEN) };
        thread.inside.set(here);
        thread.outer.set(caller);
        Some(Inside { thread, place, before: left })
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { self.place.0.as_ptr().write_volatile(0) };
        self.thread.inside.set(self.before.0);
        self.thread.outer.set(self.before.1);
    }
}

/// Whether the mark at `before` belongs to a frame that is gone. Such a frame was usually written over since, but for
/// holes in later frames.
#[cold]
#[inline(never)]
fn was_left(thread: &Thread, here: usize, before: usize) -> bool {
    if here < before && before - here < NESTING {
        // SAFETY: above the stack pointer and near it, so on this stack, unless the thread changed stacks and the
        // other one lies just above.
        let token = unsafe { (before as *const usize).read_volatile() };
        if token == before ^ TOKEN {
            return false;
        }
    }
    left_by_longjmp(thread);
    true
}

/// How a launch goes on.
pub enum Entered {
    /// The gate stands plainly open and the launch is counted: call the driver, then [`Counted::done`].
    Fast(Counted),
    /// The queue is known, but the gate wants a closer look: [`XQueue::admit`].
    Slow(&'static XQueue, &'static Counter),
    /// This thread has not used the queue lately: [`remember`] it and enter again.
    Unknown,
}

/// A launch counted by [`enter`].
pub struct Counted(&'static Counter);

impl Counted {
    /// Takes the count back if the driver refused the launch.
    #[inline(always)]
    pub fn done(self, accepted: bool) {
        if !accepted {
            idle::uncount::<Hardware>(&self.0.launches);
        }
    }
}

/// Why a launch does not simply go on.
#[derive(Clone, Copy)]
pub enum Held {
    /// This thread has not used the queue lately.
    Unknown,
    /// It is counted, but the gate does not stand plainly open.
    Counted,
}

/// The fast path of a launch on the queue with this key: find it, count, one load of the gate word. Touches one line of the
/// cache of the thread's own, one of its counter and one of the gate.
#[inline(always)]
pub fn pass(key: usize) -> Result<Counted, Held> {
    let entry = current().entries[slot_of(key)].get();
    let Some(known) = entry.known else { return Err(Held::Unknown) };
    if entry.key != key || known.counter.stamp.load(Relaxed) != entry.stamp {
        return Err(Held::Unknown);
    }
    let gate = idle::count(&known.counter.launches, &known.slot.gate);
    if gate.is_plainly_open() || gate.is_inspected() && inspected(gate, known.slot, known.counter) {
        Ok(Counted(known.counter))
    } else {
        Err(Held::Counted)
    }
}

impl Held {
    /// A closer look, right after [`pass`]: is there anything that this launch needs?
    #[inline(never)]
    pub fn look(self, key: usize) -> Entered {
        let known = current().entries[slot_of(key)].get().known;
        let (Held::Counted, Some(Known { queue, slot, counter })) = (self, known) else { return Entered::Unknown };
        // Counted already, see above.
        if is_open_unbounded(slot) && queue.in_order() && !admission::is_followed(counter.total().wrapping_sub(1)) {
            take_inspected();
            return Entered::Fast(Counted(counter));
        }
        Entered::Slow(queue, counter)
    }
}

/// [`pass`] and [`Held::look`] at once, as tests of the core launch.
#[inline(always)]
pub fn enter(key: usize) -> Entered {
    match pass(key) {
        Ok(counted) => Entered::Fast(counted),
        Err(held) => held.look(key),
    }
}

/// Whether a gate stands open for any number of launches, beside rivals or not.
fn is_open_unbounded(slot: &GroupSlot) -> bool {
    // A group that is not contended has no budget. Where call sites are inspected, that was done.
    let gate = slot.gate.peek().without(Gate::EXCLUSIVE | Gate::DEVICE_GATES_BYPASSED | Gate::INSPECT);
    gate.is_plainly_open()
        || gate == Gate::GRANTED | Gate::CONTENDED
            && slot.budget_us.load(Relaxed) == 0
            && slot.budget_commands.load(Relaxed) == 0
}

/// Where call sites are looked at: whether the launch goes on at once.
#[inline(never)]
fn inspected(gate: Gate, slot: &GroupSlot, counter: &Counter) -> bool {
    let goes_on = inspect::launch(slot, counter) || gate.without(Gate::INSPECT).is_plainly_open();
    current().inspected.set(!goes_on);
    goes_on
}

/// Whether the launch that goes the slow path was looked at already; asked once for each.
pub(crate) fn take_inspected() -> bool {
    current().inspected.replace(false)
}

/// Address of a word on the stack of the hook that the calling thread is in: for one hook, always in the same distance
/// from where its caller's return address lies.
pub fn place_of_hook() -> usize {
    current().inside.get()
}

#[inline(always)]
fn slot_of(key: usize) -> usize {
    // Handles are addresses of heap objects: the low bits say nothing.
    (key ^ (key >> 4) ^ (key >> 9)) % ENTRIES
}

/// Lets this thread find a queue by [`enter`].
pub fn remember(rt: &'static Runtime, key: usize, queue: &'static XQueue, counter: &'static Counter) {
    let stamp = counter.stamp.load(Acquire);
    let group = queue.group(rt);
    let thread = current();
    displace(rt, thread, thread.entries[slot_of(key)].get(), key);
    thread.entries[slot_of(key)].set(Entry { key, stamp, known: Some(Known { queue, slot: group.slot(rt), counter }) });
}

/// An entry makes room for `key`. That its queue was used still matters, see [`priority`].
fn displace(rt: &Runtime, thread: &Thread, old: Entry, key: usize) {
    let (before, after) = (thread.displaced.get(), (old.key, old.known.map(|k| k.queue)));
    if old.key != key && rank_of(rt, after) > rank_of(rt, before) {
        thread.displaced.set(after);
    }
}

/// A queue, unless it is gone.
fn living(rt: &Runtime, (key, queue): (usize, Option<&'static XQueue>)) -> Option<&'static XQueue> {
    queue.filter(|q| q.key() == key && q.slot(rt).group.load(Relaxed) != 0)
}

/// Rank of a queue's group, unless it is gone.
fn rank_of(rt: &Runtime, used: (usize, Option<&'static XQueue>)) -> Option<i32> {
    living(rt, used).map(|q| q.group(rt).priority.load(Relaxed))
}

/// The queues this thread used lately. One may have moved to another group since.
pub(crate) fn used(rt: &Runtime) -> impl Iterator<Item = &'static XQueue> {
    let thread = current();
    let remembered = thread.entries.iter().map(|e| (e.get().key, e.get().known.map(|k| k.queue)));
    remembered.chain([thread.displaced.get()]).filter_map(|used| living(rt, used))
}

/// Highest priority of their groups, if it used any.
pub(crate) fn priority(rt: &Runtime) -> Option<i32> {
    used(rt).map(|q| q.group(rt).priority.load(Relaxed)).max()
}

/// The slow way must be taken once, so that what the left frames would have undone is undone.
#[cold]
#[inline(never)]
fn left_by_longjmp(thread: &Thread) {
    if thread.waits.get() != 0 {
        forget_queues(thread);
    }
}

fn forget_queues(thread: &Thread) {
    for entry in &thread.entries {
        entry.set(Entry { key: 0, stamp: 0, known: None });
    }
    thread.displaced.set((0, None));
}

/// The calling thread waits on behalf of a group, which is not idle meanwhile.
pub(crate) fn start_waiting(rt: &Runtime, group: &Group) {
    stop_waiting(rt);
    let must_announce = group.readiness(rt).begin_wait();
    current().waits.set(u32::from(group.index) + 1);
    // The agent may have called the group idle just now, and the daemon would let it wait for ever.
    if must_announce {
        group.announce(rt);
        rt.poke_if_due();
    }
}

/// It also lends the group a priority until it stops waiting.
pub(crate) fn lend_while_waiting(rt: &Runtime, group: &Group, priority: i32) {
    crate::inherit::lend(rt, group, priority);
    current().lends.set(priority + PRIORITY_BIAS);
}

/// The end of [`start_waiting`], whether the wait returned or was left by `longjmp` some time ago.
pub(crate) fn stop_waiting(rt: &Runtime) {
    let thread = current();
    let Some(at) = thread.waits.replace(0).checked_sub(1) else { return };
    let group = &rt.groups[at as usize];
    let priority = thread.lends.replace(0);
    if priority != 0 {
        crate::inherit::take_back(rt, group, priority - PRIORITY_BIAS);
    }
    group.readiness(rt).end_wait();
}

/// In a forked child: the segment is not mapped here, so nothing remembered may be used.
pub fn forget_all() {
    let thread = current();
    forget_queues(thread);
    thread.inside.set(0);
    thread.waits.set(0);
    thread.lends.set(0);
    thread.inspected.set(false);
}
