//! Outcomes of services that are lost, or that come late, twice or in another order.

use xsched_proto::usage::UsageBy;
use xsched_testkit::until;

use super::*;
use crate::commands::Answer;
use crate::services::{snapshot, usage};

impl World {
    /// Takes turns until a condition holds, while the services work.
    fn turn_until(&mut self, what: &str, mut is_so: impl FnMut(&mut World) -> bool) {
        let mut turns = 0;
        while !is_so(self) {
            self.turn();
            turns += 1;
            assert!(turns < 10_000, "{what}");
        }
    }

    /// Sends commands of some users, and waits until all users are identified. The loop has not taken these outcomes yet.
    fn identified(&mut self, uids: &[u32]) -> Vec<(OwnedFd, u64)> {
        let conns: Vec<_> = uids.iter().map(|uid| self.connect(*uid)).collect();
        self.server.services.identify.worker.hold();
        for (socket, id) in &conns {
            assert!(ask(socket, Request::PolicyList));
            self.turn_until("it is read", |world| world.server.net.conns[id].stage == Stage::Opening);
        }
        until("they are identified", || self.server.services.identify.worker.held() == uids.len());
        conns
    }
}

fn is_answered(socket: &OwnedFd) -> bool {
    received(socket).contains(&DaemonMsg::End)
}

#[test]
fn an_identification_that_comes_twice_late_or_in_another_order_counts_once() {
    let mut world = World::new();
    let conns = world.identified(&[ONE, OTHER]);
    let mut late = Vec::new();
    world.server.services.identify.worker.release(|outcomes| {
        late.extend(outcomes.iter().map(|outcome| outcome.again()));
        let twice: Vec<_> = outcomes.iter().map(|outcome| outcome.again()).collect();
        outcomes.make_contiguous().reverse();
        outcomes.extend(twice);
    });
    for (socket, _) in &conns {
        world.turn_until("it is answered", |_| is_answered(socket));
    }
    world.server.services.identify.worker.release(|outcomes| outcomes.extend(late));
    world.turn();
    world.settle();
    for ((socket, id), uid) in conns.iter().zip([ONE, OTHER]) {
        let conn = &world.server.net.conns[id];
        assert!(conn.stage == Stage::Command(Answering::Nothing), "still the command that it was");
        assert_eq!((conn.user.uid, world.server.commands.who[id].user.uid), (uid, uid));
        assert!(ask(socket, Request::PolicyList));
        world.turn_until("it is answered again", |_| is_answered(socket));
    }
    assert!(world.server.programs.found.is_empty());
}

#[test]
fn a_connection_whose_identification_is_lost_ends_in_time_and_others_are_served() {
    let mut world = World::new();
    let conns = world.identified(&[ONE, OTHER]);
    let [(silent, lost), (socket, _)] = &conns[..] else { panic!("two") };
    let mut late = None;
    world.server.services.identify.worker.release(|outcomes| late = outcomes.pop_front());
    world.turn_until("the other is answered", |_| is_answered(socket));
    assert_eq!(world.server.net.conns[lost].stage, Stage::Opening);
    let server = &mut world.server;
    let overdue_ns = server.now_ns - SILENT_NS;
    server.net.conns.get_mut(lost).expect("it waits").since_ns = overdue_ns;
    server.net.silent_at = Some(server.now_ns);
    world.turn_until("it is ended", |world| !world.server.net.conns.contains_key(lost));
    assert!(matches!(&received(silent)[..], [DaemonMsg::Refused(_)]));
    // The late outcomes come after the end of their connection.
    world.server.services.identify.worker.release(|outcomes| outcomes.extend(late));
    world.turn();
    assert!(world.server.programs.found.is_empty());
    assert_eq!(world.server.services.identify.waiting(), 0);
}

fn is_told_of(world: &World, id: u64) -> bool {
    matches!(world.server.commands.answers.get(&id), Some(Answer::OfTeller))
}

#[test]
fn the_end_of_an_answer_to_ps_counts_once_and_for_that_answer_only() {
    let mut world = World::new();
    let conns = [ONE, OTHER].map(|uid| world.connect(uid));
    world.server.services.snapshots.worker.hold();
    for (socket, _) in &conns {
        assert!(ask(socket, Request::Ps));
        world.turn_until("it is told", |_| is_answered(socket));
    }
    until("the answers have ended", || world.server.services.snapshots.worker.held() == 4);
    assert!(conns.iter().all(|(_, id)| is_told_of(&world, *id)), "not heard of yet");
    // The outcomes about messages are lost. The others come twice, in reverse order.
    let mut late = Vec::new();
    world.server.services.snapshots.worker.release(|outcomes| {
        outcomes.retain(|outcome| matches!(outcome, snapshot::Outcome::Told(_)));
        late.extend(outcomes.iter().map(snapshot::Outcome::again));
        let twice: Vec<_> = outcomes.iter().map(snapshot::Outcome::again).collect();
        outcomes.make_contiguous().reverse();
        outcomes.extend(twice);
    });
    world.turn_until("they have ended", |world| conns.iter().all(|(_, id)| !is_told_of(world, *id)));
    // Late outcomes come while the next answer is under way.
    world.server.services.snapshots.worker.hold();
    for (socket, _) in &conns {
        assert!(ask(socket, Request::Ps));
        world.turn_until("it is told again", |_| is_answered(socket));
    }
    until("the answers have ended again", || world.server.services.snapshots.worker.held() == 4);
    let mut own = Vec::new();
    world.server.services.snapshots.worker.release(|outcomes| {
        own.extend(outcomes.drain(..));
        outcomes.extend(late);
    });
    world.turn();
    assert!(conns.iter().all(|(_, id)| is_told_of(&world, *id)), "ended by the outcome of another request");
    world.server.services.snapshots.worker.release(|outcomes| outcomes.extend(own));
    for (socket, id) in &conns {
        world.turn_until("it has ended", |world| !is_told_of(world, *id));
        assert!(ask(socket, Request::PolicyList));
        world.turn_until("the next question is answered", |_| is_answered(socket));
    }
    assert!(world.server.net.doomed.is_empty() && world.server.services.snapshots.open() == 0);
}

