//! The policies by name. A new policy is a file in `policies/`, entered once in `policies/mod.rs`.

use xsched_proto::Error;

pub use crate::entry::Entry;
pub use crate::policies::POLICIES;

/// The policies that users may choose.
pub fn listed() -> impl Iterator<Item = &'static Entry> {
    POLICIES.iter().copied().filter(|entry| entry.listed)
}

/// Name of the policy used unless another is asked for.
pub const DEFAULT: &str = "hpf";

/// Finds a policy by name or alias, in any case.
///
/// # Errors
/// No policy has this name: one line that says what is accepted.
pub fn find(name: &str) -> Result<&'static Entry, Error> {
    let is = |n: &&str| n.eq_ignore_ascii_case(name);
    let found = POLICIES.iter().copied().find(|e| is(&e.name) || e.aliases.iter().any(is));
    found.ok_or_else(|| Error::word(name, "policy", format!("one of {}", names()), listed().map(|e| e.name)))
}

/// The names that users may choose from.
pub fn names() -> String {
    listed().map(|e| e.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_the_rest_is_refused_with_what_is_accepted() {
        assert_eq!(find("HPF").unwrap().name, "hpf");
        assert_eq!(find("Priority").unwrap().name, "hpf");
        assert_eq!(find("pup").unwrap().name, "pup");
        assert_eq!(find("chaos").unwrap().name, "chaos");
        let line = find("fifo").unwrap_err().to_string();
        assert!(line.starts_with("'fifo' is no policy: use one of hpf, "), "{line}");
        assert!(!line.contains("chaos"));
    }

    /// The original's eleven, and two of our own.
    #[test]
    fn all_policies_of_the_original_are_there() {
        for name in ["HPF", "HHPF", "CHPF", "UP", "PUP", "SPUP", "KEDF", "LAX", "AWF", "CFS", "MLFQ", "slo", "fair"] {
            assert!(find(name).unwrap().listed, "{name}");
        }
        assert_eq!(listed().count(), 13);
    }

    #[test]
    fn the_default_is_the_first() {
        assert_eq!(DEFAULT, POLICIES[0].name);
    }

    #[test]
    fn no_two_policies_answer_to_one_name_and_each_says_what_it_is() {
        let mut names: Vec<_> = POLICIES.iter().flat_map(|e| e.aliases.iter().chain([&e.name])).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        for entry in POLICIES {
            assert!(!entry.name.is_empty() && !entry.about.is_empty() && !entry.good_for.is_empty(), "{}", entry.name);
        }
    }
}
