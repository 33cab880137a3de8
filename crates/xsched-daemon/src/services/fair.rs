//! Queue of work, user by user: one piece of each in turn, so that a user with much work delays that user's work only.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Pieces of work by user. A piece that is waiting already is not added again.
pub(crate) struct FairQueue<U, T> {
    by_user: HashMap<U, VecDeque<T>>,
    /// Users with work, the next one first.
    turns: VecDeque<U>,
    waiting: HashSet<T>,
}

impl<U: Copy + Eq + Hash, T: Copy + Eq + Hash> Default for FairQueue<U, T> {
    fn default() -> FairQueue<U, T> {
        FairQueue::new()
    }
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

    /// Puts a piece before the other work of its user. The user's turn does not change.
    pub(crate) fn push_first(&mut self, user: U, piece: T) {
        if !self.waiting.insert(piece) {
            return;
        }
        let of_user = self.by_user.entry(user).or_default();
        if of_user.is_empty() {
            self.turns.push_back(user);
        }
        of_user.push_front(piece);
    }

    /// Takes the first piece of the user at the head of the order.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, piece)| piece)
    }

    /// Takes the first piece of the first user for which `may` is true. Users for which it is false keep their turn.
    pub(crate) fn pop_of(&mut self, may: impl Fn(U) -> bool) -> Option<(U, T)> {
        let at = self.turns.iter().position(|user| may(*user))?;
        self.take(at)
    }

    /// Takes the first piece of the user at a place of the order.
    fn take(&mut self, at: usize) -> Option<(U, T)> {
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

    /// Users with work.
    pub(crate) fn users(&self) -> impl Iterator<Item = U> {
        self.turns.iter().copied()
    }
}

/// Queue of work in which each user's work gets at most a part of all time. So a user who keeps the loop busy waits for that user's own
/// work only, and the loop sleeps when others need it: a sleeping thread gets a processor sooner than one that always wants it. All users
/// together have a limited part, too. Among users with work the one that has used least comes first (start-time fair queuing): a user with
/// little work waits neither behind many with much, nor for the part of all users together.
pub(crate) struct Rationed<U, T> {
    queue: FairQueue<U, T>,
    users: HashMap<U, Used>,
    /// Virtual time, in ns: time for which a user with work all the while has been served so far.
    virtual_ns: u64,
    /// Time until which the work of all users is paid for, in ns: each piece counts [`Rationed::all_times`] times its duration.
    all_paid_ns: u64,
    /// True once all users together have used their credit, until their work is paid for.
    all_rest: bool,
    /// Multiple of a piece's duration that has to pass before the next piece of the same user.
    times: u64,
    /// Such a multiple for pieces of all users together.
    all_times: u64,
    /// Time by which a user's work may be ahead of that, in ns.
    credit_ns: u64,
}

/// Time that a user has used.
#[derive(Clone, Copy, Default)]
struct Used {
    /// Time until which the user's work is paid for, in ns. A time in the past counts as none.
    paid_ns: u64,
    /// True once the user has used its credit, until its work is paid for. Without such a rest the user's pieces would be done one by one from
    /// then on, and the loop would sleep and wake up for each, which costs more than the piece.
    rests: bool,
    /// Time that the user has used, on the scale of [`Rationed::virtual_ns`].
    virtual_ns: u64,
}

impl<U: Copy + Eq + Hash, T: Copy + Eq + Hash> Rationed<U, T> {
    pub(crate) fn new(times: u64, credit_ns: u64) -> Rationed<U, T> {
        Rationed::with_all(times, ALL_TIMES, credit_ns)
    }

    /// Makes one in which all users together have a given part of the time.
    pub(crate) fn with_all(times: u64, all_times: u64, credit_ns: u64) -> Rationed<U, T> {
        let (queue, users) = (FairQueue::new(), HashMap::new());
        Rationed { queue, users, virtual_ns: 0, all_paid_ns: 0, all_rest: false, times, all_times, credit_ns }
    }

    /// See [`FairQueue::push`].
    pub(crate) fn push(&mut self, user: U, piece: T) {
        self.queue.push(user, piece);
    }

    /// See [`FairQueue::push_first`].
    pub(crate) fn push_first(&mut self, user: U, piece: T) {
        self.queue.push_first(user, piece);
    }

