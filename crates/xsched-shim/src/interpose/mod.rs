//! Stubs and lookup between callers and vendor libraries.
//!
//! Every hooked function is a [`Hook`]. Callers reach it through its exported stub (bound by the loader), or through
//! one of its thunks (handed out by `dlsym` and the vendors' own lookup functions). Both only note where the call
//! came from and jump to the implementation, which asks [`Hook::real`] for the function to call in the end.
//!
//! A thunk belongs to a *binding*: one copy of a vendor library. So a pointer got from one copy never ends up in
//! another. The exported stub is binding 0: whatever the caller's own binding would have been (see [`resolve`]).

pub(crate) mod absent;
pub mod beneath;
pub(crate) mod cells;
mod elf;
pub(crate) mod ioctl;
pub(crate) mod objects;
pub mod resolve;
mod sites;
mod unwind;
pub(crate) mod walk;

use std::ffi::{CStr, c_void};
use std::sync::atomic::Ordering::*;

use xsched_core::thread;

pub use self::cells::{Cells, Reals};
use crate::stage;

/// Number of copies of vendor libraries told apart in one process; further ones are left unscheduled and reported.
pub const BINDINGS: usize = 8;

/// Hash of a hooked function's name, which its stub stores above the number of the binding. An immediate operand of the
/// stub, so it costs nothing unless it is read.
pub(crate) const fn tag(name: &str) -> usize {
    let (bytes, mut at, mut hash) = (name.as_bytes(), 0, 0x811c_9dc5_u32);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    // A hash of 28 bits: with the three bits of the binding it is a positive number of 32 bits.
    (hash >> 4) as usize * BINDINGS
}

/// Any function, for tables.
pub type AnyFn = unsafe extern "C" fn();

/// One hooked vendor function.
pub struct Hook {
    /// Name of the function.
    pub name: &'static CStr,
    /// Bit of the function's platform in `XSCHED_PLATFORMS`, see [`crate::enabled::platform_enabled`].
    pub platform: u8,
    /// The exported stub, which callers reach by the function's name.
    pub exported: AnyFn,
    /// A further stub for each binding but 0.
    pub thunks: [AnyFn; BINDINGS - 1],
    /// The real function of each binding, once known.
    pub(crate) known: Reals,
    /// Copies of the real functions for calls to read; see [`Cells`].
    pub(crate) cells: &'static Reals,
}

impl Hook {
    /// Finds the function for a call whose cell is empty.
    fn look_up(&'static self) -> *mut c_void {
        let thread = thread::current();
        let (caller, binding) = (thread.caller.get(), thread.binding.get() % BINDINGS);
        stage::leave_unless_ours(stage::Occasion::Use);
        let known = self.known(binding);
        if known.is_null() {
            return beneath::before(self, resolve::for_caller(self, caller));
        }
        self.fill(binding, known);
        beneath::before(self, known)
    }
}

/// The function that the current call of a hook would have reached without us, as far as it is `known`; null if there is
/// none. An implementation calls this first: later calls on this thread overwrite the origin of this one.
#[inline(always)]
pub fn real(known: *mut c_void, hook: impl FnOnce() -> &'static Hook) -> *mut c_void {
    if known.is_null() { unknown(hook) } else { known }
}

/// That function, if it was looked up for such a call before; otherwise null. `cells` are the hook's.
#[inline(always)]
pub fn known(cells: &'static Reals) -> *mut c_void {
    cells[thread::current().binding.get() % BINDINGS].load(Acquire)
}

/// Slow path of [`real`]. Compiled beside each caller, so that the compiler sees that it is cold there and moves the
/// call out of the launch's path.
#[cold]
#[inline(never)]
fn unknown(hook: impl FnOnce() -> &'static Hook) -> *mut c_void {
    hook().look_up()
}

/// Effect of a hooked function on scheduling. Every function that a vendor's library exports is in exactly one class,
/// or listed in the platform's `no_device_work.txt` and not hooked, or listed in `record.txt`: then it records a
/// command that is scheduled when the recording is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Enqueues a kernel.
    Launch,
    /// Enqueues a copy, a fill, a map or another transfer.
    Copy,
    /// Enqueues something that orders other commands: barriers, markers, waits, signals.
    Order,
    /// Waits on the host for the device.
    Sync,
    /// Begins or ends the recording of commands that would otherwise be enqueued.
    Capture,
    /// Changes or inspects recorded commands.
    Recorded,
    /// Initialises the vendor's library.
    Begin,
    /// Creates a queue or a context.
    Create,
    /// Destroys a queue or a context, or decides when it will be.
    Destroy,
    /// Provides or resolves an event on the host that a queue may wait for.
    HostEvent,
    /// Allocates, shares, frees or reports memory, without work for the device.
    Memory,
    /// Returns the addresses of functions by name.
    Lookup,
}

/// Hooked functions of one class, declared by one `hooks!`.
pub struct Group {
    /// Class of the hooks.
    pub class: Class,
    /// The hooks.
    pub hooks: &'static [&'static Hook],
    /// Cells for the real functions of the hooks.
    pub(crate) cells: &'static [Reals],
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("interpose/mod.rs and exports/ hold x86-64 stubs: write those of this architecture first");

