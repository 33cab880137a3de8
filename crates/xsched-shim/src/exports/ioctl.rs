//! `ioctl`, through which vendors' user-mode drivers talk to their kernel modules.
//!
//! Two interfaces are watched: NVIDIA's resource manager (type 'F', see [`crate::platform::cuda`]) and AMD's compute
//! driver (type 'K', see [`crate::platform::hsa`]). Any other `ioctl` costs two compares.

use std::ffi::{c_int, c_ulong, c_void};

use crate::interpose::ioctl::{REAL, find_real};
use crate::platform::{cuda, hsa};

// SAFETY: reads the request only; every argument register and the stack stay as they are for the function jumped to.
// `rax` is free at a function's entry, except that a variadic call passes the number of vector registers in `al`, and an
// `ioctl` reads none of those. The three pushes align the stack for the call.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn ioctl(_fd: c_int, _request: c_ulong, _argument: *mut c_void) -> c_int {
    core::arch::naked_asm!(
        "mov eax, esi",
        "and eax, 0xff00",
        "cmp eax, {nvidia}",
        "je 4f",
        "cmp eax, {amd}",
        "je 5f",
        "2: mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3: push rdi",
        "push rsi",
        "push rdx",
        "call {find}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        "4: cmp esi, {control}",
        "je 6f",
        "cmp esi, {allocate}",
        "jne 2b",
        "6: jmp {cuda}",
        // Low numbers create, change and destroy queues. Higher ones are passed on by a jump: a wait for an event must
        // not run on top of a stack frame of this library.
        "5: cmp sil, {last}",
        "ja 2b",
        "jmp {hsa}",
        nvidia = const (b'F' as i32) << 8,
        amd = const (b'K' as i32) << 8,
        real = sym REAL,
        find = sym find_real,
        control = const cuda::CONTROL as i32,
        allocate = const cuda::ALLOCATE as i32,
        last = const hsa::LAST_WATCHED as i32,
        cuda = sym cuda::watched_ioctl,
        hsa = sym hsa::watched_ioctl,
    )
}