#[test]
fn an_answer_to_ps_whose_end_is_lost_leaves_others_alone_and_goes_with_its_connection() {
    let mut world = World::new();
    let [(silent, lost), (socket, _)] = [ONE, OTHER].map(|uid| world.connect(uid));
    world.server.services.snapshots.worker.hold();
    assert!(ask(&silent, Request::Ps));
    until("its answer has ended", || {
        world.turn();
        world.server.services.snapshots.worker.held() == 2
    });
    let mut late = Vec::new();
    world.server.services.snapshots.worker.release(|outcomes| late.extend(outcomes.drain(..)));
    for _ in 0..3 {
        assert!(ask(&socket, Request::Ps));
        world.turn_until("another is told", |_| is_answered(&socket));
    }
    assert!(is_told_of(&world, lost));
    drop(silent);
    world.turn_until("it has gone", |world| !world.server.net.conns.contains_key(&lost));
    assert!(world.server.services.snapshots.open() <= 1);
    world.server.services.snapshots.worker.release(|outcomes| outcomes.extend(late));
    world.turn();
    world.turn_until("all have ended", |world| world.server.services.snapshots.open() == 0);
}

/// Starts a daemon that keeps records in a folder.
fn with_records() -> (World, TempDir) {
    let state = tempfile::tempdir().expect("a folder");
    let world = World::with(|options| options.state = Some(state.path().to_owned()));
    (world, state)
}

fn ask_usage(socket: &OwnedFd) {
    assert!(ask(socket, Request::Usage { since_ms: 0, by: UsageBy::User }));
}

fn waits_for_usage(world: &World, id: u64) -> bool {
    matches!(world.server.commands.answers.get(&id), Some(Answer::OfUsage))
}

#[test]
fn a_sum_of_usage_that_comes_twice_late_or_in_another_order_is_told_once() {
    let (mut world, _state) = with_records();
    let conns = [ONE, OTHER].map(|uid| world.connect(uid));
    world.server.services.usage.worker.hold();
    conns.iter().for_each(|(socket, _)| ask_usage(socket));
    until("both are summed up", || {
        world.turn();
        world.server.services.usage.worker.held() == 2
    });
    let mut late = Vec::new();
    world.server.services.usage.worker.release(|outcomes| {
        late.extend(outcomes.iter().map(usage::Outcome::again));
        let twice: Vec<_> = outcomes.iter().map(usage::Outcome::again).collect();
        outcomes.make_contiguous().reverse();
        outcomes.extend(twice);
    });
    for (socket, _) in &conns {
        world.turn_until("it is answered", |_| is_answered(socket));
    }
    // Late outcomes come while the next question is under way.
    world.server.services.usage.worker.hold();
    for (socket, id) in &conns {
        ask_usage(socket);
        world.turn_until("it is asked", |world| waits_for_usage(world, *id));
    }
    until("both are summed up again", || {
        world.turn();
        world.server.services.usage.worker.held() == 2
    });
    let mut own = Vec::new();
    world.server.services.usage.worker.release(|outcomes| {
        own.extend(outcomes.drain(..));
        outcomes.extend(late);
    });
    world.turn();
    world.settle();
    assert!(conns.iter().all(|(socket, id)| waits_for_usage(&world, *id) && received(socket).is_empty()));
    world.server.services.usage.worker.release(|outcomes| outcomes.extend(own));
    for (socket, _) in &conns {
        world.turn_until("it is answered", |_| is_answered(socket));
    }
    assert_eq!(world.server.services.usage.open(), 0);
}

#[test]
fn a_sum_of_usage_that_is_lost_leaves_others_alone_and_goes_with_its_connection() {
    let (mut world, _state) = with_records();
    let [(silent, lost), (socket, _)] = [ONE, OTHER].map(|uid| world.connect(uid));
    world.server.services.usage.worker.hold();
    ask_usage(&silent);
    until("it is summed up", || {
        world.turn();
        world.server.services.usage.worker.held() == 1
    });
    let mut late = None;
    world.server.services.usage.worker.release(|outcomes| late = outcomes.pop_front());
    ask_usage(&socket);
    world.turn_until("the other is answered", |_| is_answered(&socket));
    assert!(waits_for_usage(&world, lost) && world.server.services.usage.open() == 1);
    drop(silent);
    world.turn_until("it has gone", |world| !world.server.net.conns.contains_key(&lost));
    assert_eq!(world.server.services.usage.open(), 0);
    world.server.services.usage.worker.release(|outcomes| outcomes.extend(late));
    world.turn();
}
