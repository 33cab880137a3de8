//! A copy of a vendor's library without some function that we need, as an old driver's: its calls go on unscheduled, and it
//! is not searched again at each of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::enabled::platform_enabled;
use crate::interpose::resolve;

/// Searches in vain before a copy is given up: one may have been made while the loader was at work.
const SEARCHES: u32 = 16;

/// The copy that was given up, if any.
pub(crate) struct Lacking {
    searches: AtomicU32,
    range: OnceLock<(usize, usize)>,
}

impl Lacking {
    /// None.
    pub(crate) const fn new() -> Lacking {
        Lacking { searches: AtomicU32::new(0), range: OnceLock::new() }
    }

    /// Whether it holds the function at `real`.
    pub(crate) fn holds(&self, real: usize) -> bool {
        self.range.get().is_some_and(|(start, end)| (*start..*end).contains(&real))
    }

    /// The copy of a platform's library that holds the function at `real` was searched in vain.
    pub(crate) fn note(&self, platform: u8, real: usize) {
        if self.searches.fetch_add(1, Relaxed) + 1 < SEARCHES {
            return;
        }
        if let Some((start, end)) = resolve::range_of(real) {
            // What lies there stays the same.
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
