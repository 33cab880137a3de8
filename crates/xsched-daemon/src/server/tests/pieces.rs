//! Each message of a program or a command, of the largest legal size, is processed in pieces of bounded size, however many programs there
//! are. The messages are taken from the protocol's own definition.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_reflection::{ContainerFormat, Format, Named, Tracer, TracerConfig, VariantFormat};
use xsched_proto::bounded::{DESCRIBED_MAX, PARAMS_MAX, TARGETS_MAX, WORDS_MAX};
use xsched_proto::segment::QUEUES;
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::{Described, Levels, Platform, Sharing, Target};

use super::*;
use xsched_engine::tuning::{CHANGED_AT_ONCE, CHECKED_AT_ONCE, COMPARED_AT_ONCE};

/// Formats of all messages to the daemon.
fn formats() -> BTreeMap<String, ContainerFormat> {
    let mut tracer = Tracer::new(TracerConfig::default());
    let samples = serde_reflection::Samples::new();
    for _ in 0..2 {
        tracer.trace_type::<ClientMsg>(&samples).expect("a format");
        tracer.trace_type::<Request>(&samples).expect("a format");
        tracer.trace_type::<Target>(&samples).expect("a format");
        tracer.trace_type::<Described>(&samples).expect("a format");
        tracer.trace_type::<UsageBy>(&samples).expect("a format");
    }
    tracer.registry_unchecked().into_iter().collect()
}

/// Names of the variants of an enumeration.
fn variants(formats: &BTreeMap<String, ContainerFormat>, name: &str) -> Vec<String> {
    let Some(ContainerFormat::Enum(variants)) = formats.get(name) else { panic!("{name} is no enumeration") };
    variants.values().map(|variant| variant.name.clone()).collect()
}

/// Lists among the fields of all messages, as `TYPE.FIELD` or `TYPE.VARIANT.FIELD`.
fn lists(formats: &BTreeMap<String, ContainerFormat>) -> Vec<String> {
    let is_list = |format: &Format| matches!(format, Format::Seq(_) | Format::Map { .. } | Format::Bytes);
    let mut found = Vec::new();
    let mut add = |path: &str, fields: &[Named<Format>]| {
        let lists = fields.iter().filter(|field| is_list(&field.value));
        found.extend(lists.map(|field| format!("{path}.{}", field.name)));
    };
    for (name, format) in formats {
        match format {
            ContainerFormat::Struct(fields) => add(name, fields),
            ContainerFormat::Enum(variants) => {
                for variant in variants.values() {
                    if let VariantFormat::Struct(fields) = &variant.value {
                        add(&format!("{name}.{}", variant.name), fields);
                    }
                }
            }
            _ => (),
        }
    }
    found.sort();
    found
}

const LONG: usize = 50_000;

/// Largest legal request of each kind.
fn largest(kind: &str) -> Request {
    // A list of targets that all have to be searched: each names another process, which started all programs here.
    let targets = || {
        let trees = (1..TARGETS_MAX as u32).map(|n| Target::Tree(std::process::id().wrapping_add(n - 1)));
        let mut targets = vec![Target::All];
        targets.extend(trees.take(1));
        targets.extend((0..TARGETS_MAX - 2).map(|_| Target::Tree(std::process::id())));
        targets
    };
    let text = |bytes: usize| "x".repeat(bytes);
    match kind {
        "Ps" => Request::Ps,
        "PsAll" => Request::PsAll,
        "PolicyList" => Request::PolicyList,
        "PolicySet" => Request::PolicySet {
            name: text(100),
            params: (0..PARAMS_MAX).map(|_| (text(500), text(500))).collect(),
            device: Some(text(200)),
        },
        "Hint" => Request::Hint {
            targets: targets(),
            priority: Some(3),
            hints: Hints { weight: Some(7), ..Hints::default() },
            level: Some(1),
            threshold: Some(1),
            batch: Some(1),
        },
        "ActiveWindow" => Request::ActiveWindow { pid: Some(std::process::id()) },
        "Suspend" => Request::Suspend { targets: targets() },
        "Resume" => Request::Resume { targets: targets() },
        "Freeze" => Request::Freeze { targets: targets() },
        "Thaw" => Request::Thaw { targets: targets() },
        "Describe" => Request::Describe { pid: std::process::id() },
        "Announce" => Request::Announce { job: text(200), program: text(LONG) },
        "JoinPool" => {
            Request::JoinPool { job: Some(text(200)), priority: None, insists: false, obstacle: Some(text(200)) }
        }
        "Faulted" => Request::Faulted,
        "PoolRefused" => Request::PoolRefused { pipe: text(LONG) },
        "PoolServer" => Request::PoolServer { pool: 7, fault: Some(text(LONG)) },
        "Stop" => Request::Stop,
        "Reload" => Request::Reload,
        "Record" => Request::Record { pids: vec![u32::MAX; TARGETS_MAX], from: 0, ends: true },
        "Usage" => Request::Usage { since_ms: 0, by: UsageBy::Program },
        "Trace" => Request::Trace { from: 0, since_us: 0 },
        other => panic!("{other}: add the largest legal message of this kind"),
    }
}

