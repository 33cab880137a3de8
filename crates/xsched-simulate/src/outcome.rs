//! The outcome of a run: for each kind of program, for each device, and in all.

use crate::histogram::Histogram;
use crate::journal::Entry;
use crate::recording::Recorded;

/// A run of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The policy, as it was written.
    pub policy: String,
    /// The strategy of placement; empty where nothing was to be placed.
    pub placement: String,
    /// Length of virtual time, in ns.
    pub time_ns: u64,
    /// Kinds of programs, in the order of the scenario.
    pub programs: Vec<ProgramOutcome>,
    /// Number of the first device of the next field: a machine has its own ones only.
    pub first_device: usize,
    /// Time in which each device worked for a program, in ns.
    pub devices_busy_ns: Vec<u64>,
    /// Length of the parts of the next field, in ns; 0 = there are none.
    pub interval_ns: u64,
    /// Figures of equal parts of the time, in their order; empty unless they were asked for.
    pub intervals: Vec<Interval>,
    /// Switches of all devices from one context to another.
    pub switches: u64,
    /// Decisions of all daemons.
    pub decisions: u64,
    /// Things that happened in virtual time.
    pub events: u64,
    /// Spans for a trace, if they were asked for.
    pub spans: Vec<Span>,
    /// Journal of the daemon of the last machine, if it was asked for.
    pub journal: Vec<Entry>,
    /// Programs as the daemon has recorded them, if that was asked for.
    pub recorded: Vec<Recorded>,
}

/// A part of the time of a run.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Time in which devices worked for programs, in ns.
    pub busy_ns: u64,
    /// Kinds of programs, in the order of the scenario.
    pub programs: Vec<ProgramInterval>,
}

/// A kind of program in a part of the time.
#[derive(Clone, Debug, Default)]
pub struct ProgramInterval {
    /// Times of requests that ended in it.
    pub requests: Histogram,
    /// Requests that were not complete at its end.
    pub open_requests: u64,
}

impl Interval {
    /// An interval of so many kinds of programs in which nothing has happened.
    pub(crate) fn new(kinds: usize) -> Interval {
        Interval { busy_ns: 0, programs: vec![ProgramInterval::default(); kinds] }
    }

    fn merge(&mut self, other: &Interval) {
        self.busy_ns += other.busy_ns;
        for (one, more) in self.programs.iter_mut().zip(&other.programs) {
            one.requests.merge(&more.requests);
            one.open_requests += more.open_requests;
        }
    }
}

/// A kind of program in a run.
#[derive(Clone, Debug, Default)]
pub struct ProgramOutcome {
    /// Its name.
    pub name: String,
    /// Programs of this kind that had a place.
    pub placed: u32,
    /// Programs for which there was none.
    pub unplaced: u32,
    /// Times of requests, from their arrival to their end.
    pub requests: Histogram,
    /// Times for which the host waited for the device in a request, after it had given the commands. Only where each kernel is played.
    pub waits: Histogram,
    /// Times between two waits of the host in a request, such as those between two tokens. Only where each kernel is played.
    pub gaps: Histogram,
    /// Requests that were not complete at the end.
    pub open_requests: u64,
    /// Longest time that a request had waited at the end, in ns.
    pub longest_open_ns: u64,
    /// Device time, in ns.
    pub device_ns: u64,
    /// Time for which the programs were there, times their devices, in ns.
    pub present_ns: u64,
    /// Times that a gate closed.
    pub preemptions: u64,
}

impl ProgramOutcome {
    /// Completed requests in a second, of all programs of the kind.
    pub fn per_second(&self, time_ns: u64) -> f64 {
        self.requests.count() as f64 * 1e9 / time_ns.max(1) as f64
    }

    /// Part of a device that each program had while it was there, on average, in percent.
    pub fn share_percent(&self) -> f64 {
        self.device_ns as f64 * 100.0 / self.present_ns.max(1) as f64
    }

    fn merge(&mut self, other: &ProgramOutcome) {
        self.placed += other.placed;
        self.requests.merge(&other.requests);
        self.waits.merge(&other.waits);
        self.gaps.merge(&other.gaps);
        self.open_requests += other.open_requests;
        self.longest_open_ns = self.longest_open_ns.max(other.longest_open_ns);
        self.device_ns += other.device_ns;
        self.present_ns += other.present_ns;
        self.preemptions += other.preemptions;
    }
}

/// Something that lasted, for a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its line: a program on a device, or a device.
    pub track: Track,
    /// Its name.
    pub name: &'static str,
    /// Its begin, in ns of virtual time.
    pub from_ns: u64,
    /// Its end, in ns of virtual time.
    pub to_ns: u64,
}

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// Requests of a program: kind and number.
    Requests(usize, u32),
    /// A program at a device: kind, number and device.
    Waits(usize, u32, usize),
    /// A device that works for a program: device, kind and number.
    Device(usize, usize, u32),
}

impl Outcome {
    /// Part of the time in which a device worked, on average, in percent.
    pub fn device_use_percent(&self) -> f64 {
        let busy: u128 = self.devices_busy_ns.iter().map(|ns| u128::from(*ns)).sum();
        let all = u128::from(self.time_ns.max(1)) * self.devices_busy_ns.len().max(1) as u128;
        busy as f64 * 100.0 / all as f64
    }

    /// Adds what another machine of the same run has shown.
    pub fn merge(&mut self, other: Outcome) {
        self.programs.iter_mut().zip(&other.programs).for_each(|(one, more)| one.merge(more));
        let mine = self.devices_busy_ns.iter_mut().skip(other.first_device - self.first_device);
        mine.zip(&other.devices_busy_ns).for_each(|(one, more)| *one += more);
        self.intervals.iter_mut().zip(&other.intervals).for_each(|(one, more)| one.merge(more));
        self.switches += other.switches;
        self.decisions += other.decisions;
        self.events += other.events;
        self.spans.extend(other.spans);
        self.recorded.extend(other.recorded);
        self.journal = other.journal;
    }
}
