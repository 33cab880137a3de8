//! Priorities, and the five classes they belong to.
//!
//! A priority is a number from -255 to 255, higher is more urgent. A class is a name for a range of them:
//! a number belongs to the class at or below it. One more number, [`PRIORITY_NEVER`], keeps work off the device.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Least urgent priority.
pub const PRIORITY_MIN: i32 = -255;
/// Priority below all others: a program that has it does not run until it gets another one. XSched 1.2.0 uses the same number for this.
pub const PRIORITY_NEVER: i32 = PRIORITY_MIN - 1;
/// Most urgent priority.
pub const PRIORITY_MAX: i32 = 255;
/// Smallest weight of a fair share.
pub const WEIGHT_MIN: u32 = 1;
/// Largest weight of a fair share.
pub const WEIGHT_MAX: u32 = 10_000;
/// Weight of a program that requested none.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Time slice of a program that requested none, in µs.
pub const TIMESLICE_DEFAULT_US: u64 = 5_000;
/// Shortest accepted time slice, in µs.
pub const TIMESLICE_MIN_US: u64 = 100;
/// Longest accepted time slice, in µs.
pub const TIMESLICE_MAX_US: u64 = 10_000_000;

/// Named range of priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Best-effort work in the background, also named `batch`: priorities -255..=-1, nominally -128.
    Low,
    /// Default class, best-effort too: priorities 0..=127, nominally 0.
    Normal,
    /// Latency-critical work: priorities 128..=191, nominally 128.
    High,
    /// Latency-critical work ahead of `high`: priorities 192..=254, nominally 192.
    Realtime,
    /// Class reserved for the operator: priority 255.
    System,
}

impl Class {
    /// All classes, the least urgent first.
    pub const ALL: [Class; 5] = [Class::Low, Class::Normal, Class::High, Class::Realtime, Class::System];

    /// Returns the class that a priority belongs to.
    pub fn of(priority: i32) -> Class {
        match priority {
            ..=-1 => Class::Low,
            0..=127 => Class::Normal,
            128..=191 => Class::High,
            192..=254 => Class::Realtime,
            _ => Class::System,
        }
    }

    /// Priority that the class's name stands for.
    pub fn nominal(self) -> i32 {
        match self {
            Class::Low => -128,
            Class::Normal => 0,
            Class::High => 128,
            Class::Realtime => 192,
            Class::System => 255,
        }
    }

    /// Lowest and highest priority of the class.
    pub fn range(self) -> (i32, i32) {
        match self {
            Class::Low => (-255, -1),
            Class::Normal => (0, 127),
            Class::High => (128, 191),
            Class::Realtime => (192, 254),
            Class::System => (255, 255),
        }
    }

    /// Name of the class, as users type and read it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Low => "low",
            Class::Normal => "normal",
            Class::High => "high",
            Class::Realtime => "realtime",
            Class::System => "system",
        }
    }

    /// Reports whether programs of this class are best-effort: they get the device time that is left over (`normal` and `low`).
    pub fn is_best_effort(self) -> bool {
        self <= Class::Normal
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Best-effort contention: whether a best-effort program shares its device with others of its kind, as far as its time slice is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// No other best-effort program uses the device.
    None,
    /// Others use the device. `short` = the program's commands are known to be short: gates hold them, and no slice need cut one.
    BestEffort {
        /// True if commands of [`SHORT_US`] or less take most of the program's time.
        short: bool,
    },
}

/// Longest command that counts as short, in µs: no time slice is shorter, so none would cut it. Beside other programs a command's time is
/// known only to the interval between two polls, which is some 100 µs or more.
pub const SHORT_US: u64 = 400;

/// Hardware time slice of best-effort work beside an urgent program, in µs. An urgent launch waits for the end of a slice. The work in
/// flight then completes in slices, and the first part of each slice restores the state that the last interruption saved: 50 µs for a
/// kernel with few registers, 75 to 80 for one that fills registers and shared memory, measured on an H200 by `benches/cuda/drain.py`. So
/// the latter kernel progresses for 25 µs in a slice of 100 and for 49 in one of 130, and an urgent launch waits for 317 to 328 and for 345
/// to 382 µs at P99.
pub const SHORT_SLICE_US: u64 = 120;

