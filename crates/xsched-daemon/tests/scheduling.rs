//! Attached programs get and lose the device as the policy says: what comes in and goes out by sockets, shared memory and the configuration.
//! Decisions themselves are tables in virtual time (`crates/xsched-engine/tests/scheduling.rs`).

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use support::{Client, Daemon, connect, receive, send, set_policy};
use xsched_policy::registry;
use xsched_proto::class::SHORT_SLICE_US;
use xsched_proto::gate::Gate;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{device_place, state};
use xsched_proto::wire::{
    ClientMsg, DaemonMsg, GroupState, Levels, Platform, ProgramOptions, Request, Sharing, Target,
};
use xsched_proto::{Error, PROTOCOL_VERSION};
use xsched_testkit::until;

#[test]
fn whoever_waits_on_a_gate_is_woken() {
    let daemon = Daemon::start();
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    low.group(0, "sim:0");
    high.group(0, "sim:0");
    low.ready(0);
    high.ready(0);
    low.until_closed(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let start = Instant::now();
            while !low.open(0) {
                let word = low.gate(0);
                if !word.is_granted() {
                    low.words(0).gate.sleep(word, 10_000_000_000);
                }
            }
            start.elapsed()
        });
        high.idle(0);
        assert!(waiter.join().unwrap() < Duration::from_secs(9), "it slept until its timeout");
    });
}

#[test]
fn a_program_that_hangs_up_leaves_the_device_at_once() {
    let daemon = Daemon::start();
    let low = daemon.attach(0);
    low.group(0, "sim:0");
    low.ready(0);
    let high = daemon.attach(128);
    high.group(0, "sim:0");
    high.ready(0);
    low.until_closed(0);
    drop(high.socket);
    low.until_open(0);
    until("it is no longer watched", || low.gate(0) == Gate::GRANTED);
    assert_eq!(daemon.ps().1.len(), 1);
}

#[test]
fn the_policy_is_changed_by_a_command() {
    let daemon = Daemon::start();
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    for client in [&low, &high] {
        client.group(0, "sim:0");
        client.ready(0);
    }
    low.until_closed(0);
    daemon.ask(set_policy("UP")).unwrap();
    assert_eq!(daemon.ps().0.policy, "up");
    low.until_open(0);
    daemon.ask(set_policy("priority")).unwrap();
    low.until_closed(0);
    high.until_open(0);
    assert_eq!(
        daemon.ask(set_policy("fifo")).unwrap_err(),
        Error::input(format!("'fifo' is no policy: use one of {}", registry::names()))
    );
    let list = daemon.ask(Request::PolicyList).unwrap();
    let names = list.iter().map(|m| if let DaemonMsg::Policy(p) = m { (p.name.as_str(), p.current) } else { panic!() });
    let all: Vec<_> = registry::listed().map(|entry| (entry.name, entry.name == "hpf")).collect();
    assert_eq!(names.collect::<Vec<_>>(), all);
}

#[test]
fn an_operator_suspends_and_resumes() {
    let daemon = Daemon::start();
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    client.ready(0);
    let pid = std::process::id();
    daemon.ask(Request::Suspend { targets: vec![Target::Pid(pid)] }).unwrap();
    assert!(!client.open(0), "closed when the command returns");
    assert_eq!(daemon.ps().1[0].groups[0].state, GroupState::Suspended);
    let beat = client.heartbeat();
    let first = beat.beat_ns.load(SeqCst);
    assert_ne!(first, 0, "a closed gate comes with a beat");
    until("it beats again", || beat.beat_ns.load(SeqCst) > first);
    client.group(1, "sim:1");
    assert!(!client.open(1), "what it adds is suspended too");
    daemon.ask(Request::Resume { targets: vec![Target::Pid(pid)] }).unwrap();
    assert!(client.open(0) && client.open(1));
    let whose = if rustix::process::geteuid().is_root() { "" } else { " of yours" };
    assert_eq!(
        daemon.ask(Request::Suspend { targets: vec![Target::Pid(1)] }).unwrap_err(),
        Error::environment(format!("no process 1{whose} is attached, nor one that it started: see xsched ps"))
    );
}

