//! Memory of a thread: the XQueues it used last, and the vendor call that it is in.

use core::cell::Cell;

use xsched_flow::signals::Signals;
use xsched_proto::segment::{Counter, GroupSlot};

use crate::group::Group;
use crate::origin::Way;
use crate::queue::XQueue;

/// Number of XQueues that a thread finds without asking the [`crate::Runtime`].
const ENTRIES: usize = 8;

/// Entry of one XQueue in a thread's memory; all zero = unused. A cache line of its own.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Entry {
    pub(crate) key: usize,
    pub(crate) stamp: u64,
    pub(crate) known: Option<Known>,
}

/// An XQueue, and the words of it that a launch touches.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) queue: &'static XQueue,
    pub(crate) group: &'static Group,
    pub(crate) slot: &'static GroupSlot,
    pub(crate) counter: &'static Counter,
}

/// State of one thread. Plain data, valid when zero and without a destructor, so that the C library need not know.
#[repr(C)]
pub struct Thread {
    /// Return address of the vendor call this thread is making; written by the preload library's stubs.
    pub caller: Cell<usize>,
    /// Copy of the vendor's library that the call is for; written likewise.
    pub binding: Cell<usize>,
    /// Address of the [`Place`] of the outermost hook this thread is in; 0 = none.
    inside: Cell<usize>,
    /// [`Thread::caller`] of that hook.
    outer: Cell<usize>,
    /// 1 + index of the group that counts this thread as waiting; 0 = none. Outlives a wait left by `longjmp`.
    waits: Cell<u32>,
    /// Priority that the thread lends to that group meanwhile, plus [`PRIORITY_BIAS`]; 0 = none.
    lends: Cell<i32>,
    /// The signals that interrupted its waits.
    pub(crate) signals: Cell<Signals>,
    pub(crate) entries: [Cell<Entry>; ENTRIES],
    /// The most urgent queue that was displaced from `entries`, and its key.
    pub(crate) displaced: Cell<(usize, Option<&'static XQueue>)>,
    /// The preload library's own data: its knowledge of this thread's call sites.
    pub sites: Cell<usize>,
    /// Result of the inspection of the launch under way, see [`crate::inspect`].
    pub(crate) inspected: Cell<Way>,
    /// The launch under way does not wait for queues that the program itself holds, see [`crate::Hold`].
    pub passes_holds: Cell<bool>,
    /// A signal ended its last wait at a gate: the command behind it must not wait further on.
    pub(crate) let_through: Cell<bool>,
    /// The preload library's own data: number of an advance of memory, and bytes that the thread has left of it.
    pub advance: Cell<(u64, u64)>,
    /// Time at which the thread began to wait at the gate of the group in `waits`, in ns of the daemon's clock; 0 = it does not.
    at_gate_since: Cell<u64>,
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

/// Depth below the mark, in bytes, beyond which no vendor library calls itself.
const NESTING: usize = 256 * 1024;
/// Value of a living mark, beside its own address.
const TOKEN: usize = 0x5a17_ed1c_0de5_b33f;

/// Place on the stack of a hook, which marks its thread as inside a vendor call.
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
    /// Marks the thread; `None` when it is inside a vendor call already: calls that a vendor's library makes itself are not
    /// scheduled. `related` says if two callers belong together: a call by the caller of the outer one is no call of the vendor's,
    /// but one from a callback, or the outer one has returned.
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

/// True: the mark at `before` belongs to a frame that is gone. Such a frame was usually written over since, except for holes in
/// later frames.
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

impl Thread {
    /// Notes that the thread waits on behalf of the group with this index.
    pub(crate) fn begin_wait(&self, group: u16) {
        self.waits.set(u32::from(group) + 1);
    }

    /// Notes that this wait is at the group's gate.
    pub(crate) fn is_at_gate(&self, since_ns: u64) {
        self.at_gate_since.set(since_ns);
    }

    /// Ends the wait at a gate. Returns the time at which it began, in ns, if the thread was at one.
    pub(crate) fn leave_gate(&self) -> Option<u64> {
        Some(self.at_gate_since.replace(0)).filter(|since| *since != 0)
    }

    /// Notes the priority that the thread lends to that group meanwhile.
    pub(crate) fn lend(&self, priority: i32) {
        self.lends.set(priority + PRIORITY_BIAS);
    }

    /// Ends the wait. Returns the index of the group that the thread waited for, if it waited.
    pub(crate) fn end_wait(&self) -> Option<usize> {
        self.waits.replace(0).checked_sub(1).map(|at| at as usize)
    }

    /// Ends the loan. Returns the priority that was lent, if there was one.
    pub(crate) fn take_back(&self) -> Option<i32> {
        let lent = self.lends.replace(0);
        (lent != 0).then_some(lent - PRIORITY_BIAS)
    }
}

/// Address of a word on the stack of the hook that the calling thread is in: for one hook, always at the same distance from its
/// caller's return address.
pub fn place_of_hook() -> usize {
    current().inside.get()
}

#[inline(always)]
pub(crate) fn slot_of(key: usize) -> usize {
    // Handles are addresses of heap objects: their low bits are mostly equal.
    (key ^ (key >> 4) ^ (key >> 9)) % ENTRIES
}

/// Forgets the queues of a thread whose wait was left by `longjmp`: it must take the slow path once, which undoes what the left
/// frames would have undone.
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

/// Forgets everything in a forked child: the segment is not mapped there, so that nothing remembered may be used.
pub fn forget_all() {
    let thread = current();
    forget_queues(thread);
    thread.inside.set(0);
    thread.waits.set(0);
    thread.lends.set(0);
    thread.inspected.set(Way::Unknown);
    thread.passes_holds.set(false);
    thread.signals.set(Signals::default());
    thread.let_through.set(false);
}