/// Hardware time slice of a context, in µs, where the device has time slices: the time that the context keeps the device while other
/// contexts wait. 2048 is the default of NVIDIA's driver. With several best-effort programs, slices as short as a switch costs (about 100
/// µs on an H200) would leave them nothing. Long slices delay a latency-critical program that leaves gaps between its kernels, unless gates
/// hold the others' commands, which they do where commands are short: then frequent switches have no benefit. Measured on H200s: five BERTs
/// beside a latency-critical one do 520 a second with 300 µs, 632 to 717 with 1000, 729 and 752 with 4000, and the latency-critical one is
/// as quick. A ResNet-50 and GEMMs of 100 ms did 74 % of the work left to them with 300 µs, 89 % with 500.
pub fn hardware_timeslice_us(class: Class, contention: Contention) -> u64 {
    match (class, contention) {
        (Class::Low, Contention::BestEffort { short: true }) => 4_096,
        (Class::Low, Contention::BestEffort { short: false }) => 500,
        (Class::Low, Contention::None) => SHORT_SLICE_US,
        (Class::Normal | Class::High, _) => 2_048,
        (Class::Realtime, _) => 4_096,
        (Class::System, _) => 8_192,
    }
}

/// Reports whether a number is a priority, or [`PRIORITY_NEVER`].
pub fn is_priority(number: i32) -> bool {
    (PRIORITY_NEVER..=PRIORITY_MAX).contains(&number)
}

/// Values that [`parse_priority`] accepts, for messages.
pub const PRIORITY_HELP: &str =
    "low (or batch), normal, high, realtime, system, or a number from -255 to 255 (-256 = never runs)";

/// Reads a class name (in upper or lower case) or a number.
///
/// # Errors
/// One line that says what was wrong and what is accepted.
pub fn parse_priority(text: &str) -> Result<i32, Error> {
    let lower = text.to_ascii_lowercase();
    if lower == "batch" {
        return Ok(Class::Low.nominal());
    }
    if let Some(class) = Class::ALL.iter().find(|c| c.name() == lower) {
        return Ok(class.nominal());
    }
    match text.parse::<i32>() {
        Ok(n) if is_priority(n) => Ok(n),
        _ => Err(Error::word(text, "priority", PRIORITY_HELP, Class::ALL.map(Class::name))),
    }
}

/// Priority of a queue within a program of priority `base`, shifted by `steps` of ten (a stream's or queue's own priority hint; positive is
/// more urgent), never above the program's class. All queues of a program that never runs have [`PRIORITY_NEVER`]; steps alone give no
/// other queue that priority.
pub fn queue_priority(base: i32, steps: i32) -> i32 {
    if base <= PRIORITY_NEVER {
        return PRIORITY_NEVER;
    }
    let (_, high) = Class::of(base).range();
    base.saturating_add(steps.saturating_mul(10)).clamp(PRIORITY_MIN, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_the_class_at_or_below_it() {
        for (p, c) in [
            (-255, Class::Low),
            (-1, Class::Low),
            (0, Class::Normal),
            (127, Class::Normal),
            (128, Class::High),
            (191, Class::High),
            (192, Class::Realtime),
            (254, Class::Realtime),
            (255, Class::System),
        ] {
            assert_eq!(Class::of(p), c, "{p}");
        }
        for c in Class::ALL {
            assert_eq!(Class::of(c.nominal()), c);
            assert_eq!((Class::of(c.range().0), Class::of(c.range().1)), (c, c));
        }
    }

    #[test]
    fn names_and_numbers_are_read_and_the_rest_is_refused_with_what_is_accepted() {
        assert_eq!(parse_priority("HIGH"), Ok(128));
        assert_eq!(parse_priority("batch"), Ok(-128));
        assert_eq!(parse_priority("-255"), Ok(-255));
        assert_eq!(parse_priority("-256"), Ok(PRIORITY_NEVER));
        for bad in ["999", "-257", "", "urgent", "1.5"] {
            let e = parse_priority(bad).unwrap_err();
            assert!(e.line().contains(PRIORITY_HELP), "{e}");
        }
    }

    #[test]
    fn a_queue_never_rises_above_its_programs_class() {
        assert_eq!(queue_priority(128, 1), 138);
        assert_eq!(queue_priority(0, -1), -10);
        assert_eq!(queue_priority(0, 20), 127);
        assert_eq!(queue_priority(-250, -2), -255);
        assert_eq!(queue_priority(-128, 2), -108);
        assert_eq!(queue_priority(191, 5), 191);
        assert_eq!(queue_priority(PRIORITY_NEVER, 7), PRIORITY_NEVER);
    }
}
