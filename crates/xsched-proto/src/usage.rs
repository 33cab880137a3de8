//! Time on devices, as `xsched usage` is told.

use serde::{Deserialize, Serialize};

/// What usage is added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageBy {
    /// User of the process.
    User,
    /// Job, as programs were given it.
    Job,
    /// What the program is called.
    Program,
    /// Class of its priority.
    Class,
    /// Device key.
    Device,
}

impl UsageBy {
    /// All of them.
    pub const ALL: [UsageBy; 5] = [UsageBy::User, UsageBy::Job, UsageBy::Program, UsageBy::Class, UsageBy::Device];

    /// The name users type and read.
    pub fn name(self) -> &'static str {
        match self {
            UsageBy::User => "user",
            UsageBy::Job => "job",
            UsageBy::Program => "program",
            UsageBy::Class => "class",
            UsageBy::Device => "device",
        }
    }
}

/// The usage of one user, job, program, class or device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Which; none = those without (without a job).
    pub key: Option<String>,
    /// Device time, in ns: time in which n programs were on a device counts one n-th for each.
    pub gpu_ns: u64,
    /// The part of that which the driver's own figure of how active the device was has told.
    pub by_driver_ns: u64,
    /// The part of which neither completions nor the driver told anything: it may be too much.
    pub at_most_ns: u64,
    /// Time in which the program was on a device, whatever else was there, added up over programs and devices, in ns.
    pub resident_ns: u64,
    /// Processes.
    pub programs: u64,
}