// The stubs below write the first two words of the calling thread's state: where the call comes from, and its binding.
const _: () =
    assert!(std::mem::offset_of!(thread::Thread, caller) == 0 && std::mem::offset_of!(thread::Thread, binding) == 8);

/// Address of one of this library's own statics, computed relative to the code. The compiler would load it from the
/// table of addresses (GOT), which is out of the cache whenever a program does much else between its launches.
macro_rules! near {
    ($what:path) => {
        $crate::interpose::near!($what, 0, || &$what)
    };
    // Part of a static: this many bytes behind its beginning, of the type that the closure would return.
    ($what:path, $bytes:expr, $like:expr) => {{
        let at: usize;
        // SAFETY: computes the address of a static of this library, or of a part of it; touches no memory.
        unsafe {
            core::arch::asm!(
                "lea {}, [rip + {} + {}]",
                out(reg) at,
                sym $what,
                const $bytes,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        $crate::interpose::typed(at, $like)
    }};
}
pub(crate) use near;

/// The static at an address, of the type that `like` returns.
#[inline(always)]
pub(crate) fn typed<T>(at: usize, like: impl FnOnce() -> &'static T) -> &'static T {
    let _ = like;
    // SAFETY: `near!`, the only caller, gives the address of the very static that `like` would return, or of a like part.
    unsafe { &*(at as *const T) }
}

/// Hooks the functions of one class that are defined beside it under their vendor's names: `hooks! { PLATFORM, LIST:
/// Class; name … }`. Each hook is `name::HOOK`, and `LIST` holds all of them, for the platform's `HOOKS`. A function
/// whose signature differs from the one in `sig` does not compile.
macro_rules! hooks {
    ($platform:ident, $list:ident: $class:ident; $($name:ident)*) => {
        pub(crate) static $list: $crate::interpose::Group = $crate::interpose::Group {
            class: $crate::interpose::Class::$class,
            hooks: &[$(&$name::HOOK),*],
            cells: &$list::CELLS.0,
        };

        /// Places of the real functions of these hooks.
        #[allow(non_snake_case, non_camel_case_types, clippy::enum_variant_names)]
        mod $list {
            pub(super) enum Place { $($name),* }
            pub(super) static CELLS: $crate::interpose::Cells<{ [$(Place::$name as usize),*].len() }> =
                $crate::interpose::Cells::new();
        }

        $(
            const _: sig::$name = $name;

            mod $name {
                pub(super) static HOOK: $crate::interpose::Hook = $crate::interpose::Hook {
                    // SAFETY: ends in the only NUL byte, since no identifier holds one.
                    name: unsafe {
                        std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
                    },
                    platform: $crate::enabled::$platform,
                    exported: $name,
                    thunks: [thunk::<1>, thunk::<2>, thunk::<3>, thunk::<4>, thunk::<5>, thunk::<6>, thunk::<7>],
                    known: [const { std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()) };
                        $crate::interpose::BINDINGS],
                    cells: &super::$list::CELLS.0[super::$list::Place::$name as usize],
                };

                /// See [`known`]($crate::interpose::known).
                #[inline(always)]
                pub(super) fn known() -> *mut std::ffi::c_void {
                    let cells = $crate::interpose::near!(
                        super::$list::CELLS,
                        super::$list::Place::$name as usize * size_of::<$crate::interpose::Reals>(),
                        || &super::$list::CELLS.0[0]
                    );
                    $crate::interpose::known(cells)
                }

                /// See [`real`]($crate::interpose::real).
                #[inline(always)]
                pub(super) fn real() -> *mut std::ffi::c_void {
                    $crate::interpose::real(known(), || &HOOK)
                }

                /// Exported stub, to which the loader binds callers.
                // SAFETY: the arguments stay where the caller put them; rax and r11 are free at a function's entry.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    core::arch::naked_asm!(
                        "mov r11, qword ptr [rsp]",
                        "mov rax, qword ptr [rip + xsched_thread@GOTTPOFF]",
                        "mov qword ptr fs:[rax], r11",
                        "mov qword ptr fs:[rax + 8], {}",
                        "jmp {}",
                        const $crate::interpose::tag(stringify!($name)),
                        sym super::$name,
                    )
                }

                /// Stub of one binding, which lookup functions hand out.
                // SAFETY: as for the exported stub.
                #[unsafe(naked)]
                unsafe extern "C" fn thunk<const BINDING: usize>() {
                    core::arch::naked_asm!(
                        "mov r11, qword ptr [rsp]",
                        "mov rax, qword ptr [rip + xsched_thread@GOTTPOFF]",
                        "mov qword ptr fs:[rax], r11",
                        "mov qword ptr fs:[rax + 8], {}",
                        "jmp {}",
                        const $crate::interpose::tag(stringify!($name)) + BINDING,
                        sym super::$name,
                    )
                }
            }
        )*
    };
}
pub(crate) use hooks;
