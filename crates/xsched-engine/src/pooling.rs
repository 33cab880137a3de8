//! Pools as the engine sees them: private MPS servers, two for each user.

use xsched_policy::PoolId;

/// One of a user's two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The inner pool, in which an urgent program may sit. Its time slice is long.
    Inner,
    /// The outer pool: for programs that are not proven. Its time slice is short.
    Outer,
}

/// A program's place in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The pool, by the number of its server: no two servers have the same.
    pub server: PoolId,
    /// Inner or outer.
    pub side: Side,
}
