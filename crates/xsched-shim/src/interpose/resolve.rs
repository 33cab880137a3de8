//! Which function a caller would have got without us.
//!
//! Order: the rest of the global scope behind this library (what an ordinary caller binds to); if that has none, or got
//! it only after the caller was loaded, the caller's own scope: the object that was opened when the caller came in, and
//! what it was linked against. The second is how an extension module that brings its own copy of a vendor library,
//! loaded with RTLD_LOCAL, finds that copy. A vendor library is never opened by a path or name of our own choosing.
//!
//! No lock of ours is held while the loader is asked: it has locks of its own, which a caller may hold (constructors).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

use xsched_core::thread;

use super::objects::Objects;
use super::{AnyFn, BINDINGS, Hook, elf, sites};
use crate::lock::Lock;

type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type DlvsymFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type DlcloseFn = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// A vendor library behind a binding.
#[derive(Clone, Copy, Default, PartialEq)]
struct Behind {
    /// Load address; 0 = free.
    base: usize,
    /// How often it was given out.
    given: u32,
}

/// The vendor library behind each binding but 0.
type Copies = [Behind; BINDINGS - 1];
static COPIES: Lock<Copies> = Lock::new();
/// Where they lie, for a forked child that lost them: another thread of the parent had them locked.
static BASES: [AtomicUsize; BINDINGS - 1] = [const { AtomicUsize::new(0) }; BINDINGS - 1];
/// They were lost in a fork.
static LOST: AtomicBool = AtomicBool::new(false);

/// How each function was found, for `xsched doctor --pid`.
static FOUND: Lock<Vec<Found>> = Lock::new();

/// One function that was found.
#[derive(Clone)]
pub struct Found {
    /// The hook.
    pub hook: &'static Hook,
    /// The real function.
    pub address: usize,
    /// `next`, `caller` or `handle`.
    pub via: &'static str,
}

/// In a forked child: what another thread of the parent was changing is forgotten.
pub(crate) fn forget_if_held() {
    FOUND.forget_if_held();
    if COPIES.forget_if_held() {
        LOST.store(true, Release);
    }
}

fn copies() -> MutexGuard<'static, Copies> {
    // The loader is asked before we lock.
    let bound = LOST.load(Acquire).then(bound_copies);
    let mut copies = COPIES.lock();
    if let Some(bound) = bound
        && LOST.swap(false, AcqRel)
    {
        *copies = bound;
    }
    copies
}

/// The copies, as far as they are still there.
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

/// Where the C library has its functions for libraries: in libc.so.6 since glibc 2.34, in libdl.so.2 before, in the loader with musl.
const LIBC: [&str; 3] = ["libc.so", "libdl.so", "ld-musl"];

/// The C library's own function of this name. `nothing` where none is loaded.
fn of_libc(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut at = known.load(Relaxed);
    if at.is_null() {
        at = LIBC.into_iter().map(|file| elf::symbol_in(file, name)).find(|at| !at.is_null()).unwrap_or_default();
        known.store(at, Relaxed);
    }
    if at.is_null() { nothing as *const () as *mut c_void } else { at }
}

/// In place of a function that is not loaded: a null pointer for an answer.
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

/// The `dlclose` behind ours.
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

/// Whether two addresses lie in the same loaded object.
#[cold]
pub fn same_object(one: usize, other: usize) -> bool {
    object_of(one).is_some_and(|a| object_of(other).is_some_and(|b| a.0 == b.0))
}

/// Load address and file of the object that holds an address.
pub fn object_of(address: usize) -> Option<(usize, CString)> {
    // SAFETY: Dl_info is plain data that dladdr fills; its strings are the loader's.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some((info.dli_fbase as usize, CStr::from_ptr(info.dli_fname).to_owned()))
    }
}

/// Where the object that holds an address begins and ends.
pub fn range_of(address: usize) -> Option<(usize, usize)> {
    let objects = Objects::now();
    Some(objects.range(objects.place_of(address)?))
}

fn base_of(address: usize) -> Option<usize> {
    object_of(address).map(|(base, _)| base)
}

/// Whether an address lies in this library.
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
        // A program of an older glibc without libdl.so opens nothing: what is loaded is the global scope.
        return elf::symbol_behind(next as *const () as usize, name);
    }
    // SAFETY: the real dlsym; RTLD_NEXT is relative to the caller, which is this library.
    unless_ours(unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) })
}

/// The first definition in the global scope, if it comes before this library: then no caller reaches us by that name, and
/// none shall.
pub(crate) fn before_us(name: &CStr) -> *mut c_void {
    in_global_scope(name)
}

/// Whether an object that was loaded after this library has a definition.
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