#[test]
fn the_heartbeat_page_cannot_be_written_by_clients() {
    let daemon = Daemon::start();
    let client = daemon.attach(0);
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: a new mapping, if there were one.
    let mapped = unsafe {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap(std::ptr::null_mut(), 4096, both, MapFlags::SHARED, &client.heartbeat, 0)
    };
    assert_eq!(mapped, Err(rustix::io::Errno::PERM));
    assert!(rustix::io::write(&client.heartbeat, &[1]).is_err());
    assert!(rustix::fs::ftruncate(&client.heartbeat, 0).is_err());
}

#[test]
fn a_hint_comes_to_programs_and_queues_and_one_out_of_range_is_refused() {
    let daemon = Daemon::start();
    let client = daemon.attach(0);
    let group = client.group(0, "sim:0");
    client.queue(7, 0);
    let queue = daemon.queue_of(group);
    let hint = |target, priority, weight, level| Request::Hint {
        targets: vec![target],
        priority,
        hints: Hints { weight, ..Hints::default() },
        level,
        threshold: Some(3),
        batch: Some(2),
    };
    let pid = || Target::Pid(std::process::id());
    daemon.ask(hint(pid(), Some(5), Some(50), None)).unwrap();
    assert_eq!((client.words(0).budget_commands.load(SeqCst), client.words(0).batch_commands.load(SeqCst)), (3, 2));
    let program = &daemon.ps().1[0];
    assert_eq!((program.priority, program.weight, program.groups[0].priority), (5, 50, 5));
    daemon.ask(hint(Target::Queue(queue), Some(-9), None, Some(1))).unwrap();
    assert_eq!(receive(&client.socket).unwrap().0, DaemonMsg::QueuePriority { slot: 7, priority: -9 });
    for (priority, weight, level) in [(Some(256), None, None), (None, Some(0), None), (None, None, Some(4))] {
        assert_eq!(daemon.ask(hint(pid(), priority, weight, level)).unwrap_err().exit_code(), 2);
    }
    assert_eq!(daemon.ask(hint(Target::Queue(99_999), None, None, None)).unwrap_err().exit_code(), 3);
}

#[test]
fn what_a_program_says_of_its_groups_counts_within_its_ceiling() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[[rule]]\nexe = \"*\"\nceiling = \"high\"\n").expect("a file");
    let daemon = Daemon::start_with(|options| options.config.push(config));
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    client.group(1, "sim:0");
    let priorities = || -> Vec<i32> {
        let groups = daemon.ps().1.into_iter().flat_map(|program| program.groups);
        groups.map(|group| group.priority).collect()
    };
    let say = |slot, priority, hints| client.say(&ClientMsg::GroupHint { slot, priority, hints });
    say(1, Some(30), Hints::default());
    until("one of them has another priority", || priorities() == [0, 30]);
    say(1, Some(250), Hints::default());
    until("no more than the operator allows", || priorities() == [0, 191]);
    say(1, None, Hints::default());
    until("the program's own again", || priorities() == [0, 0]);
    client.ready(0);
    client.ready(1);
    say(1, Some(1), Hints::default());
    client.until_closed(0);
    assert!(client.open(1));
    client.say(&ClientMsg::ProgramHint { hints: Hints { weight: Some(7), ..Hints::default() } });
    until("a hint for all", || daemon.ps().1.iter().all(|program| program.weight == 7));
    say(1, Some(256), Hints::default());
    until("nonsense ends the connection", || support::is_hung_up(&client.socket).is_some());
}

