//! Handling of its environment by the library: nothing is ignored silently, nothing makes the program wait, and in a secure execution
//! nothing is read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use xsched_e2e::{Place, Process, beside, skipped};

fn preloaded(place: &Place, variables: &[(&str, &str)]) -> Command {
    let program = place.sim_program("launches");
    let mut command = place.command(&program, &[]);
    command.env("LD_PRELOAD", beside("libxsched.so")).envs(variables.iter().copied());
    command
}

/// Output on stderr of a program that ends well.
#[track_caller]
fn errors(command: Command) -> String {
    let (code, lines, errors) = Process::start(command).wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
    errors
}

#[test]
fn a_misspelt_name_is_told_where_the_program_attaches() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let line = "xsched: XSCHED_DISABEL is no variable of xsched: did you mean XSCHED_DISABLE?\n";
    assert_eq!(errors(preloaded(&place, &[("XSCHED_DISABEL", "1")])), line);
    assert_eq!(errors(preloaded(&place, &[("XSCHED_DISABEL", "1"), ("XSCHED_LOG", "off")])), "");
    assert_eq!(
        errors(preloaded(&place, &[("XSCHED_REQUIRE", "maybe")])),
        "xsched: XSCHED_REQUIRE=maybe: use 1 or 0; the default holds\n"
    );
    let mut run = place.run_command(&[], &place.sim_program("launches"), &[]);
    run.env("XSCHED_DISABEL", "1");
    assert_eq!(errors(run), line, "once, by the command");
    let mut without = place.command("sh", &["-c", "echo ok"]);
    without.env("LD_PRELOAD", beside("libxsched.so")).env("XSCHED_DISABEL", "1");
    assert_eq!(errors(without), "", "it has nothing to do with xsched");
}

#[test]
fn a_program_that_is_not_to_be_scheduled_says_so_once() {
    let place = Place::new();
    let line = "xsched: runs unscheduled: XSCHED_NO_DAEMON or XSCHED_SCHEDULER=APP asks for no scheduler\n";
    for (name, value) in [("XSCHED_NO_DAEMON", "1"), ("XSCHED_SCHEDULER", "APP")] {
        assert_eq!(errors(preloaded(&place, &[(name, value)])), line);
        let mut run = place.run_command(&[], &place.sim_program("launches"), &[]);
        run.env(name, value);
        assert_eq!(
            errors(run),
            "xsched: no daemon is used; launches runs unscheduled\n"
                .replace("launches", place.join("launches").to_str().unwrap())
        );
    }
}

#[test]
fn the_obvious_name_of_the_priority_works() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("starts_later");
    let class = |variables: &[(&str, &str)], options: &[&str]| {
        let mut command = place.run_command(options, &program, &[]);
        command.envs(variables.iter().copied());
        let mut program = Process::start(command);
        program.expect("ready");
        program.tell("begin");
        program.expect("done");
        place.program(program.pid()).expect("attached")["priority"].as_i64()
    };
    assert_eq!(class(&[("XSCHED_PRIORITY", "low")], &[]), Some(-128));
    assert_eq!(class(&[("XSCHED_PRIORITY", "-7"), ("XSCHED_AUTO_XQUEUE_PRIORITY", "high")], &[]), Some(-7));
    assert_eq!(class(&[("XSCHED_PRIORITY", "low")], &["--priority", "high"]), Some(128));
}

#[test]
fn statistics_that_cannot_be_written_are_told_and_nothing_waits() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let (fifo, link, folder) = (place.join("fifo"), place.join("link"), place.join("folder"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink(place.join("elsewhere"), &link).unwrap();
    std::fs::create_dir(&folder).unwrap();
    for path in [&fifo, &link, &folder, Path::new("/dev/null"), &folder.join("none/stats")] {
        let shown = path.to_str().unwrap();
        let errors = errors(preloaded(&place, &[("XSCHED_STATS", shown)]));
        assert!(errors.starts_with(&format!("xsched: XSCHED_STATS: nothing is written to {shown}: ")), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    assert!(!place.join("elsewhere").exists());
    // Files that are read, and the journal, are opened with equal care.
    let rules = errors(preloaded(&place, &[("XSCHED_PASSTHROUGH_CONFIG", fifo.to_str().unwrap())]));
    assert!(rules.contains("pass-through rules ignored") && rules.contains("no regular file"), "{rules}");
}

/// The program is linked with the library, since the loader drops a preload in a secure execution, and its file has the rights of another
/// group.
#[test]
fn a_secure_execution_reads_and_opens_nothing() {
    if !rustix::process::geteuid().is_root() {
        skipped("a program with the rights of another group: needs root");
        return;
    }
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    place.device();
    let own = format!("-l:{}", beside("libxsched.so").file_name().unwrap().to_str().unwrap());
    let program = place.compile("programs/hazards/launches.c", &["-Wl,--no-as-needed", &own, "-lsimdev", "-lm"]);
    // The program gets a file of its own: the tests' programs are links to shared ones.
    let copy = place.join("copy");
    assert!(Command::new("cp").args([&program, &copy]).status().unwrap().success());
    let program = copy;
    let journal = place.join("journal");
    std::fs::create_dir(&journal).unwrap();
    let run = || {
        let mut command = place.command(&program, &[]);
        command.env("XSCHED_JOURNAL", &journal).env("XSCHED_DISABEL", "1").env("XSCHED_LOG", "debug");
        let (code, lines, errors) = Process::start(command).wait();
        assert_eq!((code, lines.len(), lines.last().map(String::as_str)), (0, 2, Some("ok")), "{lines:?} {errors}");
        (lines[0].clone(), errors)
    };
    let journals = || std::fs::read_dir(&journal).unwrap().count();
    let (mode, errors) = run();
    assert_eq!((&*mode, place.stats().len(), journals()), ("secure 0", 1, 1), "linked, it is scheduled: {errors}");
    assert!(errors.contains("XSCHED_DISABEL"), "{errors}");
    std::os::unix::fs::chown(&program, None, Some(65_534)).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o2755)).unwrap();
    let (mode, errors) = run();
    if mode == "secure 0" {
        skipped("a program with the rights of another group: they do not count on this file system");
        return;
    }
    assert_eq!((place.stats().len(), journals(), &*errors), (1, 1, ""));
}
