//! Entry of a policy in the list: its properties without an instance.

use xsched_proto::hint::Hint;

use crate::Policy;
use crate::params::{Param, Params};
use crate::share;

/// Properties of one policy.
#[derive(Debug)]
pub struct Entry {
    /// The name users type and read.
    pub name: &'static str,
    /// Other names it answers to.
    pub aliases: &'static [&'static str],
    /// One line for users.
    pub about: &'static str,
    /// Purpose in a few words.
    pub good_for: &'static str,
    /// Makes an instance for one device.
    pub make: fn(&Params) -> Box<dyn Policy>,
    /// Its parameters.
    pub params: &'static [Param],
    /// Hints that it reads. Others have no effect on its decisions.
    pub hints: &'static [Hint],
    /// Way from the top of the device's shares to a group's party.
    pub way: fn(&Params) -> share::Way,
    /// True if programs take turns by the device time that they used. Device gates are not used then: work that waits behind one cannot be
    /// told from work that runs.
    pub takes_turns: bool,
    /// True if the use of one device by a program counts on its other devices.
    pub across_devices: bool,
    /// True if it reads nice values, which its host then polls.
    pub reads_nice: bool,
    /// True if it never leaves a device idle that some group wants.
    pub conserves_work: bool,
    /// True if urgent groups may keep the device through short gaps of theirs: it is theirs for as long as they want it.
    pub keeps_gaps: bool,
    /// True if users are shown the policy and may choose it by name. Others are for tests or measurements, or need a program outside.
    pub listed: bool,
}

impl Entry {
    /// Entry with the values of most policies, and the three texts that each has.
    pub(crate) const fn new(
        name: &'static str,
        about: &'static str,
        good_for: &'static str,
        make: fn(&Params) -> Box<dyn Policy>,
    ) -> Entry {
        Entry {
            name,
            aliases: &[],
            about,
            good_for,
            make,
            params: &[],
            hints: &[],
            way: |_| share::by_program,
            takes_turns: false,
            across_devices: false,
            reads_nice: false,
            conserves_work: true,
            keeps_gaps: false,
            listed: true,
        }
    }

    /// Hints among those given that have no effect. A timeslice is not among them: devices with timeslices use it under any policy.
    pub fn overlooks(&self, given: impl IntoIterator<Item = Hint>) -> Vec<Hint> {
        given.into_iter().filter(|hint| *hint != Hint::Timeslice && !self.hints.contains(hint)).collect()
    }
}