#[test]
fn several_best_effort_programs_on_a_gpu_get_longer_time_slices_than_one() {
    let daemon = Daemon::start();
    let cuda = |priority| {
        let client = daemon.attach(priority);
        client.group_of(Platform::Cuda, 0, "pci:0000:01:00.0", 0, Levels::ALL);
        client
    };
    let (one, high) = (cuda(-128), cuda(128));
    // A program that makes a context reads how many such programs there are on its device.
    let on = |device| high.heartbeat().best_effort[device_place(device)].load(SeqCst);
    until("one is told", || on("pci:0000:01:00.0") == 1);
    assert_eq!(on("pci:0000:02:00.0"), 0, "another device");
    let two = cuda(-128);
    until("two are told", || on("pci:0000:01:00.0") == 2);
    // Each program's first message: while alone, each chose its slice itself.
    let told = |client: &Client| receive(&client.socket).unwrap().0;
    assert_eq!(told(&one), DaemonMsg::Timeslice { slot: 0, us: 500 });
    assert_eq!(told(&two), DaemonMsg::Timeslice { slot: 0, us: 500 });
    drop(two);
    assert_eq!(told(&one), DaemonMsg::Timeslice { slot: 0, us: SHORT_SLICE_US });
    assert_eq!(on("pci:0000:01:00.0"), 1);
    let hint = Request::Hint {
        targets: vec![Target::Pid(std::process::id())],
        priority: None,
        hints: Hints { timeslice_us: Some(700), ..Hints::default() },
        level: None,
        threshold: None,
        batch: None,
    };
    daemon.ask(hint).unwrap();
    // All clients here are one process, so that the hint is for all. The urgent one's slice had not been changed before.
    assert_eq!(told(&high), DaemonMsg::Timeslice { slot: 0, us: 700 });
    assert_eq!(told(&one), DaemonMsg::Timeslice { slot: 0, us: 700 });
}

#[test]
fn what_a_suspended_program_still_executes_gets_the_device_for_a_moment() {
    let daemon = Daemon::start();
    let cuda = |priority| {
        let client = daemon.attach(priority);
        client.group_of(Platform::Cuda, 0, "pci:0000:01:00.0", 0, Levels::ALL);
        client.queue(0, 0);
        client
    };
    let (low, high) = (cuda(-128), cuda(128));
    low.words(0).longest_us.store(40, SeqCst);
    let opened = || high.words(0).grants.load(SeqCst);
    low.words(0).held_inside.store(1, SeqCst);
    let queue = &low.segment().queues[0];
    queue.fence.store(8, SeqCst);
    queue.completed_word.store(6, SeqCst);
    low.ready(0);
    low.until_open(0);
    high.ready(0);
    low.until_closed(0);
    // A gate inside a command holds the program, so that it executes nothing. The test waits four times as long as the other program has to
    // wait before it leaves the device for a moment.
    let (before, begin) = (opened(), Instant::now());
    while begin.elapsed() < Duration::from_millis(16) {
        high.gets_on(0);
        daemon.ps();
    }
    assert_eq!(opened(), before);
    high.idle(0);
    low.until_open(0);
    low.words(0).held_inside.store(0, SeqCst);
    assert!(high.open(0), "it needs no grant to begin");
    high.ready(0);
    until("it has left the device for a moment", || {
        high.gets_on(0);
        opened() > before
    });
    until("it has it again", || {
        high.gets_on(0);
        high.open(0) && !low.open(0)
    });
}

#[test]
fn a_stopped_program_is_not_dropped_for_time_slices_that_it_does_not_read() {
    let daemon = Daemon::start();
    let cuda = |priority| {
        let client = daemon.attach(priority);
        client.group_of(Platform::Cuda, 0, "pci:0000:01:00.0", 0, Levels::ALL);
        client
    };
    let (stopped, _beside, high) = (cuda(-128), cuda(-128), cuda(128));
    stopped.ready(0);
    // Each turn sends the stopped program messages, of which its socket holds a few hundred.
    for _ in 0..1_000 {
        high.ready(0);
        stopped.until_closed(0);
        high.idle(0);
        stopped.until_open(0);
    }
    assert_eq!(daemon.ps().1.len(), 3);
}

#[test]
fn a_group_that_loses_level_3_while_it_is_interrupted_is_let_go_on() {
    let daemon = Daemon::start();
    let options = ProgramOptions { level: Some(3), priority: Some(0), ..ProgramOptions::default() };
    let low = Client::attach(&daemon.socket, options);
    low.group_with(0, "sim:0", 0, Levels::ALL);
    let high = daemon.attach(128);
    high.group(0, "sim:0");
    low.ready(0);
    high.ready(0);
    assert_eq!(receive(&low.socket).unwrap().0, DaemonMsg::Interrupt { slot: 0, on: true });
    // The gate stays closed: no other message tells the program to go on, whatever level was asked for meanwhile.
    low.say(&ClientMsg::Levels { slot: 0, levels: Levels::ONE });
    assert_eq!(receive(&low.socket).unwrap().0, DaemonMsg::Interrupt { slot: 0, on: false });
    until("it is told its level", || low.words(0).level.load(SeqCst) == 1);
    assert!(!low.open(0));
    // The message is sent once.
    high.idle(0);
    low.until_open(0);
    low.say(&ClientMsg::GroupRemove { slot: 0 });
    low.group_with(0, "sim:0", 0, Levels::ONE);
}

