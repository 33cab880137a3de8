//! `fair`: users or cgroups share by weight, and what each has is shared by its programs.

use std::sync::Arc;

use xsched_policy::{GroupSpec, Level, Lineage};

use crate::world::{World, spec};
use crate::{group, part};

fn level(id: u64, weight: u32) -> Level {
    Level { id, weight }
}

fn of(id: u64, user: Level, cgroup: &[Level]) -> GroupSpec {
    GroupSpec { lineage: Some(Arc::new(Lineage { user, cgroup: cgroup.to_vec(), namespace: None })), ..group(id, 0) }
}

/// The parts of the device that groups have over two seconds, in percent.
fn shares(w: &mut World) -> Vec<f64> {
    let before: Vec<f64> = w.sims.values().map(|s| s.used_us).collect();
    w.run(w.now + 4_000_000);
    w.sims.values().zip(before).map(|(s, before)| (s.used_us - before) / 40_000.0).collect()
}

fn assert_shares(w: &mut World, aims: &[f64], what: &str) {
    let shares = shares(w);
    println!("fair, {what}: {shares:.2?}");
    assert_eq!(shares.len(), aims.len());
    let close = shares.iter().zip(aims).all(|(share, aim)| (share - aim).abs() <= 1.0);
    assert!(close, "{what}: {shares:.2?} instead of {aims:?}");
}

#[test]
fn fair_ten_programs_of_one_user_have_no_more_than_the_one_of_another() {
    let mut w = World::new("fair");
    (1..=10).for_each(|id| w.add_ready(of(id, level(1_000, 100), &[]), 200));
    w.add_ready(of(11, level(1_001, 100), &[]), 200);
    assert_shares(&mut w, &[[5.0; 10].as_slice(), &[50.0]].concat(), "ten programs against one");
}

#[test]
fn fair_users_have_their_weights() {
    let mut w = World::with("fair by=user");
    w.add_ready(of(1, level(1_000, 300), &[]), 200);
    w.add_ready(of(2, level(1_000, 300), &[]), 200);
    w.add_ready(of(3, level(1_001, 100), &[]), 200);
    assert_shares(&mut w, &[37.5, 37.5, 25.0], "users of weights 300 and 100");
    w.idle(1);
    assert_shares(&mut w, &[0.0, 75.0, 25.0], "what one program leaves goes to its user's other one");
    w.idle(3);
    assert_shares(&mut w, &[0.0, 100.0, 0.0], "what a user leaves goes to the other one");
}

#[test]
fn fair_cgroups_share_at_each_of_three_levels() {
    let mut w = World::with("fair by=cgroup");
    let user = level(0, 100);
    let (a, b) = (level(1, 200), level(2, 100));
    // a has two children of weights 300 and 100, the first of which has two again.
    let (a1, a2) = (level(11, 300), level(12, 100));
    let (x, y) = (level(111, 100), level(112, 100));
    w.add_ready(of(1, user, &[a, a1, x]), 150);
    w.add_ready(of(2, user, &[a, a1, y]), 150);
    w.add_ready(of(3, user, &[a, a2]), 150);
    w.add_ready(of(4, user, &[b]), 150);
    w.add_ready(of(5, user, &[b]), 150);
    assert_shares(&mut w, &[25.0, 25.0, 16.7, 16.7, 16.7], "three levels");
    w.idle(1);
    assert_shares(&mut w, &[0.0, 50.0, 16.7, 16.7, 16.7], "unused, it goes to the sibling");
    w.idle(2);
    assert_shares(&mut w, &[0.0, 0.0, 66.7, 16.7, 16.7], "and from there to the sibling of the parent");
    w.idle(3);
    assert_shares(&mut w, &[0.0, 0.0, 0.0, 50.0, 50.0], "and to the rest");
}

#[test]
fn fair_the_programs_of_a_user_have_their_parts_of_what_it_has() {
    let mut w = World::new("fair");
    let user = |id, weight| Some(Arc::new(Lineage { user: level(id, weight), cgroup: Vec::new(), namespace: None }));
    w.add_ready(GroupSpec { lineage: user(1, 100), ..part(1, 75) }, 100);
    w.add_ready(GroupSpec { lineage: user(1, 100), ..part(2, 25) }, 100);
    w.add_ready(GroupSpec { lineage: user(2, 100), ..part(3, 10) }, 100);
    assert_shares(&mut w, &[37.5, 12.5, 50.0], "parts within a user");
}

#[test]
fn fair_a_program_whose_number_is_that_of_a_user_is_another_party() {
    for by in ["user", "cgroup"] {
        let mut w = World::with(&format!("fair by={by}"));
        // Programs 1 and 2 stand beside user and cgroup 1, alone at the top.
        w.add_ready(spec(1, "d0"), 100);
        w.add_ready(spec(2, "d0"), 100);
        w.add_ready(of(3, level(1, 100), &[level(1, 100)]), 100);
        assert_shares(&mut w, &[33.3; 3], by);
    }
}

#[test]
fn fair_namespaces_share_and_what_is_in_none_is_its_users() {
    let mut w = World::with("fair by=namespace");
    let of = |id, user, namespace| {
        let lineage = Lineage { user: level(user, 100), cgroup: Vec::new(), namespace };
        GroupSpec { lineage: Some(Arc::new(lineage)), ..group(id, 0) }
    };
    // Pods of two namespaces run as the same user; two programs of the host are of one user.
    let (a, b) = (Some(level(10_000, 200)), Some(level(10_001, 100)));
    for (id, user, namespace) in [(1, 0, a), (2, 0, a), (3, 0, b), (4, 1_000, None), (5, 1_000, None)] {
        w.add_ready(of(id, user, namespace), 150);
    }
    assert_shares(&mut w, &[25.0, 25.0, 25.0, 12.5, 12.5], "two namespaces and a user");
    w.idle(3);
    assert_shares(&mut w, &[33.3, 33.3, 0.0, 16.7, 16.7], "what a namespace leaves goes to the others");
}
