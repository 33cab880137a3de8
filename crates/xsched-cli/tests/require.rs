//! `run --require`: a program that would run unscheduled is not started, or ends at its first call of a device.

mod common;
use std::process::Command;

use common::{Place, said, until};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use xsched_proto::Error;
use xsched_proto::wire::{ClientMsg, DaemonMsg, MAX_PACKET, decode, encode};

/// Runs a command that exits with 4, with a stand-in for the library.
fn run(place: &Place, options: &[&str]) -> Command {
    let library = place.join("stand-in.so");
    if !library.exists() {
        place.stand_in("stand-in.so");
    }
    let mut command = place.xsched(&["run"]);
    command.args(options).args(["--", "sh", "-c", "exit 4"]).env("XSCHED_PRELOAD", library);
    command
}

#[test]
fn an_environment_that_switches_scheduling_off_is_refused() {
    let place = Place::new();
    for (name, value) in [("XSCHED_DISABLE", "1"), ("XSCHED_NO_DAEMON", "1"), ("XSCHED_SCHEDULER", "APP")] {
        let with = |options: &[&str]| {
            let mut command = run(&place, options);
            command.env(name, value);
            command
        };
        said(with(&["--require"])).one_line(3, name);
        let mut inherited = with(&[]);
        inherited.env("XSCHED_REQUIRE", "1");
        said(inherited).one_line(3, "--require was given");
        assert_eq!(said(with(&[])).code, Some(4), "{name} alone");
    }
    assert!(place.daemon_pid().is_none());
}

#[test]
fn streams_that_get_no_queue_are_refused_or_said() {
    let place = Place::new();
    let with = |options: &[&str]| {
        let mut command = run(&place, options);
        command.env("XSCHED_AUTO_XQUEUE", "OFF");
        command
    };
    said(with(&["--require"])).one_line(3, "XSCHED_AUTO_XQUEUE=OFF has streams go unscheduled: unset it");
    assert!(place.daemon_pid().is_none());
    said(with(&["--local", "hpf"])).one_line(4, "XSCHED_AUTO_XQUEUE=OFF has streams go unscheduled, in sh");
}

#[test]
fn a_misspelt_platform_is_bad_input() {
    let place = Place::new();
    let with = |list: &str| {
        let mut command = run(&place, &["--require"]);
        command.env("XSCHED_PLATFORMS", list);
        command
    };
    for (list, fault) in
        [("opncl", "no platform opncl"), ("cuda, hipp", "no platform hipp"), (",", "names no platform")]
    {
        let answer = said(with(list));
        answer.one_line(2, fault);
        answer.one_line(2, "use cuda, hip, opencl, sim, hsa");
    }
    said(with("OpenCL,sim")).quiet(4);
}

#[test]
fn a_stopped_daemon_is_refused() {
    let place = Place::new();
    let mut daemon = place.xsched(&["daemon"]).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &daemon.id().to_string()]).status().unwrap().success());
    };
    said(run(&place, &["--require"])).quiet(4);
    signal("-STOP");
    said(run(&place, &["--require"])).one_line(3, "does not answer");
    signal("-CONT");
    signal("-TERM");
    daemon.wait().unwrap();
}

#[test]
fn the_program_is_told_and_a_run_without_a_daemon_within_is_not_held_to_it() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let told = |options: &[&str]| {
        let mut command = place.xsched(&["run"]);
        command.args(options).args(["--", "sh", "-c", "echo required ${XSCHED_REQUIRE-no}"]);
        command.env("XSCHED_PRELOAD", place.join("stand-in.so"));
        command
    };
    assert_eq!(said(told(&["--require"])).out, "required 1\n");
    assert_eq!(said(told(&[])).out, "required no\n");
    let mut within = told(&["--no-daemon"]);
    within.env("XSCHED_REQUIRE", "1");
    assert_eq!(said(within).out, "required no\n");
}

/// Starts a daemon that refuses every program, and requests as well if there is a reason for that.
fn refusing_daemon(place: &Place, to_requests: Option<&'static str>) {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
    rustix::net::listen(&socket, 16).unwrap();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        let mut buffer = vec![0u8; MAX_PACKET];
        while let Ok(peer) = rustix::net::accept(&socket) {
            let Ok((length, _)) = rustix::net::recv(&peer, buffer.as_mut_slice(), RecvFlags::empty()) else { continue };
            let refused = |message: &str| DaemonMsg::Refused(Error::environment(message));
            let answer = match decode::<ClientMsg>(&buffer[..length]) {
                Ok(ClientMsg::Hello { .. }) => refused("no room for this program"),
                _ => to_requests.map_or(DaemonMsg::End, refused),
            };
            let _ = rustix::net::send(&peer, &encode(&answer).unwrap(), SendFlags::NOSIGNAL);
        }
    });
}

#[test]
fn a_daemon_that_refuses_to_answer_is_refused() {
    let place = Place::new();
    refusing_daemon(&place, Some("this daemon serves another user"));
    said(run(&place, &["--require"])).one_line(3, "serves another user; --require was given");
    said(run(&place, &[])).quiet(4);
}

/// The demo's best-effort program on a simulated device. It ends when its stdin does.
fn worker(place: &Place, options: &[&str]) -> Command {
    common::library();
    let sim_socket = place.join("sim.sock");
    let mut command = place.xsched(&["run"]);
    command.args(options).args(["--", env!("CARGO_BIN_EXE_xsched"), "demo-worker", "--platform", "sim"]);
    command.args(["--role", "be"]).env("SIMDEV_SOCKET", &sim_socket);
    command
}

#[test]
fn a_program_that_the_daemon_refuses_ends_at_its_first_launch() {
    let place = Place::new();
    common::beside("libsimdev.so");
    let sim_socket = place.join("sim.sock");
    let mut sim = place.xsched(&["sim-device", "--socket", sim_socket.to_str().unwrap()]).spawn().unwrap();
    until("the device answers", || sim_socket.exists());
    refusing_daemon(&place, None);
    let answer = said(worker(&place, &["--require"]));
    sim.kill().unwrap();
    sim.wait().unwrap();
    answer.one_line(3, "refused by the daemon: no room for this program; --require was given");
}
