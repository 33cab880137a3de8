//! Changes that commands make to programs.

use serde::{Deserialize, Serialize};
use xsched_proto::hint::Hints;

/// Values that a hint changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Changes {
    /// Priority.
    pub priority: Option<i32>,
    /// True for root, whose word no ceiling cuts.
    pub by_root: bool,
    /// Preemption level, 1..=3.
    pub level: Option<u8>,
    /// Commands in flight while watched; 0 = automatic.
    pub threshold: Option<u32>,
    /// Commands after which room comes back; 0 = automatic.
    pub batch: Option<u32>,
    /// Hints for the policy.
    pub hints: Hints,
}

impl Changes {
    /// These values, completed by those of `other`.
    #[must_use]
    pub fn or(self, other: Changes) -> Changes {
        Changes {
            priority: self.priority.or(other.priority),
            by_root: self.by_root || other.by_root,
            level: self.level.or(other.level),
            threshold: self.threshold.or(other.threshold),
            batch: self.batch.or(other.batch),
            hints: self.hints.or(other.hints),
        }
    }

    /// The values in one line, for the log.
    pub fn line(&self) -> String {
        let number = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}"));
        let own = [
            number("priority", self.priority.map(|p| p.to_string())),
            number("level", self.level.map(|level| level.to_string())),
            number("threshold", self.threshold.map(|n| n.to_string())),
            number("batch", self.batch.map(|n| n.to_string())),
        ];
        let hints = self.hints.given().filter_map(|hint| number(hint.name(), self.hints.text(hint)));
        own.into_iter().flatten().chain(hints).collect::<Vec<_>>().join(", ")
    }
}
