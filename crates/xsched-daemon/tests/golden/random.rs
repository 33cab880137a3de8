//! Random worlds: steps drawn by a seeded generator, each of them one that a program or a user may take.

use xsched_proto::segment::state;

use crate::world::{Disturbed, Setting, World};

/// Kind of a random world.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) setting: Setting,
    pub(crate) seeds: [u64; 3],
    pub(crate) steps: usize,
    /// Platforms of the devices; `cuda` has time slices.
    pub(crate) platforms: &'static [&'static str],
    pub(crate) devices: &'static [&'static str],
    pub(crate) policies: &'static [&'static str],
    /// True if one group at a time wants a device: among several, policies with turns decide by time.
    pub(crate) wants_one: bool,
    /// True if programs have jobs on both devices.
    pub(crate) has_jobs: bool,
    /// True if programs are of foreign MPS servers.
    pub(crate) is_spatial: bool,
}

const SIM: &[&str] = &["sim:0", "sim:1"];
const RANKS: &[&str] = &["hpf", "hpf", "priority", "chpf", "hhpf", "awf", "observe"];
const NOTHING: Setting =
    Setting { config: 0, policy: None, yields: None, hides_exclusive: false, is_slow: false, has_log: false };
const PLAIN: Kind = Kind {
    name: "ranks",
    setting: NOTHING,
    seeds: [1, 2, 3],
    steps: 130,
    platforms: &["sim", "sim", "hip", "opencl"],
    devices: SIM,
    policies: RANKS,
    wants_one: false,
    has_jobs: false,
    is_spatial: false,
};

/// All kinds.
pub(crate) static KINDS: [Kind; 8] = [
    PLAIN,
    Kind { name: "rules", setting: Setting { config: 1, ..NOTHING }, seeds: [4, 5, 6], ..PLAIN },
    Kind { name: "hpf-only", policies: &["hpf"], devices: &["sim:0"], seeds: [7, 8, 9], ..PLAIN },
    Kind { name: "turns", policies: &["up", "pup", "fair", "hpf"], wants_one: true, seeds: [10, 11, 12], ..PLAIN },
    Kind {
        name: "jobs",
        setting: Setting { hides_exclusive: true, ..NOTHING },
        has_jobs: true,
        seeds: [13, 14, 15],
        ..PLAIN
    },
    Kind {
        name: "slices",
        setting: Setting { is_slow: true, ..NOTHING },
        platforms: &["cuda"],
        devices: &["pci:0000:01:00.0"],
        policies: &["hpf", "hpf", "observe"],
        seeds: [16, 17, 18],
        ..PLAIN
    },
    Kind {
        name: "beside-yields",
        setting: Setting { yields: Some("1"), is_slow: true, ..NOTHING },
        platforms: &["cuda"],
        devices: &["pci:0000:01:00.0"],
        policies: &["hpf"],
        is_spatial: true,
        seeds: [19, 20, 21],
        ..PLAIN
    },
    Kind {
        name: "beside-closed",
        setting: Setting { yields: Some("0"), is_slow: true, ..NOTHING },
        platforms: &["cuda"],
        devices: &["pci:0000:01:00.0", "pci:0000:02:00.0"],
        policies: &["hpf", "awf"],
        is_spatial: true,
        seeds: [22, 23, 24],
        steps: 60,
        ..PLAIN
    },
];

const NAMES: &str = "abcdefg";

/// Plays one random world.
///
/// # Errors
/// The world was disturbed by time.
pub(crate) fn play(kind: &Kind, seed: u64) -> Result<Vec<String>, Disturbed> {
    let mut world = World::new(NAMES, kind.setting);
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..kind.steps {
        let step = next(&world, kind, &mut dice);
        world.step(&step);
    }
    world.end()
}

/// Random numbers by xorshift.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }

    fn is_one_in(&mut self, n: usize) -> bool {
        self.draw(n) == 0
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.draw(all.len())]
    }

    fn number(&mut self, from: i32, to: i32) -> i32 {
        from + self.draw((to - from + 1) as usize) as i32
    }

    /// Draws values for some of the keys: for one in `chance`.
    fn some(&mut self, chance: usize, parts: &[(&str, i32, i32)]) -> String {
        let mut text = String::new();
        for (key, from, to) in parts {
            if self.is_one_in(chance) {
                text.push_str(&format!(" {key}={}", self.number(*from, *to)));
            }
        }
        text
    }
}

/// Draws steps until one makes sense.
fn next(world: &World, kind: &Kind, dice: &mut Dice) -> String {
    loop {
        if let Some(step) = draw(world, kind, dice) {
            return step;
        }
    }
}

