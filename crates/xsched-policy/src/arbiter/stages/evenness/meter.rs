//! Rate meter: completed commands over time, of one group, alone on the device and beside others.

use crate::Micros;
use crate::tuning::*;

/// Counts of a group, as its client reports them.
#[derive(Clone, Copy)]
pub(in crate::arbiter) struct Count {
    /// Commands completed, from any origin.
    pub(in crate::arbiter) completed: u64,
    /// Commands that the device held up, from any origin and modulo 2^32.
    pub(in crate::arbiter) limited: u32,
    /// Duration of the longest kind of command, in µs; 0 = not known.
    pub(in crate::arbiter) longest_us: u64,
    /// True if nothing of the group is on the device for sure, should its gate be closed.
    pub(in crate::arbiter) drained: bool,
}

/// Completions and the time that they took, older ones with less weight. The ratio of the sums is right on average however the durations
/// of commands vary, which a mean of ratios is not.
#[derive(Default)]
pub(super) struct Rate {
    commands: f64,
    us: f64,
}

impl Rate {
    /// Adds a sample, and forgets as much as it is long, or as one of [`RATE_MEMORY_SAMPLES`] samples.
    pub(super) fn learn(&mut self, commands: u64, us: Micros) {
        self.forget((us as f64 / RATE_MEMORY_US).max(1.0 / RATE_MEMORY_SAMPLES));
        self.add(commands, us);
    }

    fn add(&mut self, commands: u64, us: Micros) {
        self.commands += commands as f64;
        self.us += us as f64;
    }

    /// Reduces the weight of all samples by a factor e for each memory length.
    pub(super) fn forget(&mut self, memories: f64) {
        // A series, near enough: the preload library, which has policies in it, is without libm.
        let m = memories;
        let kept = 1.0 / (1.0 + m + m * m / 2.0 + m * m * m / 6.0);
        self.commands *= kept;
        self.us *= kept;
    }

    /// Mean time per command, in µs; none = not known.
    pub(super) fn command_us(&self) -> Option<f64> {
        (self.commands > 0.0).then(|| self.us / self.commands)
    }
}

/// Clock that stands still now and then.
#[derive(Clone, Copy, Default)]
pub(super) struct Stopwatch {
    pub(super) us: Micros,
    pub(super) running_since: Option<Micros>,
}

impl Stopwatch {
    pub(super) fn started(now: Micros) -> Stopwatch {
        Stopwatch { us: 0, running_since: Some(now) }
    }

    pub(super) fn read(&self, now: Micros) -> Micros {
        self.us + self.running_since.map_or(0, |since| now - since)
    }

    pub(super) fn run(&mut self, now: Micros, runs: bool) {
        *self = Stopwatch { us: self.read(now), running_since: runs.then_some(now) };
    }
}

/// Rate while others of the pool are on the device, too.
#[derive(Default)]
struct Beside {
    rate: Rate,
    /// Time beside others.
    clock: Stopwatch,
    /// Reading of that clock at the last count.
    read_at: Micros,
    /// Commands and time counted since the last sample.
    sample: (u64, Micros),
}

/// Part of the commands that the device held up, by what the client reports.
#[derive(Default)]
struct Limits {
    counter: Option<u32>,
    counted_at: Micros,
    /// Part of all commands lately, 0..=1.
    part: f64,
}

/// Time of a group on the device.
#[derive(Default)]
struct Residence {
    /// The group was on the device at the last decision.
    on: bool,
    /// Time at which the group was seen on the device last; none = it has left for sure.
    last_on: Option<Micros>,
}

/// Measurements of one group.
#[derive(Default)]
pub(super) struct Meter {
    completed: Option<u64>,
    longest_us: u64,
    /// Longest time between two completions that was seen while the group was alone, in µs.
    longest_gap_us: u64,
    /// Time of the last completion, or of the arrival on the device.
    advanced_at: Micros,
    /// Estimate of how long the command in flight has run, in µs.
    pub(super) running_us: f64,
    /// Rate while the group is alone on the device: its unit of progress.
    pub(super) alone: Rate,
    beside: Beside,
    limits: Limits,
    residence: Residence,
}

impl Meter {
    pub(super) fn new(now: Micros) -> Meter {
        Meter { advanced_at: now, ..Meter::default() }
    }

    /// Forgets the last count and leaves the device: counts are not needed for a while.
    pub(super) fn pause(&mut self) {
        self.completed = None;
        self.residence.on = false;
    }

    /// Takes in a count. Returns the number of commands completed since the last one.
    pub(super) fn count(&mut self, now: Micros, count: &Count) -> u64 {
        self.longest_us = count.longest_us;
        // A count that falls or leaps is no count.
        let commands = count.completed.wrapping_sub(self.completed.replace(count.completed).unwrap_or(count.completed));
        let commands = if commands < 1 << 40 { commands } else { 0 };
        self.limits.count(now, commands, count.limited);
        if commands > 0 {
            self.advanced_at = now;
            self.running_us = 0.0;
        }
        commands
    }

