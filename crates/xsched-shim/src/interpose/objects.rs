//! The objects that the loader has mapped, in the order in which it loaded them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::{elf, walk};

/// One loaded object.
struct Object {
    start: usize,
    end: usize,
    file: CString,
    soname: Option<CString>,
    needed: Vec<CString>,
}

/// The objects that are loaded at one moment.
pub(crate) struct Objects(Vec<Object>);

impl Objects {
    /// Reads the list of loaded objects.
    pub(crate) fn now() -> Objects {
        let mut found = Objects(Vec::new());
        // SAFETY: the callback gets `found` back and is done with it when the call returns.
        unsafe { walk::objects(visit, (&raw mut found).cast()) };
        found
    }

    /// Position of the object that holds an address in the order of loading; smaller = loaded earlier.
    pub(crate) fn place_of(&self, address: usize) -> Option<usize> {
        self.0.iter().position(|o| (o.start..o.end).contains(&address))
    }

    /// Object whose opening loaded this one: the first whose dependencies, direct or indirect, include it. The loader
    /// resolves references of the objects that it brought in that object's list of dependencies, after the global
    /// scope.
    pub(crate) fn root_of(&self, place: usize) -> usize {
        let mut by_name: HashMap<&[u8], usize> = HashMap::new();
        for (at, object) in self.0.iter().enumerate() {
            let file = object.file.to_bytes();
            for name in object.soname.iter().map(|s| s.to_bytes()).chain([file, last_part(file)]) {
                by_name.entry(name).or_insert(at);
            }
        }
        (0..place).find(|from| self.reaches(*from, place, &by_name)).unwrap_or(place)
    }

    fn reaches(&self, from: usize, to: usize, by_name: &HashMap<&[u8], usize>) -> bool {
        let mut seen = vec![false; self.0.len()];
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                open.extend(self.0[at].needed.iter().filter_map(|name| by_name.get(name.to_bytes())));
            }
        }
        false
    }

    /// Reports whether an object was loaded before the program began: the program, the preloaded libraries and their
    /// dependencies. They precede the C library, or are loaded for an object that does.
    pub(super) fn is_initial(&self, place: usize) -> bool {
        let libc = self.0.iter().position(|o| last_part(o.file.to_bytes()).starts_with(b"libc.so"));
        libc.is_some_and(|libc| self.root_of(place) <= libc)
    }

    /// Reports whether some object was linked against this one.
    pub(crate) fn is_needed(&self, place: usize) -> bool {
        let Object { file, soname, .. } = &self.0[place];
        let names = |name: &CString| Some(name) == soname.as_ref() || last_part(file.to_bytes()) == name.to_bytes();
        self.0.iter().any(|object| object.needed.iter().any(names))
    }

    /// First and last address (exclusive) of an object.
    pub(super) fn range(&self, place: usize) -> (usize, usize) {
        (self.0[place].start, self.0[place].end)
    }

    /// The file an object was loaded from; empty for the program itself.
    pub(crate) fn file(&self, place: usize) -> &CStr {
        &self.0[place].file
    }

    /// Makes a value of each object's first and last address (exclusive), file and SONAME.
    pub(crate) fn into_each<T>(self, make: impl Fn(usize, usize, String, Option<String>) -> T) -> Vec<T> {
        let text = |s: CString| s.to_string_lossy().into_owned();
        self.0.into_iter().map(|o| make(o.start, o.end, text(o.file), o.soname.map(text))).collect()
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: both pointers are what dl_iterate_phdr promises and what `now` passed; headers are a loaded object's.
    let (info, found, headers) = unsafe {
        let info = &*info;
        let headers: &[libc::Elf64_Phdr] = match info.dlpi_phdr.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        };
        (info, &mut *data.cast::<Objects>(), headers)
    };
    let base = info.dlpi_addr as usize;
    let loads = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC);
    // SAFETY: a loaded object's dynamic section, and the loader's own string.
    let (names, file) = unsafe {
        let names = dynamic.map(|d| elf::names((base + d.p_vaddr as usize) as *const elf::Dyn, base));
        (names.unwrap_or_default(), copy_of(info.dlpi_name))
    };
    found.0.push(Object {
        start: loads.clone().map(|h| base + h.p_vaddr as usize).min().unwrap_or(base),
        end: loads.map(|h| base + (h.p_vaddr + h.p_memsz) as usize).max().unwrap_or(base),
        file,
        soname: names.soname,
        needed: names.needed,
    });
    0
}

/// # Safety
/// `text` is null or a C string.
unsafe fn copy_of(text: *const c_char) -> CString {
    if text.is_null() {
        return CString::default();
    }
    // SAFETY: by the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_what_it_needs_are_initial() {
        let objects = Objects::now();
        let own = objects.place_of(a_program_and_what_it_needs_are_initial as *const () as usize).expect("own object");
        let libc = objects.place_of(libc::getpid as *const () as usize).expect("the C library");
        assert_eq!((own, objects.root_of(own), objects.root_of(libc)), (0, 0, 0));
        assert!(objects.is_initial(own) && objects.is_initial(libc));
        assert!(objects.place_of(1).is_none());
    }
}
