//! Which functions and graphs were used before, and how: a driver loads the code of what it has not met when it first does, and
//! does more of that for a launch than for a question.
//!
//! Only those used beside other programs are noted, so that a program alone does not pay for this. What is wrongly taken for new waits
//! once for its program's turn.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Places for handles; a power of two.
const PLACES: usize = 4096;
/// Places that a handle may lie in, one after the other.
const TRIED: usize = 8;

static MET: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

/// What is done with a handle: a launch, or a call of this address.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Launch,
    Call(*mut c_void),
}

/// Whether this handle was not met in this use before, or not for long; from now on it was.
pub(crate) fn is_first(used: Use, handle: *const c_void) -> bool {
    let salt = match used {
        Use::Launch => 0,
        Use::Call(function) => function as usize,
    };
    // Fibonacci hashing: handles are addresses, often of equal distance. 0 is a free place.
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
    // All are taken: the first one is forgotten.
    MET[from].store(handle, Relaxed);
    true
}

/// Code was unloaded: its handles may come again for others.
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
        // More than there is room for: some are met again, none is taken for another.
        assert!((1..=3 * PLACES).all(|n| launched(0x7f00_0000_0000 + n * 0x20)));
    }
}
