//! `dlsym`, `dlvsym` and `dlclose`: callers that look a vendor function up get our stub for it.
//!
//! All other lookups are passed on by a jump, with the caller's return address in place, so that RTLD_NEXT and
//! RTLD_DEFAULT keep their meaning.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::enabled::platform_enabled;
use crate::interpose::Hook;
use crate::interpose::resolve::{self, DEFAULT, NEXT, Next};
use crate::{domain, platform};

/// The answer "not ours": jump on to the real function.
const PASS: usize = 0;
/// The answer "there is no such function".
const NOTHING: usize = 1;

// SAFETY: keeps the three argument registers and the return address; the stack is aligned for the call (the return
// address and three pushes make 32 bytes).
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, qword ptr [rsp + 24]",
        "call {answer}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "cmp rax, 1",
        "ja 3f",
        "je 2f",
        "sub rsp, 24",
        "mov qword ptr [rsp], rdi",
        "mov qword ptr [rsp + 8], rsi",
        "call {real}",
        "mov rdi, qword ptr [rsp]",
        "mov rsi, qword ptr [rsp + 8]",
        "add rsp, 24",
        "jmp rax",
        "2: xor eax, eax",
        "3: ret",
        answer = sym answer,
        real = sym resolve_real,
    )
}

extern "C" fn resolve_real() -> usize {
    resolve::real_dlsym() as usize
}

extern "C" fn resolve_real_versioned() -> usize {
    resolve::real_dlvsym() as usize
}

// SAFETY: as for dlsym, with one argument more.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(_handle: *mut c_void, _name: *const c_char, _version: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, qword ptr [rsp + 24]",
        "call {answer}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "cmp rax, 1",
        "ja 3f",
        "je 2f",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {real}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        "2: xor eax, eax",
        "3: ret",
        answer = sym answer_versioned,
        real = sym resolve_real_versioned,
    )
}

/// The hook of this name.
fn wanted(name: *const c_char) -> Option<(&'static Hook, &'static CStr)> {
    if name.is_null() {
        return None;
    }
    // SAFETY: dlsym's caller promises a C string, read before this returns.
    let name: &CStr = unsafe { CStr::from_ptr(name) };
    platform::hook(name).map(|hook| (hook, hook.name))
}

/// Answer for a platform that is not scheduled: the function that would be found without this library.
fn unscheduled(handle: *mut c_void, hook: &'static Hook, caller: usize) -> usize {
    if handle as usize == NEXT || !resolve::is_ours(resolve::look_up(handle, hook.name)) {
        return PASS;
    }
    let real = match handle as usize {
        DEFAULT => resolve::for_caller(hook, caller),
        _ => resolve::next(hook.name),
    };
    if real.is_null() {
        // Looks it up again to leave the message for `dlerror`.
        resolve::next(hook.name);
        return NOTHING;
    }
    real as usize
}

extern "C" fn answer(handle: *mut c_void, name: *const c_char, caller: usize) -> usize {
    let Some((hook, name)) = wanted(name) else { return PASS };
    resolve::keeping_errno(|| {
        if !platform_enabled(hook.platform) {
            return unscheduled(handle, hook, caller);
        }
        let real = match handle as usize {
            NEXT => match resolve::next_for_caller(name, caller) {
                Next::AsIs => return PASS,
                Next::Function(real) => real,
                Next::Nothing => std::ptr::null_mut(),
            },
            DEFAULT if !resolve::before_us(name).is_null() => return PASS,
            DEFAULT => resolve::for_caller(hook, caller),
            _ => {
                let found = resolve::look_up(handle, name);
                if found.is_null() || found == resolve::before_us(name) {
                    return PASS;
                }
                // A handle of the whole program finds this library first.
                if resolve::is_ours(found) { resolve::next(name) } else { found }
            }
        };
        if real.is_null() {
            // Looks it up again to leave the message for `dlerror`.
            resolve::next(name);
            return NOTHING;
        }
        resolve::forget_failures();
        resolve::stub_for(hook, real) as usize
    })
}

extern "C" fn answer_versioned(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> usize {
    let Some((hook, name)) = wanted(name) else { return PASS };
    if version.is_null() || handle as usize == NEXT {
        return PASS;
    }
    resolve::keeping_errno(|| {
        if !platform_enabled(hook.platform) {
            return PASS;
        }
        // SAFETY: the caller's own arguments.
        let version = unsafe { CStr::from_ptr(version) };
        let found = match handle as usize {
            DEFAULT => resolve::versioned_for_caller(name, version, caller),
            _ => {
                // SAFETY: as above.
                let found = unsafe { resolve::real_dlvsym()(handle, name.as_ptr(), version.as_ptr()) };
                if found.is_null() {
                    return PASS;
                }
                // This library's symbols have no versions, so they match any version.
                if resolve::is_ours(found) { resolve::versioned_for_caller(name, version, 0) } else { found }
            }
        };
        let before = resolve::before_us(name);
        if !before.is_null() && (before == found || handle as usize == DEFAULT) {
            return PASS;
        }
        if found.is_null() {
            // Looks it up again to leave the message for `dlerror`.
            resolve::versioned_for_caller(name, version, 0);
            return NOTHING;
        }
        resolve::forget_failures();
        resolve::stub_for(hook, found) as usize
    })
}

/// `dlclose`. Clears caches afterwards, since another object may be mapped at the addresses of one that is gone.
// SAFETY: nothing is done with the handle but to close it. Destructors may unwind as they do without us.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    resolve::close(handle, platform::hooks, domain::objects_changed)
}
