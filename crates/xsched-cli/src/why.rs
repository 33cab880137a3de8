//! Reason for which a program is as slow as it is, and the remedy: pure, from what `ps` and `trace` answer.

use std::collections::BTreeMap;

use xsched_proto::class::{Class, PRIORITY_NEVER};
use xsched_proto::text::escaped;
use xsched_proto::trace::Why;
use xsched_proto::units;
use xsched_proto::wire::{GroupInfo, GroupState, ProgramInfo, TracedGroup};

use crate::history::{Doing, History, Span, quantile};

/// Part of the time, in percent, from which on a wait is worth a word.
const WAITS_PERCENT: f64 = 5.0;
/// Part of the time, in percent, below which a program leaves the device idle.
const BUSY_PERCENT: f64 = 50.0;
/// Part of the time, in percent, from which on another program on the device counts.
const BESIDE_PERCENT: f64 = 5.0;
/// Time that others take to leave the device from which on it is worth a word, in µs.
const LEFT_US: u64 = 1_000;
/// Part of the time of a program on the device, in percent, from which on the times that others take to leave it are worth a word.
const LEFT_PERCENT: u64 = 1;
/// Part of the launches, in percent, from which on those without a decision are worth a word.
const UNSCHEDULED_PERCENT: f64 = 1.0;

/// Times of a group within a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// Length of the window, in µs.
    pub(crate) window_us: u64,
    /// Time in which it had the device and used it, in µs.
    pub(crate) ran_us: u64,
    /// Time in which its launches waited, in µs.
    pub(crate) waited_us: u64,
    /// Time in which it had the device without progress, in µs.
    pub(crate) stalled_us: u64,
    /// Group that had the device for most of its waits.
    pub(crate) holder: Option<u64>,
    /// Reason of most of its waits.
    pub(crate) why: Option<Why>,
    /// Median and P99 of the times that it took to leave the device after losing it, in µs.
    pub(crate) left_us: Option<(u64, u64)>,
    /// These times added up, in µs.
    pub(crate) leaving_us: u64,
}

impl Times {
    /// Times within a window from the spans of a group and the times that it took to leave the device.
    pub(crate) fn of<'a>(spans: impl Iterator<Item = &'a Span>, mut left: Vec<u64>, from_us: u64, to_us: u64) -> Times {
        let mut times = Times { window_us: to_us.saturating_sub(from_us), ..Times::default() };
        let (mut holders, mut reasons) = (BTreeMap::<u64, u64>::new(), Vec::<(Why, u64)>::new());
        for span in spans {
            let us = span.to_us.min(to_us).saturating_sub(span.from_us.max(from_us));
            match span.doing {
                Doing::Runs | Doing::Yields | Doing::Leaves => times.ran_us += us,
                Doing::Stalled => times.stalled_us += us,
                Doing::Suspended => {}
                Doing::Waits => {
                    times.waited_us += us;
                    span.holders.iter().for_each(|holder| *holders.entry(*holder).or_default() += us);
                    match reasons.iter_mut().find(|(why, _)| *why == span.why) {
                        Some((_, of_it)) => *of_it += us,
                        None => reasons.push((span.why, us)),
                    }
                }
            }
        }
        times.holder = holders.into_iter().max_by_key(|(id, us)| (*us, std::cmp::Reverse(*id))).map(|(id, _)| id);
        times.why = reasons.into_iter().max_by_key(|(_, us)| *us).map(|(why, _)| why);
        times.leaving_us = left.iter().sum();
        times.left_us = quantile(&mut left, 0.5).zip(quantile(&mut left, 0.99));
        times
    }

    /// Times of all groups of a history.
    pub(crate) fn of_history(history: &History) -> BTreeMap<u64, Times> {
        let of = |h: &crate::history::GroupHistory| {
            Times::of(h.spans.iter(), h.left_us.clone(), history.from_us, history.to_us)
        };
        history.groups.iter().map(|(id, h)| (*id, of(h))).collect()
    }

    fn percent(&self, us: u64) -> f64 {
        us as f64 * 100.0 / self.window_us.max(1) as f64
    }
}

/// Answers to `ps` and `trace`.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) programs: &'a [ProgramInfo],
    pub(crate) groups: &'a [TracedGroup],
    pub(crate) times: &'a BTreeMap<u64, Times>,
}

