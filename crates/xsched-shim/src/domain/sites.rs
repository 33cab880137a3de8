//! Attribution of launches to libraries, cached by call site and thread.
//!
//! The library that counts is the one that called the vendor's interface; if that is a vendor's runtime (libcudart over
//! libcuda), the first one up the stack that is not. A direct call is identified by its return address. A call through
//! a runtime is identified by walking up the stack once. The cache then stores where the caller's return address lay,
//! relative to the hook's frame, and in which library. Code without variable stack frames puts it there every time, so
//! that the next call needs to read only that word to see whether the same library calls again. A word that this call
//! has not written may hold the return address of an earlier call, perhaps of another library: if entries of several
//! libraries match, the stack is walked again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, MutexGuard};

use xsched_core::inspect::{Domain, Origin};
use xsched_core::thread::{self, Thread};

use super::names::Kind;
use super::objects::{self, Object};
use super::rules::{self, Verdict};
use super::walk;
use crate::lock::Lock;
use crate::process;

/// Number of direct call sites that a thread remembers.
const DIRECT: usize = 256;
/// Number of call sites within a runtime that a thread remembers.
const THROUGH: usize = 64;
const PROBES: usize = 4;
/// Number of domains that may be pushed at a time.
const DEPTH: u8 = 32;

/// Generation of valid entries, raised whenever an object may have been unmapped.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// State of one library on one thread.
struct Tally {
    object: Arc<Object>,
    /// The library is a runtime, so its callers decide.
    runtime: bool,
    detected: Domain,
    verdict: Verdict,
    /// Domain that the library set on this thread, as a [`code`].
    explicit: AtomicU8,
    launches: AtomicU64,
    said: AtomicBool,
    /// Digest of the above that decides most launches with one read: [`PLAIN_APPLICATION`], [`PLAIN_SYSTEM`] or
    /// [`CLOSER`].
    summary: AtomicU8,
}

/// Scheduled as its detected domain says, without an explicit domain or a rule.
const PLAIN_APPLICATION: u8 = 0;
const PLAIN_SYSTEM: u8 = 1;
/// Not decided by the digest: [`look_closer`] reads the rest.
const CLOSER: u8 = 2;

impl Tally {
    fn sum_up(&self) {
        let plain = !self.runtime && !self.verdict.passes() && self.explicit.load(Relaxed) == 0 && !rules::by_name();
        let summary = match (plain, self.detected) {
            (false, _) => CLOSER,
            (true, Domain::System) => PLAIN_SYSTEM,
            (true, Domain::Application) => PLAIN_APPLICATION,
        };
        self.summary.store(summary, Relaxed);
    }
}

fn code(domain: Option<Domain>) -> u8 {
    domain.map_or(0, |d| if d == Domain::System { 1 } else { 2 })
}

