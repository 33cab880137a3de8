//! The loaded objects, sorted by address, each with its kind and whether a rule names it. Rebuilt when the loader has
//! loaded or unloaded an object since.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::names::{self, Kind};
use super::rules;
use crate::interpose::objects::Objects;
use crate::interpose::walk;
use crate::lock::Lock;

/// A loaded object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Path; of the program itself, that of its executable.
    pub(super) file: String,
    pub(super) kind: Kind,
    /// Set if a rule names the object.
    pub(super) named: bool,
}

struct Map {
    /// Numbers of objects that had been loaded and unloaded when the map was made.
    counters: (u64, u64),
    /// The loaded objects, sorted by address.
    objects: Vec<Arc<Object>>,
}

static MAP: Lock<Option<Map>> = Lock::new();

/// Numbers of objects that the loader has loaded and unloaded so far.
fn counters() -> (u64, u64) {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: both pointers are what dl_iterate_phdr promises and what is passed below.
        unsafe { *data.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        1
    }
    let mut found = (0, 0);
    // SAFETY: the callback gets `found` back and is done with it when the call returns.
    unsafe { walk::objects(first, (&raw mut found).cast()) };
    found
}

fn find(objects: &[Arc<Object>], address: usize) -> Option<Arc<Object>> {
    let at = objects.partition_point(|o| o.start <= address).checked_sub(1)?;
    objects.get(at).filter(|o| address < o.end).cloned()
}

/// Object that holds an address. The loader is called without our lock held: it has locks of its own.
pub(super) fn of(address: usize) -> Option<Arc<Object>> {
    let now = counters();
    if let Some(map) = MAP.lock().as_ref().filter(|m| m.counters == now) {
        return find(&map.objects, address);
    }
    let mut objects: Vec<Arc<Object>> = Objects::now().into_each(|start, end, file, soname| {
        let file = match file.is_empty() {
            true => std::fs::read_link("/proc/self/exe").map_or_else(|_| String::new(), |p| p.to_string_lossy().into()),
            false => file,
        };
        let kind = names::kind(&file, soname.as_deref());
        let named = rules::names_library(&file, soname.as_deref());
        Arc::new(Object { start, end, file, kind, named })
    });
    objects.sort_by_key(|o| o.start);
    let found = find(&objects, address);
    *MAP.lock() = Some(Map { counters: now, objects });
    found
}

/// Abandons the map, in a forked child.
pub(super) fn forget_all() {
    MAP.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_the_objects_that_hold_them() {
        let own = of(addresses_belong_to_the_objects_that_hold_them as *const () as usize).expect("this program");
        assert_eq!(own.kind, Kind::Program);
        assert!(own.file.contains("xsched"), "{}", own.file);
        let libc = of(libc::getpid as *const () as usize).expect("the C library");
        assert!(libc.file.contains("libc.so"), "{}", libc.file);
        assert!(of(libc.start).is_some() && of(16).is_none());
    }
}
