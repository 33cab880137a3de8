//! Search for the function that a caller would have reached without this library.
//!
//! Order: first the part of the global scope behind this library, to which an ordinary caller binds. If that has no
//! definition, or got it only after the caller was loaded, the caller's own scope: the object whose opening loaded the
//! caller, and the objects that it was linked against. Through its own scope an extension module that brings its own
//! copy of a vendor library, loaded with RTLD_LOCAL, finds that copy. A vendor library is never opened by a path or
//! name of our choosing.
//!
//! No lock of ours is held during a call into the loader: the loader has locks of its own, which a caller may hold
//! (constructors).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

use xsched_core::thread;

use super::objects::Objects;
use super::{AnyFn, BINDINGS, Hook, beneath, elf, sites};
use crate::lock::Lock;

type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type DlvsymFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type DlcloseFn = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// A vendor library behind a binding.
#[derive(Clone, Copy, Default, PartialEq)]
struct Behind {
    /// Load address; 0 = free.
    base: usize,
    /// Number of times that a stub for it was handed out. Tells whether the place was used again meanwhile.
    given: u32,
}

/// The vendor library behind each binding but 0.
type Copies = [Behind; BINDINGS - 1];
static COPIES: Lock<Copies> = Lock::new();
/// Load addresses of the copies, for a forked child that lost [`COPIES`] because another thread of the parent had it
/// locked.
static BASES: [AtomicUsize; BINDINGS - 1] = [const { AtomicUsize::new(0) }; BINDINGS - 1];
/// Set if [`COPIES`] was lost in a fork.
static LOST: AtomicBool = AtomicBool::new(false);

/// Functions found so far, each with the way it was found, for `xsched doctor --pid`.
static FOUND: Lock<Vec<Found>> = Lock::new();

/// One function that was found.
#[derive(Clone)]
pub struct Found {
    /// The hook.
    pub hook: &'static Hook,
    /// The real function.
    pub address: usize,
    /// Way it was found: `next` (global scope), `caller` (caller's scope) or `handle` (a handle passed to `dlsym`).
    pub via: &'static str,
}

/// Drops state that another thread of the parent was changing, in a forked child.
pub(crate) fn forget_if_held() {
    FOUND.forget_if_held();
    if COPIES.forget_if_held() {
        LOST.store(true, Release);
    }
}

fn copies() -> MutexGuard<'static, Copies> {
    // Asks the loader before the lock is taken.
    let bound = LOST.load(Acquire).then(bound_copies);
    let mut copies = COPIES.lock();
    if let Some(bound) = bound
        && LOST.swap(false, AcqRel)
    {
        *copies = bound;
    }
    copies
}

/// Rebuilds the copies from [`BASES`], as far as they are still loaded.
fn bound_copies() -> Copies {
    BASES.each_ref().map(|base| {
        let base = base.load(Acquire);
        Behind { base: if base_of(base) == Some(base) { base } else { 0 }, given: 0 }
    })
}

/// Every function found so far.
pub fn found() -> Vec<Found> {
    FOUND.lock().clone()
}

fn note(hook: &'static Hook, address: *mut c_void, via: &'static str) {
    let mut found = FOUND.lock();
    let address = address as usize;
    if !found.iter().any(|f| std::ptr::eq(f.hook, hook) && f.address == address) {
        found.push(Found { hook, address, via });
    }
}

/// Files that hold the C library's loader functions: libc.so.6 since glibc 2.34, libdl.so.2 before, musl's loader.
const LIBC: [&str; 3] = ["libc.so", "libdl.so", "ld-musl"];

/// Address of the C library's own function of this name; of [`nothing`] if no such function is loaded.
fn of_libc(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut at = known.load(Relaxed);
    if at.is_null() {
        at = LIBC.into_iter().map(|file| elf::symbol_in(file, name)).find(|at| !at.is_null()).unwrap_or_default();
        known.store(at, Relaxed);
    }
    if at.is_null() { nothing as *const () as *mut c_void } else { at }
}

/// Stand-in for a function that is not loaded: returns a null pointer.
extern "C" fn nothing() -> *mut c_void {
    std::ptr::null_mut()
}

/// The C library's own `dlsym`.
pub(crate) fn real_dlsym() -> DlsymFn {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: each C library's dlsym has this signature, and what stands for one ignores its arguments.
    unsafe { std::mem::transmute::<*mut c_void, DlsymFn>(of_libc(&REAL, c"dlsym")) }
}

/// The C library's own `dlvsym`.
pub(crate) fn real_dlvsym() -> DlvsymFn {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: as for dlsym.
    unsafe { std::mem::transmute::<*mut c_void, DlvsymFn>(of_libc(&REAL, c"dlvsym")) }
}

