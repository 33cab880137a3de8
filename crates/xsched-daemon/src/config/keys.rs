//! Values of keys, each with what it accepts.

use serde::Deserialize;
use serde::de::Deserializer;
use xsched_engine::Urgent;
use xsched_policy::Choice;
use xsched_proto::account::{Amount, IDLE_S};
use xsched_proto::class::{self, Class};
use xsched_proto::domains::DomainMode;
use xsched_proto::hint::{Hint, Hints};
use xsched_proto::wire::COMMANDS_MAX;

use super::values::{number, scalar};
use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Priority(pub(super) i32);
/// Number, or a class: then its highest priority.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ceiling(pub(super) i32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight(pub(super) u32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget(pub(super) u32);
pub(super) struct Starvation(pub(super) u32);
pub(super) struct IdleExit(pub(super) u32);
/// Value of a parameter, a number or a word, as text.
pub(super) struct Value(pub(super) String);
/// Hint at the place `AT` of [`Hint::ALL`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HintValue<const AT: usize>(pub(super) Hints);

const CLASSES: &str = "low, normal, high, realtime or system";
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantum(pub(super) u64);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Count(pub(super) u32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Memory(pub(super) Amount);
/// Time without launches after which memory leaves by itself, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IdleMemory(pub(super) u32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percent(pub(super) u32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evenness(pub(super) u32);
/// Choice of a place for urgent programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Inside(pub(super) Urgent);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Minutes(pub(super) u32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level(pub(super) u8);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Commands(pub(super) u32);
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Domains(pub(super) DomainMode);
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassName(pub(super) Class);
pub(super) struct PolicyName(pub(super) String);
/// User, by id or by the name of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum User {
    Id(u32),
    Name(String),
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, class::PRIORITY_HELP, |text| class::parse_priority(text).map(Priority))
    }
}

impl<'de> Deserialize<'de> for Ceiling {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, class::PRIORITY_HELP, |text| {
            let priority = class::parse_priority(text)?;
            let is_number = text.parse::<i32>().is_ok();
            Ok(Ceiling(if is_number { priority } else { Class::of(priority).range().1 }))
        })
    }
}

impl<'de> Deserialize<'de> for ClassName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, CLASSES, |text| match text.parse::<i32>() {
            Ok(_) => Err(Error::value(text, "class", CLASSES)),
            Err(_) => class::parse_priority(text)
                .map(|p| ClassName(Class::of(p)))
                .map_err(|_| Error::word(text, "class", CLASSES, Class::ALL.map(Class::name))),
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 1_000_000).map(Count)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, class::WEIGHT_MIN, class::WEIGHT_MAX).map(Weight)
    }
}

impl<'de, const AT: usize> Deserialize<'de> for HintValue<AT> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let hint = Hint::ALL[AT];
        scalar(d, hint.accepted(), |text| {
            let mut hints = Hints::default();
            hints.set(hint, text).map(|()| HintValue(hints))
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, "a number or a word", |text| Ok(Value(text.to_owned())))
    }
}

impl<'de> Deserialize<'de> for Starvation {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 3_600).map(Starvation)
    }
}

impl<'de> Deserialize<'de> for IdleExit {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 31_536_000).map(IdleExit)
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 1_000_000).map(Budget)
    }
}

impl<'de> Deserialize<'de> for Quantum {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, class::TIMESLICE_MIN_US as u32, class::TIMESLICE_MAX_US as u32).map(|us| Quantum(us.into()))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 90).map(Percent)
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, "a policy's name", |text| Choice::named(text).map(|choice| PolicyName(choice.entry.name.to_owned())))
    }
}

impl<'de> Deserialize<'de> for Evenness {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 100).map(Evenness)
    }
}

impl<'de> Deserialize<'de> for Inside {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        const PLACES: &str = "outside, inside or auto";
        scalar(d, PLACES, |text| {
            Urgent::named(text).map(Inside).ok_or_else(|| Error::value(text, "place of urgent programs", PLACES))
        })
    }
}

impl<'de> Deserialize<'de> for Minutes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 100_000).map(Minutes)
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, Amount::ACCEPTED, |text| {
            Amount::parse(text).map(Memory).ok_or_else(|| Error::value(text, "amount of memory", Amount::ACCEPTED))
        })
    }
}

impl<'de> Deserialize<'de> for IdleMemory {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, *IDLE_S.end()).map(IdleMemory)
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 3).map(|level| Level(level as u8))
    }
}

impl<'de> Deserialize<'de> for Commands {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, COMMANDS_MAX).map(Commands)
    }
}

impl<'de> Deserialize<'de> for Domains {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, DomainMode::HELP, |text| {
            let mode = DomainMode::named(text).map(Domains);
            mode.ok_or_else(|| Error::value(text, "mode of domains", DomainMode::HELP))
        })
    }
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, "a user's name or id", |text| match text.parse() {
            Ok(id) => Ok(User::Id(id)),
            // No account has such a name: it would end a line of the name service's files.
            Err(_) if text.is_empty() || text.contains([':', '\n', '\0']) => {
                Err(Error::value(text, "user", "a user's name or id"))
            }
            Err(_) => Ok(User::Name(text.to_owned())),
        })
    }
}
