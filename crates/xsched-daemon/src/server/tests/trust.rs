//! Trust in programs: answers that are lost, and minutes of work in virtual time.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use xsched_engine::Side;
use xsched_proto::segment::state;
use xsched_proto::wire::{Levels, Platform, Sharing};
use xsched_testkit::until;

use super::*;
use crate::Input;
use crate::commands::Answer;
use crate::pool::Pool;
use crate::pool::keeper::Owner;
use crate::pool::trusted::Joining;
use crate::programs::client::Expected;
use crate::services::identify::Who;
use crate::tuning::{POOL_MEMBERS_MAX, TRUST_LOOK_NS, TRUST_WAIT_NS};

impl World {
    /// Announces this process as a program, under its own path.
    fn announced(&mut self) -> u64 {
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        let exe = std::env::current_exe().expect("its own");
        let user = crate::identity::pretended(uid);
        self.server.expect(pid, user, None, exe.to_str()).expect("a place")
    }
}

/// A process that would join a pool gets one answer, in time, even if the outcome is missing, late or doubled.
#[test]
fn a_process_whose_standing_is_lost_has_its_place_in_time_and_only_once() {
    let mut world = World::new();
    let member = world.announced();
    let (socket, conn) = world.connect(ONE);
    world.server.net.set_stage(conn, Stage::Command(Answering::Waits));
    world.server.commands.who.insert(conn, Rc::new(Who::pretended(ONE)));
    let owner = Owner::of(std::process::id(), rustix::process::geteuid().as_raw()).expect("its own");
    let joining = || Joining { job: None, priority: None, insists: false, obstacle: None };
    let by_time = |messages: &[DaemonMsg]| matches!(messages, [DaemonMsg::ByTime { why: Some(_) }, DaemonMsg::End]);
    world.server.services.trust.worker.hold();
    world.server.ask_for_trust(conn, member, owner.clone(), joining());
    world.server.set_answer(conn, Some(Answer::OfPool));
    until("it is known", || world.server.services.trust.worker.held() == 1);
    let begun_ns = world.server.now_ns;
    world.at(begun_ns + TRUST_WAIT_NS - 1);
    assert!(received(&socket).is_empty(), "it waits");
    world.at(begun_ns + TRUST_WAIT_NS);
    let messages = received(&socket);
    assert!(by_time(&messages), "{messages:?}");
    let mut late = Vec::new();
    world.server.services.trust.worker.release(|outcomes| late.extend(outcomes.iter().map(|outcome| outcome.again())));
    world.turn();
    assert!(received(&socket).is_empty(), "it has its answer");
    // The next request waits for an outcome of its own.
    world.server.places.pools.told.clear();
    world.server.services.trust.worker.hold();
    world.server.ask_for_trust(conn, member, owner, joining());
    world.server.set_answer(conn, Some(Answer::OfPool));
    until("it is known again", || world.server.services.trust.worker.held() == 1);
    let mut own = Vec::new();
    world.server.services.trust.worker.release(|outcomes| {
        own.extend(outcomes.drain(..));
        outcomes.extend(late);
    });
    world.turn();
    assert!(received(&socket).is_empty(), "answered by the outcome of another request");
    world.server.services.trust.worker.release(|outcomes| {
        outcomes.extend(own.iter().map(|outcome| outcome.again()));
        outcomes.extend(own);
    });
    world.turn();
    let messages = received(&socket);
    assert!(by_time(&messages), "{messages:?}");
}

#[test]
fn a_minute_counts_if_the_device_worked_in_it() {
    let state = tempfile::tempdir().expect("a folder");
    let mut world = World::with(|options| options.state = Some(state.path().to_owned()));
    world.announced();
    let (_socket, id, _segment, _eventfd) = world.attach(ONE);
    let group = ClientMsg::GroupAdd {
        slot: 0,
        device: "pci:0000:41:00.0".into(),
        platform: Platform::Cuda,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ONE,
        sharing: Sharing::Pool,
    };
    world.server.program_message(id, group).expect("a group");
    let begun_ns = world.server.now_ns;
    let mut minutes = 0;
    for works in [true, true, false, true, false] {
        let words = world.server.engine.groups().values().next().expect("it is there").words.clone();
        words.state.store(if works { state::READY } else { state::IDLE }, SeqCst);
        words.longest_us.store(1_234, SeqCst);
        world.server.input(Input::Words(id));
        world.server.input(Input::Decide);
        minutes += 1;
        world.at(begun_ns + minutes * TRUST_LOOK_NS);
        until("it is compared", || !world.server.services.trust.worker.is_busy());
    }
    // Bursts of 10 ms, in each of which the device works for 1.2 ms.
    let words = world.server.engine.groups().values().next().expect("it is there").words.clone();
    for _ in 0..60 {
        words.state.store(state::READY, SeqCst);
        world.server.input(Input::Words(id));
        words.burst_us.store(10_000, SeqCst);
        words.burst_device_us.store(1_200, SeqCst);
        words.bursts.fetch_add(1, SeqCst);
        words.state.store(state::IDLE, SeqCst);
        world.server.input(Input::Words(id));
    }
    world.at(begun_ns + (minutes + 1) * TRUST_LOOK_NS);
    until("it is compared", || !world.server.services.trust.worker.is_busy());
    drop(world);
    let text = std::fs::read_to_string(state.path().join("proven.toml")).expect("it is kept");
    assert!(text.contains("\nseconds = 180\nlongest_us = 1234\nbursts = 60\npercent = 12\n"), "{text}");
}

#[test]
fn each_pool_of_a_user_has_room_and_is_refused_by_itself() {
    let mut world = World::new();
    let uid = rustix::process::geteuid().as_raw();
    let pools = [(1, uid, Side::Inner), (2, uid, Side::Outer)].map(Pool::pretended);
    world.server.places.pools.list.extend(pools);
    let member = world.announced();
    let places = |world: &World| Side::ALL.map(|side| world.server.why_refused(uid, side));
    for n in 0..POOL_MEMBERS_MAX as u64 {
        assert_eq!(places(&world), [None, None], "{n} are inside");
        let expected = &world.server.places.expected[&member];
        let pidfd = expected.pidfd.try_clone().expect("a descriptor");
        let (pid, user) = (expected.pid, expected.user);
        let (job, program, name, why) = (None, None, None, None);
        let one = Expected { pid, user, job, pidfd, ended: false, program, name, pool: Some(1), why, is_urgent: false };
        world.server.places.expected.insert(1_000_000 + n, one);
    }
    let full = "48 programs are in the pool, which has room for no more".to_owned();
    assert_eq!(places(&world), [Some(full), None]);
    let until_ns = world.server.now_ns + 10;
    world.server.places.pools.refused.insert((uid, Side::Outer), ("broken".to_owned(), until_ns));
    assert_eq!(places(&world)[1].as_deref(), Some("broken"));
    world.server.now_ns = until_ns;
    assert_eq!(places(&world)[1], None);
}
