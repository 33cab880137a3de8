//! Execution of the program in place of this process.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::Error;
use crate::inherited;

use super::environment::Environment;

/// Becomes the program. Returns only on failure, with the reason.
pub(super) fn exec(program: &Path, name: &OsStr, rest: &[OsString], environment: &Environment) -> Error {
    // The arguments come from our own, which have no zero byte.
    let c = |s: &OsStr| CString::new(s.as_bytes().to_vec()).unwrap_or_default();
    let path = c(program.as_os_str());
    let mut arguments: Vec<CString> = std::iter::once(c(name)).chain(rest.iter().map(|a| c(a))).collect();
    let environment: Vec<CString> = environment.strings().collect();
    inherited::restore();
    let mut error = execve(&path, &arguments, &environment);
    if error.raw_os_error() == Some(libc::ENOEXEC) {
        // A text file without `#!` is run by a shell, as a shell itself would do.
        arguments.splice(..1, [c(OsStr::new("sh")), path]);
        if is_text(program) {
            error = execve(c"/bin/sh", &arguments, &environment);
        }
    }
    let kind = if error.kind() == std::io::ErrorKind::NotFound { Error::NotFound } else { Error::NotExecutable };
    kind(format!("{}: cannot execute: {error}", name.to_string_lossy()))
}

fn is_text(path: &Path) -> bool {
    use std::io::Read;
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|f| f.take(256).read_to_end(&mut head));
    read.is_ok() && !head.contains(&0)
}

fn execve(path: &CStr, arguments: &[CString], environment: &[CString]) -> std::io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: all three are C strings, the arrays end in null, and everything outlives the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    std::io::Error::last_os_error()
}