/// The `dlclose` behind ours: the C library's, or that of another preloaded library.
pub(crate) fn real_dlclose() -> DlcloseFn {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Relaxed);
    if known.is_null() {
        known = next(c"dlclose");
        if known.is_null() {
            known = of_libc(&REAL, c"dlclose");
        }
        REAL.store(known, Relaxed);
    }
    // SAFETY: dlclose of the C library, or of another library that stands before it.
    unsafe { std::mem::transmute::<*mut c_void, DlcloseFn>(known) }
}

/// Reports whether two addresses lie in one loaded object.
#[cold]
pub fn same_object(one: usize, other: usize) -> bool {
    object_of(one).is_some_and(|a| object_of(other).is_some_and(|b| a.0 == b.0))
}

/// Load address and file of the object that holds an address.
pub fn object_of(address: usize) -> Option<(usize, CString)> {
    let address = beneath::behind(address);
    // SAFETY: Dl_info is plain data that dladdr fills; its strings are the loader's.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some((info.dli_fbase as usize, CStr::from_ptr(info.dli_fname).to_owned()))
    }
}

/// First and last address (exclusive) of the object that holds an address.
pub fn range_of(address: usize) -> Option<(usize, usize)> {
    let objects = Objects::now();
    Some(objects.range(objects.place_of(address)?))
}

fn base_of(address: usize) -> Option<usize> {
    object_of(address).map(|(base, _)| base)
}

/// Reports whether an address lies in this library.
pub fn is_ours(address: *mut c_void) -> bool {
    static BASE: AtomicUsize = AtomicUsize::new(0);
    let mut base = BASE.load(Relaxed);
    if base == 0 {
        base = base_of(is_ours as *const () as usize).unwrap_or(0);
        BASE.store(base, Relaxed);
    }
    base_of(address as usize) == Some(base)
}

fn unless_ours(found: *mut c_void) -> *mut c_void {
    if found.is_null() || is_ours(found) { std::ptr::null_mut() } else { found }
}

/// The first definition behind this library in the global scope.
pub fn next(name: &CStr) -> *mut c_void {
    let dlsym = real_dlsym();
    if dlsym as usize == nothing as *const () as usize {
        // A program of an older glibc without libdl.so cannot open libraries, so all loaded objects are in the global
        // scope.
        return elf::symbol_behind(next as *const () as usize, name);
    }
    // SAFETY: the real dlsym; RTLD_NEXT is relative to the caller, which is this library.
    unless_ours(unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) })
}

/// First definition in the global scope if it comes before this library. Callers then never reach our stub by that
/// name, and must not.
pub(crate) fn before_us(name: &CStr) -> *mut c_void {
    in_global_scope(name)
}

/// Reports whether an object that was loaded after this library defines a name.
pub(crate) fn is_behind_us(name: &CStr) -> bool {
    let objects = Objects::now();
    let Some(own) = objects.place_of(is_behind_us as *const () as usize) else { return false };
    let has = |at: usize| {
        let found = Handle::of_loaded(objects.file(at)).look_up(name, None);
        !found.is_null() && objects.place_of(found as usize) > Some(own)
    };
    let found = !next(name).is_null() || (own + 1..objects.len()).any(has);
    forget_failures();
    found
}