/// Largest legal message of each kind from a program.
fn largest_of_program(kind: &str) -> Option<ClientMsg> {
    let text = |bytes: usize| "x".repeat(bytes);
    let hints = Hints { weight: Some(9), ..Hints::default() };
    let group = |slot| ClientMsg::GroupAdd {
        slot,
        device: text(200),
        platform: Platform::Cuda,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ALL,
        sharing: Sharing::Time,
    };
    Some(match kind {
        // First packets are tested by `a_greeting_…`, and by `largest`.
        "Hello" | "Control" => return None,
        "GroupAdd" => group(1),
        "GroupRemove" => ClientMsg::GroupRemove { slot: 1 },
        "QueueAdd" => ClientMsg::QueueAdd { slot: QUEUES as u16 - 1, group: 0 },
        "QueueRemove" => ClientMsg::QueueRemove { slot: QUEUES as u16 - 1 },
        "Description" => ClientMsg::Description {
            token: 1,
            more: false,
            lines: (0..DESCRIBED_MAX).map(|_| Described::Note { text: text(200) }).collect(),
        },
        "Levels" => ClientMsg::Levels { slot: 0, levels: Levels::ALL },
        "GroupHint" => ClientMsg::GroupHint { slot: 0, priority: Some(1), hints },
        "ProgramHint" => ClientMsg::ProgramHint { hints },
        "MemoryDevice" => ClientMsg::MemoryDevice { slot: 15, device: text(200), capacity_bytes: u64::MAX },
        "MemoryAsk" => ClientMsg::MemoryAsk {
            slot: 15,
            number: u32::MAX,
            bytes: u64::MAX,
            lacking: u64::MAX,
            returns: true,
            part: false,
        },
        "MemoryMeasure" => ClientMsg::MemoryMeasure { slot: 15, number: u32::MAX },
        "MemoryRefused" => ClientMsg::MemoryRefused { slot: 15, bytes: u64::MAX, by_driver: true },
        "MemoryLeaving" => ClientMsg::MemoryLeaving { number: u32::MAX },
        "MemoryMoved" => ClientMsg::MemoryMoved { slot: 15, number: u32::MAX, why: Some(text(LONG)) },
        other => panic!("{other}: add the largest legal message of this kind"),
    })
}

#[test]
fn every_list_in_a_message_has_a_bound() {
    let formats = formats();
    // A longer list is refused while it is decoded.
    let bounds = [
        ("ClientMsg.Description.lines", DESCRIBED_MAX),
        ("ProgramOptions.command", WORDS_MAX),
        ("Request.Freeze.targets", TARGETS_MAX),
        ("Request.Hint.targets", TARGETS_MAX),
        ("Request.PolicySet.params", PARAMS_MAX),
        ("Request.Record.pids", TARGETS_MAX),
        ("Request.Resume.targets", TARGETS_MAX),
        ("Request.Suspend.targets", TARGETS_MAX),
        ("Request.Thaw.targets", TARGETS_MAX),
    ];
    assert_eq!(lists(&formats), bounds.map(|(list, _)| list));
    let control = |request| ClientMsg::Control { version: PROTOCOL_VERSION, request };
    for (list, most) in bounds {
        let with = |n: usize| match list {
            "ClientMsg.Description.lines" => ClientMsg::Description {
                token: 1,
                more: false,
                lines: vec![Described::Note { text: String::new() }; n],
            },
            "ProgramOptions.command" => ClientMsg::Hello {
                version: PROTOCOL_VERSION,
                options: ProgramOptions { command: vec![String::new(); n], ..ProgramOptions::default() },
            },
            "Request.PolicySet.params" => control(Request::PolicySet {
                name: String::new(),
                params: vec![(String::new(), String::new()); n],
                device: None,
            }),
            "Request.Record.pids" => control(Request::Record { pids: vec![1; n], from: 0, ends: true }),
            "Request.Suspend.targets" => control(Request::Suspend { targets: vec![Target::All; n] }),
            "Request.Freeze.targets" => control(Request::Freeze { targets: vec![Target::All; n] }),
            "Request.Thaw.targets" => control(Request::Thaw { targets: vec![Target::All; n] }),
            "Request.Resume.targets" => control(Request::Resume { targets: vec![Target::All; n] }),
            "Request.Hint.targets" => control(Request::Hint {
                targets: vec![Target::All; n],
                priority: None,
                hints: Hints::default(),
                level: None,
                threshold: None,
                batch: None,
            }),
            other => panic!("{other}: say how a message with such a list is made"),
        };
        let decodes = |n| wire::decode::<ClientMsg>(&wire::encode(&with(n)).expect("it fits")).is_ok();
        assert!(decodes(most) && !decodes(most + 1), "{list}");
    }
}

