//! Place of libxsched.so, and its name in LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::{Error, Result};
use crate::folders;

/// File name of the library.
const NAME: &str = "libxsched.so";

/// Finds the library: `XSCHED_PRELOAD`, else beside this program, else `../lib/xsched/` from there.
///
/// # Errors
/// Returns one line with advice.
pub fn find() -> Result<PathBuf> {
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

/// Reports whether a path has characters that LD_PRELOAD splits on or expands.
fn needs_link(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|b| b" :$\t\n".contains(b))
}

/// A path to the library that LD_PRELOAD can hold; a symbolic link in the runtime folder where its own cannot.
///
/// # Errors
/// Returns one line for the user.
pub fn speakable(library: &Path) -> Result<PathBuf> {
    if !needs_link(library) {
        return Ok(library.to_owned());
    }
    let folder = Some(folders::runtime()).filter(|f| !needs_link(f)).unwrap_or_else(folders::shared_tmp);
    folders::private(&folder)?;
    // The link is named after its target, so that two installations do not replace each other's.
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let link = folder.join(format!("libxsched-{:016x}.so", hasher.finish()));
    match std::fs::read_link(&link) {
        Ok(target) if target == library => return Ok(link),
        _ => {}
    }
    // The link is made under another name and moved, so that it is never missing.
    let fresh = folder.join(format!(".libxsched-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(library, &fresh).and_then(|()| std::fs::rename(&fresh, &link)).map_err(|e| {
        Error::environment(format!("cannot make {} (for a library path with a space or colon): {e}", link.display()))
    })?;
    Ok(link)
}

/// Puts the library before the present value of LD_PRELOAD, but behind the runtimes of sanitizers.
pub fn prepend(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = Vec::new();
    let others = existing.unwrap_or_default().as_bytes();
    xsched_proto::preload::compose(library.as_os_str().as_bytes(), others, |piece| value.extend_from_slice(piece));
    OsString::from_vec(value)
}

/// Option of AddressSanitizer's runtime that lets it be loaded behind this library.
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// `ASAN_OPTIONS` for a program and its children, unless the present value has the option for the order of libraries: the program may
/// define options of its own, in place of those that the library has for it.
pub fn sanitizer_options(existing: Option<&OsStr>) -> Option<OsString> {
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
    fn options_of_a_sanitizer_are_kept() {
        let of = |existing| sanitizer_options(existing).map(|value| value.into_string().unwrap());
        assert_eq!(of(None).as_deref(), Some(ANY_ORDER));
        assert_eq!(of(Some(OsStr::new("detect_leaks=0"))).as_deref(), Some("detect_leaks=0:verify_asan_link_order=0"));
        assert_eq!(of(Some(OsStr::new("verify_asan_link_order=1"))), None);
    }
}
