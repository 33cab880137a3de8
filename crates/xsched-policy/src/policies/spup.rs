//! Strict process utilization partition: each program has its part of the device and no more. What one leaves stays idle.
//!
//! Its utilization, or weight, is a percentage of the device; where all together make more than 100, each is scaled down. A
//! program earns credit at that rate all the time, and device time costs credit. With credit left it takes its turns, without it
//! waits.

use std::collections::HashMap;

use xsched_proto::hint::Hint;

use crate::choice::Params;
use crate::registry::Entry;
use crate::tuning::{SLOTS_KEPT, TURN_MAX, TURN_MIN_US};
use crate::{Group, Micros, Policy, ProgramId, Verdict};

pub(super) static ENTRY: Entry = Entry {
    name: "spup",
    about: "at most its percentage of the device for each program, in turns; what one leaves stays idle",
    good_for: "programs that must not notice each other",
    make,
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    conserves_work: false,
    ..Entry::PLAIN
};

#[derive(Default)]
struct Account {
    percent: f64,
    timeslice_us: u64,
    ready: bool,
    is_there: bool,
    /// Charged at this look, and at the last, µs.
    used_us: f64,
    known_us: f64,
    /// Device time that it may have, µs.
    credit_us: f64,
    /// Its part of the device, 0..=1.
    part: f64,
}

#[derive(Clone, Copy)]
struct Turn {
    program: ProgramId,
    since: Micros,
    /// What its program had used when it began, µs.
    from_us: f64,
}

#[derive(Default)]
struct Strict {
    accounts: HashMap<ProgramId, Account>,
    at: Option<Micros>,
    turn: Option<Turn>,
}

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Strict::default())
}

impl Account {
    /// Device time of one of its turns, µs: its part of the time in which a program with a quarter of the device has a whole
    /// timeslice.
    fn slot_us(&self) -> f64 {
        (self.part * TURN_MAX * self.timeslice_us as f64).max(TURN_MIN_US as f64)
    }

    /// Whether it has earned another turn. Half of one will do, lest it wait for the last microsecond.
    fn may_begin(&self) -> bool {
        self.credit_us >= self.slot_us() / 2.0
    }

    /// In how many µs it has.
    fn earns_turn_in_us(&self) -> Micros {
        ((self.slot_us() / 2.0 - self.credit_us) / self.part.max(1e-6)).ceil().max(1.0) as Micros
    }
}

impl Strict {
    fn refresh(&mut self, now: Micros, groups: &[Group]) {
        for account in self.accounts.values_mut() {
            (account.is_there, account.ready, account.used_us) = (false, false, 0.0);
            (account.percent, account.timeslice_us) = (0.0, 0);
        }
        for group in groups {
            let account = self.accounts.entry(group.program).or_insert(Account { known_us: -1.0, ..Account::default() });
            account.is_there = true;
            account.ready |= group.ready;
            account.used_us += group.used_us;
            account.percent = account.percent.max(group.hints.part());
            account.timeslice_us = account.timeslice_us.max(group.hints.turn_us());
        }
        self.accounts.retain(|_, account| account.is_there);
        let sum: f64 = self.accounts.values().map(|account| account.percent).sum();
        let passed = now.saturating_sub(self.at.replace(now).unwrap_or(now)) as f64;
        for account in self.accounts.values_mut() {
            account.part = account.percent / sum.max(100.0);
            let slot_us = account.slot_us();
            if account.known_us < 0.0 {
                // It may begin at once.
                (account.known_us, account.credit_us) = (account.used_us, slot_us);
            }
            // Less than before: a group is gone, and its past with it.
            let spent = (account.used_us - account.known_us).max(0.0);
            account.known_us = account.used_us;
            // What it took too much, it gives back in full.
            account.credit_us = (account.credit_us + passed * account.part - spent).min(SLOTS_KEPT * slot_us);
        }
    }

    fn goes_on(&self, turn: &Turn) -> bool {
        let Some(account) = self.accounts.get(&turn.program).filter(|a| a.ready && a.credit_us > 0.0) else { return false };
        !self.others_may_begin(turn) || account.used_us - turn.from_us < account.slot_us()
    }

    fn others_may_begin(&self, turn: &Turn) -> bool {
        self.accounts.iter().any(|(id, a)| *id != turn.program && a.ready && a.may_begin())
    }

    fn next_turn(&self, now: Micros) -> Option<Turn> {
        let earned = self.accounts.iter().filter(|(_, a)| a.ready && a.may_begin());
        // The one that has waited for the most of its turns; of equals the older program.
        let ratio = |a: &Account| a.credit_us / a.slot_us();
        let (program, account) =
            earned.max_by(|(id, a), (other, b)| ratio(a).total_cmp(&ratio(b)).then(other.cmp(id)))?;
        Some(Turn { program: *program, since: now, from_us: account.used_us })
    }
}

impl Policy for Strict {
    fn decide(&mut self, now: Micros, groups: &[Group], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(now, groups);
        self.turn = self.turn.filter(|turn| self.goes_on(turn)).or_else(|| self.next_turn(now));
        for (group, verdict) in groups.iter().zip(verdicts) {
            let has_credit = || self.accounts[&group.program].may_begin();
            let run = self.turn.map_or_else(has_credit, |turn| turn.program == group.program);
            *verdict = Verdict { run, bounded: true };
        }
        let earns = self.accounts.iter().filter(|(id, a)| {
            a.ready && !a.may_begin() && self.turn.is_none_or(|turn| turn.program != **id)
        });
        let earns = earns.map(|(_, a)| now + a.earns_turn_in_us()).min();
        let ends = self.turn.and_then(|turn| {
            let account = self.accounts.get(&turn.program)?;
            let left = account.slot_us() - (account.used_us - turn.from_us);
            let left = if self.others_may_begin(&turn) { left } else { f64::INFINITY };
            // It pays while it earns.
            let lasts = account.credit_us / (1.0 - account.part).max(1e-3);
            let until = now + left.min(lasts).ceil().clamp(1.0, 1e9) as Micros;
            (turn.since <= now).then_some(until)
        });
        earns.into_iter().chain(ends).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::tests::group;

    #[test]
    fn a_program_without_credit_waits_though_the_device_is_idle_and_earns_its_next_turn() {
        let mut spup = make(&Params::default());
        let mut only = Group { ready: true, ..group(1) };
        only.hints.utilization = Some(25);
        let mut ask = |now, group: &Group| {
            let mut verdict = [Verdict::default()];
            let next = spup.decide(now, std::slice::from_ref(group), &mut verdict);
            (verdict[0].run, next)
        };
        assert_eq!(ask(0, &only), (true, Some(6_667)), "a quarter of 20 ms, and what it earns meanwhile");
        only.used_us = 6_666.0;
        let (runs, next) = ask(6_667, &only);
        assert!(runs, "it has earned a quarter of what it used meanwhile");
        only.used_us = 6_668.0;
        assert_eq!(next, Some(6_668));
        let (runs, next) = ask(6_668, &only);
        assert!(!runs);
        // Half a slot of 5 ms, at a quarter.
        assert!((16_666..16_676).contains(&next.unwrap()), "{next:?}");
        assert!(ask(next.unwrap(), &only).0);
    }
}
