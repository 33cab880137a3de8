//! Effect of `--require` inside a program: it is scheduled from its first launch or ends there, and nothing later ends it.

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;
use xsched_e2e::{Place, Process, beside, signal, until};

/// Starts a program that has not used the device yet.
fn started(place: &Place, options: &[&str]) -> Process {
    let program = place.sim_program("starts_later");
    let mut program = place.run(options, &program, &[]);
    program.expect("ready");
    program
}

#[track_caller]
fn ends_unscheduled(mut program: Process, why: &str) {
    program.tell("begin");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.len()), (3, 0), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("xsched: ") && errors.contains(why) && errors.contains("--require"), "{errors}");
}

#[test]
fn a_daemon_that_stops_before_the_first_launch_ends_the_program_there() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let programs = [started(&place, &["--require"]), started(&place, &[])];
    signal(daemon.pid(), Signal::STOP);
    let [required, mut other] = programs;
    ends_unscheduled(required, "the daemon does not answer");
    other.tell("begin");
    other.expect("done");
    let (code, _, errors) = other.wait();
    assert_eq!(code, 0, "never without --require: {errors}");
    signal(daemon.pid(), Signal::CONT);
}

#[test]
fn a_daemon_that_is_lost_later_is_said_and_the_program_goes_on() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let mut program = started(&place, &["--require"]);
    program.tell("begin");
    program.expect("done");
    signal(daemon.pid(), Signal::KILL);
    drop(daemon);
    until("the loss is said", || program.errors().contains("runs unscheduled until a daemon answers"));
    program.tell("go on");
    program.expect("done");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_required_program_that_never_launches_is_left_alone() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let program = started(&place, &["--require"]);
    signal(daemon.pid(), Signal::KILL);
    drop(daemon);
    assert_eq!(program.finish(), ["ok"]);
}

#[test]
fn the_variable_alone_guards_a_preloaded_program() {
    let place = Place::new();
    let program = place.sim_program("starts_later");
    let preloaded = |name: &str, value: &str| {
        let mut command = place.command(&program, &[]);
        command.env("LD_PRELOAD", beside("libxsched.so")).env("XSCHED_REQUIRE", "1").env(name, value);
        let mut program = Process::start(command);
        program.expect("ready");
        program
    };
    ends_unscheduled(preloaded("XSCHED_LOG", "info"), "no daemon at");
    ends_unscheduled(preloaded("XSCHED_NO_DAEMON", "1"), "XSCHED_NO_DAEMON");
    ends_unscheduled(preloaded("XSCHED_POLICY", "no-such-policy"), "no-such-policy");
    for (name, value) in [("XSCHED_DISABLE", "1"), ("XSCHED_POLICY", "hpf")] {
        let mut program = preloaded(name, value);
        program.tell("begin");
        program.expect("done");
        assert_eq!(program.finish(), ["ok"], "{name}");
    }
}

#[test]
fn a_misspelt_platform_is_said_once_and_the_program_goes_on() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.opencl_program("passes_cl");
    let mut command = place.command(&program, &[]);
    command.env("LD_PRELOAD", beside("libxsched.so")).env("XSCHED_PLATFORMS", "opncl");
    let mut program = Process::start(command);
    program.expect("ready");
    program.tell("kernels 3");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("no platform opncl") && errors.contains("use cuda, hip, opencl, sim, hsa"), "{errors}");
}

/// Programs and daemons of other versions, as far as the bytes that never change go: this version does not know the shape of the rest of a
/// message.
#[test]
fn a_daemon_of_another_version_is_said_and_the_program_goes_on_without() {
    // An older or newer daemon refuses in words; one that does not even know that answer reports the part that it does not understand.
    let words = b"the daemon speaks protocol 99: install one version".as_slice();
    let refusal = [&[0, 1, words.len() as u8], words].concat();
    for (answer, says) in [(refusal, "protocol 99"), (vec![77, 1, 2, 3], "the daemon is of another version")] {
        let place = Place::new();
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        net::bind(&socket, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
        net::listen(&socket, 16).unwrap();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            let mut buffer = [0u8; 64 << 10];
            while let Ok(peer) = net::accept(&socket) {
                let got = net::recv(&peer, &mut buffer[..], RecvFlags::empty());
                assert!(
                    got.is_err() || buffer[..2] == [0, xsched_proto::PROTOCOL_VERSION as u8],
                    "the version's place"
                );
                let _ = net::send(&peer, &answer, SendFlags::NOSIGNAL);
            }
        });
        // Started without the command, which would check the daemon before.
        let program = place.sim_program("starts_later");
        let mut command = place.command(program, &[]);
        command.env("LD_PRELOAD", beside("libxsched.so"));
        let mut program = Process::start(command);
        program.expect("ready");
        program.tell("begin");
        program.expect("done");
        let (code, _, errors) = program.wait();
        assert_eq!((code, errors.lines().count()), (0, 1), "{errors}");
        assert!(errors.contains(says) && errors.contains("unscheduled"), "{errors}");
    }
}

#[test]
fn what_a_static_launcher_starts_is_scheduled_or_ends() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let program = place.sim_program("starts_later");
    let launcher = place.compile("programs/hazards/launcher.c", &["-static"]);
    let launched = || {
        let mut launcher = place.run(&["--require"], &launcher, &["execve", "keep", program.to_str().unwrap()]);
        launcher.expect("ready");
        launcher
    };
    let mut scheduled = launched();
    let late = launched();
    scheduled.tell("begin");
    scheduled.expect("done");
    let programs = place.ps().unwrap()["programs"].as_array().unwrap().clone();
    assert_eq!(programs.len(), 1, "{programs:?}");
    assert!(programs[0]["exe"].as_str().unwrap().ends_with("starts_later"), "{programs:?}");
    assert_eq!(scheduled.finish().last().map(String::as_str), Some("ok"));
    signal(daemon.pid(), Signal::STOP);
    ends_unscheduled(late, "the daemon does not answer");
    signal(daemon.pid(), Signal::CONT);
}