/// Number of users of the programs in a world; none reaches the bounds of one user.
const USERS: u32 = 5;

/// Programs of a world, with their open connections.
type Programs = Vec<(OwnedFd, u64, OwnedFd, OwnedFd)>;

/// Makes a world with this many programs, each with a group.
fn crowded(programs: usize) -> (World, Programs) {
    let mut world = World::new();
    let all: Programs = (0..programs).map(|n| world.attach(ONE + n as u32 % USERS)).collect();
    for (at, (socket, id, ..)) in all.iter().enumerate() {
        let device = format!("sim:{}", at / 100);
        let group = ClientMsg::GroupAdd {
            slot: 0,
            device,
            platform: Platform::Sim,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: Levels::ONE,
            sharing: Sharing::Time,
        };
        let message = wire::encode(&group).expect("a message");
        assert!(rustix::net::send(socket, &message, SendFlags::NOSIGNAL).is_ok());
        while world.server.engine.programs().get(id).is_none_or(|program| program.groups.is_empty()) {
            world.turn();
            assert!(world.server.net.conns.contains_key(id), "{:?}", received(socket));
        }
        received(socket);
    }
    (world, all)
}

/// Connects a command of root, which may change all programs. Its user is already identified.
fn command(world: &mut World) -> (OwnedFd, u64) {
    let (socket, id) = world.connect(0);
    let conn = world.server.net.conns.get_mut(&id).expect("there");
    conn.stage = Stage::Command(Answering::Nothing);
    world.server.commands.who.insert(id, Rc::new(Who::pretended(0)));
    (socket, id)
}

/// Executes a command piece by piece. Returns the time of the longest piece, and the number of pieces.
fn do_pieces(world: &mut World, socket: &OwnedFd, id: u64, request: Request) -> (Duration, usize) {
    assert!(ask(socket, request.clone()), "{}", wire::encode(&request).map_or(0, |packet| packet.len()));
    let (mut longest, mut pieces, mut before) = (Duration::ZERO, 0, None::<[usize; 6]>);
    // One piece after the other, without a ration: the size of each piece is measured.
    loop {
        let mut buffer = std::mem::take(&mut world.buffer);
        let began = std::time::Instant::now();
        world.server.serve(id, &mut buffer);
        world.server.end_conns();
        longest = longest.max(began.elapsed());
        world.buffer = buffer;
        pieces += 1;
        assert!(pieces < 100_000, "{request:?} has no end");
        let now = world.server.engine.work_left(id);
        if let (Some(before), Some(now)) = (before, now) {
            let most = [1, COMPARED_AT_ONCE, CHECKED_AT_ONCE, CHANGED_AT_ONCE, 1, 1];
            for (stage, most) in most.into_iter().enumerate().filter(|(stage, _)| now[*stage] > 0) {
                // A later stage begins when nothing is left of the earlier one.
                let done = before[stage].saturating_sub(now[stage]);
                assert!(done <= most, "{request:?}: {done} in one piece of stage {stage}");
            }
        }
        before = now;
        let Some(conn) = world.server.net.conns.get(&id) else { return (longest, pieces) };
        match conn.stage {
            Stage::Command(Answering::Nothing) => return (longest, pieces),
            // The answer waits for another thread, or for a program: the loop has nothing left to do but to send a message.
            Stage::Command(Answering::Waits) => {
                return (longest, pieces);
            }
            _ => received(socket),
        };
    }
}

/// Makes each kind of request beside this many programs. Returns the pieces of each, and the time of the longest one.
fn all_requests(programs: usize) -> Vec<(String, usize, Duration)> {
    let (mut world, _all) = crowded(programs);
    // The sockets stay open, so that no connection ends during the next request.
    let (mut done, mut sockets) = (Vec::new(), Vec::new());
    for kind in variants(&formats(), "Request") {
        let (socket, id) = command(&mut world);
        let (longest, pieces) = do_pieces(&mut world, &socket, id, largest(&kind));
        world.server.life.stop = false;
        sockets.push(socket);
        done.push((kind, pieces, longest));
    }
    done
}

