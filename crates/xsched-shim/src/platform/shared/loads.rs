//! Record of the functions and graphs used so far, and how. A driver loads code at its first use, and loads more for a
//! launch than for a query.
//!
//! Uses are recorded only beside other programs, so that a program that runs alone pays nothing. A use wrongly taken
//! for the first waits once for a grant of its program.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Number of entries; a power of two.
const PLACES: usize = 4096;
/// Number of adjacent entries that may hold a handle.
const TRIED: usize = 8;

static MET: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// Use of a handle: a launch, or a call of the function at this address.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Launch,
    Call(*mut c_void),
}

/// Records a use of a handle. Returns true if it was not on record, or was dropped from it.
pub(crate) fn is_first(used: Use, handle: *const c_void) -> bool {
    let salt = match used {
        Use::Launch => 0,
        Use::Call(function) => function as usize,
    };
    // Fibonacci hashing: handles are addresses, often evenly spaced. 0 is a free entry.
    let handle = (handle as usize).wrapping_add(salt.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1);
    let from = handle >> (usize::BITS - PLACES.trailing_zeros());
    let places = || (0..TRIED).map(|n| &MET[(from + n) % PLACES]);
    for place in places() {
        match place.load(Relaxed) {
            met if met == handle => return false,
            0 if place.compare_exchange(0, handle, Relaxed, Relaxed).is_ok() => return true,
            _ => {}
        }
    }
    // All entries are taken, so the first is replaced.
    MET[from].store(handle, Relaxed);
    true
}

/// Empties the record after code was unloaded: its handles may be reused.
pub(crate) fn forget_all() {
    MET.iter().for_each(|place| place.store(0, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_new_once_until_all_are_forgotten() {
        let launched = |handle: usize| is_first(Use::Launch, handle as *const c_void);
        assert!((1..=1000).all(|n| launched(n * 0x40)));
        assert!(!(1..=1000).any(|n| launched(n * 0x40)));
        let asked = |n: usize| is_first(Use::Call(0x7f12_3456_7890 as *mut c_void), (n * 0x40) as *const c_void);
        assert!((1..=1000).all(asked), "another use");
        forget_all();
        assert!((1..=1000).all(|n| launched(n * 0x40)));
        // More handles than entries: some are taken for new again, but none is confused with another.
        assert!((1..=3 * PLACES).all(|n| launched(0x7f00_0000_0000 + n * 0x20)));
    }
}
