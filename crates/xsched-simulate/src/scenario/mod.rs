//! A scenario: devices, programs, a policy, and what changes over time. [`Scenario::read`] reads the text that users write.

mod amounts;
mod check;
mod faults;
mod reading;
mod written;

use serde::Deserialize;
use xsched_proto::Error;
use xsched_proto::hint::Hints;

use crate::outcome::Interval;
use crate::random::Random;

pub(crate) use amounts::exact;
pub use amounts::{TIMES_HELP, Time, Times};
pub(crate) use check::parse_policy;

/// Name of the policy that stands for a machine without xsched.
pub const NATIVE: &str = "native";

/// A scenario as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The question that it answers, in a line.
    #[serde(default)]
    pub question: String,
    /// Length of virtual time.
    pub time: Time,
    /// The policy with its parameters, such as `mlfq levels=4`.
    #[serde(default = "usual_policy")]
    pub policy: String,
    /// Further policies to be compared with it; `native` is the machine without xsched.
    #[serde(default)]
    pub compare: Vec<String>,
    /// Seed of all random numbers.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// Fineness with which programs are played.
    #[serde(default)]
    pub detail: Detail,
    /// Length of the parts of the time for which figures are told by themselves; none = there are no parts.
    #[serde(default)]
    pub interval: Option<Time>,
    /// The daemon.
    #[serde(default)]
    pub daemon: Daemon,
    /// Kinds of devices.
    #[serde(rename = "device")]
    pub devices: Vec<Device>,
    /// Kinds of programs.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
    /// Changes over time.
    #[serde(default, rename = "event")]
    pub events: Vec<Event>,
    /// Placement of programs that name no device.
    #[serde(default)]
    pub placement: Placement,
}

fn usual_policy() -> String {
    "hpf".to_owned()
}

fn one_seed() -> u64 {
    1
}

fn one() -> u32 {
    1
}

/// Fineness with which programs are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// Each kernel by itself.
    #[default]
    Kernels,
    /// The kernels of a request as one burst: for many devices and long times.
    Bursts,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Daemon {
    /// Time from a program's word to the gates that follow from it.
    pub latency: Time,
    /// In-flight budget of a device.
    pub budget: Time,
    /// Time after which a group that waits has its device once; 0 = never.
    pub guard: Time,
}

impl Default for Daemon {
    fn default() -> Daemon {
        Daemon { latency: Time(20_000), budget: Time(500_000), guard: Time(xsched_policy::GUARD_US * 1_000) }
    }
}

/// A kind of device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// Number of devices of this kind.
    pub count: u32,
    /// Devices of one machine, which one daemon serves.
    pub per_node: u32,
    /// Time slice by which the device shares itself among contexts.
    pub timeslice: Time,
    /// Cost of a switch from one context to another.
    pub switch: Time,
    /// Further cost of a switch where a running kernel is cut, and again where that kernel goes on.
    pub save: Time,
    /// Means by which commands of a program can be stopped.
    pub preemption: Preemption,
    /// Memory, in GiB.
    pub memory: f64,
    /// True if programs of class normal and below share one context, side by side.
    pub pool: bool,
    /// True if programs above class normal are in the pool, too, and others yield to them there.
    pub inside: bool,
    /// Rate of copies, in GB/s.
    pub copy_rate: f64,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            count: 1,
            per_node: 8,
            timeslice: Time(2_000_000),
            switch: Time(50_000),
            save: Time(0),
            preemption: Preemption::Slices,
            memory: 80.0,
            pool: false,
            inside: false,
            copy_rate: 10.0,
        }
    }
}

/// Means by which commands of a program can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    /// New commands only (level 1).
    Host,
    /// Commands in the driver, at gates on the device (level 2).
    Gates,
    /// Gates, and the device gives each context a time slice of its class (level 3 of NVIDIA).
    Slices,
    /// Gates, and the running command is interrupted (level 3 elsewhere).
    Interrupt,
}

