//! Where libxsched.so lies, and how to name it in LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::{Error, Result};
use crate::folders;

/// The library's file name.
const NAME: &str = "libxsched.so";

/// Finds the library: `XSCHED_PRELOAD`, else beside this program, else `../lib/xsched/` from there.
///
/// # Errors
/// One line that says what to do.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("XSCHED_PRELOAD").filter(|v| !v.is_empty()) {
        let path = std::path::absolute(&given).unwrap_or_else(|_| PathBuf::from(&given));
        return match path.is_file() {
            true => Ok(path),
            false => Err(Error::environment(format!(
                "XSCHED_PRELOAD names {}, which is no file; correct or unset it",
                path.display()
            ))),
        };
    }
    let exe =
        std::env::current_exe().map_err(|e| Error::environment(format!("cannot tell where this program lies: {e}")))?;
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(NAME), folder.join("../lib/xsched").join(NAME)];
    match places.iter().find(|p| p.is_file()) {
        Some(path) => Ok(path.canonicalize().unwrap_or_else(|_| path.clone())),
        None => Err(Error::environment(format!(
            "{NAME} is not in {} and not in ../lib/xsched beside it; install it there or set XSCHED_PRELOAD to its path",
            folder.display()
        ))),
    }
}

/// What LD_PRELOAD splits on or expands.
fn needs_link(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|b| b" :$\t\n".contains(b))
}

/// A path to the library that LD_PRELOAD can hold; a symbolic link in the runtime folder where its own cannot.
///
/// # Errors
/// One line.
pub(crate) fn speakable(library: &Path) -> Result<PathBuf> {
    if !needs_link(library) {
        return Ok(library.to_owned());
    }
    let folder = Some(folders::runtime()).filter(|f| !needs_link(f)).unwrap_or_else(folders::shared_tmp);
    folders::private(&folder)?;
    // Named after its target, so that two installations do not fight over one name.
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let link = folder.join(format!("libxsched-{:016x}.so", hasher.finish()));
    match std::fs::read_link(&link) {
        Ok(target) if target == library => return Ok(link),
        _ => {}
    }
    // Made under another name and moved, so that it is never missing.
    let fresh = folder.join(format!(".libxsched-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(library, &fresh).and_then(|()| std::fs::rename(&fresh, &link)).map_err(|e| {
        Error::environment(format!("cannot make {} (for a library path with a space or colon): {e}", link.display()))
    })?;
    Ok(link)
}

/// Begin of the names of sanitizers' runtimes, of GCC's and of Clang's.
const SANITIZERS: [&[u8]; 6] = [b"libasan.", b"libtsan.", b"libubsan.", b"liblsan.", b"libhwasan.", b"libclang_rt."];

/// Whether an entry of LD_PRELOAD is the runtime of a sanitizer: it must be loaded before all else, or ends the program.
fn is_sanitizer(entry: &[u8]) -> bool {
    let name = entry.rsplit(|b| *b == b'/').next().unwrap_or(entry);
    SANITIZERS.iter().any(|begin| name.starts_with(begin))
}

/// Puts the library before what LD_PRELOAD holds already, but behind the runtimes of sanitizers.
pub(crate) fn prepend(library: &Path, existing: Option<&OsStr>) -> OsString {
    let library = library.as_os_str().as_bytes();
    let entries = || existing.unwrap_or_default().as_bytes().split(|b| b" :".contains(b)).filter(|e| !e.is_empty());
    let behind = entries().enumerate().filter(|(_, entry)| is_sanitizer(entry)).last().map_or(0, |(at, _)| at + 1);
    // A program run within a run: once is enough.
    if let Some(existing) = existing
        && entries().nth(behind) == Some(library)
    {
        return existing.to_owned();
    }
    let rest = entries().skip(behind).filter(|entry| *entry != library);
    let all: Vec<&[u8]> = entries().take(behind).filter(|e| *e != library).chain([library]).chain(rest).collect();
    OsString::from_vec(all.join(&b':'))
}

/// The option of AddressSanitizer's runtime that has it take a place behind this library.
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// `ASAN_OPTIONS` for a program and what it starts, unless those there are say something of the order: the program may define options
/// of its own, in place of those that the library has for it.
pub(crate) fn sanitizer_options(existing: Option<&OsStr>) -> Option<OsString> {
    let existing = existing.unwrap_or_default().as_bytes();
    let name = ANY_ORDER.split('=').next().unwrap_or_default().as_bytes();
    if existing.windows(name.len()).any(|part| part == name) {
        return None;
    }
    let parts: Vec<&[u8]> = [existing, ANY_ORDER.as_bytes()].into_iter().filter(|part| !part.is_empty()).collect();
    Some(OsString::from_vec(parts.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_only_once() {
        let lib = Path::new("/l/libxsched.so");
        assert_eq!(prepend(lib, None), "/l/libxsched.so");
        assert_eq!(prepend(lib, Some(OsStr::new(""))), "/l/libxsched.so");
        assert_eq!(prepend(lib, Some(OsStr::new("/a.so /b.so"))), "/l/libxsched.so:/a.so:/b.so");
        assert_eq!(prepend(lib, Some(OsStr::new("/l/libxsched.so:/a.so"))), "/l/libxsched.so:/a.so");
    }

    #[test]
    fn the_runtimes_of_sanitizers_stay_before_the_library() {
        let lib = Path::new("/l/libxsched.so");
        for (existing, value) in [
            ("/u/libasan.so.8", "/u/libasan.so.8:/l/libxsched.so"),
            ("libasan.so /a.so", "libasan.so:/l/libxsched.so:/a.so"),
            ("/a.so:/u/libclang_rt.asan-x86_64.so:/b.so", "/a.so:/u/libclang_rt.asan-x86_64.so:/l/libxsched.so:/b.so"),
            ("/l/libxsched.so:/u/libtsan.so.2", "/u/libtsan.so.2:/l/libxsched.so"),
            ("/u/libasan.so.8:/l/libxsched.so:/a.so", "/u/libasan.so.8:/l/libxsched.so:/a.so"),
            ("/u/libasanas.so", "/l/libxsched.so:/u/libasanas.so"),
        ] {
            assert_eq!(prepend(lib, Some(OsStr::new(existing))), value, "{existing}");
        }
    }

    #[test]
    fn options_of_a_sanitizer_are_kept() {
        let of = |existing| sanitizer_options(existing).map(|value| value.into_string().unwrap());
        assert_eq!(of(None).as_deref(), Some(ANY_ORDER));
        assert_eq!(of(Some(OsStr::new("detect_leaks=0"))).as_deref(), Some("detect_leaks=0:verify_asan_link_order=0"));
        assert_eq!(of(Some(OsStr::new("verify_asan_link_order=1"))), None);
    }
}