    /// Takes in a count while others are on the device, too. Returns, at the end of a sample, whether the group is slower beside them.
    pub(super) fn count_beside(&mut self, now: Micros, commands: u64) -> Option<bool> {
        let beside = &mut self.beside;
        let at = beside.clock.read(now);
        let us = at - std::mem::replace(&mut beside.read_at, at);
        if us == 0 {
            return None;
        }
        beside.sample = (beside.sample.0 + commands, beside.sample.1 + us);
        if beside.sample.1 < SAMPLE_US {
            return None;
        }
        let (commands, us) = std::mem::take(&mut beside.sample);
        // A sample without completions counts, too: as slow.
        beside.rate.forget(us as f64 / BESIDE_MEMORY_US);
        beside.rate.add(commands, us);
        Some(self.is_slower_beside(self.alone.command_us()))
    }

    /// Takes in a count of a group whose gate may be closed. Returns true if commands completed behind the closed gate: they were in the
    /// driver already, and may not have been the last.
    pub(super) fn count_off_device(&mut self, now: Micros, commands: u64, drained: bool) -> bool {
        if self.residence.on {
            return false;
        }
        self.residence.last_on = if commands > 0 { Some(now) } else { self.residence.last_on }.filter(|_| !drained);
        commands > 0
    }

    /// Takes in the state of the gate after a decision.
    pub(super) fn gate_set(&mut self, now: Micros, granted: bool, ready: bool) {
        let on = granted && ready;
        if on && !self.residence.on {
            self.advanced_at = now - self.running_us as Micros;
        }
        self.residence.on = on;
        self.residence.last_on = if on { Some(now) } else { self.residence.last_on.filter(|_| ready) };
        if on {
            self.running_us = self.command_us().min(now.saturating_sub(self.advanced_at) as f64);
        } else if self.is_off(now) {
            self.running_us = 0.0;
        }
    }

    /// Starts or stops the time beside others.
    pub(super) fn run_beside(&mut self, now: Micros, runs: bool) {
        self.beside.clock.run(now, runs);
    }

    /// Takes in the time between two completions while the group was alone.
    pub(super) fn note_gap(&mut self, gap_us: Micros) {
        self.longest_gap_us = self.longest_gap_us.max(gap_us);
    }

    /// Adds a sample of the rate alone.
    pub(super) fn learn_alone(&mut self, commands: u64, us: Micros) {
        self.alone.learn(commands, us);
        self.longest_gap_us -= self.longest_gap_us / 8;
    }

    /// Time per command alone, in µs; 0 = not known.
    pub(super) fn command_us(&self) -> f64 {
        self.alone.command_us().unwrap_or(0.0)
    }

    /// True if a command takes longer beside others than `alone_us`, by more than [`HARDLY_SLOWED`], or if either is not known.
    pub(super) fn is_slower_beside(&self, alone_us: Option<f64>) -> bool {
        let (Some(alone), Some(beside)) = (alone_us, self.beside.rate.command_us()) else { return true };
        alone < HARDLY_SLOWED * beside
    }

    /// True if the rate beside others is known well enough for a comparison.
    pub(super) fn knows_beside(&self) -> bool {
        self.beside.rate.us >= BESIDE_MEMORY_US / 2.0
    }

    /// True if the device holds the group up. A group that its host holds up gains nothing when others are held, however slow
    /// the host is for a while.
    pub(super) fn is_limited(&self) -> bool {
        self.limits.part >= LIMITED_PART
    }

    /// True if nothing of the group is on the device any more. Until then, unless its client says so, work may run on behind the closed
    /// gate: at a level above 1 a group counts as off the device though a running command goes on.
    pub(super) fn is_off(&self, now: Micros) -> bool {
        let longest_us = self.longest_us.max(self.longest_gap_us).min(RUN_MOST_US);
        self.residence.last_on.is_none_or(|last_on| last_on + SETTLE_US.max(longest_us * 5 / 4) <= now)
    }

    /// True if the group has the device and nothing of it completes: it waits for something else than the others.
    pub(super) fn is_stuck(&self, now: Micros) -> bool {
        let patience = STUCK_US.max((STUCK_COMMANDS * self.command_us()) as Micros);
        self.residence.on && now > self.advanced_at + patience
    }
}

impl Limits {
    fn count(&mut self, now: Micros, commands: u64, counter: u32) {
        let limited = counter.wrapping_sub(self.counter.replace(counter).unwrap_or(counter));
        let us = now - std::mem::replace(&mut self.counted_at, now).min(now);
        if commands > 0 {
            let part = (f64::from(limited) / commands as f64).min(1.0);
            let weight = (us as f64 / LIMITED_MEMORY_US).min(1.0);
            self.part += (part - self.part) * weight;
        }
    }
}
