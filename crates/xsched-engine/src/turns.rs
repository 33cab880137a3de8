//! Lengths of the turns of best-effort programs that do not fit together.
//!
//! Turns are so long that moving memory takes a tenth of the time at most. Together they are as long as among equals, and each program has
//! its part of that by the policy in force: equal parts under a policy without weights. A turn that was too long, since nobody looked in
//! time, shortens the next one of the program, so that the parts are kept over the turns.

use std::collections::BTreeMap;

use xsched_policy::share::{self, Node};
use xsched_proto::class::Class;
use xsched_proto::hint::Hint;

use crate::ledger::HolderId;
use crate::memory::Memory;
use crate::parts::wants::Want;
use crate::program::Program;
use crate::state::Engine;
use crate::tuning::{MOVE_BYTES_PER_S, TURN_LEAST_MOVES, TURN_LONGEST_NS, TURN_MIN_NS, TURN_MOVES};

/// Turn of a program, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Length by its part of the device.
    full_ns: u64,
    /// Length of this one.
    pub(crate) length_ns: u64,
}

/// Parts of a device that programs of a class have in turns.
#[derive(Debug, Default)]
pub(crate) struct TurnParts {
    /// Part of each program, by connection, in their order.
    parts: Vec<(u64, f64)>,
    /// Smallest part.
    least: f64,
}

impl TurnParts {
    /// Turn of a program, which has had so much memory on the device, before it leaves for another one of its class that wants so much.
    /// `over_ns`: time by which its turns so far were too long.
    pub(crate) fn turn(&self, giver: HolderId, held: u64, over_ns: u64, wanted: u64) -> Turn {
        let at = self.parts.binary_search_by_key(&giver.0, |(id, _)| *id);
        let full_ns = at.ok().and_then(|at| self.parts.get(at)).map_or_else(
            || turn_ns(held, wanted),
            |(_, part)| weighted_ns(held, wanted, *part, self.least, self.parts.len()),
        );
        Turn { full_ns, length_ns: full_ns - over_ns.min(full_ns / 2) }
    }
}

/// Time that so many moves of so much memory take, in ns.
fn moves_ns(bytes: u64, moves: u64) -> u64 {
    let once = u128::from(bytes) * 1_000_000_000 / u128::from(MOVE_BYTES_PER_S);
    u64::try_from(once * u128::from(moves)).unwrap_or(u64::MAX)
}

/// Length of the turn of a program with so much memory on the device, before it leaves for one that needs so much, in ns: among equals.
pub(crate) fn turn_ns(held: u64, wanted: u64) -> u64 {
    moves_ns(held.saturating_add(wanted), TURN_MOVES).max(TURN_MIN_NS)
}

/// Length of the turn of a program with a part of the device, likewise, among so many programs of which one has the least part.
fn weighted_ns(held: u64, wanted: u64, part: f64, least: f64, programs: usize) -> u64 {
    let equal = turn_ns(held, wanted);
    let shortest = moves_ns(held.saturating_add(wanted), TURN_LEAST_MOVES).max(TURN_MIN_NS);
    // Longer than among equals only where the shortest turn would not be worth its moves.
    let together = (equal as f64 * programs as f64).max(shortest as f64 / least);
    ((together * part) as u64).clamp(shortest, TURN_LONGEST_NS.max(equal))
}

/// Time without commands after which a turn ends, in ns: as long as the moves take.
pub(crate) fn idle_turn_ns(held: u64, wanted: u64) -> u64 {
    turn_ns(held, wanted) / TURN_MOVES
}

impl<M: Memory> Engine<M> {
    /// Notes that the turn of a program ends now for another one of its class, and by how much it was too long.
    pub(crate) fn note_turn(&mut self, giver: HolderId, class: Class, turn: Turn, want: &Want) {
        let now_ns = self.now_ns;
        let program = self.programs.get_mut(&giver.0).filter(|program| program.class() == class);
        let Some(program) = program else { return };
        // Without another one that waits, a turn goes on.
        let end_ns = program.in_since_ns.saturating_add(turn.length_ns).max(want.since_ns);
        let made_up_ns = turn.full_ns - turn.length_ns;
        let over_ns = program.turn_over_ns.saturating_sub(made_up_ns) + now_ns.saturating_sub(end_ns);
        program.turn_over_ns = over_ns.min(turn.full_ns);
    }

    /// Parts of a device that programs of a class have which take turns with each other there: those with memory that can leave, those that
    /// wait for room, and one that asks. All of them make up 1.
    pub(crate) fn turn_parts(&self, device: &str, class: Class, asker: u64) -> TurnParts {
        let mut ways: Vec<(u64, Vec<Node>)> = Vec::new();
        for (id, holder) in self.ledger.on(device) {
            let Some(program) = self.programs.get(&id.0).filter(|program| program.class() == class) else {
                continue;
            };
            let could_give = holder.movable_bytes() > 0 && program.swap;
            if id.0 == asker || (could_give || self.wants.count_of(id.0) > 0) && !program.frozen {
                ways.extend(self.ways_of(id.0, program, device));
            }
        }
        let asked = share::asked(ways.iter().map(|(_, way)| way.as_slice()));
        let mut parts: BTreeMap<(u64, usize), f64> = BTreeMap::new();
        for ((id, _), asked) in ways.iter().zip(asked) {
            parts.entry((*id, asked.party)).or_insert(asked.part);
        }
        let mut turns = TurnParts::default();
        for ((id, _), part) in parts {
            match turns.parts.last_mut() {
                Some((last, sum)) if *last == id => *sum += part,
                _ => turns.parts.push((id, part)),
            }
        }
        turns.least = turns.parts.iter().map(|(_, part)| *part).fold(1.0, f64::min);
        turns
    }

    /// Ways of a program's groups to their parties among the shares of a device: equal ones where the policy has no weights.
    fn ways_of(&self, id: u64, program: &Program<M>, device: &str) -> Vec<(u64, Vec<Node>)> {
        let alone = |weight| vec![(id, vec![Node { id, is_party: true, weight }])];
        if !self.arbiter().policy_of(device).entry.hints.contains(&Hint::Weight) {
            return alone(1.0);
        }
        let here = self.groups_of(program).filter(|(_, group)| *group.device == *device);
        let ways: Vec<(u64, Vec<Node>)> =
            here.filter_map(|(group, _)| Some((id, self.arbiter().way(group)?))).collect();
        // A program that has launched nothing so far has no group there.
        if ways.is_empty() { alone(program.hints.part()) } else { ways }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_turn_is_ten_times_as_long_as_its_moves() {
        assert_eq!(turn_ns(0, 0), TURN_MIN_NS);
        assert_eq!(turn_ns(60 * GIB, 60 * GIB), 60_000_000_000);
        assert!(turn_ns(u64::MAX, u64::MAX) > 1 << 60, "no overflow");
    }

    #[test]
    fn turns_by_weights_are_as_long_together_as_turns_of_equals() {
        let both = |held, part: f64| [part, 1.0 - part].map(|own| weighted_ns(held, held, own, part, 2) / 1_000_000);
        assert_eq!(both(16 * GIB, 0.5), [16_000, 16_000]);
        assert_eq!(both(16 * GIB, 0.25), [8_000, 24_000]);
        // Never shorter than twice the moves, nor than a second, and the other one's in proportion.
        assert_eq!(both(16 * GIB, 0.05), [3_200, 60_800]);
        assert_eq!(both(GIB / 4, 0.25), [1_000, 3_000]);
        assert_eq!(both(60 * GIB, 0.01), [12_000, 300_000]);
    }
}
