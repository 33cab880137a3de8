//! Stand-ins for functions that not every C library has in libc.so.6.
//!
//! A preload library is loaded into every program that is started, and one function that the loader does not find ends
//! that program. So the linker binds calls of `NAME` to `__wrap_NAME` here (build.rs), which jumps to the real function
//! through a weak reference, 0 if there is none. Until glibc 2.34, threads and `dlopen` were in libraries of their own;
//! their functions are searched for there at the first call. Programs that use a device have loaded those libraries for
//! its driver.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::elf;

/// A function of another library of the same C library.
struct Elsewhere {
    library: &'static str,
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    /// The function that is called if no such library is loaded.
    missing: unsafe extern "C" fn() -> usize,
}

extern "C" fn find(function: &Elsewhere) -> usize {
    let known = function.found.load(Relaxed);
    if !known.is_null() {
        return known as usize;
    }
    let found = elf::symbol_in(function.library, function.name);
    if found.is_null() {
        return function.missing as *const () as usize;
    }
    function.found.store(found, Relaxed);
    found as usize
}

unsafe extern "C" fn no_threads() -> usize {
    libc::ENOSYS as usize
}

unsafe extern "C" fn nothing() -> usize {
    0
}

/// Defines the symbol to which the linker binds calls: it jumps to the real function, or else to its stand-in.
macro_rules! jumps_on {
    ($name:ident, $($otherwise:literal)*, $($argument:tt)*) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.__wrap_", stringify!($name), ", \"ax\", @progbits"),
            concat!(".weak __real_", stringify!($name)),
            concat!(".globl __wrap_", stringify!($name)),
            concat!(".hidden __wrap_", stringify!($name)),
            concat!(".type __wrap_", stringify!($name), ", @function"),
            concat!("__wrap_", stringify!($name), ":"),
            concat!("mov rax, qword ptr [rip + __real_", stringify!($name), "@GOTPCREL]"),
            "test rax, rax",
            "jz 2f",
            "jmp rax",
            $($otherwise,)*
            ".popsection",
            $($argument)*
        );
    };
}

macro_rules! elsewhere {
    ($library:literal, $missing:ident: $($name:ident)*) => {
        $(
            // Keeps the argument registers; the return address, four pushes and 8 bytes align the stack for the call.
            mod $name {
                use super::*;

                static FUNCTION: Elsewhere = Elsewhere {
                    library: $library,
                    // SAFETY: an identifier has no NUL in it.
                    name: unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
                    found: AtomicPtr::new(std::ptr::null_mut()),
                    missing: $missing,
                };
                jumps_on! { $name,
                    "2: push rdi"
                    "push rsi"
                    "push rdx"
                    "push rcx"
                    "sub rsp, 8"
                    "lea rdi, [rip + {function}]"
                    "call {find}"
                    "add rsp, 8"
                    "pop rcx"
                    "pop rdx"
                    "pop rsi"
                    "pop rdi"
                    "jmp rax",
                    function = sym FUNCTION, find = sym find
                }
            }
        )*
    };
}

elsewhere! { "libpthread.so", no_threads:
    pthread_attr_getguardsize pthread_attr_getstack pthread_attr_setstacksize pthread_create pthread_detach pthread_getattr_np
    pthread_getspecific pthread_join pthread_key_create pthread_key_delete pthread_setaffinity_np pthread_setname_np
    pthread_setspecific pthread_sigmask
}

elsewhere! { "libdl.so", nothing: dladdr dlerror dlopen }

macro_rules! instead {
    ($($name:ident => $stand_in:ident;)*) => {
        $(jumps_on! { $name, "2: jmp {stand_in}", stand_in = sym $stand_in })*
    };
}

instead! {
    clock_gettime => clock_gettime;
    clock_nanosleep => clock_nanosleep;
    fstat => fstat;
    fstat64 => fstat;
    getauxval => getauxval;
    gnu_get_libc_version => no_version;
    lstat64 => lstat;
    stat64 => stat;
}

unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int }
}

/// Returns an error instead of storing it.
unsafe extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's own arguments; the calling thread's own word.
    unsafe {
        match libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) {
            0 => 0,
            _ => *libc::__errno_location(),
        }
    }
}

// A `struct stat` is the kernel's own. glibc has had these as functions of libc.so.6 since 2.33.
unsafe extern "C" fn stat(path: *const c_char, out: *mut c_void) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_stat, path, out) as c_int }
}

unsafe extern "C" fn lstat(path: *const c_char, out: *mut c_void) -> c_int {
    // SAFETY: as for stat.
    unsafe { libc::syscall(libc::SYS_lstat, path, out) as c_int }
}

unsafe extern "C" fn fstat(fd: c_int, out: *mut c_void) -> c_int {
    // SAFETY: as for stat.
    unsafe { libc::syscall(libc::SYS_fstat, c_long::from(fd), out) as c_int }
}

/// Returns "not in the vector", an answer that callers must handle anyway.
unsafe extern "C" fn getauxval(_: libc::c_ulong) -> libc::c_ulong {
    0
}

/// An empty version, which no glibc has.
unsafe extern "C" fn no_version() -> *const c_char {
    c"".as_ptr()
}

/// Version of the glibc in this process; `None` with another C library.
pub(crate) fn glibc_version() -> Option<&'static CStr> {
    // SAFETY: glibc's own string, or the empty one above.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    (!version.is_empty()).then_some(version)
}