    /// Takes the first piece of the user that has used least, among users with time left.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(U, T)> {
        self.pop_of(now_ns, |_| true)
    }

    /// Takes the first piece of the user that has used least, among users with time left for which `may` is true.
    pub(crate) fn pop_of(&mut self, now_ns: u64, may: impl Fn(U) -> bool) -> Option<(U, T)> {
        let at = self.next(now_ns, may)?;
        let (user, piece) = self.queue.take(at)?;
        self.virtual_ns = self.virtual_ns.max(self.start_ns(user));
        self.all_rest &= self.all_paid_ns > now_ns;
        if let Some(used) = self.users.get_mut(&user) {
            used.rests = false;
        }
        Some((user, piece))
    }

    /// User whose piece is next, among users with time left.
    pub(crate) fn turn(&self, now_ns: u64) -> Option<U> {
        let at = self.next(now_ns, |_| true)?;
        self.queue.users().nth(at)
    }

    /// Place of the next user in the order of users.
    fn next(&self, now_ns: u64, may: impl Fn(U) -> bool) -> Option<usize> {
        let users = self.queue.users().enumerate();
        let may = users.filter(|(_, user)| self.has_time(*user, now_ns) && may(*user));
        may.min_by_key(|(at, user)| (self.start_ns(*user), *at)).map(|(at, _)| at)
    }

    /// Place of a user's next piece in the common order, as a virtual time: a user that had no work for some time comes before users that
    /// had.
    fn start_ns(&self, user: U) -> u64 {
        let used = self.users.get(&user).map_or(0, |used| used.virtual_ns);
        used.max(self.virtual_ns.saturating_sub(1))
    }

    /// Reports whether work for a user may be done now.
    pub(crate) fn has_time(&self, user: U, now_ns: u64) -> bool {
        self.next_ns(user) <= now_ns
    }

    /// Time from which on the first waiting piece may be done, in ns.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.queue.users().map(|user| self.next_ns(user)).min()
    }

    /// Time from which on work for a user may be done again, in ns; 0 = at any time.
    fn next_ns(&self, user: U) -> u64 {
        let used = self.users.get(&user).copied().unwrap_or_default();
        let due_ns = |paid_ns: u64, rests| if rests { paid_ns } else { paid_ns.saturating_sub(self.credit_ns) };
        let of_all = if used.virtual_ns < self.virtual_ns { 0 } else { due_ns(self.all_paid_ns, self.all_rest) };
        due_ns(used.paid_ns, used.rests).max(of_all)
    }

    /// Charges a user for work that has just taken `took_ns`.
    pub(crate) fn charge(&mut self, user: U, now_ns: u64, took_ns: u64) {
        if self.users.len() > USERS_MAX {
            let virtual_ns = self.virtual_ns;
            self.users.retain(|_, used| used.paid_ns > now_ns || used.virtual_ns >= virtual_ns);
        }
        let begin_ns = self.start_ns(user);
        let used = self.users.entry(user).or_default();
        used.paid_ns = used.paid_ns.max(now_ns).saturating_add(took_ns.saturating_mul(self.times));
        used.virtual_ns = begin_ns.saturating_add(took_ns);
        used.rests |= used.paid_ns.saturating_sub(self.credit_ns) > now_ns;
        self.all_paid_ns = self.all_paid_ns.max(now_ns).saturating_add(took_ns.saturating_mul(self.all_times));
        self.all_rest |= self.all_paid_ns.saturating_sub(self.credit_ns) > now_ns;
    }
}

/// Divisor of all time that usually gives the largest part for the work of all users together.
const ALL_TIMES: u64 = 2;
/// Number of users above which those are forgotten that have used nothing for long.
const USERS_MAX: usize = 64;

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
            // The other user has work from time to time, and never waits.
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
    fn the_work_of_users_beyond_their_part_is_done_in_batches() {
        for users in [1, 20] {
            let (credit, piece) = (100_000, 1_000);
            let mut work = Rationed::new(4, credit);
            let (mut now, mut worked, mut sleeps) = (1_000_000, 0, 0);
            while now < 100_000_000 {
                (0..users).for_each(|user| work.push(user, user));
                match work.pop(now) {
                    Some((user, _)) => {
                        (now, worked) = (now + piece, worked + piece);
                        work.charge(user, now, piece);
                    }
                    None => (now, sleeps) = (work.due_ns().expect("there is work").max(now + 1), sleeps + 1),
                }
            }
            assert!(worked / sleeps >= credit / 8, "{users} users: {worked} ns of work, {sleeps} sleeps");
        }
    }

    #[test]
    fn a_user_that_has_used_little_is_first_however_many_have_much_to_do() {
        let mut work = Rationed::new(4, 1_000);
        let mut now = 1_000_000;
        const MANY: u32 = 20;
        let (mut worked, mut waited) = (0, Vec::new());
        for round in 0..20_000_u64 {
            (0..MANY).for_each(|user| work.push(user, u64::from(user)));
            if round % 500 == 0 {
                work.push(MANY, u64::from(MANY));
                // The user waits for its previous piece only, which it has paid for.
                let (user, _) = work.pop(now).expect("it owes nothing");
                waited.push(user);
                work.charge(user, now, 10);
            }
            match work.pop(now) {
                Some((user, _)) => {
                    (now, worked) = (now + 20, worked + 20);
                    work.charge(user, now, 20);
                }
                None => now = work.due_ns().expect("there is work").max(now + 1),
            }
        }
        let all = now - 1_000_000;
        assert!(waited[1..].iter().all(|user| *user == MANY), "the first of many was served before it");
        assert!(worked * 100 < all * 55, "{worked} of {all} ns: half of the time at most for all");
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
    fn a_piece_that_is_not_done_yet_is_its_users_next_and_others_have_their_turn_before() {
        let mut queue = FairQueue::new();
        [(7, 1), (7, 2), (7, 3), (8, 10), (8, 11)].into_iter().for_each(|(user, n)| queue.push(user, n));
        let mut order = Vec::new();
        for _ in 0..6 {
            let (user, piece) = queue.pop_of(|_| true).expect("there is work");
            order.push(piece);
            queue.push_first(user, piece);
        }
        assert_eq!(order, [1, 10, 1, 10, 1, 10]);
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
