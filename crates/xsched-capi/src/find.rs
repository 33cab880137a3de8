//! Search for the libxsched of the process: the preloaded one, or else the one beside the library that needs it.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use crate::{ENTRY, Entry, Table, VERSION};

/// File that has the functions.
const LIBRARY: &str = "libxsched.so";

/// The functions, searched for once. `None` if there is no libxsched of this version, which is reported once on stderr.
pub fn table() -> Option<&'static Table> {
    static FOUND: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
    let mut table = FOUND.load(Acquire);
    if table.is_null() {
        table = search();
        FOUND.store(table, Release);
    }
    // SAFETY: a static of libxsched.so, which is never unloaded.
    unsafe { table.as_ref() }
}

fn search() -> *mut Table {
    // SAFETY: a NUL-terminated name; asks the loader only.
    let preloaded = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ENTRY.as_ptr()) };
    let entry = if preloaded.is_null() { beside() } else { preloaded };
    if entry.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the symbol of this name has this signature in every version of the library.
    let table = unsafe { std::mem::transmute::<*mut c_void, Entry>(entry)(VERSION) };
    if table.is_null() {
        say(&format!("{LIBRARY} is of another version than the library that needs it: install one version"));
    }
    table.cast_mut()
}

/// Loads the library from the folder of this one. With RTLD_LOCAL, so that its symbols replace no others.
fn beside() -> *mut c_void {
    let own = own_path();
    let real = own.as_ref().and_then(|path| std::fs::canonicalize(path).ok());
    for folder in [&real, &own].into_iter().flatten().filter_map(|path| path.parent()) {
        let entry = open(&folder.join(LIBRARY));
        if !entry.is_null() {
            return entry;
        }
    }
    let folder = own.as_deref().and_then(Path::parent).unwrap_or(Path::new("?")).display();
    say(&format!("{LIBRARY} is not preloaded and cannot be opened in {folder}: {}", fault()));
    std::ptr::null_mut()
}

/// The loader's text for the last call that failed.
fn fault() -> String {
    // SAFETY: no arguments; a text of the loader's, copied at once.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "no reason is given".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

fn open(path: &Path) -> *mut c_void {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return std::ptr::null_mut() };
    // SAFETY: NUL-terminated texts. The library is never unloaded: its threads run its code.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE);
        if handle.is_null() { handle } else { libc::dlsym(handle, ENTRY.as_ptr()) }
    }
}

/// The file that contains this code.
fn own_path() -> Option<PathBuf> {
    // SAFETY: Dl_info is plain data that dladdr fills; its strings are the loader's.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own_path as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

fn say(text: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let line = format!("xsched: {text}\n");
        // SAFETY: a buffer of that length. A closed stderr is no reason to fail.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    }
}
