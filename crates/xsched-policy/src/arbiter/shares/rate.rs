//! How fast a group gets on: completions in time that stands still now and then.

use crate::Micros;
use crate::tuning::*;

/// Completions and the time they took, alone or beside others, both with slow forgetting. The ratio of the sums is right on average however the lengths of commands
/// vary, which a mean of ratios is not.
#[derive(Default)]
pub(super) struct Rate {
    pub(super) commands: f64,
    pub(super) us: f64,
}

/// Time that stands still now and then.
#[derive(Clone, Copy, Default)]
pub(super) struct Clock {
    pub(super) us: Micros,
    pub(super) goes_since: Option<Micros>,
}

impl Clock {
    pub(super) fn at(&self, now: Micros) -> Micros {
        self.us + self.goes_since.map_or(0, |since| now - since)
    }

    pub(super) fn set(&mut self, now: Micros, goes: bool) {
        *self = Clock { us: self.at(now), goes_since: goes.then_some(now) };
    }
}

/// What is counted of a group that is alone in its pool. Contexts besides take the pool off the device, again and again: its time
/// stands still then.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) since: Micros,
    pub(super) clock: Clock,
    /// When counting began, by the clock, and the count then; none = not yet.
    pub(super) from: Option<(Micros, u64)>,
    /// As last told, by the clock.
    pub(super) to: (Micros, u64),
    /// The spell is long enough; so is what is left of it, then.
    pub(super) counts: bool,
    /// When something completed last, by the clock.
    pub(super) advanced_at: Option<Micros>,
    /// Commands and time that were counted, not taken for true yet.
    pub(super) found: (u64, Micros),
}

impl Rate {
    pub(super) fn learn(&mut self, commands: u64, us: Micros) {
        self.forget((us as f64 / RATE_MEMORY_US).max(1.0 / RATE_MEMORY_SPELLS));
        self.add(commands, us);
    }

    pub(super) fn add(&mut self, commands: u64, us: Micros) {
        self.commands += commands as f64;
        self.us += us as f64;
    }

    pub(super) fn forget(&mut self, memories: f64) {
        // As e to the power of minus `memories`, near enough; the preload library, which has policies in it, is without libm.
        let m = memories;
        let kept = 1.0 / (1.0 + m + m * m / 2.0 + m * m * m / 6.0);
        self.commands *= kept;
        self.us *= kept;
    }

    /// Time alone for a command, µs; none = not known.
    pub(super) fn command_us(&self) -> Option<f64> {
        (self.commands > 0.0).then(|| self.us / self.commands)
    }
}

impl Window {
    pub(super) fn new(now: Micros) -> Window {
        Window {
            since: now,
            clock: Clock { us: 0, goes_since: Some(now) },
            from: None,
            to: (0, 0),
            advanced_at: None,
            counts: false,
            found: (0, 0),
        }
    }

    /// Whether a spell that came by itself is so long that it does not matter where in a step it began.
    pub(super) fn is_enough(&self) -> bool {
        let Some((from, _)) = self.from else { return false };
        let us = self.to.0 - from;
        us > 0 && (self.counts || us >= SPELL_US)
    }

    /// Leaves out what has completed while the clock stood still.
    pub(super) fn skip(&mut self, commands: u64) {
        if let Some((_, count)) = &mut self.from {
            *count = count.wrapping_add(commands);
        }
        self.to.1 = self.to.1.wrapping_add(commands);
    }

    /// Counts up to here.
    pub(super) fn find(&mut self) {
        let Some((from, count)) = self.from.replace(self.to) else { return };
        self.counts = true;
        self.found.0 += self.to.1.wrapping_sub(count);
        self.found.1 += self.to.0 - from;
    }

    /// Whether nothing that others had in the driver can still be found to have been running.
    pub(super) fn is_proven(&self, now: Micros) -> bool {
        now >= self.since + SPELL_PROVEN_US
    }
}