fn decode(code: u8) -> Option<Domain> {
    match code {
        1 => Some(Domain::System),
        2 => Some(Domain::Application),
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct Direct {
    caller: usize,
    tally: Option<&'static Tally>,
}

#[derive(Clone, Copy)]
struct Through {
    caller: usize,
    /// Offset of the return address from the hook's frame, in bytes.
    offset: usize,
    start: usize,
    end: usize,
    tally: Option<&'static Tally>,
}

/// Attribution state of one thread.
struct Sites {
    generation: Cell<u32>,
    pushed: Cell<u64>,
    depth: Cell<u8>,
    stack: (usize, usize),
    tallies: Cell<Vec<&'static Tally>>,
    direct: [Cell<Direct>; DIRECT],
    through: [Cell<Through>; THROUGH],
}

const NO_DIRECT: Direct = Direct { caller: 0, tally: None };
const NO_THROUGH: Through = Through { caller: 0, offset: 0, start: 0, end: 0, tally: None };

/// Tallies of every thread, and the counts of threads that have ended.
#[derive(Default)]
struct Counted {
    living: Vec<&'static Tally>,
    ended: BTreeMap<String, u64>,
}

static COUNTED: Lock<Counted> = Lock::new();

fn counted() -> MutexGuard<'static, Counted> {
    COUNTED.lock()
}

/// File name of a path, by which users know a library.
fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

impl Sites {
    #[cold]
    #[inline(never)]
    fn make(thread: &Thread) -> &'static Sites {
        process::watch_thread();
        let sites: &'static Sites = Box::leak(Box::new(Sites {
            generation: Cell::new(GENERATION.load(Acquire)),
            pushed: Cell::new(0),
            depth: Cell::new(0),
            stack: stack(),
            tallies: Cell::new(Vec::new()),
            direct: [const { Cell::new(NO_DIRECT) }; DIRECT],
            through: [const { Cell::new(NO_THROUGH) }; THROUGH],
        }));
        thread.sites.set(std::ptr::from_ref(sites) as usize);
        sites
    }

    #[inline(always)]
    fn known(thread: &Thread) -> Option<&'static Sites> {
        // SAFETY: zero, or leaked by `make` on this thread; taken back only when the thread ends.
        unsafe { (thread.sites.get() as *const Sites).as_ref() }
    }

    #[inline(always)]
    fn of(thread: &Thread) -> &'static Sites {
        match Sites::known(thread) {
            Some(sites) => sites,
            None => Sites::make(thread),
        }
    }

    /// Domain that this thread pushed last, if it pushed any; the inner `None` is "automatic".
    #[inline(always)]
    fn pushed(&self) -> Option<Option<Domain>> {
        (self.depth.get() > 0).then(|| decode((self.pushed.get() & 3) as u8))
    }

    /// Forgets all call sites: another object may have been mapped at an address since.
    #[cold]
    #[inline(never)]
    fn renew(&self, generation: u32) {
        self.generation.set(generation);
        self.direct.iter().for_each(|d| d.set(NO_DIRECT));
        self.through.iter().for_each(|t| t.set(NO_THROUGH));
    }

    /// The tally of a library on this thread.
    fn tally(&self, object: Arc<Object>) -> &'static Tally {
        let mut tallies = self.tallies.take();
        let same = |t: &&&Tally| t.object.file == object.file && t.object.named == object.named;
        let found = tallies.iter().find(same).copied();
        let tally = found.unwrap_or_else(|| {
            let tally: &'static Tally = Box::leak(Box::new(Tally {
                runtime: object.kind == Kind::Runtime,
                detected: if object.kind == Kind::Vendor { Domain::System } else { Domain::Application },
                verdict: rules::of_library(&object.file, object.named),
                object,
                explicit: AtomicU8::new(0),
                launches: AtomicU64::new(0),
                said: AtomicBool::new(false),
                summary: AtomicU8::new(CLOSER),
            }));
            tally.sum_up();
            tallies.push(tally);
            counted().living.push(tally);
            tally
        });
        self.tallies.set(tallies);
        tally
    }

    /// Library that contains the call which returns to `caller`.
    #[inline(always)]
    fn direct(&self, caller: usize) -> Option<&'static Tally> {
        let generation = GENERATION.load(Acquire);
        if self.generation.get() != generation {
            self.renew(generation);
        }
        let place = &self.direct[(caller ^ (caller >> 8)) % DIRECT];
        let known = place.get();
        if known.caller == caller { known.tally } else { self.find(caller, place) }
    }

    #[cold]
    #[inline(never)]
    fn find(&self, caller: usize, place: &Cell<Direct>) -> Option<&'static Tally> {
        // The fast path of a launch catches no panic, so this does.
        let found = || objects::of(caller).map(|object| self.tally(object));
        let tally = process::guarded("when a call site is looked up", found).flatten();
        place.set(Direct { caller, tally });
        tally
    }

    /// Library that called the runtime which holds `caller`; the runtime itself if the stack cannot be followed.
    fn through(&self, caller: usize, here: usize, runtime: &'static Tally) -> &'static Tally {
        let first = (caller ^ (caller >> 8)) % THROUGH;
        let places = (0..PROBES).map(|i| &self.through[(first + i) % THROUGH]);
        let (mut seen, mut is_one): (Option<&'static Tally>, bool) = (None, true);
        for place in places.clone() {
            let known = place.get();
            if known.caller == caller && here >= self.stack.0 && here + known.offset < self.stack.1 {
                // SAFETY: a word of this thread's own stack, above the running frame.
                let word = unsafe { ((here + known.offset) as *const usize).read_volatile() };
                if (known.start..known.end).contains(&word)
                    && let Some(tally) = known.tally
                {
                    is_one &= seen.is_none_or(|other| std::ptr::eq(other, tally));
                    seen = Some(tally);
                }
            }
        }
        if let Some(tally) = seen.filter(|_| is_one) {
            return tally;
        }
        let walked = || walk::caller_beyond(caller).map(|f| (f.at, f.object.start, f.object.end, self.tally(f.object)));
        let found = process::guarded("when a caller is looked up", walked).flatten();
        let Some((at, start, end, tally)) = found else { return runtime };
        // Only the thread's own stack can be read safely, so a call on any other stack is not cached.
        let is_new = seen.is_none();
        if is_new && here >= self.stack.0 && at < self.stack.1 && at > here {
            let free = places.clone().find(|p| p.get().caller == 0).or_else(|| places.clone().next());
            if let Some(place) = free {
                place.set(Through { caller, offset: at - here, start, end, tally: Some(tally) });
            }
        }
        tally
    }

    /// Library to which a call is attributed.
    #[inline(always)]
    fn library(&self, caller: usize) -> Option<&'static Tally> {
        let tally = self.direct(caller)?;
        Some(if tally.runtime { self.through(caller, thread::place_of_hook(), tally) } else { tally })
    }
}

/// Lowest address of the calling thread's stack, and the address of its last word.
fn stack() -> (usize, usize) {
    // SAFETY: attributes are plain data that pthread_getattr_np fills and pthread_attr_destroy ends.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return (0, 0);
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        let rc = libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        if rc == 0 { (low as usize, low as usize + size - size_of::<usize>()) } else { (0, 0) }
    }
}

