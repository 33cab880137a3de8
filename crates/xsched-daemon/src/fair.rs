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
        let user = self.turns.pop_front()?;
        let of_user = self.by_user.get_mut(&user)?;
        let piece = of_user.pop_front()?;
        self.waiting.remove(&piece);
        if of_user.is_empty() {
            self.by_user.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        Some(piece)
    }
}

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
