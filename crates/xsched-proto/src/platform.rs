//! Vendor interfaces, and the preemption levels of devices.

use serde::{Deserialize, Serialize};

/// Vendor interface a group belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// NVIDIA CUDA.
    Cuda,
    /// AMD HIP.
    Hip,
    /// OpenCL.
    Opencl,
    /// The built-in simulated device.
    Sim,
    /// AMD's runtime below HIP, used directly.
    Hsa,
}

impl Platform {
    /// All of them.
    pub const ALL: [Platform; 5] = [Platform::Cuda, Platform::Hip, Platform::Opencl, Platform::Sim, Platform::Hsa];

    /// What is wrong with a list of names as in `XSCHED_PLATFORMS`; `None` if nothing is.
    pub fn fault_in(list: &str) -> Option<String> {
        let mut words = list.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
        let is_empty = words.peek().is_none() && !list.is_empty();
        let unknown = words.find(|word| Platform::ALL.iter().all(|p| !word.eq_ignore_ascii_case(p.name())));
        let fault = match unknown {
            Some(word) => format!("XSCHED_PLATFORMS={list}: there is no platform {word}"),
            None if is_empty => format!("XSCHED_PLATFORMS={list} names no platform"),
            None => return None,
        };
        Some(format!("{fault}; use {}, separated by commas", Platform::ALL.map(Platform::name).join(", ")))
    }

    /// The name users type and read.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Hip => "hip",
            Platform::Opencl => "opencl",
            Platform::Sim => "sim",
            Platform::Hsa => "hsa",
        }
    }

    /// What level 3 means: true = a group is interrupted when its gate closes and goes on when it opens; false = the
    /// hardware gives its context a time slice by class, for good.
    pub fn interrupts(self) -> bool {
        self != Platform::Cuda
    }

    /// Whether its hardware has priorities of its own, which follow the program's.
    pub fn has_priorities(self) -> bool {
        matches!(self, Platform::Hip | Platform::Hsa)
    }

    /// The highest level that a group gets of its own accord. On AMD's older devices each interruption through the driver
    /// stops the queues of all programs for a moment: with HIP, where there are lower levels, level 3 is for those who ask.
    pub fn automatic_level(self) -> u8 {
        if self == Platform::Hip { 2 } else { 3 }
    }
}

/// Preemption levels that a device can do; bit n-1 = level n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels(u8);

impl Levels {
    /// None, not even level 1: commands do not pass through xsched.
    pub const NONE: Levels = Levels(0);
    /// New commands are held back on the host.
    pub const ONE: Levels = Levels(0b001);
    /// Commands already handed over wait at gates on the device.
    pub const TWO: Levels = Levels(0b010);
    /// The running command is interrupted.
    pub const THREE: Levels = Levels(0b100);
    /// All three.
    pub const ALL: Levels = Levels(0b111);

    /// These and those of `other`.
    #[must_use]
    pub const fn with(self, other: Levels) -> Levels {
        Levels(self.0 | other.0)
    }

    /// These and, if `able`, those of `other`.
    #[must_use]
    pub const fn with_if(self, able: bool, other: Levels) -> Levels {
        if able { self.with(other) } else { self }
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Levels) -> Levels {
        Levels(self.0 & !other.0)
    }

    /// Whether level `level` (1..=3) is among them.
    pub const fn has(self, level: u8) -> bool {
        matches!(level, 1..=3) && self.0 & (1 << (level - 1)) != 0
    }

    /// The highest of them up to `wished`; level 1 where there is none.
    pub fn highest_to(self, wished: u8) -> u8 {
        (1..=wished.min(3)).rev().find(|level| self.has(*level)).unwrap_or(1)
    }
}

impl core::fmt::Display for Levels {
    /// `levels 1, 2`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let there: Vec<String> = (1..=3).filter(|level| self.has(*level)).map(|level| level.to_string()).collect();
        match there.is_empty() {
            true => f.write_str("no level"),
            false => write!(f, "levels {}", there.join(", ")),
        }
    }
}