/// A kind of program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Number of programs of this kind.
    #[serde(default = "one")]
    pub count: u32,
    /// Class or priority.
    #[serde(default)]
    pub class: Option<String>,
    /// Weight of a fair share.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Length of a turn.
    #[serde(default)]
    pub timeslice: Option<String>,
    /// Part of the device, in percent.
    #[serde(default)]
    pub utilization: Option<u32>,
    /// Time by which a request is due.
    #[serde(default)]
    pub deadline: Option<String>,
    /// Target, such as `p99=5ms`.
    #[serde(default)]
    pub slo: Option<String>,
    /// Highest preemption level.
    #[serde(default)]
    pub level: Option<u8>,
    /// User, by number.
    #[serde(default)]
    pub user: Option<u32>,
    /// Namespace, for shares by namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Devices by number, one for each program of this kind in turn; none = as placed.
    #[serde(default)]
    pub device: Vec<u32>,
    /// Devices that each program uses at the same time, as one job.
    #[serde(default = "one")]
    pub devices: u32,
    /// Memory that it takes on each of its devices, in GiB.
    #[serde(default)]
    pub memory: f64,
    /// True if it is in no pool, as a program whose kernels are long.
    #[serde(default)]
    pub outside: bool,
    /// Width of its kernels in a pool, in percent of the device.
    #[serde(default = "all_percent")]
    pub width: u32,
    /// Its begin.
    #[serde(default)]
    pub start: Time,
    /// Its end; none = that of the scenario.
    #[serde(default)]
    pub end: Option<Time>,
    /// Times of requests.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Time of the host before the first command of a request.
    #[serde(default = "no_time")]
    pub host: Times,
    /// Time from the end of the last command until the host goes on, at each wait for the device.
    #[serde(default = "no_time")]
    pub wake: Times,
    /// Commands of a request, in order.
    #[serde(default)]
    pub kernels: Vec<Kernels>,
    /// File of requests, one a line, in place of arrivals, host and kernels.
    #[serde(default)]
    pub requests: Option<String>,
    /// Requests of the file, in order.
    #[serde(skip)]
    pub traced: Vec<Traced>,
}

/// A request that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Its arrival.
    pub arrival: Arrival,
    /// Number of its commands.
    pub commands: u32,
    /// Their device time, in ns.
    pub device_ns: u64,
    /// Time that the host takes to launch them, in ns.
    pub host_ns: u64,
}

/// Arrival of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At a time from the program's start, in ns.
    At(u64),
    /// So many ns after the request before is complete.
    After(u64),
}

fn all_percent() -> u32 {
    100
}

fn no_time() -> Times {
    Times::Fixed(0)
}

/// Times of requests. One key is given; `load` goes with `poisson`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// At equal distances.
    #[serde(default)]
    pub every: Option<Time>,
    /// At random, at this distance on average.
    #[serde(default)]
    pub poisson: Option<Time>,
    /// So long after the request before is complete.
    #[serde(default)]
    pub pause: Option<Times>,
    /// At distances of this distribution.
    #[serde(default)]
    pub gaps: Option<Times>,
    /// How often requests of `poisson` come, in equal parts of the scenario's time, relative to its rate: a day of 24 hours, say.
    #[serde(default)]
    pub load: Vec<f64>,
    /// At the times of this file: one in ms a line.
    #[serde(default)]
    pub file: Option<String>,
    /// The times of the file, in ns from the program's start.
    #[serde(skip)]
    pub times: Vec<u64>,
}

/// Commands of one kind in a request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels {
    /// Number of commands.
    #[serde(default = "one")]
    pub count: u32,
    /// Device time of each.
    #[serde(default)]
    pub time: Option<Times>,
    /// Device time of all of them together, in place of the time of each.
    #[serde(default)]
    pub total: Option<Times>,
    /// MiB that each copies, in place of a time.
    #[serde(default)]
    pub copy: Option<f64>,
    /// Time of the host for each launch.
    #[serde(default = "usual_launch")]
    pub launch: Times,
    /// True if one launch time is drawn for all of them: a host that is slow in a request is slow in all of it.
    #[serde(default)]
    pub steady: bool,
    /// True if the host waits until they are complete.
    #[serde(default)]
    pub wait: bool,
    /// True if the host waits after each of them, as for each token of an answer.
    #[serde(default)]
    pub each: bool,
}

fn usual_launch() -> Times {
    Times::Fixed(5_000)
}

/// A change at a time. One of the keys beside `at` and `program` is given.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The time.
    pub at: Time,
    /// Another policy.
    #[serde(default)]
    pub policy: Option<String>,
    /// Programs of this name end at once.
    #[serde(default)]
    pub kill: Option<String>,
    /// The daemon is away for so long.
    #[serde(default)]
    pub restart: Option<Time>,
    /// Programs of this name ...
    #[serde(default)]
    pub program: Option<String>,
    /// ... have this class from now on.
    #[serde(default)]
    pub class: Option<String>,
}

