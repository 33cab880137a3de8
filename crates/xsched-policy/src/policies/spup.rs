//! Strict process utilization partition: each program has its part of the device and no more. The part that it leaves stays idle.
//!
//! Its utilization, or weight, is a percentage of the device; where all together make more than 100, each is scaled down. A
//! program earns credit at that rate all the time, and device time costs credit. With credit left it takes its turns, without it
//! waits.

use xsched_proto::hint::Hint;

use crate::entry::Entry;
use crate::params::Params;
use crate::tuning::{LEFT_US, SLOTS_ALONE, SLOTS_KEPT, TURN_MAX, TURN_MIN_US};
use crate::{GroupView, GroupId, Micros, Policy, ProgramId, Verdict};

pub(super) static ENTRY: Entry = Entry {
    hints: &[Hint::Weight, Hint::Utilization, Hint::Timeslice],
    takes_turns: true,
    conserves_work: false,
    ..Entry::new(
        "spup",
        "at most its percentage of the device for each program, in turns; what one leaves stays idle",
        "programs that must not notice each other",
        make,
    )
};

struct Account {
    program: ProgramId,
    percent: f64,
    timeslice_us: u64,
    ready: bool,
    /// Device time charged by this decision, in µs.
    used_us: f64,
    /// Device time charged by the last decision, in µs.
    known_us: f64,
    /// Device time that the program may use, in µs.
    credit_us: f64,
    /// Its part of the device, 0..=1.
    part: f64,
    /// Rest of its turn, in µs; below 0 = the next one is shorter by that.
    left_us: f64,
    /// Number of its last turn; numbers grow.
    turn: u64,
    /// True if the program used its credit up while no other wanted the device.
    is_spent: bool,
}

#[derive(Default)]
struct Strict {
    /// Sorted by program.
    accounts: Vec<Account>,
    /// Groups of the last decision, and the index of the account of each.
    known: Vec<GroupId>,
    places: Vec<usize>,
    at: Option<Micros>,
    /// Program that has its turn.
    turn: Option<ProgramId>,
    turns: u64,
}

fn make(_: &Params) -> Box<dyn Policy> {
    Box::new(Strict::default())
}

impl Account {
    fn new(program: ProgramId) -> Account {
        Account {
            program,
            percent: 0.0,
            timeslice_us: 0,
            ready: false,
            used_us: 0.0,
            known_us: -1.0,
            credit_us: 0.0,
            part: 0.0,
            left_us: 0.0,
            turn: 0,
            is_spent: false,
        }
    }

    /// Device time of one of its turns, µs: its part of the time in which a program with a quarter of the device has a whole
    /// timeslice.
    fn slot_us(&self) -> f64 {
        (self.part * TURN_MAX * self.timeslice_us as f64).max(TURN_MIN_US as f64)
    }

    /// Credit needed to begin a turn, in µs: half a turn, lest the program wait for the last microsecond. Two turns after it had the device for
    /// itself until its credit was used up: each begin and each end of a turn costs it something.
    fn enough_us(&self) -> f64 {
        self.slot_us() * if self.is_spent { SLOTS_ALONE } else { 0.5 }
    }

    /// True if the program has earned another turn.
    fn may_begin(&self) -> bool {
        self.credit_us >= self.enough_us()
    }

    /// Time until the program has earned another turn, in µs.
    fn earns_turn_in_us(&self) -> Micros {
        ((self.enough_us() - self.credit_us) / self.part.max(1e-6)).ceil().max(1.0) as Micros
    }
}

impl Strict {
    /// An account for each program that has groups.
    fn follow(&mut self, groups: &[GroupView]) {
        let mut programs: Vec<ProgramId> = groups.iter().map(|g| g.program).collect();
        programs.sort_unstable();
        programs.dedup();
        let mut old = std::mem::take(&mut self.accounts).into_iter().peekable();
        self.accounts.extend(programs.into_iter().map(|program| {
            while old.next_if(|a| a.program < program).is_some() {}
            old.next_if(|a| a.program == program).unwrap_or_else(|| Account::new(program))
        }));
        self.known = groups.iter().map(|g| g.id).collect();
        self.places = groups.iter().filter_map(|g| self.place(g.program)).collect();
    }

    fn place(&self, program: ProgramId) -> Option<usize> {
        self.accounts.binary_search_by_key(&program, |a| a.program).ok()
    }

