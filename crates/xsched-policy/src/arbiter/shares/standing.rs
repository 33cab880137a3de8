//! What is known of one group of a pool: how far it is, how fast alone and beside others, whether it is on the device.

use super::rate::{Clock, Rate, Window};
use crate::Micros;
use crate::tuning::*;

/// What is known of one group.
#[derive(Default)]
pub(super) struct Standing {
    /// As last told.
    pub(super) completed: Option<u64>,
    pub(super) longest_us: u64,
    /// The longest time between two completions that was seen while it was alone.
    pub(super) longest_gap_us: u64,
    /// When it last completed something, or came on the device.
    pub(super) advanced_at: Micros,
    /// How long the command in flight has probably run, µs.
    pub(super) running_us: f64,
    /// Progress, in µs alone at the mean weight of those it is compared with.
    pub(super) progress: f64,
    /// Progress counts since its rate is known.
    pub(super) placed: bool,
    /// Mean weight of those it is compared with, divided by its own.
    pub(super) scale: f64,
    /// Progress ahead of the slowest.
    pub(super) lead: f64,
    /// It does not run though the policy says so: ahead of others, or for the spell of another.
    pub(super) held: bool,
    pub(super) is_ahead: bool,
    /// Commands for which the device was what held it up, as last told and when; and the part of all that these were lately.
    pub(super) limited: Option<u32>,
    pub(super) limited_at: Micros,
    pub(super) limited_part: f64,
    /// Since when it has wanted the device, but for short pauses.
    pub(super) steady_since: Option<Micros>,
    /// Compared with others, as of the last look.
    pub(super) is_present: bool,
    /// Since when it does not take part, and how far it was behind the slowest of the others then.
    pub(super) away: Option<(Micros, f64)>,
    /// It was on the device at the last look.
    pub(super) on: bool,
    /// When it was seen on the device last, unless it has left it for sure.
    pub(super) last_on: Option<Micros>,
    pub(super) rate: Rate,
    /// The same in company.
    pub(super) beside: Rate,
    /// Time in company since what is counted of it was learned, and what that is.
    pub(super) beside_clock: Clock,
    pub(super) beside_found: (u64, Micros),
    pub(super) beside_to: Micros,
    /// What the last spell alone showed: slower just before, beside others. None = too little was known of that.
    pub(super) was_slowed: Option<bool>,
    /// As of the last count beside others, compared with what is known of it alone.
    pub(super) seems_slowed: Option<bool>,
    /// Commands and time in spells that came by themselves, not learned from yet.
    pub(super) found: (u64, Micros),
    pub(super) spell_due: Micros,
    pub(super) spell_interval_us: Micros,
    pub(super) spells: u32,
    /// So many spells in a row showed it slower, or faster if negative, than was known.
    pub(super) news: i32,
}

impl Standing {
    /// Takes what a spell that came by itself has told so far.
    pub(super) fn take(&mut self, now: Micros, window: &mut Window) {
        let (commands, us) = std::mem::take(&mut window.found);
        self.found = (self.found.0 + commands, self.found.1 + us);
        if self.found.1 >= SPELL_US && self.found.0 > 0 {
            let (commands, us) = std::mem::take(&mut self.found);
            self.learn(now, commands, us);
        }
    }

    /// How much progress counts, from where the group stands.
    pub(super) fn counts(&self, us: f64, evenness: f64) -> f64 {
        let whole = (SHARE_SLACK_US / 2.0 - self.lead).clamp(0.0, us);
        whole + (us - whole) * evenness
    }

    /// Progress, with the command that is in flight.
    pub(super) fn reached(&self, evenness: f64) -> f64 {
        self.progress + self.counts(self.running_us * self.scale, evenness)
    }

    /// Whether others are held on its account: it is slower beside them than alone. A host that is slow for a while looks the same,
    /// but then a spell alone is no faster than the time before it.
    pub(super) fn is_slowed(&self) -> bool {
        self.is_limited() && self.was_slowed != Some(false) && self.is_slower_beside(self.rate.command_us())
    }

    /// The device is what holds it up, by what its client tells. Whose host does gains nothing when others are held, however slow that
    /// is for a while.
    pub(super) fn is_limited(&self) -> bool {
        self.limited_part >= LIMITED_PART
    }