fn draw(world: &World, kind: &Kind, dice: &mut Dice) -> Option<String> {
    let living: Vec<char> = world.programs.iter().filter(|(_, p)| p.is_alive).map(|(name, _)| *name).collect();
    let name = *dice.one_of(&living);
    let program = &world.programs[&name];
    let weight = dice.draw(100);
    if !program.is_attached() {
        return Some(attach(name, kind, dice));
    }
    let slots: Vec<u16> = program.groups.keys().copied().collect();
    let slot = (!slots.is_empty()).then(|| *dice.one_of(&slots));
    match weight {
        0..14 => add(world, name, kind, dice),
        14..18 => slot.map(|slot| format!("remove {name} {slot}")),
        18..52 => set_words(world, name, kind, dice),
        52..57 => {
            let queue = dice.draw(4) as u16;
            slot.map(|slot| format!("queue {name} {queue} {slot}"))
        }
        57..59 => program.queues.keys().next().map(|queue| format!("unqueue {name} {queue}")),
        59..65 => slot.map(|slot| {
            let levels = *dice.one_of(&["1", "12", "123", "13", "2"]);
            format!("levels {name} {slot} {levels}")
        }),
        65..70 => slot.map(|slot| {
            format!("ghint {name} {slot}{}", dice.some(2, &[("p", -200, 200), ("w", 1, 300), ("slice", 200, 5_000)]))
        }),
        70..73 => Some(format!("phint {name}{}", dice.some(2, &[("w", 1, 300), ("util", 1, 100), ("active", 0, 1)]))),
        73..82 => Some(hint(world, name, dice)),
        82..88 => {
            let verb = *dice.one_of(&["suspend", "resume", "resume"]);
            Some(format!("{verb} {}", targets(world, name, dice)))
        }
        88..92 => {
            let policy = *dice.one_of(kind.policies);
            let device = if dice.is_one_in(2) { format!(" dev={}", dice.one_of(kind.devices)) } else { String::new() };
            Some(format!("policy {policy}{device}"))
        }
        92..94 => Some(format!("window {}", if dice.is_one_in(4) { "-".into() } else { name.to_string() })),
        94..97 => Some(format!("leave {name}")),
        97 => (living.len() > 4).then(|| format!("kill {name}")),
        98 => {
            let kind = *dice.one_of(&["remove", "levels", "ghint", "phint", "queue", "unqueue", "hello", "add-slot"]);
            Some(format!("bad {name} {kind}"))
        }
        _ => Some(format!("reload {}", dice.draw(3))),
    }
}

fn attach(name: char, kind: &Kind, dice: &mut Dice) -> String {
    let priority = if dice.is_one_in(5) { String::new() } else { format!(" p={}", dice.one_of(PRIORITIES)) };
    let mut wishes = dice.some(6, &[("thr", 1, 9), ("batch", 1, 5), ("w", 1, 300), ("slice", 200, 5_000)]);
    wishes.push_str(&dice.some(12, &[("level", 1, 3)]));
    if kind.has_jobs && !dice.is_one_in(4) {
        wishes.push_str(&format!(" job={}", dice.one_of(&["x", "y", "z"])));
    }
    if dice.is_one_in(8) {
        wishes.push_str(" dom=exempt");
    }
    format!("attach {name}{priority}{wishes}")
}

const PRIORITIES: &[i32] = &[-255, -128, -128, -60, 0, 0, 0, 60, 128, 128, 191, 255];

fn add(world: &World, name: char, kind: &Kind, dice: &mut Dice) -> Option<String> {
    let groups = &world.programs[&name].groups;
    let slot = (0..4).find(|slot| !groups.contains_key(slot))?;
    let (device, platform) = (*dice.one_of(kind.devices), *dice.one_of(kind.platforms));
    let levels = *dice.one_of(&["1", "12", "123", "123"]);
    let mut more = dice.some(6, &[("steps", -2, 2), ("fixed", -200, 200)]);
    if dice.is_one_in(6) {
        more.push_str(" sys");
    }
    if kind.is_spatial && !dice.is_one_in(5) {
        more.push_str(&format!(" spatial={}", if dice.is_one_in(5) { 6 } else { 5 }));
    }
    Some(format!("add {name} {slot} {device} {platform} lv={levels}{more}"))
}

fn set_words(world: &World, name: char, kind: &Kind, dice: &mut Dice) -> Option<String> {
    let groups = &world.programs[&name].groups;
    let mut wants = world.programs.values().flat_map(|p| p.groups.values()).filter(|g| g.word != state::IDLE).count();
    let mut changes = Vec::new();
    for (slot, group) in groups {
        if !changes.is_empty() && !dice.is_one_in(3) {
            continue;
        }
        if dice.is_one_in(8) {
            let lent = dice.number(-100, 250);
            changes.push(if dice.is_one_in(3) { format!("{slot}<-") } else { format!("{slot}<{lent}") });
        }
        if kind.platforms == ["cuda"] && dice.is_one_in(5) {
            changes.push(format!("{slot}~{}", dice.one_of(&["S", "L"])));
        }
        if kind.is_spatial && dice.is_one_in(3) {
            changes.push(format!("{slot}^{}", usize::from(!dice.is_one_in(4))));
        }
        let is_wanting = group.word != state::IDLE;
        let to = match dice.draw(10) {
            0..5 => "R",
            5..7 => "D",
            _ => "I",
        };
        if kind.wants_one && to != "I" && wants > usize::from(is_wanting) {
            continue;
        }
        wants += usize::from(!is_wanting && to != "I");
        changes.push(format!("{slot}={to}"));
    }
    (!changes.is_empty()).then(|| format!("words {name} {}", changes.join(" ")))
}

fn targets(world: &World, name: char, dice: &mut Dice) -> String {
    let queues: usize = world.programs.values().map(|program| program.queues.len()).sum();
    match dice.draw(24) {
        0..17 => format!("pid:{name}"),
        17 => "all".into(),
        18 => "tree:test".into(),
        19 => format!("pid:{name},user:own"),
        _ if queues > 0 => format!("queue:{}", dice.draw(queues)),
        _ => "job:x".into(),
    }
}

fn hint(world: &World, name: char, dice: &mut Dice) -> String {
    let targets = targets(world, name, dice);
    let values =
        [("p", -200, 200), ("w", 1, 300), ("thr", 0, 9), ("batch", 0, 5), ("slice", 200, 5_000), ("util", 1, 100)];
    // Rare, since a requested level stays in force under policies with turns.
    format!("hint {targets}{}{}", dice.some(3, &values), dice.some(10, &[("level", 1, 3)]))
}
