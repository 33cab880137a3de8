//! Treatment of launches of the system domain, i.e. of vendors' libraries: an operator chooses, and a program may ask for less.

use serde::{Deserialize, Serialize};

/// Treatment of a program's launches of the system domain; each mode does more than the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainMode {
    /// Such launches are not inspected. A domain that a program or a library declares itself (`include/xsched/domain.h`) is respected.
    #[default]
    Off,
    /// Such launches are counted by the library that they come from.
    Report,
    /// Such launches go ahead of the program's own, in whatever stream.
    Ahead,
    /// Such launches wait for no gate: within the program's own class they are not scheduled.
    Exempt,
}

impl DomainMode {
    /// All modes.
    pub const ALL: [DomainMode; 4] = [DomainMode::Off, DomainMode::Report, DomainMode::Ahead, DomainMode::Exempt];
    /// Accepted words, for messages.
    pub const HELP: &str = "off, report, ahead or exempt";

    /// Name of the mode, as users type and read it.
    pub fn name(self) -> &'static str {
        match self {
            DomainMode::Off => "off",
            DomainMode::Report => "report",
            DomainMode::Ahead => "ahead",
            DomainMode::Exempt => "exempt",
        }
    }

    /// Mode with this name.
    pub fn named(word: &str) -> Option<DomainMode> {
        DomainMode::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(word))
    }

    /// Mode of a program that asks for `asked`, where its operator's rules give `given`. A program may always choose a mode that affects
    /// only itself; `exempt` affects others, so it takes a rule.
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
