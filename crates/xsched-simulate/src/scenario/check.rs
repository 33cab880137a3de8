//! Checks that the reader of TOML cannot make: names, ranges, and what excludes each other.

use std::collections::BTreeSet;

use xsched_policy::Choice;
use xsched_proto::Error;
use xsched_proto::class::parse_priority;

use super::{Event, NATIVE, Program, Scenario};

/// Most devices, programs and events of a scenario.
const MOST: usize = 10_000_000;
/// Most intervals.
const INTERVALS_MAX: u64 = 10_000;
/// Longest virtual time, in ns: a hundred days.
const LONGEST_NS: u64 = 8_640_000_000_000_000;

/// A policy with its parameters, as it is written; none = the machine without xsched.
pub(crate) fn parse_policy(text: &str) -> Result<Option<Choice>, Error> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    if name.eq_ignore_ascii_case(NATIVE) {
        return match words.next() {
            None => Ok(None),
            Some(word) => Err(Error::input(format!("'{word}' is no parameter of native: it has none"))),
        };
    }
    if name.eq_ignore_ascii_case("external") {
        return Err(Error::input("policy external asks a process, which a simulation has not: use another one"));
    }
    let mut values = Vec::new();
    for word in words {
        let pair = word.split_once('=');
        values.push(pair.ok_or_else(|| Error::input(format!("'{word}' is no parameter: use NAME=VALUE")))?);
    }
    Choice::with(name, values).map(Some)
}

