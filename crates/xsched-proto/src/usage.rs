//! Time on devices, as the daemon reports it to `xsched usage`.

use serde::{Deserialize, Serialize};

/// Key that usage is summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageBy {
    /// User of the process.
    User,
    /// Job that the programs were given.
    Job,
    /// Name of the program.
    Program,
    /// Class of the priority.
    Class,
    /// Device key.
    Device,
}

impl UsageBy {
    /// All keys.
    pub const ALL: [UsageBy; 5] = [UsageBy::User, UsageBy::Job, UsageBy::Program, UsageBy::Class, UsageBy::Device];

    /// Name of the key, as users type and read it.
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

/// Usage of one user, job, program, class or device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// User, job, program, class or device of the row; none = programs without (without a job).
    pub key: Option<String>,
    /// Device time, in ns: while n programs are on a device, each is charged one n-th of the time.
    pub gpu_ns: u64,
    /// Part of `gpu_ns` that comes from the driver's own figure of how active the device was.
    pub by_driver_ns: u64,
    /// Part of `gpu_ns` that is an upper limit, because neither completions nor the driver gave a figure for it.
    pub at_most_ns: u64,
    /// Time in which the program was on a device, whatever else was there, summed over programs and devices, in ns.
    pub resident_ns: u64,
    /// Device memory held times the time for which it was, in KiB·s.
    pub memory_kib_s: u64,
    /// Memory on the host, of programs whose device memory lay there, times the time for which it did, in KiB·s.
    pub host_kib_s: u64,
    /// Number of processes.
    pub programs: u64,
}