#[test]
fn who_neither_issues_nor_completes_anything_counts_as_idle_until_it_does() {
    let daemon = Daemon::start();
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    for client in [&low, &high] {
        client.group(0, "sim:0");
        client.queue(0, 0);
        client.ready(0);
    }
    low.until_open(0);
    assert!(high.open(0));
    // The launch is counted in the counter of its thread.
    let counter = &high.segment().counters[4095];
    counter.queue.store(1, SeqCst);
    counter.counter.launches.store(1, SeqCst);
    low.until_closed(0);
    low.until_open(0);
    high.words(0).completed.store(1, SeqCst);
    low.until_closed(0);
}

#[test]
fn ps_tells_what_there_is() {
    let daemon = Daemon::start();
    let low = daemon.attach(-100);
    let high = daemon.attach(200);
    let id = low.group(3, "pci:0000:41:00.0");
    high.group(0, "pci:0000:41:00.0");
    low.queue(9, 3);
    let queue = daemon.queue_of(id);
    low.segment().queues[9].shared.launches.store(40, SeqCst);
    low.segment().counters[17].queue.store(10, SeqCst);
    low.segment().counters[17].counter.launches.store(2, SeqCst);
    let words = low.words(3);
    words.launches_retired.store(8, SeqCst);
    words.unscheduled_attach.store(1, SeqCst);
    words.wait_ns.store(7_000, SeqCst);
    let seen = || {
        let (info, programs) = daemon.ps();
        assert_eq!((info.pid, info.policy.as_str(), programs.len()), (std::process::id(), "hpf", 2));
        let program = programs.into_iter().find(|p| p.priority == -100).unwrap();
        assert_eq!(program.class.name(), "low");
        assert_eq!(program.exe, std::env::current_exe().unwrap().to_str().unwrap());
        program.groups[0].clone()
    };
    // The rival makes progress meanwhile; without it the rival would lose the device after 20 ms.
    let until_it_is = |state| {
        until("its state is told", || {
            high.words(0).completed.fetch_add(1, SeqCst);
            seen().state == state
        });
    };
    let group = seen();
    assert_eq!(group.state, GroupState::Idle);
    assert_eq!((group.id, group.device.as_str()), (format!("g{id}"), "pci:0000:41:00.0"));
    assert_eq!((group.launches, group.unscheduled.attach, group.wait_us), (50, 1, 7));
    assert_eq!((group.queues[0].id.clone(), group.queues[0].launches), (format!("q{queue}"), 42));
    low.ready(3);
    until("it runs", || daemon.ps().1.iter().any(|p| p.groups[0].state == GroupState::Running));
    until("time is charged", || seen().device_us > 0);
    assert_eq!((seen().state, seen().suspensions), (GroupState::Running, 0));
    high.ready(0);
    low.until_closed(3);
    until_it_is(GroupState::Ready);
    assert!(seen().suspensions >= 1);
    words.gate.detach();
    until_it_is(GroupState::Detached);
    words.gate.let_hold();
    low.set_state(3, state::DRAINED);
    until_it_is(GroupState::Ready);
}

