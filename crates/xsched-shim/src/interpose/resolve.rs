//! Which function a caller would have got without us.
//!
//! Order: the rest of the global scope behind this library (what an ordinary caller binds to); if that has none, the
//! caller's own scope: the object that holds the call, and what it was linked against. The second is how an extension
//! module that brings its own copy of a vendor library, loaded with RTLD_LOCAL, finds that copy. A vendor library is
//! never opened by a path or name of our own choosing.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use super::{AnyFn, BINDINGS, Hook, elf};

type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type DlvsymFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Call sites whose function was found in their own scope.
const SITES: usize = 1024;
/// Colliding call sites tried before a search is made anew.
const PROBES: usize = 4;

struct Site {
    key: AtomicUsize,
    real: AtomicPtr<c_void>,
}

static SITE_CACHE: [Site; SITES] =
    [const { Site { key: AtomicUsize::new(0), real: AtomicPtr::new(std::ptr::null_mut()) } }; SITES];

/// Load address of the vendor library behind each binding but 0.
static BINDING_BASES: Mutex<[usize; BINDINGS - 1]> = Mutex::new([0; BINDINGS - 1]);

/// How each function was found, for `xsched doctor --pid`.
static FOUND: Mutex<Vec<Found>> = Mutex::new(Vec::new());

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

/// Every function found so far.
pub fn found() -> Vec<Found> {
    FOUND.lock().unwrap_or_else(|e| e.into_inner()).clone()
}

fn note(hook: &'static Hook, address: *mut c_void, via: &'static str) {
    let mut found = FOUND.lock().unwrap_or_else(|e| e.into_inner());
    let address = address as usize;
    if !found.iter().any(|f| std::ptr::eq(f.hook, hook) && f.address == address) {
        found.push(Found { hook, address, via });
    }
}

/// The C library's own `dlsym`.
pub(super) fn real_dlsym() -> DlsymFn {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Relaxed);
    if known.is_null() {
        known = elf::symbol_in("libc.so", c"dlsym");
        REAL.store(known, Relaxed);
    }
    // SAFETY: the floor of this library is glibc 2.34, whose libc.so.6 has dlsym with this signature.
    unsafe { std::mem::transmute::<*mut c_void, DlsymFn>(known) }
}

/// The C library's own `dlvsym`.
pub(super) fn real_dlvsym() -> DlvsymFn {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Relaxed);
    if known.is_null() {
        known = elf::symbol_in("libc.so", c"dlvsym");
        REAL.store(known, Relaxed);
    }
    // SAFETY: as for dlsym.
    unsafe { std::mem::transmute::<*mut c_void, DlvsymFn>(known) }
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

/// Whether an address lies in this library.
pub(super) fn is_ours(address: *mut c_void) -> bool {
    static BASE: AtomicUsize = AtomicUsize::new(0);
    let mut base = BASE.load(Relaxed);
    if base == 0 {
        base = object_of(is_ours as *const () as usize).map_or(0, |o| o.0);
        BASE.store(base, Relaxed);
    }
    object_of(address as usize).is_some_and(|o| o.0 == base)
}

/// The first definition behind this library in the global scope.
pub(super) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the real dlsym; RTLD_NEXT is relative to the caller, which is this library.
    let found = unsafe { real_dlsym()(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() || is_ours(found) { std::ptr::null_mut() } else { found }
}

/// What the object that holds `address` finds in its own scope.
pub fn in_scope_of(address: usize, name: &CStr) -> *mut c_void {
    let Some((_, file)) = object_of(address) else { return std::ptr::null_mut() };
    // SAFETY: RTLD_NOLOAD opens nothing; it only raises the count of an object that is there.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a handle from above, closed once.
    let found = unsafe {
        let found = real_dlsym()(handle, name.as_ptr());
        libc::dlclose(handle);
        found
    };
    if found.is_null() || is_ours(found) { std::ptr::null_mut() } else { found }
}

/// The function that a call from `caller` through the exported stub would have reached. Null if there is none.
#[cold]
#[inline(never)]
pub fn for_caller(hook: &'static Hook, caller: usize) -> *mut c_void {
    let key = caller ^ ((hook as *const Hook as usize) << 8);
    let start = (key ^ (key >> 12)) % SITES;
    for i in 0..PROBES {
        let site = &SITE_CACHE[(start + i) % SITES];
        if site.key.load(Acquire) == key {
            let real = site.real.load(Acquire);
            if !real.is_null() {
                return real;
            }
        }
    }
    let real = next(hook.name);
    if !real.is_null() {
        note(hook, real, "next");
        // Nobody was bound otherwise before: from now on this is the answer for everybody.
        if !found().iter().any(|f| std::ptr::eq(f.hook, hook) && f.via == "caller") {
            hook.real[0].store(real, Release);
        }
    }
    let real = if real.is_null() { in_scope_of(caller, hook.name) } else { real };
    if real.is_null() {
        return real;
    }
    if hook.real[0].load(Relaxed).is_null() {
        note(hook, real, "caller");
    }
    for i in 0..PROBES {
        let site = &SITE_CACHE[(start + i) % SITES];
        if site.key.compare_exchange(0, key, AcqRel, Relaxed).is_ok() {
            site.real.store(real, Release);
            break;
        }
    }
    real
}

/// The stub to hand out for `real`, so that calls through it end in that very copy of the vendor library.
/// `real` itself when too many copies are in use.
pub fn stub_for(hook: &'static Hook, real: *mut c_void) -> *mut c_void {
    let pointer = |stub: AnyFn| stub as *mut c_void;
    if hook.real[0].load(Acquire) == real {
        return pointer(hook.exported);
    }
    let Some((base, _)) = object_of(real as usize) else { return real };
    note(hook, real, "handle");
    let mut bases = BINDING_BASES.lock().unwrap_or_else(|e| e.into_inner());
    for binding in 1..BINDINGS {
        let place = &mut bases[binding - 1];
        let known = hook.real[binding].load(Acquire);
        if *place == 0 {
            *place = base;
        }
        if *place == base && (known.is_null() || known == real) {
            hook.real[binding].store(real, Release);
            return pointer(hook.thunks[binding - 1]);
        }
    }
    real
}

/// What the real `dlsym` answers for a handle.
pub(super) fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's own handle.
    unsafe { real_dlsym()(handle, name.as_ptr()) }
}

/// `RTLD_DEFAULT` and `RTLD_NEXT` of <dlfcn.h>, as numbers.
pub(super) const DEFAULT: usize = 0;
pub(super) const NEXT: usize = usize::MAX;
