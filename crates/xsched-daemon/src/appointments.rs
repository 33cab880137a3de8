//! Times at which refused programs ask again, given out by the daemon: soon where few are refused, one after the other where many are.

use std::collections::HashMap;

use crate::tuning::{ASK_AGAIN_NS, ASK_SPACING_NS, ASK_USERS_MAX};

/// The last time given to a program of each user, in ns. A user with many refused programs does not make those of others wait.
#[derive(Debug, Default)]
pub(crate) struct Appointments(HashMap<u32, u64>);

impl Appointments {
    /// Time from now to the next attempt of a program that is refused now, in ns.
    pub(crate) fn next(&mut self, now_ns: u64, uid: u32) -> u64 {
        if self.0.len() >= ASK_USERS_MAX {
            self.0.retain(|_, last_ns| *last_ns > now_ns);
        }
        // Users for whom there is no room share one entry, that of no user.
        let uid = if self.0.len() < ASK_USERS_MAX || self.0.contains_key(&uid) { uid } else { u32::MAX };
        let last_ns = self.0.entry(uid).or_default();
        let (soon, late) = (now_ns + ASK_AGAIN_NS.0, now_ns + ASK_AGAIN_NS.1);
        *last_ns = (*last_ns + ASK_SPACING_NS).clamp(soon, late);
        *last_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    const S: u64 = 1_000_000_000;

    /// Programs of some users that are all refused, for some minutes of virtual time. Returns the largest number of attempts in a second
    /// after the first, and the longest wait of each user, in ns.
    fn refused(programs: &[(u32, usize)]) -> (usize, HashMap<u32, u64>) {
        let mut appointments = Appointments::default();
        let all = programs.iter().flat_map(|(uid, n)| std::iter::repeat_n(Reverse((0, *uid)), *n));
        let mut due: BinaryHeap<Reverse<(u64, u32)>> = all.collect();
        let (mut of_second, mut longest) = (vec![0; 302], HashMap::new());
        while let Some(Reverse((now_ns, uid))) = due.pop().filter(|Reverse((now_ns, _))| *now_ns < 300 * S) {
            of_second[(now_ns / S) as usize] += 1;
            let wait_ns = appointments.next(now_ns, uid);
            let longest = longest.entry(uid).or_insert(0);
            *longest = (*longest).max(wait_ns);
            due.push(Reverse((now_ns + wait_ns, uid)));
        }
        (of_second[1..].iter().copied().max().unwrap_or(0), longest)
    }

    #[test]
    fn few_refused_programs_ask_again_within_two_seconds() {
        let (most, longest) = refused(&[(7, 100)]);
        assert_eq!((longest[&7], most), (ASK_AGAIN_NS.0 + 99 * ASK_SPACING_NS, 100));
        assert!(longest[&7] < 3 * S && refused(&[(7, 1)]).1[&7] <= 2 * S);
    }

    #[test]
    fn ten_thousand_refused_programs_are_no_load_and_keep_no_other_user_waiting() {
        let (most, longest) = refused(&[(7, 10_000), (8, 3)]);
        let allowed = (S / ASK_SPACING_NS) as usize + 1 + 3;
        assert!(most <= allowed, "{most} attempts in a second, {allowed} allowed");
        // The daemon reports a refused program for as long as it asks again within a minute.
        assert!(longest[&7] <= 60 * S, "{longest:?}");
        assert!(longest[&8] <= ASK_AGAIN_NS.0 + 3 * ASK_SPACING_NS, "{longest:?}");
    }

    #[test]
    fn the_memory_of_users_is_bounded_and_all_of_them_get_a_time() {
        let mut appointments = Appointments::default();
        for uid in 0..10 * ASK_USERS_MAX as u32 {
            let wait_ns = appointments.next(0, uid);
            assert!((ASK_AGAIN_NS.0..=ASK_AGAIN_NS.1).contains(&wait_ns));
        }
        assert!(appointments.0.len() <= ASK_USERS_MAX + 1);
        assert_eq!(appointments.next(100 * S, 5_000_000), ASK_AGAIN_NS.0, "the others' times are over");
    }
}
