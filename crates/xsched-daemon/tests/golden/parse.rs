//! Parsers of the words of a step that stand for values.

use xsched_proto::domains::DomainMode;
use xsched_proto::hint::{Hints, Laxity};
use xsched_proto::wire::{ClientMsg, Levels, Platform, Sharing};

/// Group to add.
pub(crate) struct NewGroup {
    pub(crate) slot: u16,
    pub(crate) device: String,
    pub(crate) platform: Platform,
    pub(crate) steps: i32,
    pub(crate) fixed: Option<i32>,
    pub(crate) system: bool,
    pub(crate) levels: Levels,
    pub(crate) sharing: Sharing,
}

impl NewGroup {
    pub(crate) fn plain(slot: u16, device: &str) -> NewGroup {
        let (levels, sharing) = (Levels::ONE, Sharing::Time);
        let device = device.to_owned();
        NewGroup { slot, device, platform: Platform::Sim, steps: 0, fixed: None, system: false, levels, sharing }
    }

    pub(crate) fn message(self) -> ClientMsg {
        let NewGroup { slot, device, platform, steps, fixed, system, levels, sharing } = self;
        let (priority_steps, priority_fixed) = (steps, fixed);
        ClientMsg::GroupAdd { slot, device, platform, priority_steps, priority_fixed, system, levels, sharing }
    }
}

/// Values of a program's options or of a hint.
#[derive(Default)]
pub(crate) struct Wish {
    pub(crate) priority: Option<i32>,
    pub(crate) hints: Hints,
    pub(crate) level: Option<u8>,
    pub(crate) threshold: Option<u32>,
    pub(crate) batch: Option<u32>,
    pub(crate) job: Option<String>,
    pub(crate) domains: Option<DomainMode>,
    pub(crate) nice: Option<i32>,
}

impl Wish {
    pub(crate) fn of(words: &[&str]) -> Wish {
        let mut wish = Wish::default();
        for word in words {
            let (key, value) = word.split_once('=').unwrap();
            match key {
                "p" => wish.priority = Some(number(value)),
                "level" => wish.level = Some(number(value)),
                "thr" => wish.threshold = Some(number(value)),
                "batch" => wish.batch = Some(number(value)),
                "job" => wish.job = Some(value.into()),
                "nice" => wish.nice = Some(number(value)),
                "w" => wish.hints.weight = Some(number(value)),
                "util" => wish.hints.utilization = Some(number(value)),
                "slice" => wish.hints.timeslice_us = Some(number(value)),
                "deadline" => wish.hints.deadline_us = Some(number(value)),
                "active" => wish.hints.active = Some(value == "1"),
                "lax" => {
                    let mut parts = value.split('/').map(|part| part.parse::<i32>().ok());
                    let us = parts.next().flatten().unwrap_or(0) as u64;
                    wish.hints.laxity =
                        Some(Laxity { us, lax: parts.next().flatten(), critical: parts.next().flatten() });
                }
                "dom" => {
                    let all = [DomainMode::Off, DomainMode::Report, DomainMode::Ahead, DomainMode::Exempt];
                    wish.domains = all.into_iter().find(|mode| mode.name() == value);
                }
                _ => panic!("{word}"),
            }
        }
        wish
    }
}

pub(crate) fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().ok().unwrap_or_else(|| panic!("no number: {word}"))
}

pub(crate) fn levels_of(digits: &str) -> Levels {
    let of = |levels: Levels, digit: char| {
        levels.with(match digit {
            '1' => Levels::ONE,
            '2' => Levels::TWO,
            _ => Levels::THREE,
        })
    };
    digits.chars().fold(Levels::NONE, of)
}