/// Kind of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No device has been used yet.
    NoDevice,
    /// An operator keeps it off.
    Suspended,
    /// An operator moved its memory off.
    Frozen,
    /// The priority is never to run.
    Never,
    /// The program opened its own gate.
    Detached,
    /// A more urgent program has the device.
    Urgent,
    /// Turns with programs that are as urgent, or by their shares.
    Turns,
    /// The part of the device that it asks for is used up.
    Share,
    /// The job cannot have all its devices.
    Job,
    /// Vendor libraries of the same program go first.
    Domain,
    /// A stage of the decision behind the policy lets others go first.
    Stage,
    /// Commands of a less urgent program are still on the device.
    InFlight,
    /// No progress on the device.
    Stalled,
    /// Launches went past the scheduler.
    Unscheduled,
    /// Others run on the device at the same time.
    Beside,
    /// The program's own host code: it leaves the device idle.
    Host,
    /// The device works for it alone.
    Alone,
    /// The device is there whenever it is wanted.
    Served,
}

/// Reason and remedy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) cause: Cause,
    /// Reason, in a line that follows the program's name.
    pub(crate) text: String,
    /// Remedy, in one line.
    pub(crate) advice: String,
}

impl Answer {
    fn new(cause: Cause, text: impl Into<String>, advice: impl Into<String>) -> Answer {
        Answer { cause, text: text.into(), advice: advice.into() }
    }

    /// True where xsched, an operator or another program makes it slower, or the answer is of more use than the table.
    pub(crate) fn is_news(&self) -> bool {
        !matches!(self.cause, Cause::NoDevice | Cause::Host | Cause::Alone | Cause::Served)
    }

    /// Reason and remedy in one line.
    pub(crate) fn line(&self) -> String {
        format!("{} → {}", self.text, self.advice)
    }
}

/// Another group on the same device.
struct Other<'a> {
    /// Name of its program, with its class where that is known.
    name: String,
    pid: Option<u32>,
    class: Option<Class>,
    priority: Option<i32>,
    level: u8,
    group: Option<&'a GroupInfo>,
    times: &'a Times,
}

impl<'a> Known<'a> {
    fn other(&self, traced: &TracedGroup) -> Option<Other<'a>> {
        let times = self.times.get(&traced.id)?;
        let groups = self.programs.iter().flat_map(|program| program.groups.iter().map(move |group| (program, group)));
        let (program, group) = groups.into_iter().find(|(_, group)| number(group) == Some(traced.id)).unzip();
        let name = match (&traced.program, program) {
            (_, Some(program)) => format!("{} ({})", escaped(&program.name), program.class),
            (Some(of), None) => format!("{} ({})", escaped(&of.name), of.class),
            (None, None) => "another user's program".to_owned(),
        };
        let level = group.map_or(traced.level, |group| group.level);
        let pid = program.map(|program| program.pid).or_else(|| Some(traced.program.as_ref()?.pid));
        let class = program.map(|program| program.class).or_else(|| Some(traced.program.as_ref()?.class));
        Some(Other { name, pid, class, priority: group.map(|group| group.priority), level, group, times })
    }

    /// Names the reason for which a group of a program is as slow as it is. `policy` = the one in force on its device, with parameters.
    pub(crate) fn why(&self, program: &ProgramInfo, group: Option<&GroupInfo>, policy: &str) -> Answer {
        let pid = program.pid;
        if program.priority == PRIORITY_NEVER {
            return Answer::new(
                Cause::Never,
                "never runs: its priority is -256",
                format!("`xsched hint {pid} -p low`"),
            );
        }
        let Some(group) = group else {
            let advice = "wait for its first device call; `xsched doctor PID` if it has made one";
            return Answer::new(Cause::NoDevice, "has used no device yet", advice.replace("PID", &pid.to_string()));
        };
        match group.state {
            GroupState::Suspended if program.is_frozen() => {
                let text = "has its memory on the host, by `xsched freeze`";
                return Answer::new(Cause::Frozen, text, format!("`xsched thaw {pid}`"));
            }
            GroupState::Suspended => {
                let text = "is kept off the device by `xsched suspend`";
                return Answer::new(Cause::Suspended, text, format!("`xsched resume {pid}`"));
            }
            GroupState::Detached => {
                let text = "has opened its own gate: it runs whatever the daemon decides";
                return Answer::new(Cause::Detached, text, format!("start it again; `xsched doctor {pid}` says more"));
            }
            _ => {}
        }
        let nothing = Times::default();
        let id = number(group);
        let times = id.and_then(|id| self.times.get(&id)).unwrap_or(&nothing);
        let here = self.groups.iter().filter(|traced| traced.device == group.device && Some(traced.id) != id);
        let others: Vec<Other<'_>> = here.filter_map(|traced| self.other(traced)).collect();
        let holder = times.holder.and_then(|holder| self.groups.iter().find(|traced| traced.id == holder));
        let holder = holder.and_then(|traced| self.other(traced));
        let policy = policy.split(' ').next().unwrap_or_default();
        waits(program, group, times, holder, policy)
            .or_else(|| in_flight(group, times, &others))
            .or_else(|| stalled(pid, times))
            .or_else(|| unscheduled(group))
            .unwrap_or_else(|| undisturbed(group, times, &others))
    }
}