    fn refresh(&mut self, now: Micros, groups: &[GroupView]) {
        if !self.known.iter().copied().eq(groups.iter().map(|g| g.id)) {
            self.follow(groups);
        }
        for account in &mut self.accounts {
            (account.ready, account.used_us, account.percent, account.timeslice_us) = (false, 0.0, 0.0, 0);
        }
        for (group, place) in groups.iter().zip(&self.places) {
            let account = &mut self.accounts[*place];
            account.ready |= group.ready;
            account.used_us += group.used_us;
            account.percent = account.percent.max(group.hints.part());
            account.timeslice_us = account.timeslice_us.max(group.hints.turn_us());
        }
        let sum: f64 = self.accounts.iter().map(|account| account.percent).sum();
        let passed = now.saturating_sub(self.at.replace(now).unwrap_or(now)) as f64;
        for account in &mut self.accounts {
            account.part = account.percent / sum.max(100.0);
            let slot_us = account.slot_us();
            if account.known_us < 0.0 {
                // A new program may begin at once.
                (account.known_us, account.credit_us) = (account.used_us, slot_us);
            }
            // Less than before: a group was removed, and its past with it.
            let spent = (account.used_us - account.known_us).max(0.0);
            account.known_us = account.used_us;
            account.left_us -= spent;
            // Overuse is paid back in full: there is no lower limit.
            account.credit_us = (account.credit_us + passed * account.part - spent).min(SLOTS_KEPT * slot_us);
            account.is_spent &= !account.may_begin();
        }
    }

    fn goes_on(&self, turn: &Account) -> bool {
        turn.ready && turn.credit_us > 0.0 && (turn.left_us > LEFT_US || !self.others_may_begin(turn))
    }

    fn others_may_begin(&self, turn: &Account) -> bool {
        self.accounts.iter().any(|a| a.program != turn.program && a.ready && a.may_begin())
    }

    /// Begins a turn of the program whose last turn is the longest ago; of equals the older.
    fn next_turn(&mut self) -> Option<ProgramId> {
        let earned = self.accounts.iter_mut().filter(|a| a.ready && a.may_begin());
        let account = earned.min_by_key(|a| (a.turn, a.program))?;
        self.turns += 1;
        account.turn = self.turns;
        // Work in flight at the end of the last turn shortens this one: the order stays, and so do the shares.
        let slot_us = account.slot_us();
        account.left_us = account.left_us.clamp(-slot_us / 2.0, 0.0) + slot_us;
        Some(account.program)
    }
}

impl Policy for Strict {
    fn decide(&mut self, now: Micros, groups: &[GroupView], verdicts: &mut [Verdict]) -> Option<Micros> {
        self.refresh(now, groups);
        let account = |program| self.place(program).map(|at| &self.accounts[at]);
        let goes_on = self.turn.filter(|turn| account(*turn).is_some_and(|a| self.goes_on(a)));
        if let Some(ended) = self.turn.filter(|_| goes_on.is_none()).and_then(|program| self.place(program)) {
            let alone = !self.accounts.iter().enumerate().any(|(at, a)| at != ended && a.ready);
            self.accounts[ended].is_spent = alone && self.accounts[ended].credit_us <= 0.0;
        }
        self.turn = goes_on.or_else(|| self.next_turn());
        for ((group, place), verdict) in groups.iter().zip(&self.places).zip(verdicts) {
            let has_credit = || self.accounts[*place].may_begin();
            let run = self.turn.map_or_else(has_credit, |turn| turn == group.program);
            *verdict = Verdict { run, budgeted: true };
        }
        let earns = self.accounts.iter().filter(|a| a.ready && !a.may_begin() && self.turn != Some(a.program));
        let earns = earns.map(|a| now + a.earns_turn_in_us()).min();
        let ends = self.turn.and_then(|turn| self.place(turn)).map(|at| {
            let account = &self.accounts[at];
            // Credit is earned while it is spent.
            let lasts = account.credit_us / (1.0 - account.part).max(1e-3);
            let left = if self.others_may_begin(account) { account.left_us } else { f64::INFINITY };
            now + left.min(lasts).ceil().clamp(1.0, 1e9) as Micros
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
        let mut only = GroupView { ready: true, ..group(1) };
        only.hints.utilization = Some(25);
        let mut ask = |now, group: &GroupView| {
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
        // Two slots of 5 ms, at a quarter.
        assert!((46_666..46_676).contains(&next.unwrap()), "{next:?}");
        assert!(ask(next.unwrap(), &only).0);
    }
}
