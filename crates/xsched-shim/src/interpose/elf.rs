//! Reader of loaded ELF objects: finds `dlsym` in the C library without calling `dlsym`, which is ours, and reads who
//! was linked against whom.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

// The parts of the ELF format read here; names as in <elf.h>.
const DT_NEEDED: i64 = 1;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// One entry of a dynamic section.
#[repr(C)]
pub(super) struct Dyn {
    tag: i64,
    value: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// Objects in which a symbol is searched for.
enum Within<'a> {
    /// Objects whose file name begins with these bytes.
    Named(&'a [u8]),
    /// Objects loaded after the one that holds this address, which the walk has not reached yet.
    Behind(usize),
    /// All further objects of the walk.
    Rest,
}

struct Search<'a> {
    within: Within<'a>,
    symbol: &'a CStr,
    found: *mut c_void,
}

/// A loaded object in the loader's list for debuggers: the head of `struct link_map` of <link.h>.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const Loaded,
}

/// The head of `struct r_debug` of <link.h>.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Loaded,
}

/// The loader's list for debuggers; null if the C library is not glibc.
fn debug() -> *const Debug {
    let debug: *const Debug;
    // SAFETY: loads an address that the loader has put there, 0 where nothing defines the symbol.
    unsafe {
        core::arch::asm!(
            ".weak _r_debug",
            "mov {}, qword ptr [rip + _r_debug@GOTPCREL]",
            out(reg) debug,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    debug
}

/// The address of `symbol` in the object whose file name begins with `library` and which is loaded with the program, or null.
///
/// Walks the loader's list for debuggers, since `dl_iterate_phdr` may be another library's: that of ThreadSanitizer's
/// runtime does not work yet when the runtime looks up the C library's functions with `dlsym`, which is ours.
pub(super) fn symbol_in(library: &str, symbol: &CStr) -> *mut c_void {
    // SAFETY: null, or the loader's own, complete before any code of a library runs. What is loaded with the program is never
    // removed, and comes before all that is loaded later.
    let mut next = unsafe { debug().as_ref() }.map_or(std::ptr::null(), |debug| debug.first);
    // SAFETY: null or a loaded object of the loader's list.
    while let Some(object) = unsafe { next.as_ref() } {
        if is_named(object.name, library.as_bytes()) {
            // SAFETY: the dynamic section of the object, and where it is loaded.
            let found = unsafe { look_up(object.base, object.dynamic, symbol) };
            if !found.is_null() {
                return found;
            }
        }
        next = object.next;
    }
    search(Within::Named(library.as_bytes()), symbol)
}

/// Reports whether the file name of an object, without its folder, begins with `begin`. `path` is the loader's.
fn is_named(path: *const c_char, begin: &[u8]) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the loader's own NUL-terminated string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    path.rsplit(|b| *b == b'/').next().unwrap_or(path).starts_with(begin)
}

/// The first definition of `symbol` in an object that was loaded after the one that holds `address`, or null.
pub(super) fn symbol_behind(address: usize, symbol: &CStr) -> *mut c_void {
    search(Within::Behind(address), symbol)
}

fn search(within: Within, symbol: &CStr) -> *mut c_void {
    let mut search = Search { within, symbol, found: std::ptr::null_mut() };
    // SAFETY: the callback gets `search` back and is done with it when the call returns.
    unsafe { super::walk::objects(visit, (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: both pointers are what dl_iterate_phdr promises and what `search` passed.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: program headers of a loaded object.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    match search.within {
        Within::Named(file) => {
            if !is_named(info.dlpi_name, file) {
                return 0;
            }
        }
        Within::Behind(address) => {
            let holds = |h: &libc::Elf64_Phdr| {
                let start = info.dlpi_addr as usize + h.p_vaddr as usize;
                h.p_type == libc::PT_LOAD && (start..start + h.p_memsz as usize).contains(&address)
            };
            if headers.iter().any(holds) {
                search.within = Within::Rest;
            }
            return 0;
        }
        Within::Rest => {}
    }
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return 0 };
    let base = info.dlpi_addr as usize;
    // SAFETY: a loaded object's dynamic section, ended by a null tag.
    search.found = unsafe { look_up(base, (base + dynamic.p_vaddr as usize) as *const Dyn, search.symbol) };
    c_int::from(!search.found.is_null())
}

/// # Safety
/// `dynamic` is the dynamic section of an object loaded at `base`.
unsafe fn look_up(base: usize, mut dynamic: *const Dyn, wanted: &CStr) -> *mut c_void {
    let (mut strings, mut symbols, mut gnu, mut sysv) = (0usize, 0usize, 0usize, 0usize);
    // SAFETY: by the caller's promise.
    while unsafe { (*dynamic).tag } != 0 {
        // SAFETY: as above.
        let entry = unsafe { &*dynamic };
        // glibc has relocated these addresses in place, except in the vDSO and a few old objects.
        let address = if entry.value < base { entry.value + base } else { entry.value };
        match entry.tag {
            DT_STRTAB => strings = address,
            DT_SYMTAB => symbols = address,
            DT_GNU_HASH => gnu = address,
            DT_HASH => sysv = address,
            _ => {}
        }
        // SAFETY: the section ends with the null tag that ends the loop.
        dynamic = unsafe { dynamic.add(1) };
    }
    if strings == 0 || symbols == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the object's own tables.
    let count = unsafe { if sysv != 0 { *((sysv + 4) as *const u32) as usize } else { gnu_symbol_count(gnu) } };
    for i in 0..count {
        // SAFETY: `i` is below the number of symbols; names lie in the string table.
        let (symbol, name) = unsafe {
            let symbol = *(symbols as *const Sym).add(i);
            (symbol, CStr::from_ptr((strings + symbol.name as usize) as *const c_char))
        };
        if symbol.section != 0 && symbol.value != 0 && name == wanted {
            return (base + symbol.value) as *mut c_void;
        }
    }
    std::ptr::null_mut()
}

/// SONAME of an object, and the names of the libraries that it was linked against.
#[derive(Default)]
pub(super) struct Names {
    pub(super) soname: Option<CString>,
    pub(super) needed: Vec<CString>,
}

/// # Safety
/// `dynamic` is the dynamic section of an object loaded at `base`.
pub(super) unsafe fn names(dynamic: *const Dyn, base: usize) -> Names {
    let mut names = Names::default();
    // SAFETY: by the caller's promise; the section ends with a null tag.
    let entries = || (0..).map(|i| unsafe { &*dynamic.add(i) }).take_while(|entry| entry.tag != 0);
    let Some(strings) = entries().find(|entry| entry.tag == DT_STRTAB) else { return names };
    let strings = if strings.value < base { strings.value + base } else { strings.value };
    for entry in entries().filter(|entry| [DT_NEEDED, DT_SONAME].contains(&entry.tag)) {
        // SAFETY: an offset into the object's own table of strings.
        let name = unsafe { CStr::from_ptr((strings + entry.value) as *const c_char) }.to_owned();
        match entry.tag {
            DT_NEEDED => names.needed.push(name),
            _ => names.soname = Some(name),
        }
    }
    names
}

/// # Safety
/// `table` is 0 or the address of a GNU hash table.
unsafe fn gnu_symbol_count(table: usize) -> usize {
    if table == 0 {
        return 0;
    }
    // Layout: nbuckets, symoffset, bloom_size, bloom_shift, bloom[u64], buckets[u32], chains[u32].
    let word = |at: usize| {
        // SAFETY: inside the table, whose layout is walked as its header says.
        unsafe { *((table + at) as *const u32) }
    };
    let (buckets, offset, bloom) = (word(0) as usize, word(4) as usize, word(8) as usize);
    let first_bucket = 16 + bloom * 8;
    let last = (0..buckets).map(|i| word(first_bucket + i * 4) as usize).max().unwrap_or(0);
    if last < offset {
        return offset;
    }
    let chains = first_bucket + buckets * 4;
    let mut at = last;
    while word(chains + (at - offset) * 4) & 1 == 0 {
        at += 1;
    }
    at + 1
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_what_the_loader_finds() {
        let found = super::symbol_in("libc.so", c"getpid");
        assert!(!found.is_null());
        assert_eq!(found as usize, libc::getpid as *const () as usize);
        assert!(super::symbol_in("libc.so", c"no_such_symbol").is_null());
        assert!(super::symbol_in("libnothing.so", c"getpid").is_null());
    }

    #[test]
    fn finds_what_lies_behind_an_object() {
        let own = finds_what_lies_behind_an_object as *const () as usize;
        assert_eq!(super::symbol_behind(own, c"getpid") as usize, libc::getpid as *const () as usize);
        assert!(super::symbol_behind(libc::getpid as *const () as usize, c"getpid").is_null());
        assert!(super::symbol_behind(1, c"getpid").is_null());
    }
}