impl Scenario {
    /// # Errors
    /// One line that names the part of the scenario and says what is accepted.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let need = |is_good: bool, line: &str| if is_good { Ok(()) } else { Err(Error::input(line)) };
        need((1..=LONGEST_NS).contains(&self.time.0), "time: use one from 1 us to 100 days, such as 10s")?;
        let parts = self.interval.map_or(1, |interval| self.time.0.div_ceil(interval.0.max(1)));
        need(parts <= INTERVALS_MAX, &format!("interval: use a time of which there are {INTERVALS_MAX} at most"))?;
        for policy in [&self.policy].into_iter().chain(&self.compare) {
            parse_policy(policy).map_err(|e| e.within("policy"))?;
        }
        need(self.daemon.budget.0 <= 1_000_000_000, "[daemon] budget: use a time up to 1 s")?;
        need(self.daemon.latency.0 <= 1_000_000_000, "[daemon] latency: use a time up to 1 s")?;
        need((1..=MOST).contains(&self.device_count()), "[[device]]: use 1 to 10,000,000 devices in all")?;
        need((1..=MOST).contains(&self.program_count()), "[[program]]: use 1 to 10,000,000 programs in all")?;
        for kind in &self.devices {
            need((1..=64).contains(&kind.per_node), "[[device]] per_node: use 1 to 64")?;
            need(kind.timeslice.0 >= 1_000, "[[device]] timeslice: use a time from 1 us")?;
            let is_positive = |number: f64| number.is_finite() && number > 0.0;
            need(is_positive(kind.copy_rate), "[[device]] copy_rate: use a number of GB/s above 0")?;
            need(
                kind.pool || !kind.inside,
                "[[device]] inside: only a pool has an inside, so use pool = true with it",
            )?;
            need(is_positive(kind.memory), "[[device]] memory: use a number of GiB above 0")?;
        }
        let mut names = BTreeSet::new();
        for program in &self.programs {
            let name = &program.name;
            xsched_engine::check_name(name, "name of a program")?;
            need(names.insert(name), &format!("two programs have the name '{name}': use count for several alike"))?;
            self.check_program(program).map_err(|e| e.within(format!("program {name}")))?;
        }
        for event in &self.events {
            self.check_event(event).map_err(|e| e.within(format!("event at {}", super::exact(event.at.0))))?;
        }
        Ok(())
    }

    fn check_program(&self, program: &Program) -> Result<(), Error> {
        let need = |is_good: bool, line: &str| if is_good { Ok(()) } else { Err(Error::input(line)) };
        program.priority()?;
        program.hints()?;
        need(program.count > 0, "count: use a number from 1")?;
        need(program.level.is_none_or(|level| (1..=3).contains(&level)), "level: use 1, 2 or 3")?;
        need((1..=100).contains(&program.width), "width: use a number from 1 to 100 (percent)")?;
        need(program.memory.is_finite() && program.memory >= 0.0, "memory: use a number of GiB")?;
        need(program.end.is_none_or(|end| end > program.start), "end: use a time after start")?;
        let arrivals = &program.arrivals;
        let ways = [
            arrivals.every.is_some(),
            arrivals.poisson.is_some(),
            arrivals.pause.is_some(),
            arrivals.gaps.is_some(),
            arrivals.file.is_some(),
        ];
        need(
            ways.iter().filter(|given| **given).count() <= 1,
            "arrivals: use one of every, poisson, pause, gaps and file",
        )?;
        let is_load = arrivals.load.iter().all(|part| part.is_finite() && *part >= 0.0);
        need(is_load && arrivals.load.len() <= 10_000, "load: use numbers from 0, one for each part of the time")?;
        need(arrivals.load.is_empty() || arrivals.poisson.is_some(), "load: use it with poisson")?;
        let no_distance = arrivals.every.or(arrivals.poisson).is_some_and(|time| time.0 == 0);
        need(!no_distance, "arrivals: use a distance above 0")?;
        need(arrivals.gaps.as_ref().is_none_or(|gaps| gaps.mean_ns() > 0), "arrivals: use a distance above 0")?;
        if program.requests.is_some() {
            let alone = program.kernels.is_empty() && *arrivals == super::Arrivals::default();
            need(alone, "requests: the file has arrivals and kernels; leave both out")?;
            need(!program.traced.is_empty(), "requests: the file has no request")?;
        } else {
            need(!program.kernels.is_empty(), "kernels: use one kind of command or more")?;
        }
        for kernels in &program.kernels {
            let ways = [kernels.time.is_some(), kernels.total.is_some(), kernels.copy.is_some()];
            need(ways.iter().filter(|given| **given).count() == 1, "kernels: use one of time, total and copy")?;
            need(kernels.copy.is_none_or(|mib| mib.is_finite() && mib > 0.0), "copy: use a number of MiB above 0")?;
            need((1..=1_000_000).contains(&kernels.count), "kernels: use a count from 1 to 1,000,000")?;
        }
        let is_of_time = program.device_ns(1.0).max(program.host.mean_ns()) > 0;
        need(
            is_of_time || program.arrivals != super::Arrivals::default(),
            "a request takes no time: it would never end",
        )?;
        let devices = self.device_count() as u32;
        need(program.device.iter().all(|at| *at < devices), &format!("device: use numbers from 0 to {}", devices - 1))?;
        need(program.devices > 0, "devices: use a number from 1")?;
        let most = self.devices.iter().map(|kind| kind.per_node.min(kind.count)).max().unwrap_or(1);
        need(program.devices <= most, &format!("devices: use 1 to {most}, as one machine has"))?;
        let room = self.devices.iter().map(|kind| kind.memory).fold(0.0, f64::max);
        need(program.memory <= room, &format!("memory: use up to {room} GiB, as a device has"))?;
        need(
            program.device.is_empty() || program.devices == 1,
            "device: a job of several devices is placed; leave it out",
        )
    }

    fn check_event(&self, event: &Event) -> Result<(), Error> {
        let known = |name: &str| {
            let names = || self.programs.iter().map(|program| program.name.as_str());
            let all: Vec<&str> = names().collect();
            match names().any(|known| known == name) {
                true => Ok(()),
                false => Err(Error::word(name, "program", all.join(", "), names())),
            }
        };
        match (&event.policy, &event.kill, &event.restart, &event.program, &event.class) {
            (Some(policy), None, None, None, None) => match parse_policy(policy)? {
                Some(_) => Ok(()),
                None => Err(Error::input("native is no policy that a daemon switches to: use it in policy or compare")),
            },
            (None, Some(kill), None, None, None) => known(kill),
            (None, None, Some(_), None, None) => Ok(()),
            (None, None, None, Some(program), Some(class)) => {
                known(program)?;
                parse_priority(class).map(|_| ())
            }
            _ => Err(Error::input("use one of policy, kill, restart, and program with class")),
        }
    }
}
