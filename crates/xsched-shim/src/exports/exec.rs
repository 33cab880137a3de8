//! The functions of the C library that execute a program. Where its new environment has lost this library, the library
//! is added again ([`crate::follow`]).
//!
//! `system` and `popen` are left to the C library: it gives their shell the environment of the process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::follow::{self, Strings, Target};
use crate::interpose::resolve;

type ExecFn = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
type FexecveFn = unsafe extern "C" fn(c_int, Strings, Strings) -> c_int;
type ExecveatFn = unsafe extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
type SpawnFn =
    unsafe extern "C" fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;

/// The next function of a name behind ours, looked up once.
struct Real(&'static CStr, AtomicPtr<c_void>);

impl Real {
    const fn new(name: &'static CStr) -> Real {
        Real(name, AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The function's address. Looked up before a fork at the latest: the child might wait forever for the loader's
    /// lock. Not looked up when this library is loaded, since most programs execute no other.
    fn get(&self) -> *mut c_void {
        let known = self.1.load(Acquire);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let real = resolve::keeping_errno(|| resolve::next(self.0));
        self.1.store(real, Release);
        real
    }
}

static EXECVE: Real = Real::new(c"execve");
static EXECVPE: Real = Real::new(c"execvpe");
static FEXECVE: Real = Real::new(c"fexecve");
static EXECVEAT: Real = Real::new(c"execveat");
static POSIX_SPAWN: Real = Real::new(c"posix_spawn");
static POSIX_SPAWNP: Real = Real::new(c"posix_spawnp");

/// Finds the functions that a forked child may call.
pub(crate) fn before_fork() {
    for real in [&EXECVE, &EXECVPE, &FEXECVE, &EXECVEAT] {
        real.get();
    }
}

unsafe extern "C" {
    static environ: Strings;
}

/// Environment of this process.
fn own() -> Strings {
    // SAFETY: a pointer that the C library keeps. A thread that changes it now would race with the application's call.
    unsafe { environ }
}

fn absent() -> c_int {
    // SAFETY: the calling thread's own word.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// `execve`, or `execvpe` with a name to be searched for.
///
/// # Safety
/// As of these.
unsafe fn execute(real: &Real, target: Target, file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    let real = real.get();
    if real.is_null() {
        return absent();
    }
    // SAFETY: the C library's function, or that of another library before it.
    let real = unsafe { std::mem::transmute::<*mut c_void, ExecFn>(real) };
    // SAFETY: the caller's own arguments.
    unsafe { follow::with(target, envp, |envp| real(file, argv, envp)) }
}

// SAFETY: as the C library's, of all of these.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { execute(&EXECVE, Target::Path(path), path, argv, envp) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { execute(&EXECVE, Target::Path(path), path, argv, own()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { execute(&EXECVPE, Target::Name(file), file, argv, envp) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { execute(&EXECVPE, Target::Name(file), file, argv, own()) }
}

/// `execle`, whose environment follows the null that ends the arguments.
unsafe extern "C" fn with_environment(path: *const c_char, argv: Strings) -> c_int {
    let mut at = argv;
    // SAFETY: the caller's arguments end in null, and the environment follows.
    let envp = unsafe {
        while !(*at).is_null() {
            at = at.add(1);
        }
        (*at.add(1)).cast()
    };
    // SAFETY: the caller's own arguments.
    unsafe { execute(&EXECVE, Target::Path(path), path, argv, envp) }
}

/// Exports a function whose arguments from the second on are a list ended by null. The implementation gets them as an
/// array.
macro_rules! listed {
    ($($name:ident => $implementation:path;)*) => {
        $(
            // SAFETY: behind the return address lie the arguments that no register holds. With that address out of the way and the
            // registers before them they are a list. Six words are pushed in the end, so that the stack is aligned for the call;
            // all is as before when it returns.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "pop rax",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "push rax",
                    "call {implementation}",
                    "pop rdx",
                    "add rsp, 40",
                    "push rdx",
                    "ret",
                    implementation = sym $implementation,
                )
            }
        )*
    };
}

listed! {
    execl => execv;
    execlp => execvp;
    execle => with_environment;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    let real = FEXECVE.get();
    if real.is_null() {
        return absent();
    }
    // SAFETY: the C library's function, or that of another library before it.
    let real = unsafe { std::mem::transmute::<*mut c_void, FexecveFn>(real) };
    // SAFETY: the caller's own arguments.
    unsafe { follow::with(Target::Descriptor(fd), envp, |envp| real(fd, argv, envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(folder: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
    let real = EXECVEAT.get();
    if real.is_null() {
        return absent();
    }
    // SAFETY: the C library's function, or that of another library before it.
    let real = unsafe { std::mem::transmute::<*mut c_void, ExecveatFn>(real) };
    // SAFETY: the caller's own arguments.
    unsafe { follow::with(Target::Below(folder, path), envp, |envp| real(folder, path, argv, envp, flags)) }
}

/// `posix_spawn`, or `posix_spawnp` with a name to be searched for.
///
/// # Safety
/// As of these.
unsafe fn spawn(
    real: &Real,
    target: Target,
    pid: *mut libc::pid_t,
    file: *const c_char,
    rest: (*const c_void, *const c_void, Strings, Strings),
) -> c_int {
    let real = real.get();
    if real.is_null() {
        return libc::ENOSYS;
    }
    let (actions, attributes, argv, envp) = rest;
    // SAFETY: the C library's function, or that of another library before it.
    let real = unsafe { std::mem::transmute::<*mut c_void, SpawnFn>(real) };
    // SAFETY: the caller's own arguments.
    unsafe { follow::with(target, envp, |envp| real(pid, file, actions, attributes, argv, envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    let rest = (actions, attributes, argv, envp);
    // SAFETY: the caller's own arguments.
    unsafe { spawn(&POSIX_SPAWN, Target::Path(path), pid, path, rest) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    let rest = (actions, attributes, argv, envp);
    // SAFETY: the caller's own arguments.
    unsafe { spawn(&POSIX_SPAWNP, Target::Name(file), pid, file, rest) }
}

/// Names of all functions exported here, for the audit of the library's exports.
pub const NAMES: &[&str] = &[
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
];
