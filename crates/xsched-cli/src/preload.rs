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

/// Puts the library before what LD_PRELOAD holds already.
pub(crate) fn prepend(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned().into_vec();
    if let Some(rest) = existing.filter(|v| !v.is_empty()) {
        let library = value.clone();
        // A program run within a run: once is enough.
        if rest.as_bytes().split(|b| b" :".contains(b)).next() == Some(&library) {
            return rest.to_owned();
        }
        value.push(b':');
        value.extend_from_slice(rest.as_bytes());
    }
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_only_once() {
        let lib = Path::new("/l/libxsched.so");
        assert_eq!(prepend(lib, None), "/l/libxsched.so");
        assert_eq!(prepend(lib, Some(OsStr::new(""))), "/l/libxsched.so");
        assert_eq!(prepend(lib, Some(OsStr::new("/a.so /b.so"))), "/l/libxsched.so:/a.so /b.so");
        assert_eq!(prepend(lib, Some(OsStr::new("/l/libxsched.so:/a.so"))), "/l/libxsched.so:/a.so");
    }
}
