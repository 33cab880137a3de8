//! Optional parts that fail at the start or later: the daemon starts, decides, and says which part is missing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;

use xsched_testkit::until;

use super::*;
use crate::tuning::METRICS_AGAIN_NS;

impl World {
    /// Checks that a program is decided for, and returns the warnings.
    fn decides_with(&mut self) -> Vec<String> {
        let (_socket, id, _segment, _eventfd) = self.attach(OTHER);
        self.add_group(id, "sim:0");
        self.decides_for(id);
        self.server.warnings()
    }
}

/// Writes a configuration with an address for monitors. Returns its path.
fn config(folder: &Path, listen: &str) -> std::path::PathBuf {
    let file = folder.join("config.toml");
    std::fs::write(&file, format!("[metrics]\nlisten = \"{listen}\"\n")).expect("written");
    file
}

#[test]
fn metrics_that_cannot_listen_are_a_warning_and_listen_once_they_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let file = config(folder.path(), &address.to_string());
    let mut world = World::with(|options| options.config = vec![file]);
    let warnings = world.decides_with();
    let expected = format!("metrics: cannot listen at {address}: ");
    assert!(matches!(&warnings[..], [one] if one.starts_with(&expected)), "{warnings:?}");
    drop(taken);
    let again_ns = world.server.now_ns + METRICS_AGAIN_NS;
    world.at(again_ns);
    assert_eq!(world.server.warnings(), [""; 0]);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[test]
fn metrics_at_a_socket_that_another_process_has_are_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("m.sock");
    let _other = UnixListener::bind(&socket).expect("bound");
    let file = config(folder.path(), &format!("unix:{}", socket.display()));
    let mut world = World::with(|options| options.config = vec![file]);
    let warnings = world.decides_with();
    assert!(matches!(&warnings[..], [one] if one.starts_with("metrics: cannot listen at ")), "{warnings:?}");
}

#[test]
fn metrics_of_the_machines_file_are_left_out_by_a_daemon_beside_the_machines() {
    let [machine, user] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let places = [&machine, &user].map(|folder| folder.path().join("m.sock"));
    let files = [&machine, &user]
        .map(|folder| config(folder.path(), &format!("unix:{}", folder.path().join("m.sock").display())));
    let listens = |usual: &[std::path::PathBuf], not_of: Option<&std::path::PathBuf>| {
        let mut world = World::with(|options| {
            options.usual_config = usual.to_vec();
            options.metrics_not_of = not_of.cloned();
        });
        assert_eq!(world.decides_with(), [""; 0]);
        let there = places.each_ref().map(|place| place.exists());
        places.iter().for_each(|place| _ = std::fs::remove_file(place));
        there
    };
    assert_eq!(listens(&files[..1], None), [true, false], "the machine's daemon");
    assert_eq!(listens(&files[..1], Some(&files[0])), [false, false], "a user's");
    assert_eq!(listens(&files, Some(&files[0])), [false, true], "a user's with a file of its own");
}

#[test]
fn a_panic_in_an_answer_to_a_monitor_costs_that_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("m.sock");
    let file = config(folder.path(), &format!("unix:{}", socket.display()));
    let mut world = World::with(|options| options.config = vec![file]);
    crate::guard::plant::plant(&format!("an answer at unix:{}", socket.display()));
    for status in ["500", "404"] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    while world.server.history.panics == 0 {
        world.turn();
    }
    assert_eq!(world.server.history.panics, 1);
}

#[test]
fn a_state_folder_that_takes_nothing_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    std::fs::write(&state, "no folder").expect("written");
    let mut world = World::with(|options| options.state = Some(state.clone()));
    world.server.remember();
    let due_ns = world.server.now_ns + crate::tuning::REMEMBER_NS;
    world.at(due_ns);
    until("it is tried", || world.server.services.events.writer.unwritten().is_some());
    let (_socket, id, _segment, _eventfd) = world.attach(OTHER);
    world.add_group(id, "sim:0");
    world.decides_for(id);
    assert!(world.server.services.usage.keep(vec![crate::usage::example_record(1)]));
    until("records are tried", || !world.server.services.usage.worker.is_busy());
    world.server.take_usage();
    let warnings = world.server.warnings();
    let has = |part: &str| warnings.iter().any(|line| line.starts_with(part) && line.contains("/state"));
    assert!(has("state: ") && has("usage: records are lost: "), "{warnings:?}");
}

#[test]
fn state_that_cannot_be_read_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut names = vec!["unsuitable.toml".to_owned(), "proven.toml".to_owned()];
    let world = World::with(|options| {
        let socket = options.socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
        names.push(format!("runtime-{socket}.toml"));
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "no toml [").expect("written"));
        options.state = Some(folder.path().to_owned());
    });
    let mut world = world;
    let warnings = world.decides_with();
    for (part, name) in ["unsuitable programs: ", "proven programs: ", "state: "].iter().zip(&names) {
        let is_there =
            |line: &String| line.starts_with(part) && line.contains(&**name) && line.contains(" is not used: ");
        assert!(warnings.iter().any(is_there), "{part}: {warnings:?}");
    }
}

#[test]
fn bursts_that_cannot_be_written_are_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::with(|options| options.bursts = Some(folder.path().to_owned()));
    let warnings = world.decides_with();
    assert!(matches!(&warnings[..], [one] if one.starts_with("bursts: cannot write ")), "{warnings:?}");
    let mut world = World::with(|options| options.bursts = Some("/dev/full".into()));
    assert_eq!(world.decides_with(), [""; 0]);
    world.server.write_burst("a line\n");
    let warnings = world.server.warnings();
    assert!(matches!(&warnings[..], [one] if one.starts_with("bursts: they are written no more: ")), "{warnings:?}");
}

#[test]
fn a_scheduler_that_cannot_be_started_leaves_the_default_policy() {
    let mut world = World::with(|options| options.scheduler = Some("/nowhere/libx.so".into()));
    assert_eq!(world.decides_with(), [""; 0]);
    assert_eq!(world.server.engine.arbiter().policy().entry.name, "hpf");
    let why = world.server.history.scheduler_failure.clone().expect("a reason");
    assert!(why.contains("/nowhere/libx.so") && why.ends_with(": the policy is hpf from here on"), "{why}");
}

#[test]
fn a_driver_that_does_not_answer_any_more_is_a_warning() {
    let mut world = World::new();
    assert_eq!(world.decides_with(), [""; 0]);
    let key = "pci:0000:41:00.0";
    world.server.services.devices.want([key].into_iter());
    world.server.services.devices.pretend(key, world.server.now_ns);
    assert_eq!(world.server.warnings(), [""; 0]);
    world.server.set_now(world.server.now_ns + crate::tuning::DEVICE_STALE_NS);
    let warnings = world.server.warnings();
    assert!(matches!(&warnings[..], [one] if one.starts_with("devices: ") && one.contains(key)), "{warnings:?}");
}

#[test]
fn a_user_without_a_pool_is_a_warning() {
    let mut world = World::new();
    let until_ns = world.server.now_ns + 10;
    let key = (OTHER, xsched_engine::Side::Inner);
    world.server.places.pools.refused.insert(key, ("MPS does not start".to_owned(), until_ns));
    assert_eq!(world.server.warnings(), [format!("pools: none for user {OTHER} at present: MPS does not start")]);
    world.server.set_now(until_ns);
    assert_eq!(world.server.warnings(), [""; 0]);
}
