//! Optional parts of the daemon that do not work. Programs are scheduled all the same; the log, `daemon status` and `doctor` say which part is
//! missing.

use std::collections::BTreeMap;
use std::fmt;

/// OptionalPart that the daemon does without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OptionalPart {
    /// Data for monitors.
    Metrics,
    /// Records of usage.
    Usage,
    /// Settings and facts that outlive the daemon.
    State,
    /// Records of programs that prove themselves.
    Proven,
    /// List of programs that suit no pool.
    Unsuitable,
    /// File of bursts.
    Bursts,
    /// State of devices, as drivers report it.
    Devices,
}

impl fmt::Display for OptionalPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OptionalPart::Metrics => "metrics",
            OptionalPart::Usage => "usage",
            OptionalPart::State => "state",
            OptionalPart::Proven => "proven programs",
            OptionalPart::Unsuitable => "unsuitable programs",
            OptionalPart::Bursts => "bursts",
            OptionalPart::Devices => "devices",
        })
    }
}

/// Reasons for which parts do not work.
#[derive(Debug, Default)]
pub(crate) struct Warnings(BTreeMap<OptionalPart, String>);

impl Warnings {
    /// Sets the reason for which a part does not work; none = it works. Returns a line for the log if that is news.
    pub(crate) fn set(&mut self, part: OptionalPart, why: Option<&str>) -> Option<String> {
        let before = self.0.get(&part).map(String::as_str);
        if before == why {
            return None;
        }
        match why {
            Some(why) => {
                self.0.insert(part, why.to_owned());
                Some(format!("warning: {part}: {why}"))
            }
            None => self.0.remove(&part).map(|_| format!("{part}: works again")),
        }
    }

    /// Parts that do not work and the reasons, one line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().map(|(part, why)| format!("{part}: {why}")).collect()
    }

    /// Reports whether a part does not work.
    pub(crate) fn has(&self, part: OptionalPart) -> bool {
        self.0.contains_key(&part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_reported_when_it_fails_and_when_it_works_again() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.set(OptionalPart::Usage, None), None);
        let first = warnings.set(OptionalPart::Usage, Some("the disk is full"));
        assert_eq!(first.as_deref(), Some("warning: usage: the disk is full"));
        assert_eq!(warnings.set(OptionalPart::Usage, Some("the disk is full")), None, "no news");
        assert!(warnings.set(OptionalPart::Usage, Some("no folder")).is_some() && warnings.has(OptionalPart::Usage));
        assert_eq!(warnings.set(OptionalPart::Usage, None).as_deref(), Some("usage: works again"));
        assert!(!warnings.has(OptionalPart::Usage));
    }
}