/// The first definition in the global scope, unless that is ours.
pub fn in_global_scope(name: &CStr) -> *mut c_void {
    // SAFETY: the real dlsym; this library's scope is the global one.
    unless_ours(unsafe { real_dlsym()(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// A handle of an object that is already loaded, closed on drop. Null if the loader gives none.
struct Handle(*mut c_void);

impl Handle {
    fn of_loaded(file: &CStr) -> Handle {
        let file = if file.is_empty() { std::ptr::null() } else { file.as_ptr() };
        // SAFETY: RTLD_NOLOAD opens nothing; it only raises the count of an object that is there.
        Handle(unsafe { libc::dlopen(file, libc::RTLD_NOLOAD | libc::RTLD_LAZY) })
    }

    fn look_up(&self, name: &CStr, version: Option<&CStr>) -> *mut c_void {
        if self.0.is_null() {
            return self.0;
        }
        // SAFETY: a handle of our own.
        unless_ours(unsafe {
            match version {
                None => real_dlsym()(self.0, name.as_ptr()),
                Some(version) => real_dlvsym()(self.0, name.as_ptr(), version.as_ptr()),
            }
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: our own handle, closed once, by the real function: an object that was there stays there.
            unsafe { real_dlclose()(self.0) };
        }
    }
}

/// Definition that the object at `address` offers, itself or through the libraries that it was linked against.
pub fn in_scope_of(address: usize, name: &CStr) -> *mut c_void {
    object_of(address).map_or(std::ptr::null_mut(), |(_, file)| Handle::of_loaded(&file).look_up(name, None))
}

/// Keeps the object that holds `address` loaded until the process ends.
pub fn keep(address: usize) {
    if let Some((_, file)) = object_of(address) {
        // SAFETY: opens nothing; the handle is given up on purpose.
        unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE) };
    }
}

/// The function that a call from `caller` through the exported stub would have reached. Null if there is none.
#[cold]
#[inline(never)]
pub fn for_caller(hook: &'static Hook, caller: usize) -> *mut c_void {
    let known = sites::look_up(hook, caller);
    if !known.is_null() {
        return known;
    }
    let generation = sites::generation();
    let real = keeping_errno(|| search(hook, caller));
    forget_failures();
    if !real.is_null() {
        sites::remember(hook, caller, real, generation);
    }
    real
}

fn search(hook: &'static Hook, caller: usize) -> *mut c_void {
    let objects = Objects::now();
    let global = next(hook.name);
    let global_at = objects.place_of(global as usize);
    if let Some(at) = global_at
        && objects.is_initial(at)
    {
        // Every caller, past and future, binds to it, and it is never unloaded: cache it for the whole binding.
        note(hook, global, "next");
        hook.set(0, global);
        return global;
    }
    let own = objects.place_of(caller).filter(|at| !objects.is_initial(*at)).map(|at| objects.root_of(at));
    let local = match own {
        // The global definition is older than the caller, so the caller would have been bound to it.
        Some(root) if global_at.is_some_and(|at| at < root) => std::ptr::null_mut(),
        Some(root) => Handle::of_loaded(objects.file(root)).look_up(hook.name, None),
        None => std::ptr::null_mut(),
    };
    if !local.is_null() {
        note(hook, local, "caller");
        return local;
    }
    if !global.is_null() {
        // A caller that is bound to a library keeps that library loaded. The loader bound this caller to us instead, so
        // we keep it loaded.
        keep(global as usize);
        note(hook, global, "next");
    }
    global
}

/// Function for a call whose origin does not define the name, through a pointer obtained elsewhere: the only definition
/// in the process or, if there are several, the choice that `choose` makes, given the first.
pub fn anywhere(hook: &'static Hook, choose: impl FnOnce(*mut c_void) -> *mut c_void) -> *mut c_void {
    let caller = thread::current().caller.get();
    let generation = sites::generation();
    let objects = Objects::now();
    let mut all = (0..objects.len())
        .map(|at| Handle::of_loaded(objects.file(at)).look_up(hook.name, None))
        .filter(|found| !found.is_null());
    let first = all.next().unwrap_or(std::ptr::null_mut());
    let only = all.all(|other| other == first);
    forget_failures();
    if first.is_null() {
        return first;
    }
    let real = if only { first } else { choose(first) };
    note(hook, real, "caller");
    if only {
        sites::remember(hook, caller, real, generation);
    }
    real
}

/// Function of this name that most callers in the process mean: the global one, or else the first one loaded; null if
/// there is none. For vendors' functions that are called without being hooked, since this library need not be
/// preloaded.
pub(crate) fn in_process(name: &CStr) -> *mut c_void {
    keeping_errno(|| {
        let global = [next(name), in_global_scope(name)].into_iter().find(|found| !found.is_null());
        let found = global.or_else(|| {
            let objects = Objects::now();
            let mut all = (0..objects.len()).map(|at| Handle::of_loaded(objects.file(at)).look_up(name, None));
            all.find(|found| !found.is_null())
        });
        forget_failures();
        found.unwrap_or(std::ptr::null_mut())
    })
}

/// Reports whether this library was loaded before the program began. Only then do the program's own calls pass through
/// it.
pub(crate) fn is_preloaded() -> bool {
    let objects = Objects::now();
    objects.place_of(is_preloaded as *const () as usize).is_some_and(|at| objects.is_initial(at))
}

/// Definition that RTLD_DEFAULT with a version gives a caller, passing over this library.
pub(crate) fn versioned_for_caller(name: &CStr, version: &CStr, caller: usize) -> *mut c_void {
    // SAFETY: the real dlvsym; RTLD_NEXT is relative to the caller, which is this library.
    let global = unless_ours(unsafe { real_dlvsym()(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) });
    if !global.is_null() {
        return global;
    }
    let objects = Objects::now();
    let own = objects.place_of(caller).filter(|at| !objects.is_initial(*at));
    own.map_or(std::ptr::null_mut(), |at| {
        Handle::of_loaded(objects.file(objects.root_of(at))).look_up(name, Some(version))
    })
}

/// Meaning of RTLD_NEXT for a caller.
pub(crate) enum Next {
    /// The loader's own answer.
    AsIs,
    /// This function instead.
    Function(*mut c_void),
    /// No function.
    Nothing,
}

/// Resolves RTLD_NEXT for `caller`, where the loader's answer would be this library or an unscheduled function.
pub(crate) fn next_for_caller(name: &CStr, caller: usize) -> Next {
    let objects = Objects::now();
    let Some(at) = objects.place_of(caller) else { return Next::AsIs };
    if objects.is_initial(at) {
        // An interposer that looks for the function behind its own gets whatever lies behind it. If only this library
        // does, there is none.
        let before = before_us(name);
        let between = !before.is_null() && objects.place_of(before as usize) > Some(at);
        return if between || !next(name).is_null() { Next::AsIs } else { Next::Nothing };
    }
    if objects.root_of(at) != at {
        return Next::AsIs;
    }
    // A module that was opened at run time continues in the list of libraries that it was linked against.
    let found = Handle::of_loaded(objects.file(at)).look_up(name, None);
    match objects.place_of(found as usize) {
        Some(place) if place != at => Next::Function(found),
        _ => Next::AsIs,
    }
}

/// Stub to hand out for `real`, so that calls through it reach that very copy of the vendor library. Returns `real`
/// itself when too many copies are in use.
pub fn stub_for(hook: &'static Hook, real: *mut c_void) -> *mut c_void {
    let pointer = |stub: AnyFn| stub as *mut c_void;
    // If another library's function comes first, the exported name is bound to that one, in this library too.
    if hook.known(0) == real && is_ours(pointer(hook.exported)) {
        return pointer(hook.exported);
    }
    let Some((base, file)) = object_of(real as usize) else { return real };
    let mut copies = copies();
    for binding in 1..BINDINGS {
        let copy = &mut copies[binding - 1];
        if copy.base == 0 {
            copy.base = base;
            BASES[binding - 1].store(base, Release);
        }
        let known = hook.known(binding);
        if copy.base == base && (known.is_null() || known == real) {
            copy.given = copy.given.wrapping_add(1);
            hook.set(binding, real);
            drop(copies);
            note(hook, real, "handle");
            return pointer(hook.thunks[binding - 1]);
        }
    }
    drop(copies);
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let most = BINDINGS - 1;
        xsched_agent::say(&format!(
            "more than {most} copies of device libraries are in use; calls to functions looked up in {} and further \
             ones are not scheduled",
            file.to_string_lossy()
        ));
    }
    real
}

/// Function to hand out instead of `given`, which `giver`, a function of a vendor library, returned for `hook`.
pub fn stub_for_given(hook: &'static Hook, given: *mut c_void, giver: *mut c_void) -> *mut c_void {
    if given == before_us(hook.name) {
        return given;
    }
    if !is_ours(given) {
        return stub_for(hook, given);
    }
    // The vendor library refers to its own functions by name, and the loader bound that name to our stub. A thunk is
    // bound to a copy already.
    if given as usize != hook.exported as usize {
        return given;
    }
    let real = for_caller(hook, giver as usize);
    if real.is_null() { given } else { stub_for(hook, real) }
}

/// Closes a handle for the application. Forgets what was known of objects that are gone afterwards: here, in all
/// `hooks`, and elsewhere by `unmapped`.
pub(crate) fn close<I: Iterator<Item = &'static Hook>>(
    handle: *mut c_void,
    hooks: impl Fn() -> I,
    unmapped: impl FnOnce(),
) -> c_int {
    // SAFETY: the caller's own handle.
    let rc = sites::forget_after(|| unsafe { real_dlclose()(handle) }, unmapped);
    let before = *copies();
    for (at, copy) in before.iter().enumerate() {
        if copy.base == 0 || base_of(copy.base) == Some(copy.base) {
            continue;
        }
        let mut copies = copies();
        // Unless a stub was handed out meanwhile: another object has then been loaded at this address.
        if copies[at] == *copy {
            for hook in hooks() {
                hook.set(at + 1, std::ptr::null_mut());
            }
            BASES[at].store(0, Release);
            copies[at] = Behind { base: 0, given: copy.given };
        }
    }
    rc
}

/// Clears the message that a failed lookup of ours leaves for the application's `dlerror`.
pub(crate) fn forget_failures() {
    // SAFETY: no arguments; clears the calling thread's message.
    unsafe { libc::dlerror() };
}

/// Runs a part of ours and restores the caller's `errno` afterwards.
#[inline(always)]
pub fn keeping_errno<T>(part: impl FnOnce() -> T) -> T {
    // SAFETY: the calling thread's own word.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = part();
        *errno = before;
        result
    }
}

/// Answer of the real `dlsym` for a handle.
pub(crate) fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's own handle.
    unsafe { real_dlsym()(handle, name.as_ptr()) }
}

/// `RTLD_DEFAULT` and `RTLD_NEXT` of <dlfcn.h>, as numbers.
pub(crate) const DEFAULT: usize = 0;
pub(crate) const NEXT: usize = usize::MAX;
