//! Which groups are interrupted (level 3). What is interrupted does not end, so that nothing follows from its silence.

use std::collections::BTreeMap;

/// By slot: since when a group is interrupted, if it is, and for how long it was before, in ns.
#[derive(Default)]
pub(crate) struct Interrupted(BTreeMap<u16, (Option<u64>, u64)>);

impl Interrupted {
    pub(crate) fn set(&mut self, slot: u16, on: bool, now: u64) {
        let (since, before) = self.0.entry(slot).or_default();
        if let Some(began) = since.take() {
            *before += now.saturating_sub(began);
        }
        *since = on.then_some(now);
    }

    pub(crate) fn contains(&self, slot: u16) -> bool {
        self.0.get(&slot).is_some_and(|(since, _)| since.is_some())
    }

    /// Those that are interrupted.
    pub(crate) fn slots(&self) -> Vec<u16> {
        self.0.keys().copied().filter(|slot| self.contains(*slot)).collect()
    }

    /// A clock, in ns, that stands still while the group is interrupted.
    pub(crate) fn own_time(&self, slot: u16, now: u64) -> u64 {
        let (since, before) = self.0.get(&slot).copied().unwrap_or_default();
        since.unwrap_or(now).min(now).saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_time_of_a_group_is_without_its_interruptions() {
        let mut interrupted = Interrupted::default();
        assert_eq!(interrupted.own_time(7, 100), 100);
        interrupted.set(7, true, 100);
        assert!(interrupted.contains(7) && !interrupted.contains(8));
        assert_eq!(interrupted.own_time(7, 250), 100);
        // Told twice.
        interrupted.set(7, true, 300);
        assert_eq!((interrupted.slots(), interrupted.own_time(7, 350)), (vec![7], 100));
        interrupted.set(7, false, 400);
        assert_eq!((interrupted.slots(), interrupted.own_time(7, 450)), (vec![], 150));
        interrupted.set(7, true, 500);
        interrupted.set(7, false, 600);
        assert_eq!((interrupted.own_time(7, 700), interrupted.own_time(8, 700)), (300, 700));
    }
}