/// Attributes the current launch.
pub(super) fn launch(thread: &Thread) -> Origin {
    let sites = Sites::of(thread);
    if let Some(tally) = sites.direct(thread.caller.get())
        && sites.depth.get() == 0
    {
        let summary = tally.summary.load(Relaxed);
        if summary != CLOSER {
            tally.launches.store(tally.launches.load(Relaxed).wrapping_add(1), Relaxed);
            let detected = if summary == PLAIN_SYSTEM { Domain::System } else { Domain::Application };
            return Origin { passes: false, explicit: None, detected };
        }
    }
    look_closer(thread, sites)
}

#[inline(never)]
fn look_closer(thread: &Thread, sites: &Sites) -> Origin {
    let pushed = sites.pushed();
    let Some(tally) = sites.library(thread.caller.get()) else {
        // Generated code, which is in no library.
        let passes = rules::passes(Verdict::UNNAMED, thread.binding.get());
        return Origin { passes, explicit: pushed.flatten(), detected: Domain::Application };
    };
    tally.launches.store(tally.launches.load(Relaxed).wrapping_add(1), Relaxed);
    let passes = rules::passes(tally.verdict, thread.binding.get());
    if passes && !tally.said.load(Relaxed) && !tally.said.swap(true, Relaxed) {
        process::guarded("when a rule is hit", || rules::say_hit(&tally.object.file, tally.verdict));
    }
    let explicit = pushed.unwrap_or_else(|| decode(tally.explicit.load(Relaxed)));
    Origin { passes, explicit, detected: tally.detected }
}

/// Explicit domain of the code that is creating a stream. The stream exists already, and its creation may have passed
/// through other hooks, which overwrote the noted caller; but the caller's frames are still on the stack.
pub(super) fn maker(thread: &Thread) -> Option<Domain> {
    let sites = Sites::of(thread);
    let set = || decode(sites.tally(walk::caller()?.object).explicit.load(Relaxed));
    sites.pushed().unwrap_or_else(set)
}

/// Binds a domain to the library that holds `caller`, on this thread. False: no library holds it.
pub(crate) fn set(caller: usize, domain: Option<Domain>) -> bool {
    let tally = Sites::of(thread::current()).direct(caller);
    if let Some(tally) = tally {
        tally.explicit.store(code(domain), Relaxed);
        tally.sum_up();
    }
    tally.is_some()
}

/// Explicit domain in force for calls from the library that holds `caller`, on this thread.
pub(crate) fn explicit(caller: usize) -> Option<Domain> {
    let sites = Sites::known(thread::current())?;
    sites.pushed().unwrap_or_else(|| decode(sites.direct(caller)?.explicit.load(Relaxed)))
}

/// Pushes a domain on this thread. Returns false if [`DEPTH`] are pushed already.
pub(crate) fn push(domain: Option<Domain>) -> bool {
    let sites = Sites::of(thread::current());
    let depth = sites.depth.get();
    if depth == DEPTH {
        return false;
    }
    sites.pushed.set(sites.pushed.get() << 2 | u64::from(code(domain)));
    sites.depth.set(depth + 1);
    true
}

/// Pops the domain pushed last. Returns false if none is pushed.
pub(crate) fn pop() -> bool {
    let Some(sites) = Sites::known(thread::current()) else { return false };
    let Some(depth) = sites.depth.get().checked_sub(1) else { return false };
    sites.pushed.set(sites.pushed.get() >> 2);
    sites.depth.set(depth);
    true
}

/// Number of launches by library, largest first.
pub(super) fn totals() -> Vec<(String, u64)> {
    let counted = counted();
    let mut by_name = counted.ended.clone();
    for tally in &counted.living {
        *by_name.entry(short(&tally.object.file).to_owned()).or_default() += tally.launches.load(Relaxed);
    }
    let mut all: Vec<(String, u64)> = by_name.into_iter().filter(|(_, n)| *n > 0).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

pub(super) fn thread_ends() {
    let thread = thread::current();
    let Some(sites) = Sites::known(thread) else { return };
    thread.sites.set(0);
    let own = sites.tallies.take();
    let mut all = counted();
    for tally in own {
        *all.ended.entry(short(&tally.object.file).to_owned()).or_default() += tally.launches.load(Relaxed);
        all.living.retain(|t| !std::ptr::eq(*t, tally));
        // SAFETY: leaked for this thread, which was the last to know it.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(tally).cast_mut()) });
    }
    // SAFETY: leaked by `make` for this thread, and no longer found.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(sites).cast_mut()) });
}

/// Abandons the state of all threads, in a forked child.
pub(super) fn forget_all() {
    thread::current().sites.set(0);
    COUNTED.forget();
}

/// Invalidates all cached call sites.
pub(super) fn forget_sites() {
    GENERATION.fetch_add(1, AcqRel);
}
