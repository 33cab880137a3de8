//! Panics of the daemon: each costs the message, or the part of a task, that it happens in.

use xsched_testkit::until;

use super::*;
use crate::guard::plant;

/// User whose work panics. The names of planted panics contain it, so that no other test meets them.
const FAULTY: u32 = 60_077;

impl World {
    fn with_log() -> World {
        World::with(|options| {
            options.log = options.socket.ancestors().nth(2).map(|folder| folder.join("log"));
        })
    }

    /// Lines of the log on faults.
    fn fault_lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines().filter(|line| line.contains("a fault of the daemon")).map(str::to_owned).collect()
    }

    /// Has the other program want its device, and checks that it gets it.
    pub(super) fn decides_for(&mut self, id: u64) {
        for wants in [false, true] {
            self.want(id, wants);
        }
        let groups = self.server.engine.groups().iter();
        let (group, _) = groups.filter(|(_, group)| group.program.0 == id).last().expect("there");
        let status = self.server.engine.arbiter().status(self.server.now_us(), *group).expect("there");
        assert!(status.granted, "decisions go on");
    }
}

/// Name of work for the program of a user, as its panic is planted.
fn of_user(what: &str, uid: u32) -> String {
    format!("{what} of process {} of user {}", std::process::id(), crate::identity::pretended(uid))
}

#[test]
fn a_panic_in_work_for_a_program_ends_its_connection_and_no_other() {
    type Cause = fn(&mut World, &OwnedFd, u64, &OwnedFd);
    let message: Cause = |_, socket, _, _| {
        let packet = wire::encode(&ClientMsg::QueueAdd { slot: 0, group: 0 }).expect("small");
        rustix::net::send(socket, &packet, SendFlags::NOSIGNAL).expect("it reads");
    };
    let words: Cause = |_, _, _, eventfd| {
        rustix::io::write(eventfd, &1u64.to_ne_bytes()).expect("counted");
    };
    let counters: Cause = |world, _, id, _| {
        let user = world.server.net.conns[&id].user;
        world.server.net.rations.looks.push(user, id);
    };
    for (what, cause) in [("a message", message), ("the words", words), ("the counters", counters)] {
        let mut world = World::with_log();
        let (_other, of_other, ..) = world.attach(OTHER);
        world.add_group(of_other, "sim:0");
        let (socket, id, _segment, eventfd) = world.attach(FAULTY);
        world.add_group(id, "sim:0");
        let name = of_user(what, FAULTY);
        plant::plant(&name);
        cause(&mut world, &socket, id, &eventfd);
        while world.server.net.conns.contains_key(&id) {
            world.turn();
        }
        assert!(plant::has_grown(&name) && world.server.net.conns.contains_key(&of_other), "{what}");
        assert_eq!(world.server.history.panics, 1, "{what}");
        world.decides_for(of_other);
        until("the log has it", || world.fault_lines().len() == 1);
        let lines = world.fault_lines();
        assert!(lines[0].contains(&name) && lines[0].ends_with(": planted)"), "{lines:?}");
    }
}

#[test]
fn a_panic_in_the_identification_of_a_process_refuses_that_process() {
    let mut world = World::with_log();
    let (socket, id) = world.connect(FAULTY);
    let name = format!("the identification of process {} of user {FAULTY}", std::process::id());
    plant::plant(&name);
    let _kept = say_hello(&socket);
    while world.server.net.conns.contains_key(&id) {
        world.turn();
    }
    assert!(plant::has_grown(&name) && world.server.history.panics == 1);
    let (_other, of_other, ..) = world.attach(OTHER);
    world.add_group(of_other, "sim:0");
    world.decides_for(of_other);
}

#[test]
fn a_panic_in_a_question_to_a_scheduler_costs_the_streams_of_one_program() {
    let mut world = World::with_log();
    let scheduler = world.scheduler(true);
    let ids = [OTHER, FAULTY].map(|uid| {
        let (socket, id, _segment, _eventfd) = world.attach(uid);
        world.add_group(id, "sim:0");
        world.server.program_message(id, ClientMsg::QueueAdd { slot: 0, group: 0 }).expect("a queue");
        let words = world.server.programs.clients[&id].segment.clone();
        words.words().header.used[0].store(1, std::sync::atomic::Ordering::SeqCst);
        words.words().queues[0].group.store(1, std::sync::atomic::Ordering::SeqCst);
        (id, socket)
    });
    let streams = |world: &mut World, wants| {
        ids.iter().for_each(|(id, _)| world.want(*id, wants));
        let asked = scheduler::questions(&scheduler).pop().expect("a question");
        let stream = |id: &u64| asked.groups.iter().find(|group| group.program == *id).expect("there").stream.is_some();
        ids.each_ref().map(|(id, _)| stream(id))
    };
    assert_eq!(streams(&mut world, true), [true, true]);
    // Each change of a program asks one question.
    let name = of_user("the streams", FAULTY);
    [0, 1].into_iter().for_each(|_| plant::plant(&name));
    assert_eq!(streams(&mut world, false), [true, false]);
    assert!(plant::has_grown(&name) && world.server.services.scheduler.is_some());
    world.server.note_own_faults();
    assert_eq!(world.server.history.panics, 2);
    assert_eq!(streams(&mut world, true), [true, true]);
}

#[test]
fn a_panic_in_the_report_on_a_program_leaves_that_program_out_of_ps() {
    let mut world = World::with_log();
    let own = rustix::process::geteuid().as_raw();
    let _programs = [OTHER, FAULTY].map(|uid| world.attach(uid));
    let (socket, _) = world.connect(own);
    let reported = |world: &mut World| {
        assert!(ask(&socket, Request::Ps));
        let mut told = Vec::new();
        while !told.contains(&DaemonMsg::End) {
            world.turn();
            told.extend(received(&socket));
        }
        let uids: Vec<u32> =
            told.iter().filter_map(|m| if let DaemonMsg::Program(p) = m { Some(p.uid) } else { None }).collect();
        let panics = told.iter().find_map(|m| if let DaemonMsg::Daemon(d) = m { Some(d.panics) } else { None });
        (uids, panics.expect("a report of the daemon"))
    };
    let name = of_user("the report on", FAULTY).replace("on of process", "on process");
    plant::plant(&name);
    assert_eq!(reported(&mut world).0, [OTHER]);
    assert!(plant::has_grown(&name));
    assert_eq!(reported(&mut world), (vec![OTHER, FAULTY], 1));
}

#[test]
fn a_panic_in_work_of_the_daemons_own_is_counted_and_the_loop_goes_on() {
    let mut world = World::with_log();
    assert!(world.server.for_itself("good work", |_| ()));
    assert!(!world.server.for_itself("bad work", |_| panic!("here")));
    assert_eq!(world.server.history.panics, 1);
    until("the log has it", || world.fault_lines().iter().any(|line| line.contains("bad work: ")));
}

#[test]
fn a_panic_while_the_configuration_is_read_leaves_it_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "starvation_s = 7\n").expect("written");
    let mut world = World::with(|options| options.config = vec![file.clone()]);
    let name = format!("the configuration {}", file.display());
    plant::plant(&name);
    world.server.reload();
    while world.server.history.configuration_fault.is_none() {
        world.turn();
    }
    assert!(plant::has_grown(&name) && world.server.history.panics == 1);
    world.server.reload();
    while world.server.history.configuration_fault.is_some() {
        world.turn();
    }
}
