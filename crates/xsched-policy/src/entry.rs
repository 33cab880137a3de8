//! What is known of a policy without asking it.

use xsched_proto::hint::Hint;

use crate::Policy;
use crate::params::{Param, Params};
use crate::share;

/// One policy.
#[derive(Debug)]
pub struct Entry {
    /// The name users type and read.
    pub name: &'static str,
    /// Other names it answers to.
    pub aliases: &'static [&'static str],
    /// One line for users.
    pub about: &'static str,
    /// What it is for, in a few words.
    pub good_for: &'static str,
    /// Makes an instance for one device.
    pub make: fn(&Params) -> Box<dyn Policy>,
    /// Its parameters.
    pub params: &'static [Param],
    /// The hints that it looks at. What else is said has no effect on its decisions.
    pub hints: &'static [Hint],
    /// Way from the top of the device's shares to a group's party.
    pub way: fn(&Params) -> share::Way,
    /// Whether programs take turns by the device time they used. What a suspended one has behind gates on the device
    /// cannot be told from what it still runs, so that such a policy goes without them.
    pub takes_turns: bool,
    /// Whether what a program does on one device counts on its others.
    pub across_devices: bool,
    /// Whether it goes by nice values, which its host looks up again and again.
    pub reads_nice: bool,
    /// Whether a device that is wanted is never left idle.
    pub conserves_work: bool,
    /// To be chosen by name alone, and shown to users. What is not is for tests or measurements, or needs a program outside to ask.
    pub listed: bool,
}

impl Entry {
    /// What most policies are, with the three lines that each has.
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
            listed: true,
        }
    }

    /// The hints among those given that the policy does not look at. A timeslice is none of them: devices that have such look
    /// at it under any policy.
    pub fn overlooks(&self, given: impl IntoIterator<Item = Hint>) -> Vec<Hint> {
        given.into_iter().filter(|hint| *hint != Hint::Timeslice && !self.hints.contains(hint)).collect()
    }
}