/// Asks for a higher priority in every way there is.
#[test]
fn nothing_lifts_a_program_above_its_ceiling() {
    let daemon = Daemon::start_with(|o| {
        let file = o.socket.parent().unwrap().parent().unwrap().join("config.toml");
        std::fs::write(&file, "[[rule]]\nexe = \"*\"\nceiling = -100\n").unwrap();
        o.config.push(file);
    });
    let client = daemon.attach(191);
    let cut = "priority 191 (high) is over the ceiling of a rule: -100 (low) counts";
    assert_eq!(receive(&client.socket).map(|(told, _)| told), Some(DaemonMsg::Note { text: cut.into() }));
    let add = |slot, priority_steps, priority_fixed, system| {
        client.words(slot).inherited_priority.store(i32::MIN, SeqCst);
        let device = "sim:0".to_owned();
        let platform = Platform::Sim;
        client.say(&ClientMsg::GroupAdd {
            slot,
            device,
            platform,
            priority_steps,
            priority_fixed,
            system,
            levels: Levels::ONE,
            sharing: Sharing::Time,
        });
        match receive(&client.socket) {
            Some((DaemonMsg::GroupAdded { id, .. }, _)) => id,
            other => panic!("{other:?}"),
        }
    };
    let groups =
        [add(0, 0, Some(191), false), add(1, 20, None, false), add(2, 0, Some(255), true), add(3, -5, None, false)];
    client.words(3).inherited_priority.store(255, SeqCst);
    client.wake();
    let priorities = || -> Vec<i32> {
        let programs = daemon.ps().1;
        assert_eq!((programs.len(), programs[0].priority, programs[0].limited), (1, -100, true));
        programs[0].groups.iter().map(|g| g.priority).collect()
    };
    until("the last is lent one", || priorities()[3] != -150);
    assert_eq!(priorities(), [-100; 4]);
    // A priority from root is in force beyond the limit, for the program and for a queue.
    if !rustix::process::geteuid().is_root() {
        return xsched_testkit::skipped("what root gives beyond a limit: needs root");
    }
    let hint = |target, priority| Request::Hint {
        targets: vec![target],
        priority: Some(priority),
        hints: Hints::default(),
        level: None,
        threshold: None,
        batch: None,
    };
    daemon.ask(hint(Target::Pid(std::process::id()), -90)).unwrap();
    let programs = daemon.ps().1;
    assert_eq!((programs[0].priority, programs[0].groups[1].priority), (-90, -90));
    client.queue(0, 3);
    let queue = daemon.queue_of(groups[3]);
    daemon.ask(hint(Target::Queue(queue), 20)).unwrap();
    let told = receive(&client.socket).unwrap().0;
    assert_eq!(told, DaemonMsg::QueuePriority { slot: 0, priority: 20 });
    add(4, 0, Some(20), false);
    assert_eq!(daemon.ps().1[0].groups[4].priority, 20);
}

#[test]
fn a_program_that_ended_is_told_of_with_its_last_figures() {
    let daemon = Daemon::start();
    let command = ["/usr/bin/python3", "-u", "/home/a/train.py", "--epochs=3"].map(str::to_owned).to_vec();
    let options = ProgramOptions { command, job: Some("night".into()), ..ProgramOptions::default() };
    let client = Client::attach(&daemon.socket, options);
    client.group(0, "sim:0");
    client.queue(0, 0);
    client.segment().queues[0].shared.launches.store(7, SeqCst);
    (0..99).for_each(|_| client.segment().waits[0].add(100));
    client.segment().waits[0].add(60_000);
    let living = daemon.ps().1.remove(0);
    let waits = &living.groups[0].waits;
    let near = |us: Option<f64>, exact: f64| us.is_some_and(|us| (us / exact - 1.0).abs() < 0.2);
    assert!(waits.count == 100 && near(waits.p50_us, 100.0) && near(waits.p99_us, 100.0), "{waits:?}");
    assert_eq!((living.name.as_str(), living.job.as_deref(), living.ended_s), ("train.py", Some("night"), None));
    let programs = |request| {
        let programs = daemon.ask(request).unwrap().into_iter();
        programs.filter_map(|m| if let DaemonMsg::Program(p) = m { Some(*p) } else { None }).collect::<Vec<_>>()
    };
    drop(client);
    until("it has left", || programs(Request::Ps).is_empty());
    let ended = programs(Request::PsAll);
    let [ended] = ended.as_slice() else { panic!("{ended:?}") };
    assert!(ended.ended_s.is_some());
    assert_eq!((ended.pid, &ended.name, ended.groups[0].launches), (living.pid, &living.name, 7));
}

