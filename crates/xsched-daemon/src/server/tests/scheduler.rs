//! Operator's schedulers, played by the test at the other end of their socket.

use std::sync::atomic::Ordering::SeqCst;

use xsched_policy::Choice;
use xsched_proto::host::{FromHost, Question};
use xsched_proto::segment::state;

use super::*;
use crate::Input;
use crate::net::Own;
use crate::scheduler::process::Host;
use crate::tuning::{DEADLINE_NS, HOST_POLICY};

impl World {
    /// Gives the daemon a scheduler. Returns the scheduler's end of the socket.
    pub(super) fn scheduler(&mut self, per_stream: bool) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (socket, other) = pair.expect("a pair of sockets");
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 8 << 10).expect("a small one");
        self.server.net.watch_own(&socket, Own::Scheduler).expect("watched");
        let mut host = Host::at(socket, per_stream);
        // A busy machine makes the test slow.
        host.patience_ns = 600_000_000_000;
        self.server.services.scheduler = Some(host);
        self.server.input(Input::Policy(None, Choice::named(HOST_POLICY).expect("a policy")));
        other
    }

    pub(super) fn add_group(&mut self, id: u64, device: &str) {
        let add = ClientMsg::GroupAdd {
            slot: 0,
            device: device.into(),
            platform: wire::Platform::Sim,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: wire::Levels::ONE,
            sharing: wire::Sharing::Time,
        };
        self.server.program_message(id, add).expect("a group");
    }

    /// Has the groups of a program want their devices, or want them no more.
    pub(super) fn want(&mut self, id: u64, wants: bool) {
        let groups = self.server.engine.groups().values().filter(|group| group.program.0 == id);
        let words: Vec<_> = groups.map(|group| group.words.clone()).collect();
        words.iter().for_each(|words| words.state.store(if wants { state::READY } else { state::IDLE }, SeqCst));
        self.server.input(Input::Words(id));
        self.server.input(Input::Decide);
        self.server.ask_scheduler();
    }
}

/// Questions that have arrived.
pub(super) fn questions(socket: &OwnedFd) -> Vec<Question> {
    let mut buffer = vec![0; MAX_PACKET];
    let mut all = Vec::new();
    while let Ok((len, _)) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())
        && len > 0
    {
        all.push(wire::decode(&buffer[..len]).expect("a question"));
    }
    all
}

fn answer(socket: &OwnedFd, question: &Question) {
    let (device, number, run) = (question.device.clone(), question.number, Vec::new());
    let packet = wire::encode(&FromHost::Answer { device, number, run, again_in_us: None }).expect("small");
    rustix::net::send(socket, &packet, SendFlags::NOSIGNAL).expect("the daemon reads");
}

#[test]
fn streams_beyond_those_that_a_program_reports_as_used_are_in_no_question() {
    for per_stream in [false, true] {
        let mut world = World::new();
        let scheduler = world.scheduler(per_stream);
        let (_socket, id, _segment, _eventfd) = world.attach(ONE);
        world.add_group(id, "sim:0");
        world.server.program_message(id, ClientMsg::QueueAdd { slot: 5, group: 0 }).expect("a queue");
        let segment = world.server.programs.clients[&id].segment.clone();
        let words = segment.words();
        let mut launches = |used: u32, wants: bool| {
            words.header.used[0].store(used, SeqCst);
            world.want(id, wants);
            let asked = questions(&scheduler).pop().expect("a question");
            assert_eq!(asked.groups.len(), 1);
            asked.groups[0].stream.map(|stream| stream.launches)
        };
        words.queues[5].group.store(1, SeqCst);
        words.queues[5].shared.launches.store(7, SeqCst);
        for used in [0, 5] {
            assert_eq!([true, false].map(|wants| launches(used, wants)), [None, None], "{used} are used");
        }
        let known = per_stream.then_some(7);
        assert_eq!([launches(6, true), launches(u32::MAX, false)], [known, known]);
        words.queues[5].group.store(0, SeqCst);
        assert_eq!(launches(6, true), None, "it is being destroyed");
        words.queues[5].group.store(u32::MAX, SeqCst);
        words.queues[5].shared.launches.store(u64::MAX, SeqCst);
        assert_eq!(launches(6, false), per_stream.then_some(u64::MAX));
    }
}

#[test]
fn a_full_socket_keeps_the_newest_question_of_each_device() {
    let mut world = World::new();
    let scheduler = world.scheduler(false);
    let [(_one, of_one, ..), (_other, of_other, ..)] = [world.attach(ONE), world.attach(OTHER)];
    world.add_group(of_one, "sim:0");
    world.add_group(of_other, "sim:1");
    let mut wants = false;
    while world.server.services.scheduler.as_ref().expect("it works").unsent() < 2 {
        wants = !wants;
        [of_one, of_other].into_iter().for_each(|id| world.want(id, wants));
    }
    for wants in [false, true, false, true] {
        [of_one, of_other].into_iter().for_each(|id| world.want(id, wants));
    }
    assert_eq!(world.server.services.scheduler.as_ref().map(Host::unsent), Some(2), "one for each device");
    let mut last = HashMap::new();
    while world.server.services.scheduler.as_ref().is_some_and(|host| host.open > 0) {
        for question in questions(&scheduler) {
            answer(&scheduler, &question);
            last.insert(question.device.clone(), question);
        }
        world.turn();
    }
    for (device, id) in [("sim:0", of_one), ("sim:1", of_other)] {
        assert!(last[device].groups[0].ready, "the newest question about {device}");
        let groups = world.server.engine.groups().iter();
        let (group, _) = groups.filter(|(_, group)| group.program.0 == id).last().expect("there");
        let status = world.server.engine.arbiter().status(world.server.now_us(), *group).expect("there");
        assert!(!status.granted, "{device}: the answer counts");
    }
    assert!(world.server.services.scheduler.is_some());
}

#[test]
fn a_scheduler_that_takes_no_question_ends_by_its_deadline() {
    let mut world = World::new();
    let _scheduler = world.scheduler(false);
    let (_socket, id, _segment, _eventfd) = world.attach(ONE);
    world.add_group(id, "sim:0");
    let mut wants = false;
    while world.server.services.scheduler.as_ref().expect("it works").unsent() == 0 {
        wants = !wants;
        world.want(id, wants);
    }
    let host = world.server.services.scheduler.as_mut().expect("it works");
    host.patience_ns = DEADLINE_NS;
    let asked_ns = host.asked_ns;
    world.at(asked_ns + DEADLINE_NS - 1);
    assert!(world.server.services.scheduler.is_some());
    world.at(asked_ns + DEADLINE_NS);
    assert!(world.server.services.scheduler.is_none());
    assert_eq!(world.server.engine.arbiter().policy().entry.name, "hpf");
}
