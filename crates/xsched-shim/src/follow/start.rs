//! Copy of the program's command line and of the variables that say how it is scheduled, taken when the library is
//! loaded. Programs overwrite both later: `setproctitle` writes over the command line and, if its text is longer, on
//! into the variables.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use xsched_proto::preload;
use xsched_proto::program::COMMAND_MAX_BYTES;
use xsched_proto::variables::{PREFIX, is_secure};

use super::left;
use super::strings::{DISABLE, FOLLOW, PRELOAD, Strings, entries};

const RUN: &[u8] = b"XSCHED_RUN=";

/// Room for the command line, the library's path and the variables, in bytes. Two pages, of which most programs touch a
/// part.
const BYTES: usize = 8 << 10;
/// Largest plausible number of arguments.
const ARGUMENTS_MAX: c_int = 1 << 20;

/// Strings, each ended by a zero: those of the command line, the library's path, the variables.
#[repr(align(64))]
struct Kept(UnsafeCell<[u8; BYTES]>);

// SAFETY: written by the constructor only, before the program's first instruction.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new([0; BYTES]));
/// End of the command line in [`KEPT`].
static COMMAND_END: AtomicUsize = AtomicUsize::new(0);
/// End of the library's path and the variables; not beyond [`COMMAND_END`] = there is nothing to add to environments.
static ALL_END: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static environ: Strings;
}

/// Constructor, run when this library is loaded. glibc's loader passes a constructor the arguments of `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn(c_int, Strings, Strings) = remember;

extern "C" fn remember(argc: c_int, argv: Strings, envp: Strings) {
    if is_secure() {
        return;
    }
    // SAFETY: a pointer that the C library keeps.
    let environment = unsafe { environ };
    let mut end = 0;
    // A loader other than glibc's passes no arguments to constructors. The three registers then hold arbitrary values,
    // which would not satisfy these conditions by chance.
    let is_layout = (0..=ARGUMENTS_MAX).contains(&argc)
        && envp == environment
        && (argv as usize).wrapping_add((argc as usize + 1) * size_of::<usize>()) == envp as usize;
    if is_layout {
        // SAFETY: `argc` strings, by their place before the environment.
        for at in 0..argc as usize {
            let left = COMMAND_MAX_BYTES.saturating_sub(end);
            // SAFETY: as above.
            let word = unsafe { *argv.add(at) };
            if left == 0 || word.is_null() {
                break;
            }
            // SAFETY: as above.
            let word = unsafe { CStr::from_ptr(word) }.to_bytes();
            end = keep(end, word.get(..left).unwrap_or(word));
        }
    }
    COMMAND_END.store(end, Relaxed);
    // SAFETY: the environment as it is.
    let all = unsafe { variables_of(environment, end) };
    ALL_END.store(all.unwrap_or(end), Release);
    if is_of_run() {
        // SAFETY: a function that stays as long as this library does.
        unsafe { libc::atexit(left::at_exit) };
    }
}

/// Reports whether `xsched run` became this process.
fn is_of_run() -> bool {
    let told = variables().find_map(|variable| variable.to_bytes().strip_prefix(RUN));
    let told = told.and_then(|pid| std::str::from_utf8(pid).ok()?.parse::<u32>().ok());
    told.is_some_and(|pid| pid == std::process::id())
}

/// Copies the library's path and the variables to `end` and on. `None` if there is nothing to add to environments, or
/// no room for all of it.
///
/// # Safety
/// A list of strings.
unsafe fn variables_of(environment: Strings, end: usize) -> Option<usize> {
    // SAFETY: as promised.
    let all = || {
        // SAFETY: as promised.
        unsafe { entries(environment) }.map(|entry| {
            // SAFETY: a string of the list.
            unsafe { CStr::from_ptr(entry) }.to_bytes()
        })
    };
    let library = all().find_map(|entry| preload::named(entry.strip_prefix(PRELOAD)?))?;
    let mut end = kept_all(end, library)?;
    for entry in all().filter(|entry| entry.starts_with(PREFIX.as_bytes())) {
        let is_out = entry.strip_prefix(DISABLE).is_some_and(|value| !value.is_empty() && !is_off(value));
        if is_out || entry.strip_prefix(FOLLOW).is_some_and(is_off) {
            return None;
        }
        end = kept_all(end, entry)?;
    }
    Some(end)
}

/// Appends a string at `end`, cut if there is no room, and returns the end of it.
fn keep(end: usize, text: &[u8]) -> usize {
    // SAFETY: the constructor alone comes here, and nothing reads meanwhile.
    let kept = unsafe { &mut *KEPT.0.get() };
    let length = text.len().min(BYTES.saturating_sub(end + 1));
    if let Some(place) = kept.get_mut(end..end + length) {
        place.copy_from_slice(&text[..length]);
    }
    // The terminating zero is in the buffer already, which is static.
    (end + length + 1).min(BYTES)
}

fn kept_all(end: usize, text: &[u8]) -> Option<usize> {
    (end + text.len() + 1 < BYTES).then(|| keep(end, text))
}

fn kept(from: usize, to: usize) -> &'static [u8] {
    // SAFETY: written before all that reads it.
    let all: &'static [u8; BYTES] = unsafe { &*KEPT.0.get() };
    all.get(from..to).unwrap_or_default()
}

/// The library as the program's `LD_PRELOAD` named it; `None` if it did not, or if the library is not to be added to
/// environments.
pub(super) fn library() -> Option<&'static [u8]> {
    let rest = kept(COMMAND_END.load(Relaxed), ALL_END.load(Acquire));
    CStr::from_bytes_until_nul(rest).ok().map(CStr::to_bytes)
}

/// The program's variables whose names begin with this project's prefix.
pub(super) fn variables() -> impl Iterator<Item = &'static CStr> {
    let rest = kept(COMMAND_END.load(Relaxed), ALL_END.load(Acquire));
    strings(rest).skip(1)
}

/// The command line, cut to [`COMMAND_MAX_BYTES`]; `None` if the loader did not pass it.
pub(crate) fn command() -> Option<Vec<String>> {
    let words = strings(kept(0, COMMAND_END.load(Relaxed)));
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    (!words.is_empty()).then(|| xsched_proto::program::cut(words))
}

fn strings(mut rest: &'static [u8]) -> impl Iterator<Item = &'static CStr> {
    std::iter::from_fn(move || {
        let next = CStr::from_bytes_until_nul(rest).ok()?;
        rest = rest.get(next.count_bytes() + 1..).unwrap_or_default();
        Some(next)
    })
}

/// Reports whether a value means "off", as [`xsched_proto::variables::flag`] reads it.
pub(super) fn is_off(value: &[u8]) -> bool {
    [&b"0"[..], b"off", b"no", b"false"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_the_start_is_known() {
        let command = command().expect("glibc's loader");
        assert_eq!(command, xsched_proto::program::own_command());
    }

    #[test]
    fn off_is_what_a_flag_reads() {
        for value in ["0", "off", "NO", "False"] {
            assert!(is_off(value.as_bytes()) && xsched_proto::variables::flag(value) == Some(false), "{value}");
        }
        for value in ["", "1", "on", "perhaps"] {
            assert!(!is_off(value.as_bytes()), "{value}");
        }
    }
}
