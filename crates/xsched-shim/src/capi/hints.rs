//! Hints: a program's wishes to the scheduler.

use xsched_capi::types::*;
use xsched_core::{Runtime, Scheduler, XQueue};
use xsched_proto::class::{PRIORITY_MAX, PRIORITY_MIN};
use xsched_proto::hint::{Hints, Laxity};
use xsched_proto::variables;
use xsched_proto::wire::Levels;

use super::queue::Queue;
use crate::enabled::platform_enabled;
use crate::platform::start;

type Done = Result<(), XResult>;

/// Chooses the scheduler of the process.
pub(super) fn choose(kind: XSchedulerType, policy: XPolicyType) -> Done {
    let chosen = match kind {
        scheduler::APP_MANAGED => Scheduler::Application,
        scheduler::GLOBAL => Scheduler::Daemon,
        scheduler::LOCAL => {
            let name = policy_name(policy).ok_or(XResult::INVALID_VALUE)?;
            if !xsched_agent::has_local_policy(name) {
                return Err(XResult::NOT_SUPPORTED);
            }
            Scheduler::Local(name.into())
        }
        _ => return Err(XResult::INVALID_VALUE),
    };
    let required = variables::is_on("XSCHED_REQUIRE");
    if required && chosen == Scheduler::Application {
        return Err(XResult::NOT_ALLOWED);
    }
    if start::choose(chosen) { Ok(()) } else { Err(XResult::BAD_RESPONSE) }
}

/// Applies a hint to a queue, which gets a group of its own for it. Without effect if the user has disabled scheduling
/// or the platform.
fn say(queue: &Queue, what: impl FnOnce(&'static Runtime, &'static XQueue)) -> Done {
    match queue.scheduled() {
        Some((rt, xqueue)) if rt.set_apart(xqueue) => what(rt, xqueue),
        // The process has as many groups as it may.
        Some(_) => return Err(XResult::NOT_SUPPORTED),
        None if !platform_enabled(queue.hardware().kind.platform()) => {}
        None => return Err(XResult::NOT_FOUND),
    }
    Ok(())
}

fn hint(queue: &Queue, hints: Hints) -> Done {
    if hints.fault().is_some() {
        return Err(XResult::INVALID_VALUE);
    }
    say(queue, |rt, xqueue| rt.say(xqueue, |_, said, _| *said = hints.or(*said)))
}

fn is_priority(priority: Priority) -> bool {
    (PRIORITY_MIN..=PRIORITY_MAX).contains(&priority)
}

pub(super) fn priority(queue: &Queue, priority: Priority) -> Done {
    if priority == NOT_EXECUTED {
        queue.set_not_executed(true);
        return Ok(());
    }
    if !is_priority(priority) {
        return Err(XResult::INVALID_VALUE);
    }
    say(queue, |rt, xqueue| rt.say(xqueue, |said, _, _| *said = Some(priority)))?;
    queue.set_not_executed(false);
    Ok(())
}

pub(super) fn utilization(queue: &Queue, percent: Utilization) -> Done {
    let percent = u32::try_from(percent).map_err(|_| XResult::INVALID_VALUE)?;
    hint(queue, Hints { utilization: Some(percent), ..Hints::default() })
}

/// Checks a time in µs; -1 = none, returned as 0.
fn time(us: i64) -> Result<u64, XResult> {
    match us {
        -1 => Ok(0),
        1.. => Ok(us as u64),
        _ => Err(XResult::INVALID_VALUE),
    }
}

pub(super) fn laxity(queue: &Queue, us: i64, lax: Priority, critical: Priority) -> Done {
    let us = time(us)?;
    if !is_priority(lax) || !is_priority(critical) {
        return Err(XResult::INVALID_VALUE);
    }
    let laxity = Laxity { us, lax: Some(lax), critical: Some(critical) };
    hint(queue, Hints { laxity: Some(laxity), ..Hints::default() })
}

pub(super) fn deadline(queue: &Queue, us: i64) -> Done {
    hint(queue, Hints { deadline_us: Some(time(us)?), ..Hints::default() })
}

/// Applies hints to the whole program.
fn say_of_all(hints: Hints) -> Done {
    if hints.fault().is_some() {
        return Err(XResult::INVALID_VALUE);
    }
    if let Some(rt) = start::runtime() {
        rt.say_of_all(hints);
    }
    Ok(())
}

pub(super) fn timeslice(us: i64) -> Done {
    let us = u64::try_from(us).map_err(|_| XResult::INVALID_VALUE)?;
    say_of_all(Hints { timeslice_us: Some(us), ..Hints::default() })
}

pub(super) fn k(k: usize) -> Done {
    let k = u32::try_from(k).ok().filter(|k| *k > 0).ok_or(XResult::INVALID_VALUE)?;
    say_of_all(Hints { k: Some(k), ..Hints::default() })
}

/// Preemption levels of a queue's device.
pub(super) fn levels(rt: &Runtime, xqueue: &XQueue) -> Levels {
    let device = rt.device_of(xqueue.group(rt).index());
    device.map_or(Levels::ONE, |(device, platform)| platform.levels(&device))
}

/// Limits the scheduler to levels up to `level` for a queue. A queue without a limit stays in its group.
pub(super) fn limit(rt: &'static Runtime, xqueue: &'static XQueue, level: u8) -> Done {
    let all = levels(rt, xqueue);
    let mut limited = all;
    for (above, one) in [(2, Levels::TWO), (3, Levels::THREE)] {
        if above > level {
            limited = limited.without(one);
        }
    }
    if limited == all && !rt.is_apart(xqueue) {
        return Ok(());
    }
    if !rt.set_apart(xqueue) {
        return Err(XResult::NOT_SUPPORTED);
    }
    rt.say(xqueue, |_, _, said| *said = (limited != all).then_some(limited));
    Ok(())
}
