//! Decision whether, and on which platforms, this process is scheduled.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use xsched_agent::{refuse, say_once};
use xsched_proto::settings::{Log, Settings};
use xsched_proto::{variables, wire};

use crate::interpose::{absent, resolve};

/// Number of the OpenCL platform, its place in [`NUMBERED`].
pub const OPENCL: u8 = 0;
/// Number of the simulated device's platform.
pub const SIM: u8 = 1;
/// Number of the CUDA platform.
pub const CUDA: u8 = 2;
/// Number of the platform of AMD's runtime below HIP.
pub const HSA: u8 = 3;
/// Number of the HIP platform.
pub const HIP: u8 = 4;

/// Number for functions of CUDA that are hooked only in programs with movable memory. No platform stands at it.
pub const MOVING: u8 = 5;

/// Every platform, at its number.
pub const NUMBERED: [wire::Platform; 5] =
    [wire::Platform::Opencl, wire::Platform::Sim, wire::Platform::Cuda, wire::Platform::Hsa, wire::Platform::Hip];

/// Oldest glibc with which a process is scheduled, as the numbers of its version.
const OLDEST: [u32; 2] = [2, 28];

/// Reports whether nothing is scheduled in this process, for one of these reasons: `XSCHED_DISABLE` is set; execution
/// is secure (set-user-ID and the like); the process is a pool's server; another copy of this library comes before this
/// one; the C library is not a supported one.
pub(crate) fn disabled() -> bool {
    is_told_to_keep_out() || unfit_libc().is_some() || another_copy().is_some()
}

/// Reason not to schedule with the C library of this process, if there is one. This library loads with any C library
/// (see `interpose/absent.rs`), but works with some only.
pub(crate) fn unfit_libc() -> Option<String> {
    why_unfit(absent::glibc_version())
}

fn why_unfit(glibc: Option<&CStr>) -> Option<String> {
    let Some(version) = glibc.map(CStr::to_string_lossy) else {
        return Some("the C library of this program is not glibc".to_owned());
    };
    let is_old = version.split('.').map_while(|number| number.parse::<u32>().ok()).lt(OLDEST);
    is_old.then(|| format!("the glibc of this program is {version}, older than {}.{}", OLDEST[0], OLDEST[1]))
}

pub(crate) fn is_told_to_keep_out() -> bool {
    variables::is_secure() || variables::is_disabled() || pool_served().is_some()
}

/// File of another copy of this library that callers reach before this one, found by a function that nothing else
/// exports. To the loader, links to one file are one library; copies of it are two, and each would schedule the other's
/// commands.
fn another_copy() -> Option<CString> {
    let found = resolve::before_us(c"XGetSchedulingDomainFor");
    resolve::object_of(found as usize).map(|(_, file)| file)
}

/// Number of the pool that this process serves. A server is not scheduled as a program of its own.
pub(crate) fn pool_served() -> Option<u64> {
    variables::text("XSCHED_POOL")?.parse().ok()
}

/// Reports whether the platform of this number is scheduled in this process. It is not if nothing is, or if
/// `XSCHED_PLATFORMS` leaves it out.
pub fn platform_enabled(platform: u8) -> bool {
    static ENABLED: AtomicU32 = AtomicU32::new(u32::MAX);
    let mut enabled = ENABLED.load(Relaxed);
    if enabled == u32::MAX {
        enabled = if is_told_to_keep_out() || is_unfit() || steps_aside() {
            0
        } else {
            with_moving(match variables::text("XSCHED_PLATFORMS") {
                Some(list) => {
                    complain_of(&list);
                    list.split(',')
                        .filter_map(|word| {
                            let word = word.trim().to_ascii_lowercase();
                            NUMBERED.iter().position(|p| p.name() == word)
                        })
                        .fold(0, |bits, at| bits | 1 << at)
                }
                None => (1 << NUMBERED.len()) - 1,
            })
        };
        ENABLED.store(enabled, Relaxed);
    }
    enabled & (1 << platform) != 0
}

/// Bits of platforms, with that of [`MOVING`] where CUDA is scheduled and the program's memory is to be movable.
fn with_moving(platforms: u32) -> u32 {
    let moves = platforms & (1 << CUDA) != 0 && variables::text("XSCHED_MEMORY").as_deref() == Some("swap");
    platforms | u32::from(moves) << MOVING
}

/// Reports whether the C library is not a supported one, and logs it once. Ends the process if scheduling is required.
#[cold]
fn is_unfit() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(why) = unfit_libc() else { return false };
    let settings = Settings::of_process();
    if settings.required {
        refuse(&why);
    }
    say_once(&SAID, settings.log, Log::Error, &format!("{why}: it runs unscheduled"));
    true
}

/// Reports whether another copy of this library comes before this one, and logs it once.
#[cold]
fn steps_aside() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(first) = another_copy() else { return false };
    let (_, own) = resolve::object_of(steps_aside as *const () as usize).unwrap_or_default();
    let (first, own) = (first.to_string_lossy(), own.to_string_lossy());
    let text = format!("{own} steps aside for {first}, a copy of the same library: make one of them a link");
    let log = Settings::of_process().log;
    say_once(&SAID, log, Log::Error, &text);
    true
}

/// Logs, once, a fault in the list of platforms. A fault must not end the program: this library is only a guest in it.
#[cold]
fn complain_of(platforms: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(fault) = wire::Platform::fault_in(platforms) {
        let log = Settings::of_process().log;
        say_once(&SAID, log, Log::Error, &fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_libc_in_which_it_does_not_work_is_told_by_its_version() {
        assert_eq!(unfit_libc(), None);
        assert_eq!([c"2.28", c"2.31", c"2.100", c"3.0"].map(|version| why_unfit(Some(version))), [const { None }; 4]);
        for version in [c"2.27", c"2.9", c"2", c"1.99", c"odd"] {
            let wanted = format!("the glibc of this program is {}, older than 2.28", version.to_str().unwrap());
            assert_eq!(why_unfit(Some(version)), Some(wanted));
        }
        assert_eq!(why_unfit(None).as_deref(), Some("the C library of this program is not glibc"));
    }
}
