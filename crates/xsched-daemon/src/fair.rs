//! Work that waits, user by user: one piece of each in turn, so that a user with much of it delays its own work only.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Pieces of work by user. The same piece waits only once.
pub(crate) struct FairQueue<U, T> {
    by_user: HashMap<U, VecDeque<T>>,
    /// The users with work, the next one first.
    turns: VecDeque<U>,
    waiting: HashSet<T>,
}

impl<U: Copy + Eq + Hash, T: Copy + Eq + Hash> FairQueue<U, T> {
    pub(crate) fn new() -> FairQueue<U, T> {
        FairQueue { by_user: HashMap::new(), turns: VecDeque::new(), waiting: HashSet::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a piece behind the other work of its user.
    pub(crate) fn push(&mut self, user: U, piece: T) {
        if !self.waiting.insert(piece) {
            return;
        }
        let of_user = self.by_user.entry(user).or_default();
        if of_user.is_empty() {
            self.turns.push_back(user);
        }
        of_user.push_back(piece);
    }

    /// Takes the first piece of the user whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, piece)| piece)
    }

    /// The same, of the users who may. Those who may not keep their turn.
    pub(crate) fn pop_of(&mut self, may: impl Fn(U) -> bool) -> Option<(U, T)> {
        let at = self.turns.iter().position(|user| may(*user))?;
        let user = self.turns.remove(at)?;
        let of_user = self.by_user.get_mut(&user)?;
        let piece = of_user.pop_front()?;
        self.waiting.remove(&piece);
        if of_user.is_empty() {
            self.by_user.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        Some((user, piece))
    }

    /// The users with work.
    pub(crate) fn users(&self) -> impl Iterator<Item = U> {
        self.turns.iter().copied()
    }
}

/// Work of which each user gets a part of all time at most, so that whoever keeps the loop busy waits for himself and the loop is asleep
/// when others want something of it: a thread that is asleep gets a processor sooner than one that always wants it.
pub(crate) struct Rationed<U, T> {
    queue: FairQueue<U, T>,
    /// Until when a user's work is paid for, in ns. Those of the past are as good as none.
    paid_ns: HashMap<U, u64>,
    /// So many times what a piece takes goes by until the next, …
    times: u64,
    /// … beyond so much time in advance, in ns.
    credit_ns: u64,
}

impl<U: Copy + Eq + Hash, T: Copy + Eq + Hash> Rationed<U, T> {
    pub(crate) fn new(times: u64, credit_ns: u64) -> Rationed<U, T> {
        Rationed { queue: FairQueue::new(), paid_ns: HashMap::new(), times, credit_ns }
    }

    /// See [`FairQueue::push`].
    pub(crate) fn push(&mut self, user: U, piece: T) {
        self.queue.push(user, piece);
    }

    /// The first piece of the user whose turn it is among those who have time left.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(U, T)> {
        self.pop_of(now_ns, |_| true)
    }

    /// The same, of the users who may besides.
    pub(crate) fn pop_of(&mut self, now_ns: u64, may: impl Fn(U) -> bool) -> Option<(U, T)> {
        let (paid_ns, credit_ns) = (&self.paid_ns, self.credit_ns);
        self.queue.pop_of(|user| may(user) && next_ns(paid_ns, credit_ns, user) <= now_ns)
    }

    /// The user whose turn it is among those who have time left.
    pub(crate) fn turn(&self, now_ns: u64) -> Option<U> {
        self.queue.users().find(|user| self.has_time(*user, now_ns))
    }

    /// Whether work for a user may be done now.
    pub(crate) fn has_time(&self, user: U, now_ns: u64) -> bool {
        next_ns(&self.paid_ns, self.credit_ns, user) <= now_ns
    }

    /// When the first piece may be done that waits, in ns.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.queue.users().map(|user| next_ns(&self.paid_ns, self.credit_ns, user)).min()
    }

    /// Work for a user has just taken so long, in ns.
    pub(crate) fn charge(&mut self, user: U, now_ns: u64, took_ns: u64) {
        if self.paid_ns.len() > PAID_MAX {
            self.paid_ns.retain(|_, paid| *paid > now_ns);
        }
        let paid = self.paid_ns.entry(user).or_default();
        *paid = (*paid).max(now_ns).saturating_add(took_ns.saturating_mul(self.times));
    }
}

/// When work for a user is done again, in ns; 0 = at any time.
fn next_ns<U: Eq + Hash>(paid_ns: &HashMap<U, u64>, credit_ns: u64, user: U) -> u64 {
    paid_ns.get(&user).map_or(0, |paid| paid.saturating_sub(credit_ns))
}

/// With more users than this, those are forgotten who have used nothing for long.
const PAID_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut queue: FairQueue<u32, u64>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn one_piece_of_each_user_is_next_however_many_wait_before_it() {
        let mut queue = FairQueue::new();
        (0..1_000).for_each(|n| queue.push(7, n));
        queue.push(8, 5_000);
        queue.push(8, 5_001);
        queue.push(9, 6_000);
        let order = all(queue);
        assert_eq!(order[..7], [0, 5_000, 6_000, 1, 5_001, 2, 3]);
        assert_eq!(order.len(), 1_003);
    }

    #[test]
    fn who_may_not_keeps_the_turn() {
        let mut queue = FairQueue::new();
        [(7, 1), (8, 2), (9, 3)].into_iter().for_each(|(user, n)| queue.push(user, n));
        assert_eq!(queue.pop_of(|user| user != 7), Some((8, 2)));
        assert_eq!(queue.pop_of(|user| user == 8), None);
        assert_eq!(queue.users().collect::<Vec<_>>(), [7, 9]);
        assert_eq!(all(queue), [1, 3]);
    }

    #[test]
    fn a_user_who_always_has_work_gets_his_part_of_the_time_and_the_others_theirs() {
        let mut work = Rationed::new(4, 1_000);
        let (mut now, mut worked, mut of_other) = (5_000, 0, 0);
        while now < 1_000_000 {
            work.push(7, 1);
            // The other comes from time to time, and never waits.
            if now >= (of_other + 1) * 50_000 {
                work.push(8, 2);
                of_other += 1;
            }
            match work.pop(now) {
                Some((7, _)) => {
                    (now, worked) = (now + 100, worked + 100);
                    work.charge(7, now, 100);
                }
                Some((user, _)) => work.charge(user, now, 500),
                None => {
                    assert!(work.queue.users().eq([7]), "only he waits");
                    now = work.due_ns().expect("his next piece");
                }
            }
        }
        assert!((200_000..=251_000).contains(&worked), "{worked}");
        assert!(of_other > 10, "{of_other}");
        let mut work = Rationed::new(4, 1_000);
        work.charge(9, now, 200);
        work.push(9, 3);
        assert_eq!(work.pop(now), Some((9, 3)), "some time in advance");
    }

    #[test]
    fn work_that_comes_again_goes_behind_that_of_others() {
        let mut queue = FairQueue::new();
        (0..100).for_each(|n| queue.push(7, n));
        for _ in 0..10 {
            queue.push(8, 5_000);
            let next = [queue.pop(), queue.pop()];
            assert!(next.contains(&Some(5_000)), "{next:?}");
        }
    }

    #[test]
    fn a_piece_waits_once() {
        let mut queue = FairQueue::new();
        [1, 2, 1, 1, 2].into_iter().for_each(|n| queue.push(7, n));
        assert_eq!(queue.pop(), Some(1));
        queue.push(7, 1);
        assert_eq!(all(queue), [2, 1]);
        assert!(FairQueue::<u32, u64>::new().is_empty());
    }
}
