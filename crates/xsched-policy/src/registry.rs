//! The policies by name. A new policy is a file in `policies/` and an entry of [`POLICIES`].

use crate::Policy;
pub use crate::params::Params;
use crate::policies::{chaos, external, fair, hpf};

/// One policy.
#[derive(Debug)]
pub struct Entry {
    /// The name users type and read.
    pub name: &'static str,
    /// Other names it answers to.
    pub aliases: &'static [&'static str],
    /// One line for users.
    pub about: &'static str,
    /// Makes an instance for one device.
    pub make: fn(Params) -> Box<dyn Policy>,
    /// Whether programs take turns by the device time they used. What a suspended one has behind gates on the device
    /// cannot be told from what it still runs, so that such a policy goes without them.
    pub takes_turns: bool,
    /// Not to be chosen by name alone: for tests, or needs a program outside to ask. Not listed to users.
    pub test_only: bool,
}

/// All policies, the default first.
pub static POLICIES: &[Entry] = &[
    Entry {
        name: "hpf",
        aliases: &["priority"],
        about: "highest priority first: a program runs while nobody more urgent wants the device",
        make: hpf::make,
        takes_turns: false,
        test_only: false,
    },
    Entry {
        name: "up",
        aliases: &["share"],
        about: "weighted fair share of each suspension unit, taking turns",
        make: fair::make_by_group,
        takes_turns: true,
        test_only: false,
    },
    Entry {
        name: "pup",
        aliases: &[],
        about: "weighted fair share of each program, taking turns",
        make: fair::make_by_program,
        takes_turns: true,
        test_only: false,
    },
    Entry {
        name: "external",
        aliases: &[],
        about: "a scheduler of your own, see `xsched daemon --scheduler`",
        make: external::make,
        takes_turns: false,
        test_only: true,
    },
    Entry {
        name: "chaos",
        aliases: &[],
        about: "suspends and resumes everybody at random, to test programs",
        make: chaos::make,
        takes_turns: false,
        test_only: true,
    },
];

/// Name of the policy used unless another is asked for.
pub const DEFAULT: &str = "hpf";

/// Finds a policy by name or alias, in any case.
///
/// # Errors
/// No policy has this name.
pub fn find(name: &str) -> Result<&'static Entry, UnknownPolicy> {
    let is = |n: &&str| n.eq_ignore_ascii_case(name);
    let found = POLICIES.iter().find(|e| is(&e.name) || e.aliases.iter().any(is));
    found.ok_or_else(|| UnknownPolicy(name.to_owned()))
}

/// A name that no policy has. Displays as one line that says what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl core::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<_> = POLICIES.iter().filter(|e| !e.test_only).map(|e| e.name).collect();
        write!(f, "'{}' is no policy: use one of {}", self.0, names.join(", "))
    }
}

impl core::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_the_rest_is_refused_with_what_is_accepted() {
        assert_eq!(find("HPF").unwrap().name, "hpf");
        assert_eq!(find("Priority").unwrap().name, "hpf");
        assert_eq!(find("pup").unwrap().name, "pup");
        assert_eq!(find("chaos").unwrap().name, "chaos");
        assert_eq!(find("fifo").unwrap_err().to_string(), "'fifo' is no policy: use one of hpf, up, pup");
    }

    #[test]
    fn the_default_is_the_first() {
        assert_eq!(DEFAULT, POLICIES[0].name);
    }

    #[test]
    fn no_two_policies_answer_to_one_name() {
        let mut names: Vec<_> = POLICIES.iter().flat_map(|e| e.aliases.iter().chain([&e.name])).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
