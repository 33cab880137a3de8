//! Vendor interfaces, and the preemption levels of devices.

use serde::{Deserialize, Serialize};

/// Vendor interface that a group belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// NVIDIA CUDA.
    Cuda,
    /// AMD HIP.
    Hip,
    /// OpenCL.
    Opencl,
    /// Built-in simulated device.
    Sim,
    /// AMD's runtime below HIP, when programs use it directly.
    Hsa,
}

impl Platform {
    /// All platforms.
    pub const ALL: [Platform; 5] = [Platform::Cuda, Platform::Hip, Platform::Opencl, Platform::Sim, Platform::Hsa];

    /// Checks a list of names as in `XSCHED_PLATFORMS`, and returns its fault; `None` if it has none.
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

    /// Name of the platform, as users type and read it.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Hip => "hip",
            Platform::Opencl => "opencl",
            Platform::Sim => "sim",
            Platform::Hsa => "hsa",
        }
    }

    /// Meaning of level 3: true = a group is interrupted when its gate closes and goes on when it opens; false = the hardware gives its
    /// context a time slice by class, permanently.
    pub fn interrupts(self) -> bool {
        self != Platform::Cuda
    }

    /// Reports whether the hardware has priorities of its own, which follow the program's.
    pub fn has_priorities(self) -> bool {
        matches!(self, Platform::Hip | Platform::Hsa)
    }

    /// Highest level that a group gets automatically. On AMD's older devices each interruption through the driver stops the queues of all
    /// programs for a moment: with HIP, where there are lower levels, level 3 has to be asked for.
    pub fn automatic_level(self) -> u8 {
        if self == Platform::Hip { 2 } else { 3 }
    }
}

/// Preemption levels that a device is capable of; bit n-1 = level n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels(u8);

impl Levels {
    /// No level, not even level 1: commands do not pass through xsched.
    pub const NONE: Levels = Levels(0);
    /// Level 1: new commands are held back on the host.
    pub const ONE: Levels = Levels(0b001);
    /// Commands already in the driver wait at gates on the device.
    pub const TWO: Levels = Levels(0b010);
    /// Level 3: the running command is interrupted.
    pub const THREE: Levels = Levels(0b100);
    /// All three levels.
    pub const ALL: Levels = Levels(0b111);

    /// Union with the levels of `other`.
    #[must_use]
    pub const fn with(self, other: Levels) -> Levels {
        Levels(self.0 | other.0)
    }

    /// Union with the levels of `other` if `able`.
    #[must_use]
    pub const fn with_if(self, able: bool, other: Levels) -> Levels {
        if able { self.with(other) } else { self }
    }

    /// These levels without those of `other`.
    #[must_use]
    pub const fn without(self, other: Levels) -> Levels {
        Levels(self.0 & !other.0)
    }

    /// Reports whether level `level` (1..=3) is among these.
    pub const fn has(self, level: u8) -> bool {
        matches!(level, 1..=3) && self.0 & (1 << (level - 1)) != 0
    }

    /// Highest level among these that is not above `wished`; level 1 where there is none.
    pub fn highest_to(self, wished: u8) -> u8 {
        (1..=wished.min(3)).rev().find(|level| self.has(*level)).unwrap_or(1)
    }
}

impl core::fmt::Display for Levels {
    /// Writes for example `levels 1, 2`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let there: Vec<String> = (1..=3).filter(|level| self.has(*level)).map(|level| level.to_string()).collect();
        match there.is_empty() {
            true => f.write_str("no level"),
            false => write!(f, "levels {}", there.join(", ")),
        }
    }
}