/// A handle of an object that is loaded, closed on drop. Null if it cannot be had.
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

/// What the object that holds `address` offers, itself or through what it was linked against.
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
        // Every caller was and will be bound to it, and it is never unloaded.
        note(hook, global, "next");
        hook.set(0, global);
        return global;
    }
    let own = objects.place_of(caller).filter(|at| !objects.is_initial(*at)).map(|at| objects.root_of(at));
    let local = match own {
        // It was global before the caller came in.
        Some(root) if global_at.is_some_and(|at| at < root) => std::ptr::null_mut(),
        Some(root) => Handle::of_loaded(objects.file(root)).look_up(hook.name, None),
        None => std::ptr::null_mut(),
    };
    if !local.is_null() {
        note(hook, local, "caller");
        return local;
    }
    if !global.is_null() {
        // A caller that is bound to a library keeps it loaded; but the loader bound this one to us.
        keep(global as usize);
        note(hook, global, "next");
    }
    global
}

/// For a call from where the name means nothing, through a pointer taken elsewhere: the only definition there is, or
/// else what `choose` makes of the first one.
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

/// For what does not come by, since this library need not be preloaded: the function of this name that most callers in the
/// process mean, which is the global one, or else the first that was loaded. Null if there is none.
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

/// Whether this library was there when the program began: calls of the program come by then.
pub(crate) fn is_preloaded() -> bool {
    let objects = Objects::now();
    objects.place_of(is_preloaded as *const () as usize).is_some_and(|at| objects.is_initial(at))
}

/// What RTLD_DEFAULT with a version gives a caller, this library aside.
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

/// What RTLD_NEXT means to a caller.
pub(crate) enum Next {
    /// What the loader answers.
    AsIs,
    /// This function.
    Function(*mut c_void),
    /// Nothing at all.
    Nothing,
}

/// What RTLD_NEXT means to `caller`, where the loader's answer would be this library or something unscheduled.
pub(crate) fn next_for_caller(name: &CStr, caller: usize) -> Next {
    let objects = Objects::now();
    let Some(at) = objects.place_of(caller) else { return Next::AsIs };
    if objects.is_initial(at) {
        // An interposer looking for the function behind its own: what lies behind it, it shall have. Only if that
        // is nothing but this library, there is nothing.
        let before = before_us(name);
        let between = !before.is_null() && objects.place_of(before as usize) > Some(at);
        return if between || !next(name).is_null() { Next::AsIs } else { Next::Nothing };
    }
    if objects.root_of(at) != at {
        return Next::AsIs;
    }
    // A module that was opened looks behind itself in the list of what it was linked against.
    let found = Handle::of_loaded(objects.file(at)).look_up(name, None);
    match objects.place_of(found as usize) {
        Some(place) if place != at => Next::Function(found),
        _ => Next::AsIs,
    }
}

/// The stub to hand out for `real`, so that calls through it end in that very copy of the vendor library.
/// `real` itself when too many copies are in use.
pub fn stub_for(hook: &'static Hook, real: *mut c_void) -> *mut c_void {
    let pointer = |stub: AnyFn| stub as *mut c_void;
    // Where another library's function comes first, the exported name means that one, in this library too.
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

/// What to hand out in place of a function that `giver`, a function of a vendor library, gave as `hook`.
pub fn stub_for_given(hook: &'static Hook, given: *mut c_void, giver: *mut c_void) -> *mut c_void {
    if given == before_us(hook.name) {
        return given;
    }
    if !is_ours(given) {
        return stub_for(hook, given);
    }
    // The giver refers to its own functions by name, and the loader bound that name to us. (A thunk is bound already.)
    if given as usize != hook.exported as usize {
        return given;
    }
    let real = for_caller(hook, giver as usize);
    if real.is_null() { given } else { stub_for(hook, real) }
}

/// Closes a handle for the application. What was known of objects that are gone after is forgotten: here, in all `hooks`, and
/// elsewhere, by `unmapped`.
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
        // Unless it was given out meanwhile: something new has been loaded there.
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

/// Failed questions of ours leave no message for the application's `dlerror`.
pub(crate) fn forget_failures() {
    // SAFETY: no arguments; clears the calling thread's message.
    unsafe { libc::dlerror() };
}

/// Runs a part of ours that must not change the caller's `errno`.
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

/// What the real `dlsym` answers for a handle.
pub(crate) fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's own handle.
    unsafe { real_dlsym()(handle, name.as_ptr()) }
}

/// `RTLD_DEFAULT` and `RTLD_NEXT` of <dlfcn.h>, as numbers.
pub(crate) const DEFAULT: usize = 0;
pub(crate) const NEXT: usize = usize::MAX;
