//! Groups to which the evenness stage applies.

use xsched_proto::class::Class;

use crate::arbiter::member::Member;
use crate::{PoolId, Verdict};

/// The pool in which a group's progress is compared. An urgent group is not held for others that make less progress.
pub(super) fn pool_of(m: &Member) -> Option<PoolId> {
    m.group.pool.filter(|_| Class::of(m.group.priority).is_best_effort())
}

/// True if a group is compared with others now: the policy lets it run, or it goes on beside a more urgent one. Not compared are a group
/// that goes first since it pauses, and one of a job on several devices, which waits for the others of its job.
pub(super) fn takes_part(m: &Member, verdict: &Verdict) -> bool {
    pool_of(m).is_some() && !m.interactive && (verdict.run || m.yields) && m.may_run() && m.job.spanning.is_none()
}

/// True if a group can be held for a calibration run of another one.
pub(super) fn can_be_held(m: &Member, own: &Member) -> bool {
    let may_be_held = pool_of(m).is_some() && !m.interactive && m.job.spanning.is_none() && m.lent.is_none();
    may_be_held && m.group.priority <= own.group.priority
}