    /// So many commands were found complete, of which the client says for how many the device was what held it up.
    pub(super) fn note_limits(&mut self, now: Micros, commands: u64, limited: u32) {
        let held_up = limited.wrapping_sub(self.limited.replace(limited).unwrap_or(limited));
        let us = now - std::mem::replace(&mut self.limited_at, now).min(now);
        if commands > 0 {
            let part = (f64::from(held_up) / commands as f64).min(1.0);
            let weight = (us as f64 / LIMITED_MEMORY_US).min(1.0);
            self.limited_part += (part - self.limited_part) * weight;
        }
    }

    /// Compared with what a command took alone, in µs.
    fn is_slower_beside(&self, alone_us: Option<f64>) -> bool {
        let (Some(alone), Some(beside)) = (alone_us, self.beside.command_us()) else { return true };
        alone < HARDLY_SLOWED * beside
    }

    /// So many commands were found complete.
    pub(super) fn count_beside(&mut self, now: Micros, commands: u64) {
        let at = self.beside_clock.at(now);
        let us = at - std::mem::replace(&mut self.beside_to, at);
        if us == 0 {
            return;
        }
        self.beside_found = (self.beside_found.0 + commands, self.beside_found.1 + us);
        if self.beside_found.1 >= SPELL_US {
            let (commands, us) = std::mem::take(&mut self.beside_found);
            // Nothing at all is slow, too.
            self.beside.forget(us as f64 / BESIDE_MEMORY_US);
            self.beside.add(commands, us);
            let seems_slowed = self.is_slower_beside(self.rate.command_us());
            let since_now = self.seems_slowed.replace(seems_slowed) == Some(false) && seems_slowed;
            if since_now && self.was_slowed != Some(true) {
                // A spell tells whether that is for the others.
                self.spell_interval_us = SPELL_SOON_US;
                self.spell_due = now;
            }
        }
    }

    pub(super) fn command_us(&self) -> f64 {
        self.rate.command_us().unwrap_or(0.0)
    }

    /// Until when something of it may be on the device once its gate is closed, as long as its client does not say that nothing
    /// is: at a level above 1 a group counts as off the device though what runs goes on.
    pub(super) fn off_at(&self, last_on: Micros) -> Micros {
        last_on + SETTLE_US.max(self.longest_us.max(self.longest_gap_us).min(SPELL_MOST_US) * 5 / 4)
    }

    pub(super) fn is_off(&self, now: Micros) -> bool {
        self.last_on.is_none_or(|at| self.off_at(at) <= now)
    }

    /// It has the device, and nothing of it completes: whatever it waits for, the others are not what keeps it back.
    pub(super) fn is_stuck(&self, now: Micros) -> bool {
        let patience = SHARE_PATIENCE_US.max((SHARE_PATIENCE_COMMANDS * self.command_us()) as Micros);
        self.on && now > self.advanced_at + patience
    }

    /// Puts its next forced spell off.
    pub(super) fn wait_for_spell(&mut self, now: Micros) {
        self.spell_interval_us = (self.spell_interval_us * 2).clamp(SPELL_SOON_US, SPELL_RARE_US);
        self.spell_due = now + self.spell_interval_us;
    }

    pub(super) fn learn(&mut self, now: Micros, commands: u64, us: Micros) {
        let seen = us as f64 / commands.max(1) as f64 / self.rate.command_us().unwrap_or(0.0);
        let news = if seen.is_infinite() || (1.0 / SPELL_NEWS..=SPELL_NEWS).contains(&seen) {
            0
        } else {
            (seen - 1.0).signum() as i32
        };
        self.news = if news == self.news.signum() { self.news + news } else { news };
        if self.news.unsigned_abs() >= SPELLS_NEWS {
            self.rate.forget(NEWS_FORGETS);
        }
        self.rate.learn(commands, us);
        if self.beside.us >= BESIDE_MEMORY_US / 2.0 {
            self.was_slowed = Some(self.is_slower_beside(Some(us as f64 / commands.max(1) as f64)));
        }
        self.longest_gap_us -= self.longest_gap_us / 8;
        self.wait_for_spell(now);
        if news != 0 {
            self.spell_interval_us = SPELL_SOON_US;
            self.spell_due = now + SPELL_SOON_US;
        }
    }
}
