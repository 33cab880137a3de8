//! Propagation of this library into the programs that a program executes. If their environment has lost the library, it
//! is added again, with the variables that say how the program is scheduled.
//!
//! Code here may run in a child of `vfork` or `fork`: nothing allocates, locks or panics. All that it needs is prepared
//! when the library is loaded, including a copy of the environment as it is then, since a program may overwrite its own
//! later, as `setproctitle` does.
//!
//! - [`strings`]: lists of strings, as the kernel takes them.
//! - [`start`]: the copy of the program's command line and variables.
//! - [`left`]: the report of descendants without the library.
//! - [`target`]: the check whether the library can be loaded into a program.
//! - [`crate::exports::exec`]: the functions that execute.

mod left;
pub(crate) mod start;
mod strings;
mod target;

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use xsched_proto::preload;

use crate::interpose::resolve;

use strings::{DISABLE, FOLLOW, PRELOAD, entries};

pub(crate) use strings::Strings;
pub(crate) use target::Target;

/// Two sizes of environment, in strings, and of the text composed for each, in bytes. An environment that exceeds the
/// larger stays as it is.
const SMALL: usize = 256;
const LARGE: usize = 8192;
const SMALL_BYTES: usize = 2 << 10;
const LARGE_BYTES: usize = 32 << 10;

/// Runs `exec`, which executes `target`, with an environment to which the library is added if it is missing.
///
/// # Safety
/// The strings of `envp` and those that `target` holds are the caller's valid ones.
pub(crate) unsafe fn with<R>(target: Target, envp: Strings, exec: impl FnOnce(Strings) -> R) -> R {
    let Some(library) = start::library() else { return exec(envp) };
    // SAFETY: as promised.
    let Some(loss) = (unsafe { Loss::of(envp) }) else { return exec(envp) };
    // SAFETY: as promised.
    if !resolve::keeping_errno(|| unsafe { target.takes(library) }) {
        return exec(envp);
    }
    let (strings, bytes) =
        (loss.strings + start::variables().count() + 2, PRELOAD.len() + library.len() + loss.others.len() + 2);
    if strings <= SMALL && bytes <= SMALL_BYTES {
        // SAFETY: as promised; it fits.
        unsafe { put_back::<SMALL, SMALL_BYTES, R>(library, &loss, envp, exec) }
    } else if strings <= LARGE && bytes <= LARGE_BYTES {
        // SAFETY: as promised; it fits.
        unsafe { put_back::<LARGE, LARGE_BYTES, R>(library, &loss, envp, exec) }
    } else {
        exec(envp)
    }
}

/// An environment without the library.
struct Loss<'a> {
    /// Libraries that it preloads instead.
    others: &'a [u8],
    strings: usize,
}

impl Loss<'_> {
    /// Checks an environment. `None` if it has the library, or excludes it.
    ///
    /// # Safety
    /// See [`with`].
    unsafe fn of<'a>(envp: Strings) -> Option<Loss<'a>> {
        let mut loss = Loss { others: b"", strings: 0 };
        // SAFETY: as promised.
        for entry in unsafe { entries(envp) } {
            // SAFETY: a string of the caller's.
            let entry: &'a [u8] = unsafe { CStr::from_ptr(entry) }.to_bytes();
            if let Some(value) = entry.strip_prefix(PRELOAD) {
                if preload::named(value).is_some() {
                    return None;
                }
                loss.others = value;
            }
            let is_out = entry.strip_prefix(DISABLE).is_some_and(|value| !value.is_empty() && !start::is_off(value));
            if is_out || entry.strip_prefix(FOLLOW).is_some_and(start::is_off) {
                return None;
            }
            loss.strings += 1;
        }
        Some(loss)
    }
}

/// Composes an environment with the library and calls `exec` with it. All of it is on the stack, which must have room
/// for `STRINGS` pointers and `BYTES` bytes.
///
/// # Safety
/// See [`with`]; there is room for what is composed.
#[inline(never)]
unsafe fn put_back<const STRINGS: usize, const BYTES: usize, R>(
    library: &[u8],
    loss: &Loss<'_>,
    envp: Strings,
    exec: impl FnOnce(Strings) -> R,
) -> R {
    let mut text = [const { MaybeUninit::<u8>::uninit() }; BYTES];
    let mut length = 0;
    let mut add = |piece: &[u8]| {
        for byte in piece {
            if let Some(place) = text.get_mut(length) {
                place.write(*byte);
                length += 1;
            }
        }
    };
    add(PRELOAD);
    preload::compose(library, loss.others, &mut add);
    add(b"\0");
    let mut list = [const { MaybeUninit::<*const c_char>::uninit() }; STRINGS];
    let mut count = 0;
    let mut push = |entry: *const c_char| {
        if let Some(place) = list.get_mut(count) {
            place.write(entry);
            count += 1;
        }
    };
    // SAFETY: as promised.
    for entry in unsafe { entries(envp) } {
        // SAFETY: a string of the caller's.
        if !unsafe { CStr::from_ptr(entry) }.to_bytes().starts_with(PRELOAD) {
            push(entry);
        }
    }
    push(text.as_ptr().cast());
    // SAFETY: as promised.
    let has = |name: &[u8]| {
        // SAFETY: as promised.
        unsafe { entries(envp) }.any(|entry| {
            // SAFETY: a string of the caller's.
            let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
            entry.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="))
        })
    };
    for variable in start::variables() {
        let name = variable.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        if !has(name) {
            push(variable.as_ptr());
        }
    }
    push(std::ptr::null());
    exec(list.as_ptr().cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// The environment in which a program is executed if the given one is passed to `exec`.
    fn followed(given: &[&str]) -> Vec<String> {
        let strings: Vec<CString> = given.iter().map(|entry| CString::new(*entry).unwrap()).collect();
        let list: Vec<*const c_char> = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        let seen = |envp: Strings| {
            // SAFETY: the list above, or one that was composed of it.
            let text = |entry| unsafe { CStr::from_ptr(entry) }.to_str().unwrap().to_owned();
            // SAFETY: as above.
            unsafe { entries(envp) }.map(text).collect()
        };
        // SAFETY: as above.
        match unsafe { Loss::of(list.as_ptr()) } {
            // SAFETY: as above, with room.
            Some(loss) => unsafe { put_back::<SMALL, SMALL_BYTES, _>(b"/l/libxsched.so", &loss, list.as_ptr(), seen) },
            None => seen(list.as_ptr()),
        }
    }

    #[test]
    fn an_environment_without_the_library_gets_it_back() {
        assert_eq!(followed(&[]), ["LD_PRELOAD=/l/libxsched.so"]);
        assert_eq!(followed(&["LD_PRELOAD=/a.so", "A=1"]), ["A=1", "LD_PRELOAD=/l/libxsched.so:/a.so"]);
        assert_eq!(followed(&["LD_PRELOAD="]), ["LD_PRELOAD=/l/libxsched.so"]);
        for as_it_is in [
            &["LD_PRELOAD=/a.so:/k/libxsched.so", "A=1"][..],
            &["XSCHED_DISABLE=1"],
            &["XSCHED_DISABLE=perhaps", "LD_PRELOAD=/a.so"],
            &["XSCHED_FOLLOW=0"],
        ] {
            assert_eq!(followed(as_it_is), as_it_is);
        }
        assert_eq!(followed(&["XSCHED_DISABLE=0"]).len(), 2);
        assert_eq!(followed(&["XSCHED_FOLLOW=1"]).len(), 2);
    }
}
