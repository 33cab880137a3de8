//! Purpose of each policy, in a closed loop in virtual time.

#[path = "../world/mod.rs"]
mod world;

mod deadlines;
mod device;
mod fair;
mod guard;
mod levels;
mod pauses;
mod priorities;
mod random;
mod shares;
mod slo;
mod strict;
mod turns;

use world::spec;
use xsched_policy::{GroupSpec, ProgramId};
use xsched_proto::hint::Hints;

/// The only group of its program on `d0`.
fn group(id: u64, priority: i32) -> GroupSpec {
    GroupSpec { priority, ..spec(id, "d0") }
}

fn hinted(id: u64, hints: Hints) -> GroupSpec {
    GroupSpec { hints, ..spec(id, "d0") }
}

fn part(id: u64, percent: u32) -> GroupSpec {
    hinted(id, Hints { utilization: Some(percent), ..Hints::default() })
}

/// A group of a program with others.
fn of_program(program: u64, spec: GroupSpec) -> GroupSpec {
    GroupSpec { program: ProgramId(program), ..spec }
}