/// Placement of programs that name no device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// The strategy.
    pub strategy: Strategy,
    /// Further strategies to be compared with it.
    pub compare: Vec<Strategy>,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement { strategy: Strategy::Spread, compare: Vec::new() }
    }
}

/// A strategy of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The first device with room in its memory.
    FirstFit,
    /// The device with the fewest programs.
    Spread,
    /// The device on which programs slow each other down least, by class and expected load.
    Interference,
    /// The machine with the least room that still takes all devices of a job.
    Gang,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 4] = [Strategy::FirstFit, Strategy::Spread, Strategy::Interference, Strategy::Gang];

    /// Its word in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::FirstFit => "first-fit",
            Strategy::Spread => "spread",
            Strategy::Interference => "interference",
            Strategy::Gang => "gang",
        }
    }
}

impl Program {
    /// Priority that it asks for.
    pub(crate) fn priority(&self) -> Result<Option<i32>, Error> {
        self.class.as_deref().map(xsched_proto::class::parse_priority).transpose()
    }

    /// Hints that it gives the policy.
    pub(crate) fn hints(&self) -> Result<Hints, Error> {
        use xsched_proto::hint::Hint;
        let mut hints = Hints::default();
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        for (hint, text) in [
            (Hint::Weight, number(self.weight)),
            (Hint::Timeslice, self.timeslice.clone()),
            (Hint::Utilization, number(self.utilization)),
            (Hint::Deadline, self.deadline.clone()),
            (Hint::Slo, self.slo.clone()),
        ] {
            if let Some(text) = text {
                hints.set(hint, &text)?;
            }
        }
        Ok(hints)
    }

    /// Device time that a request takes on each of its devices, in ns, on average.
    pub fn device_ns(&self, copy_rate: f64) -> u64 {
        if !self.traced.is_empty() {
            return self.traced.iter().map(|one| one.device_ns).sum::<u64>() / self.traced.len() as u64;
        }
        self.kernels.iter().map(|kernels| kernels.mean_ns(copy_rate)).sum()
    }
}

impl Traced {
    /// Its commands, which are alike.
    pub(crate) fn kernels(&self) -> Kernels {
        let launch = Times::Fixed(self.host_ns / u64::from(self.commands.max(1)));
        let total = Some(Times::Fixed(self.device_ns));
        Kernels {
            count: self.commands.max(1),
            time: None,
            total,
            copy: None,
            launch,
            steady: false,
            wait: false,
            each: false,
        }
    }
}

impl Kernels {
    /// Reports whether the host waits once it has launched so many of them.
    pub(crate) fn waits_after(&self, launched: u32) -> bool {
        launched > 0 && (self.each || self.wait && launched == self.count)
    }

    /// Device time of all commands together, in ns, on average.
    fn mean_ns(&self, copy_rate: f64) -> u64 {
        match &self.total {
            Some(total) => total.mean_ns(),
            None => u64::from(self.count).saturating_mul(self.times(copy_rate).mean_ns()),
        }
    }

    /// Device time of so many commands together, in ns.
    pub(crate) fn draw_some(&self, count: u32, copy_rate: f64, random: &mut Random) -> f64 {
        match &self.total {
            Some(total) => total.draw(random) as f64 * f64::from(count) / f64::from(self.count.max(1)),
            None => self.times(copy_rate).draw_sum(count, random),
        }
    }

    /// Device time of each command, on a device with this rate of copies in GB/s.
    pub(crate) fn times(&self, copy_rate: f64) -> Times {
        match (&self.time, self.copy) {
            (Some(times), _) => times.clone(),
            (None, mib) => Times::Fixed((mib.unwrap_or(0.0) * 1_048_576.0 / copy_rate.max(0.001)) as u64),
        }
    }
}

impl Scenario {
    /// Number of all devices.
    pub fn device_count(&self) -> usize {
        self.devices.iter().map(|kind| kind.count as usize).sum()
    }

    /// Intervals in which nothing has happened yet.
    pub(crate) fn no_intervals(&self) -> Vec<Interval> {
        let number = self.interval.map_or(0, |interval| self.time.0.div_ceil(interval.0.max(1)));
        (0..number).map(|_| Interval::new(self.programs.len())).collect()
    }

    /// Number of all programs.
    pub fn program_count(&self) -> usize {
        self.programs.iter().map(|kind| kind.count as usize).sum()
    }
}
