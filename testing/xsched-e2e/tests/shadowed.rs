//! Library that is preloaded before libxsched.so and answers its calls: a line reports that, or `--require` refuses it.

use std::path::Path;
use std::process::Command;

use xsched_e2e::{Place, Process, beside};

/// Command of a program with the wrapper before libxsched.so.
fn shadowed(place: &Place, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    let wrapper = place.compile("programs/hazards/shadow.c", &["-shared", "-fPIC"]);
    let mut command = place.command(program, args);
    command.env("LD_PRELOAD", format!("{} {}", wrapper.display(), beside("libxsched.so").display()));
    command
}

fn told(place: &Place) -> String {
    let wrapper = place.join("shadow");
    format!(
        "xsched: {} stands before libxsched.so and answers simLaunchKernel: what it does not pass on is not scheduled\n",
        wrapper.display()
    )
}

#[track_caller]
fn ends(command: Command) -> (i32, String) {
    let (code, _, errors) = Process::start(command).wait();
    (code, errors)
}

#[test]
fn a_library_that_takes_the_launches_is_told_once() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("launches");
    assert_eq!(ends(shadowed(&place, &program, &["unchecked"])), (0, told(&place)));
    let mut left_out = shadowed(&place, &program, &["unchecked"]);
    left_out.env("XSCHED_PLATFORMS", "opencl");
    assert_eq!(ends(left_out), (0, String::new()), "this interface is not scheduled anyway");
    let mut disabled = shadowed(&place, &program, &["unchecked"]);
    disabled.env("XSCHED_DISABLE", "1");
    assert_eq!(ends(disabled), (0, String::new()));
    // The usual order: the wrapper is behind the library, and calls reach the library first.
    let mut behind = place.run_command(&[], &program, &["unchecked"]);
    behind.env("LD_PRELOAD", place.join("shadow"));
    assert_eq!(ends(behind), (0, String::new()));
}

#[test]
fn a_program_without_the_interface_is_left_alone_until_it_loads_it() {
    let place = Place::new();
    assert_eq!(ends(shadowed(&place, "sh", &["-c", "true; exit 3"])), (3, String::new()));
    let opens = place.compile("programs/hazards/opens.c", &[]);
    let library = beside("libsimdev.so");
    assert_eq!(ends(shadowed(&place, &opens, &[library.to_str().unwrap()])), (0, told(&place)));
}

#[test]
fn a_program_that_must_be_scheduled_does_not_begin() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("launches");
    let required = |program: &Path| {
        let mut command = shadowed(&place, program, &["unchecked"]);
        command.env("XSCHED_REQUIRE", "1");
        Process::start(command).wait()
    };
    let (code, lines, errors) = required(&program);
    assert_eq!((code, lines.len(), errors.lines().count()), (3, 0, 1), "{errors}");
    assert!(errors.starts_with(told(&place).trim_end()) && errors.contains("--require was given"), "{errors}");
    // The wrapper's own command, under `run`.
    let wrapper = place.join("shadow");
    let prepends = format!("LD_PRELOAD=\"{}:$LD_PRELOAD\" exec {} unchecked", wrapper.display(), program.display());
    let (code, lines, errors) = place.run(&["--require"], "sh".as_ref(), &["-c", &prepends]).wait();
    assert_eq!((code, lines.len()), (3, 0), "{errors}");
}
