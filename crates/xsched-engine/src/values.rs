//! Values of programs before and after a change, as commands are told them.

use std::collections::BTreeSet;

use xsched_proto::class::{self, Class};
use xsched_proto::hint::Hint;
use xsched_proto::units::exact_us;
use xsched_proto::wire::ChangedValue;

use crate::changes::Changes;
use crate::memory::Memory;
use crate::state::Engine;

impl<M: Memory> Engine<M> {
    /// The values of a program that a hint speaks of, by name.
    pub(crate) fn values_of(&self, id: u64, changes: &Changes) -> Vec<(&'static str, String)> {
        let Some(program) = self.programs.get(&id) else { return Vec::new() };
        let or_auto = |n: u32| if n == 0 { "automatic".to_owned() } else { n.to_string() };
        let levels: BTreeSet<u8> = self.groups_of(program).map(|(_, group)| group.level).collect();
        let levels = if levels.is_empty() { program.level.into_iter().collect() } else { levels };
        let levels: Vec<String> = levels.iter().map(u8::to_string).collect();
        let level = if levels.is_empty() { "automatic".into() } else { levels.join(" or ") };
        let own = [
            changes.priority.map(|_| ("priority", priority_text(program.priority()))),
            changes.level.map(|_| ("level", level)),
            changes.threshold.map(|_| ("threshold", or_auto(program.threshold))),
            changes.batch.map(|_| ("batch", or_auto(program.batch))),
        ];
        let hints = changes.hints.given().map(|hint| {
            let text = program.hints.shown(hint);
            let usual = || match hint {
                Hint::Weight => program.hints.weight().to_string(),
                Hint::Timeslice => exact_us(program.hints.turn_us()),
                _ => "none".to_owned(),
            };
            (hint.name(), text.unwrap_or_else(usual))
        });
        own.into_iter().flatten().chain(hints).collect()
    }
}

/// Values before and after, side by side.
pub(crate) fn side_by_side(
    before: Vec<(&'static str, String)>,
    after: Vec<(&'static str, String)>,
) -> Vec<ChangedValue> {
    let pair = |((what, was), (_, now)): ((&str, String), (_, String))| ChangedValue { what: what.into(), was, now };
    before.into_iter().zip(after).map(pair).collect()
}

/// A priority as it is told: by its class where it is the one that the class's name stands for.
fn priority_text(priority: i32) -> String {
    let class = Class::of(priority);
    match priority {
        class::PRIORITY_NEVER => "never".into(),
        p if p == class.nominal() => class.name().into(),
        p => format!("{p} ({class})"),
    }
}
