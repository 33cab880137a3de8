//! A copy of a vendor's library that lacks a function this library needs, as an old driver may. Calls of such a copy go
//! on unscheduled, and the copy is not searched again at each of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::enabled::platform_enabled;
use crate::interpose::resolve;

/// Number of failed searches before a copy is given up. A search may fail because the loader is still at work on the
/// copy.
const SEARCHES: u32 = 16;

/// The copy that was given up, if there is one.
pub(crate) struct Lacking {
    searches: AtomicU32,
    range: OnceLock<(usize, usize)>,
}

impl Lacking {
    /// No copy given up yet.
    pub(crate) const fn new() -> Lacking {
        Lacking { searches: AtomicU32::new(0), range: OnceLock::new() }
    }

    /// Reports whether the copy that was given up holds the function at `real`.
    pub(crate) fn holds(&self, real: usize) -> bool {
        self.range.get().is_some_and(|(start, end)| (*start..*end).contains(&real))
    }

    /// Counts a failed search of the copy of a platform's library that holds the function at `real`; gives the copy up
    /// at the last.
    pub(crate) fn note(&self, platform: u8, real: usize) {
        if self.searches.fetch_add(1, Relaxed) + 1 < SEARCHES {
            return;
        }
        if let Some((start, end)) = resolve::range_of(real) {
            // Keeps the copy loaded, so that its address range stays its own.
            resolve::keep(real);
            if self.range.set((start, end)).is_ok() && platform_enabled(platform) {
                let file = resolve::object_of(real).map_or_else(String::new, |o| o.1.to_string_lossy().into_owned());
                xsched_agent::say(&format!(
                    "{file} lacks functions that scheduling needs: its calls go on unscheduled"
                ));
            }
        }
    }
}
