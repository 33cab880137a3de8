//! `_dl_find_object` for the unwinder linked into this library.
//!
//! A static unwinder built against a recent C library calls glibc's `_dl_find_object`, new in 2.35, which would make
//! 2.35 the oldest version that this library loads with. This one answers with `dl_iterate_phdr` instead. It is slower,
//! but called only when this library panics.

use std::ffi::{c_int, c_void};

/// `struct dl_find_object` of <dlfcn.h> on x86-64.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

core::arch::global_asm!(
    ".hidden _dl_find_object",
    ".globl _dl_find_object",
    ".type _dl_find_object, @function",
    "_dl_find_object: jmp {find}",
    find = sym find,
);

struct Search {
    address: usize,
    result: *mut Found,
}

unsafe extern "C" fn find(address: *mut c_void, result: *mut c_void) -> c_int {
    let mut search = Search { address: address as usize, result: result.cast() };
    // SAFETY: the callback gets `search` back and is done with it when the call returns.
    match unsafe { super::walk::objects(visit, (&raw mut search).cast()) } {
        0 => -1,
        _ => 0,
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: both pointers are what dl_iterate_phdr promises and what `find` passed; headers are a loaded object's.
    let (info, search, headers) = unsafe {
        let info = &*info;
        (info, &*data.cast::<Search>(), std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let base = info.dlpi_addr as usize;
    let span = |h: &libc::Elf64_Phdr| (base + h.p_vaddr as usize, base + (h.p_vaddr + h.p_memsz) as usize);
    let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(span);
    let inside = loads.clone().any(|(start, end)| (start..end).contains(&search.address));
    let Some(frames) = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).filter(|_| inside) else { return 0 };
    let start = loads.clone().map(|(start, _)| start).min().unwrap_or(0);
    let end = loads.map(|(_, end)| end).max().unwrap_or(0);
    // SAFETY: the unwinder's own result structure.
    unsafe {
        *search.result = Found {
            flags: 0,
            map_start: start as *mut c_void,
            map_end: end as *mut c_void,
            link_map: std::ptr::null_mut(),
            eh_frame: span(frames).0 as *mut c_void,
            reserved: [0; 7],
        };
    }
    1
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_is_caught_with_this_unwinder() {
        let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(5)));
        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 5);
    }
}