/// Covers libraries that set their own `LD_PRELOAD` for a child, and programs that give one an environment of their own.
#[test]
fn a_child_whose_environment_was_replaced_is_scheduled_all_the_same() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("starts_later");
    let program = program.to_str().unwrap();
    let launcher = place.compile("programs/hazards/launcher.c", &[]);
    let other = place.join("other.c");
    std::fs::write(&other, "int nothing_at_all;").unwrap();
    let other = place.compile(other.to_str().unwrap(), &["-shared", "-fPIC"]);
    let own_preload = format!("LD_PRELOAD={}", other.display());
    for how in [
        "execve",
        "vfork",
        "execv",
        "execvp",
        "execvpe",
        "execl",
        "execlp",
        "execle",
        "fexecve",
        "execveat",
        "posix_spawn",
        "posix_spawnp",
    ] {
        for environment in ["none", &own_preload] {
            let options = ["--require", "--priority", "high", "--job", "followed"];
            let mut launcher = place.run(&options, &launcher, &[how, environment, program]);
            launcher.expect("ready");
            launcher.tell("begin");
            launcher.expect("done");
            let programs = place.ps().unwrap()["programs"].as_array().unwrap().clone();
            assert_eq!(programs.len(), 1, "{how} {environment}: {programs:?}");
            assert_eq!((&programs[0]["class"], &programs[0]["job"]), (&"high".into(), &"followed".into()), "{how}");
            assert_eq!(launcher.finish().last().map(String::as_str), Some("ok"), "{how} {environment}");
        }
    }
}

#[test]
fn a_child_is_not_followed_where_it_would_do_harm_or_is_not_wanted() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("starts_later");
    let launcher = place.compile("programs/hazards/launcher.c", &[]);
    let started = |environment: &str, follow: &str| {
        let mut run = place.run_command(&[], &launcher, &["execve", environment, program.to_str().unwrap()]);
        run.env("XSCHED_FOLLOW", follow);
        let mut launcher = Process::start(run);
        launcher.expect("ready");
        launcher.tell("begin");
        launcher.expect("done");
        let programs = place.ps().unwrap()["programs"].as_array().unwrap().len();
        launcher.finish();
        programs
    };
    assert_eq!(started("none", "1"), 1, "the control");
    assert_eq!(started("none", "0"), 0);
    assert_eq!(started("XSCHED_FOLLOW=0", "1"), 0);
    assert_eq!(started("XSCHED_DISABLE=1", "1"), 0);
    // A child with a cleared environment gets the preload, but not one of musl's loader or of an old glibc in a container, which the
    // preload would end.
    let shell = "exec 3>&1; for at in 1 2; do env -i /bin/sh -c 'echo ${LD_PRELOAD:+preloaded}'; done";
    let lines = place.run(&[], std::path::Path::new("sh"), &["-c", shell]).finish();
    assert_eq!(lines, ["preloaded", "preloaded"]);
    let musl = place.join("musl-program");
    let file = place.join("musl-program.c");
    std::fs::write(&file, "#include <stdio.h>\nint main(void) { puts(\"musl\"); return 0; }").unwrap();
    let compiled = std::process::Command::new("musl-gcc").arg("-o").arg(&musl).arg(&file).output();
    if !compiled.is_ok_and(|output| output.status.success())
        || !std::path::Path::new("/lib/ld-musl-x86_64.so.1").exists()
    {
        xsched_testkit::skipped("a child of musl's: there is no musl-gcc with its loader");
        return;
    }
    let lines = place.run(&[], &launcher, &["execve", "none", musl.to_str().unwrap()]).finish();
    assert_eq!(lines, ["musl"]);
}

/// The first process of a `run` uses no device and ends; its descendant goes on without the library in it.
#[test]
fn a_descendant_that_uses_a_device_without_the_library_is_named_at_the_end() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("titled");
    // The shell ends when the program is at work, as its output shows.
    let script = format!(
        "mkfifo {0}.in {0}.out; env $HOW {1} <{0}.in >{0}.out & exec 8>{0}.in; read -r line <{0}.out; echo $! $line",
        place.join("pipe").display(),
        program.display()
    );
    let named = |how: &str| {
        let mut run = place.run_command(&[], std::path::Path::new("bash"), &["-c", &script]);
        run.env("HOW", how);
        let (code, lines, errors) = Process::start(run).wait();
        assert_eq!(code, 0, "{errors}");
        let pid = lines[0].split(' ').next().unwrap().to_owned();
        for end in ["in", "out"] {
            std::fs::remove_file(place.join(&format!("pipe.{end}"))).unwrap();
        }
        until("it ends with its input", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
        (pid, errors)
    };
    let (pid, errors) = named("XSCHED_FOLLOW=0 LD_PRELOAD=");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains(&format!("process {pid} (titled) uses a device without xsched")), "{errors}");
    for scheduled_or_told in ["A=1", "XSCHED_DISABLE=1 LD_PRELOAD="] {
        assert_eq!(named(scheduled_or_told).1, "", "{scheduled_or_told}");
    }
}