#[test]
fn a_change_is_for_a_job_a_user_a_tree_or_all_and_says_what_it_was() {
    let daemon = Daemon::start();
    let job = |job: &str| {
        let options = ProgramOptions { job: Some(job.into()), priority: Some(-128), ..ProgramOptions::default() };
        Client::attach(&daemon.socket, options)
    };
    let (one, two) = (job("night"), job("day"));
    for client in [&one, &two] {
        client.group(0, "sim:0");
        client.ready(0);
    }
    let changed = |request| -> Vec<(String, String, String)> {
        let answer = daemon.ask(request).unwrap().into_iter();
        let values = answer.filter_map(|m| if let DaemonMsg::Changed(c) = m { Some(c.values) } else { None });
        values.flatten().map(|v| (v.what, v.was, v.now)).collect()
    };
    let state = |was: &str, now: &str| ("state".to_owned(), was.to_owned(), now.to_owned());
    let suspend = |target| Request::Suspend { targets: vec![target] };
    assert_eq!(changed(suspend(Target::Job("night".into()))), [state("scheduled", "suspended")]);
    let held = || daemon.ps().1.iter().filter(|p| p.groups[0].state == GroupState::Suspended).count();
    assert_eq!(held(), 1, "the other one is of another job");
    let both = [state("suspended", "suspended"), state("scheduled", "suspended")];
    let mut got = changed(suspend(Target::All));
    got.sort();
    assert_eq!(got, [both[1].clone(), both[0].clone()]);
    assert_eq!(held(), 2);
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(changed(Request::Resume { targets: vec![Target::User(uid)] }).len(), 2);
    let hint = |target| Request::Hint {
        targets: vec![target],
        priority: Some(128),
        hints: Hints { weight: Some(300), ..Hints::default() },
        level: None,
        threshold: None,
        batch: None,
    };
    // This process is a child of the one that runs the tests.
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().cast_unsigned();
    let values = changed(hint(Target::Pid(parent)));
    let of = |what: &str, was: &str, now: &str| (what.to_owned(), was.to_owned(), now.to_owned());
    assert_eq!(values[..2], [of("priority", "low", "high"), of("weight", "100", "300")]);
    assert_eq!(changed(hint(Target::Tree(std::process::id())))[0], of("priority", "high", "high"));
    for nothing in [Target::Job("weekend".into()), Target::User(uid + 1), Target::Tree(u32::MAX / 4)] {
        assert_eq!(daemon.ask(hint(nothing)).unwrap_err().exit_code(), 3);
    }
    // A command with one meaningless target changes none of the others.
    let mixed = Request::Suspend { targets: vec![Target::All, Target::Job("weekend".into())] };
    assert_eq!(daemon.ask(mixed).unwrap_err().exit_code(), 3);
    assert_eq!(held(), 0);
}

/// The programs are changed some at a time: in the end each is changed, and reported once.
#[test]
fn a_command_changes_any_number_of_programs() {
    let daemon = Daemon::start();
    let many =
        || Client::attach(&daemon.socket, ProgramOptions { job: Some("many".into()), ..ProgramOptions::default() });
    let clients: Vec<Client> = std::iter::repeat_with(many).take(11).collect();
    for client in &clients {
        client.group(0, "sim:0");
        client.ready(0);
    }
    let targets = || vec![Target::Job("many".into())];
    let weight = |weight| Request::Hint {
        targets: targets(),
        priority: None,
        hints: Hints { weight: Some(weight), ..Hints::default() },
        level: None,
        threshold: None,
        batch: None,
    };
    let told = |request| {
        let answer = daemon.ask(request).unwrap();
        answer.iter().filter(|message| matches!(message, DaemonMsg::Changed(_))).count()
    };
    assert_eq!(told(weight(7)), clients.len());
    assert!(daemon.ps().1.iter().all(|p| p.weight == 7));
    assert_eq!(told(Request::Suspend { targets: targets() }), clients.len());
    assert!(clients.iter().all(|client| !client.open(0)));
    assert_eq!(told(Request::Resume { targets: targets() }), clients.len());
    clients.iter().for_each(|client| client.until_open(0));
    // A command that leaves before its answer is carried out all the same.
    let ask_and_leave = |weight| {
        let socket = connect(&daemon.socket);
        send(&socket, &ClientMsg::Control { version: PROTOCOL_VERSION, request: weight }, &[]);
    };
    ask_and_leave(weight(9));
    until("all are changed", || daemon.ps().1.iter().all(|p| p.weight == 9));
    ask_and_leave(Request::Suspend { targets: targets() });
    clients.iter().for_each(|client| client.until_closed(0));
}