fn number(group: &GroupInfo) -> Option<u64> {
    group.id.strip_prefix('g')?.parse().ok()
}

/// Waits at the closed gate.
fn waits(
    program: &ProgramInfo,
    group: &GroupInfo,
    times: &Times,
    holder: Option<Other<'_>>,
    policy: &str,
) -> Option<Answer> {
    let percent = times.percent(times.waited_us);
    if percent < WAITS_PERCENT {
        return None;
    }
    let (pid, class) = (program.pid, program.class);
    let waits = format!("waits {percent:.0} % of the time");
    let name = holder.as_ref().map_or("another program", |holder| holder.name.as_str());
    let urgent = holder.as_ref().and_then(|holder| holder.priority).is_some_and(|priority| priority > group.priority);
    let more = |class: Class| match program.limited {
        true => "its class is limited, by `[limits]` or a rule's ceiling".to_owned(),
        false => format!("`xsched hint {pid} -p {class}`"),
    };
    Some(match times.why {
        Some(Why::Job) => Answer::new(
            Cause::Job,
            format!("{waits}: {name} has one of the devices of its job"),
            "it gets all of them or none; give all ranks the higher class",
        ),
        Some(Why::Domain) => Answer::new(
            Cause::Domain,
            format!("{waits}: vendor libraries of the same program go first"),
            "so its domains are set; `XSCHED_DOMAINS=off` in front of it switches that off",
        ),
        Some(Why::Guarantee | Why::Guard | Why::Starvation | Why::Drain | Why::Evenness | Why::Stalled) => {
            let what = match times.why {
                Some(Why::Guarantee) => "a class has its guarantee or quantum",
                Some(Why::Evenness) => "its pool keeps its programs even",
                Some(Why::Stalled) => "it showed no progress",
                _ => "one that had waited too long had a turn",
            };
            let advice = "so the configuration wants it: `xsched config show`";
            Answer::new(Cause::Stage, format!("{waits}: {name} has the device, since {what}"), advice)
        }
        _ if urgent => {
            let text = format!("{waits}: {name} has the device, and goes first");
            let more = more(holder.as_ref().and_then(|holder| holder.class).unwrap_or_else(|| above(class)));
            Answer::new(
                Cause::Urgent,
                text,
                format!("usual for {class}; for more: {more}, or `xsched policy set fair`"),
            )
        }
        _ => match (group.share_asked_percent, group.share_got_percent) {
            (Some(asked), Some(got)) if got + 1.0 >= asked => Answer::new(
                Cause::Share,
                format!("{waits}: it has its part, {got:.0} % of the {asked:.0} % that it asks for (policy {policy})"),
                format!("for more: `xsched hint {pid} --weight N`, or --utilization, as its policy goes by"),
            ),
            _ => {
                let is_known = holder.as_ref().is_some_and(|holder| holder.priority.is_some());
                let turns =
                    if is_known { format!("it takes turns with {name}") } else { format!("{name} has the device") };
                let advice = format!("usual among equals; to go first: {}", more(above(class)));
                Answer::new(Cause::Turns, format!("{waits}: {turns} (policy {policy})"), advice)
            }
        },
    })
}

/// Class above another one.
fn above(class: Class) -> Class {
    match class {
        Class::Low => Class::Normal,
        Class::Normal => Class::High,
        Class::High => Class::Realtime,
        Class::Realtime | Class::System => Class::System,
    }
}

