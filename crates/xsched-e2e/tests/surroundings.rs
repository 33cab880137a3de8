//! What a program sees of us: nothing it did not ask for, and never a byte in a descriptor of its own.

use std::path::Path;
use std::process::Command;

use xsched_e2e::{Place, Process, beside};

/// Runs `surroundings` and returns what it found and what it printed.
fn look(place: &Place, mut command: Command, name: &str, device: bool) -> (String, Vec<String>, String) {
    let file = place.join(name);
    command.arg(&file);
    if device {
        command.arg("device");
    }
    let (code, lines, errors) = Process::start(command).wait();
    assert_eq!(code, 0, "{errors}");
    // Pipes have a number of their own each time.
    let text = std::fs::read_to_string(file).unwrap();
    let found = text.lines().map(|l| l.split_once(":[").map_or(l, |(kind, _)| kind)).collect::<Vec<_>>().join("\n");
    (found, lines, errors)
}

fn preloaded(place: &Place, program: &Path) -> Command {
    let mut command = place.command(program, &[]);
    command.env("LD_PRELOAD", beside("libxsched.so"));
    command
}

#[test]
fn a_program_without_a_device_sees_nothing() {
    let place = Place::new();
    let program = place.sim_program("surroundings");
    let _daemon = place.daemon(&[]);
    let bare = look(&place, place.command(&program, &[]), "bare", false);
    assert_eq!(look(&place, preloaded(&place, &program), "preloaded", false), bare);
    assert_eq!(look(&place, place.run_command(&[], &program, &[]), "run", false), bare);
    assert!(place.ps().unwrap()["programs"].as_array().unwrap().is_empty());
    assert!(place.stats().is_empty());
}

#[test]
fn disabled_means_not_there_at_all() {
    let place = Place::new();
    let program = place.sim_program("surroundings");
    let _daemon = place.daemon(&[]);
    let bare = look(&place, place.command(&program, &[]), "bare", true);
    let mut command = preloaded(&place, &program);
    command.env("XSCHED_DISABLE", "1");
    assert_eq!(look(&place, command, "disabled", true), bare);
    assert!(place.stats().is_empty());
    // Against the same program with us.
    let ours = look(&place, preloaded(&place, &program), "preloaded", true);
    assert_eq!((ours.1, ours.2), (bare.1, bare.2), "the same output");
    assert_ne!(ours.0, bare.0, "it does see the agent thread");
    assert_eq!(place.stats().len(), 1);
}

#[test]
fn standard_descriptors_that_are_closed_do_not_become_ours() {
    let place = Place::new();
    let program = place.sim_program("surroundings");
    let _daemon = place.daemon(&[]);
    let shell = |under: &[&str]| {
        let mut command = place.command("sh", &["-c", "exec \"$@\" <&- >&- 2>&-", "sh"]);
        command.args(under).arg(&program);
        command
    };
    let mut under = std::ffi::OsString::from("LD_PRELOAD=");
    under.push(beside("libxsched.so"));
    let (bare, ..) = look(&place, shell(&["env"]), "bare", true);
    let (ours, ..) = look(&place, shell(&["env", under.to_str().unwrap()]), "ours", true);
    let standard = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    println!("with 0, 1 and 2 closed: bare {:?}, under xsched {:?}", standard(&bare), standard(&ours));
    assert_eq!(standard(&ours), standard(&bare));
    assert_eq!(place.stats().len(), 1, "it was attached");
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_clean() {
    // All numbers taken over by a file, an eventfd, a socket, or by all in turn.
    for kind in [&["0"][..], &["2"], &[]] {
        let place = Place::new();
        let program = place.opencl_program("closes_descriptors");
        let _daemon = place.daemon(&[]);
        let folder = place.join("");
        let args = [&[folder.to_str().unwrap()], kind].concat();
        let (code, lines, errors) = place.run(&["--level", "1"], &program, &args).wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{kind:?}: {errors}");
        let ours = errors.lines().filter(|l| l.starts_with("xsched: ")).count();
        assert!(ours <= 1, "{errors}");
    }
}