#[test]
fn every_request_is_worked_off_in_bounded_pieces_with_one_program_and_with_a_thousand() {
    for programs in [1, 1_000] {
        let done = all_requests(programs);
        let pieces = |kind: &str| done.iter().find(|(known, ..)| known == kind).map_or(0, |(_, pieces, _)| *pieces);
        // Each program is compared, checked and changed in one of the pieces.
        let least = programs.div_ceil(CHANGED_AT_ONCE) + programs.div_ceil(COMPARED_AT_ONCE);
        for kind in ["Suspend", "Resume", "Hint"] {
            assert!(pieces(kind) > least, "{kind}: {} pieces for {programs} programs", pieces(kind));
        }
    }
}

#[test]
fn a_program_sends_each_message_in_its_largest_form_and_is_served_in_one_piece() {
    let (mut world, all) = crowded(20);
    let (socket, id, ..) = &all[0];
    for kind in variants(&formats(), "ClientMsg") {
        let Some(message) = largest_of_program(&kind) else { continue };
        let packet = wire::encode(&message).expect("a message");
        assert!(rustix::net::send(socket, &packet, SendFlags::NOSIGNAL).is_ok());
        let mut buffer = std::mem::take(&mut world.buffer);
        world.server.serve(*id, &mut buffer);
        world.server.end_conns();
        world.buffer = buffer;
        assert!(world.server.net.conns.contains_key(id), "{kind}: {:?}", received(socket));
        received(socket);
    }
}

#[test]
fn a_command_that_hangs_up_is_carried_through_in_pieces_and_counts_until_then() {
    let (mut world, all) = crowded(50);
    let (socket, id) = command(&mut world);
    assert!(ask(&socket, Request::Suspend { targets: vec![Target::All] }));
    let held = |world: &World| world.server.engine.programs().values().filter(|program| program.held).count();
    while world.server.engine.work_left(id).is_none() {
        world.turn();
    }
    drop(socket);
    let (mut before, mut turns) = (held(&world), 0);
    while world.server.net.conns.contains_key(&id) {
        let mut buffer = std::mem::take(&mut world.buffer);
        world.server.net.conns.get_mut(&id).expect("there").gone = true;
        world.server.serve(id, &mut buffer);
        world.server.end_conns();
        world.buffer = buffer;
        assert!(held(&world) - before <= CHANGED_AT_ONCE, "in one piece");
        (before, turns) = (held(&world), turns + 1);
        assert!(turns < 1_000, "it never ends");
    }
    assert_eq!(held(&world), all.len(), "all are suspended");
}

#[test]
fn messages_of_a_program_have_a_ration_that_others_do_not_share() {
    let mut world = World::new();
    let (one, of_one, ..) = world.attach(ONE);
    let (other, of_other, ..) = world.attach(OTHER);
    let hint = ClientMsg::ProgramHint { hints: Hints { weight: Some(9), ..Hints::default() } };
    let packet = wire::encode(&hint).expect("a message");
    let say = |socket: &OwnedFd| assert!(rustix::net::send(socket, &packet, SendFlags::NOSIGNAL).is_ok());
    let used_ns = 5_000_000;
    world.server.now_ns = now_ns();
    let due_ns = world.server.now_ns + used_ns * RATION_TIMES;
    let user = world.server.net.conns[&of_one].user;
    world.server.net.rations.messages.charge(user, world.server.now_ns, used_ns);
    say(&one);
    say(&other);
    let weight =
        |world: &World, id: u64| world.server.engine.programs().get(&id).map_or(0, |program| program.hints.weight());
    while weight(&world, of_other) != 9 {
        world.turn();
    }
    assert!(weight(&world, of_one) != 9 || world.server.now_ns >= due_ns, "the other's is served meanwhile");
    let mut turns = 0;
    while weight(&world, of_one) != 9 {
        world.turn();
        turns += 1;
    }
    assert!(world.server.now_ns >= due_ns);
    assert!(turns <= 5, "{turns} turns while nothing was to be done");
}

/// No test: a benchmark of the longest piece of each request.
#[test]
#[ignore = "a benchmark; cargo test --release -p xsched-daemon --lib longest_piece -- --ignored --nocapture"]
fn longest_piece_of_each_request() {
    for programs in [1, 1_000] {
        for (kind, pieces, longest) in all_requests(programs) {
            println!("{programs} programs, {kind}: {pieces} pieces, the longest {:.1} us", longest.as_secs_f64() * 1e6);
        }
    }
}