/// Commands of less urgent programs that are on the device when this one wants it.
fn in_flight(group: &GroupInfo, times: &Times, others: &[Other<'_>]) -> Option<Answer> {
    // One of another user is less urgent if this one never had to leave the device.
    let unknown = times.left_us.is_none();
    let less_urgent = |other: &&Other<'_>| other.priority.map_or(unknown, |priority| priority < group.priority);
    let slow = |other: &&Other<'_>| {
        let often = other.times.leaving_us * 100 >= times.ran_us * LEFT_PERCENT;
        often && other.times.left_us.is_some_and(|(p50, _)| p50 >= LEFT_US)
    };
    let other = others.iter().filter(less_urgent).filter(slow).max_by_key(|other| other.times.left_us)?;
    let (p50, p99) = other.times.left_us?;
    let name = &other.name;
    let text =
        format!("starts behind kernels of {name} in flight: {} to leave, P99 {}", units::of_us(p50), units::of_us(p99));
    // Many short commands are held back by fewer in flight; a long one by an interrupt only.
    let longest = other.group.map_or(0, |group| group.longest_us);
    let advice = match other.pid.filter(|_| longest > 0 && longest * 2 < p50) {
        Some(pid) => format!("fewer of them in flight: `xsched hint {pid} --threshold 2`"),
        None if other.level < 3 => {
            format!("run that one without `--level` (it has level {}), in a pool, or with shorter kernels", other.level)
        }
        None => "shorter kernels there, or `run --share pool` for it; level 3 is in force".to_owned(),
    };
    Some(Answer::new(Cause::InFlight, text, advice))
}

fn stalled(pid: u32, times: &Times) -> Option<Answer> {
    let percent = times.percent(times.stalled_us);
    (percent >= WAITS_PERCENT).then(|| {
        let text = format!("has the device without progress for {percent:.0} % of the time: others get it meanwhile");
        Answer::new(Cause::Stalled, text, format!("see what its kernels wait for; `xsched doctor {pid}` says more"))
    })
}

/// Launches that were not scheduled.
fn unscheduled(group: &GroupInfo) -> Option<Answer> {
    let (attach, rules, errors) = (group.unscheduled.attach, group.unscheduled.passthrough, group.unscheduled.error);
    let all = attach + rules + errors;
    let percent = all as f64 * 100.0 / group.launches.max(1) as f64;
    if percent < UNSCHEDULED_PERCENT {
        return None;
    }
    let (why, advice) = if rules >= attach && rules >= errors {
        ("by a pass-through rule", "take it from the rule where it is to be scheduled")
    } else if errors > attach {
        ("after an error", "see its stderr, and report it")
    } else {
        ("before the daemon had answered", "usual at the start; later: is the daemon gone or busy?")
    };
    Some(Answer::new(Cause::Unscheduled, format!("is not scheduled for {percent:.0} % of its launches: {why}"), advice))
}

/// Reason of a program that xsched does not slow down.
fn undisturbed(group: &GroupInfo, times: &Times, others: &[Other<'_>]) -> Answer {
    let ran = times.percent(times.ran_us);
    let busiest = others.iter().filter(|other| other.times.percent(other.times.ran_us) >= BESIDE_PERCENT);
    let busiest = busiest.max_by_key(|other| other.times.ran_us);
    let profile = "xsched does not slow it: profile its own host code, or make its batches larger";
    match busiest {
        _ if ran < BUSY_PERCENT => {
            let idle = (100.0 - ran).max(0.0);
            Answer::new(Cause::Host, format!("asks nothing of the device for {idle:.0} % of the time"), profile)
        }
        Some(other) if other.priority.is_none_or(|priority| priority == group.priority) => Answer::new(
            Cause::Beside,
            format!("shares the device with {} at the same time: equal priority", other.name),
            "give them different classes, or `xsched policy set pup`: turns",
        ),
        Some(_) => Answer::new(
            Cause::Served,
            format!("has the device {ran:.0} % of the time, and whenever it wants it"),
            "its kernels are the limit: a profiler, a faster device",
        ),
        None => Answer::new(
            Cause::Alone,
            format!("is alone on the device, and has it {ran:.0} % of the time: xsched does not slow it"),
            "its kernels are the limit: a profiler, a faster device",
        ),
    }
}

#[cfg(test)]
mod tests;
