//! What becomes of launches of the system domain, those of vendors' libraries: an operator chooses, and a program may ask for less.

use serde::{Deserialize, Serialize};

/// What becomes of a program's launches of the system domain; each says more than the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainMode {
    /// Nothing looks at them. What a program or a library says itself (`include/xsched/domain.h`) holds.
    #[default]
    Off,
    /// They are counted by the library that they come from.
    Report,
    /// They go ahead of the program's own, in whatever stream.
    Ahead,
    /// They wait for no gate: within the program's own class they are not scheduled.
    Exempt,
}

impl DomainMode {
    /// All of them.
    pub const ALL: [DomainMode; 4] = [DomainMode::Off, DomainMode::Report, DomainMode::Ahead, DomainMode::Exempt];
    /// What is accepted.
    pub const HELP: &str = "off, report, ahead or exempt";

    /// The word that users type and read.
    pub fn name(self) -> &'static str {
        match self {
            DomainMode::Off => "off",
            DomainMode::Report => "report",
            DomainMode::Ahead => "ahead",
            DomainMode::Exempt => "exempt",
        }
    }

    /// The mode of a word.
    pub fn named(word: &str) -> Option<DomainMode> {
        DomainMode::ALL.into_iter().find(|mode| mode.name() == word)
    }

    /// What a program gets that asks for `asked`, where its operator's rules give `given`. A program may always ask for what
    /// concerns itself alone; that its work is exempt concerns others.
    pub fn granted(asked: Option<DomainMode>, given: Option<DomainMode>) -> DomainMode {
        let most = given.unwrap_or_default().max(DomainMode::Ahead);
        asked.or(given).unwrap_or_default().min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::DomainMode::{self, *};

    #[test]
    fn only_a_rule_makes_work_exempt() {
        for (asked, given, gets) in [
            (None, None, Off),
            (None, Some(Exempt), Exempt),
            (Some(Exempt), None, Ahead),
            (Some(Exempt), Some(Off), Ahead),
            (Some(Exempt), Some(Report), Ahead),
            (Some(Exempt), Some(Exempt), Exempt),
            (Some(Ahead), None, Ahead),
            (Some(Report), Some(Exempt), Report),
            (Some(Off), Some(Exempt), Off),
        ] {
            assert_eq!(DomainMode::granted(asked, given), gets, "{asked:?} {given:?}");
        }
        assert!(DomainMode::ALL.iter().all(|mode| DomainMode::named(mode.name()) == Some(*mode)));
        assert_eq!(DomainMode::named("none"), None);
    }
}
