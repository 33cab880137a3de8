//! Reports of `doctor PID` on whether a program is scheduled, and the reason if not.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use xsched_e2e::{Place, Process, beside, skipped};

/// Result of `doctor` for a program: its exit code, and name and cause of each check that is not `ok`.
fn doctor(place: &Place, pid: u32, more: &[&str]) -> (i32, Vec<(String, String)>, Value) {
    let mut command = place.xsched(&["doctor", "--json", &pid.to_string()]);
    let output = command.args(more).output().unwrap();
    let v: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let checks = v["checks"].as_array().unwrap().iter().filter(|check| check["status"] != "ok");
    let found = checks.map(|check| (text(check, "name"), text(check, "cause"))).collect();
    (output.status.code().unwrap(), found, v)
}

/// Asserts that `doctor` names this one cause for a program that is not scheduled, with something like `words`.
#[track_caller]
fn names(place: &Place, program: &Process, check: &str, cause: &str, words: &str) {
    let (code, found, v) = doctor(place, program.pid(), &[]);
    assert_eq!((code, found), (3, vec![(check.to_owned(), cause.to_owned())]), "{v:#}");
    assert!(v.to_string().contains(words), "{words}: {v:#}");
}

fn started(command: Command) -> Process {
    let mut program = Process::start(command);
    program.expect("ready");
    program
}

fn preloaded(place: &Place, program: &Path, args: &[&str]) -> Command {
    let mut command = place.command(program, args);
    command.env("LD_PRELOAD", beside("libxsched.so"));
    command
}

#[test]
fn a_program_that_is_scheduled_has_nothing_to_mend_until_it_is_held() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let steady = place.sim_program("steady");
    let program = started(place.run_command(&[], &steady, &[]));
    let (code, found, v) = doctor(&place, program.pid(), &["--strict"]);
    assert_eq!((code, found, &v["ok"]), (0, vec![], &Value::Bool(true)), "{v:#}");
    let calls = v["checks"].as_array().unwrap().iter().any(|check| check["name"] == "calls");
    assert!(calls || !rustix::process::geteuid().is_root(), "its calls were looked at: {v:#}");
    assert!(v["functions"].as_array().unwrap().iter().any(|f| f["name"] == "simLaunchKernel"), "{v:#}");
    assert_eq!(v["queues"].as_array().unwrap().len(), 1);
    let pid = program.pid().to_string();
    place.ask(&["suspend", &pid]);
    let held = || vec![("scheduled".to_owned(), "held".to_owned())];
    let (code, found, v) = doctor(&place, program.pid(), &[]);
    assert_eq!((code, found), (0, held()), "{v:#}");
    assert!(v.to_string().contains(&format!("`xsched resume {pid}` lets it go on")), "{v:#}");
    place.ask(&["resume", &pid]);
    place.ask(&["hint", &pid, "--priority", "-256"]);
    assert_eq!(doctor(&place, program.pid(), &["--strict"]).1, held());
    assert_eq!(doctor(&place, program.pid(), &["--strict"]).0, 3);
}

#[test]
fn a_program_that_no_preload_can_enter_is_told_so() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let stays = place.compile("programs/hazards/stays.c", &["-static"]);
    names(&place, &started(preloaded(&place, &stays, &[])), "executable", "not-preloadable", "linked statically");
    if !rustix::process::geteuid().is_root() {
        skipped("doctor of a setuid program: only root can make one");
        return;
    }
    let dynamic = place.join("dynamic");
    std::fs::copy(place.compile("programs/hazards/stays.c", &[]), &dynamic).unwrap();
    std::os::unix::fs::chown(&dynamic, Some(65534), None).unwrap();
    std::fs::set_permissions(&dynamic, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    names(&place, &started(preloaded(&place, &dynamic, &[])), "executable", "secure", "setuid");
}

#[test]
fn a_program_that_was_started_otherwise_is_told_so() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let stays = place.compile("programs/hazards/stays.c", &[]);
    let with = |name: &str, value: &str| {
        let mut command = preloaded(&place, &stays, &[]);
        command.env(name, value);
        started(command)
    };
    names(&place, &started(place.command(&stays, &[])), "library", "not-preloaded", "xsched run -- COMMAND");
    names(&place, &with("XSCHED_DISABLE", "1"), "environment", "switched-off", "XSCHED_DISABLE=1");
    names(&place, &with("XSCHED_NO_DAEMON", "1"), "environment", "no-scheduler", "asks no daemon");
    names(&place, &with("XSCHED_POLICY", "hpf"), "environment", "no-scheduler", "only inside itself");
    names(&place, &with("XSCHED_SOCKET", "/none/x.sock"), "daemon", "no-daemon", "/none/x.sock");
    names(&place, &with("HOME", "/"), "attached", "no-call", "has loaded no vendor's library");
    let linked = place.compile("programs/hazards/stays.c", &["-Wl,--no-as-needed", "-lsimdev"]);
    let idle = started(preloaded(&place, &linked, &[]));
    names(&place, &idle, "attached", "no-call", "has loaded libsimdev.so, but has given no command");
    let stopped = started(preloaded(&place, &linked, &[]));
    xsched_e2e::signal(stopped.pid(), rustix::process::Signal::STOP);
    xsched_e2e::until("it is stopped", || {
        doctor(&place, stopped.pid(), &[]).1.iter().any(|(_, cause)| cause == "stopped")
    });
    let (code, found, v) = doctor(&place, u32::MAX / 4, &[]);
    assert_eq!((code, found.len(), &*found[0].1), (3, 1, "no-process"), "{v:#}");
}

#[test]
fn calls_that_pass_by_the_library_are_found_in_the_programs_memory() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let plugin = place.compile("programs/hazards/plugin.c", &["-shared", "-fPIC", "-lsimdev", "-lm"]);
    let opens = place.compile("programs/hazards/deepbind.c", &["-ldl"]);
    place.device();
    let program = started(place.run_command(&[], &opens, &[plugin.to_str().unwrap()]));
    if !rustix::process::geteuid().is_root() {
        skipped("calls that pass by the library: reading another process's memory needs root where Yama is on");
        return;
    }
    let straight =
        format!("simLaunchKernel of {} goes straight to {}", plugin.display(), beside("libsimdev.so").display());
    names(&place, &program, "calls", "passed-by", &straight);
}

#[test]
fn a_library_that_stands_before_ours_is_named() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let wrapper = place.compile("programs/hazards/shadow.c", &["-shared", "-fPIC"]);
    let mut command = place.command(place.compile("programs/hazards/stays.c", &[]), &[]);
    command.env("LD_PRELOAD", format!("{}:{}", wrapper.display(), beside("libxsched.so").display()));
    let found = format!("{} stands before it and answers simLaunchKernel", wrapper.display());
    names(&place, &started(command), "library", "shadowed", &found);
}

#[test]
fn a_program_of_another_daemon_is_told_with_its_socket() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let other = place.join("other.sock");
    let mut command = place.xsched(&["daemon", "--idle-exit", "never"]);
    command.arg("--socket").arg(&other);
    let _other = Process::start(command);
    xsched_e2e::until("the other one answers", || {
        place.xsched(&["ps", "--socket", other.to_str().unwrap()]).output().unwrap().status.success()
    });
    let steady = place.sim_program("steady");
    let program = started(place.run_command(&["--socket", other.to_str().unwrap()], &steady, &[]));
    names(&place, &program, "daemon", "other-daemon", &format!("looks for its daemon at {}", other.display()));
    let (code, found, v) = doctor(&place, program.pid(), &["--socket", other.to_str().unwrap()]);
    assert_eq!((code, found), (0, vec![]), "{v:#}");
}

#[test]
fn a_program_that_sees_other_files_lacks_the_library_or_the_socket() {
    let can = Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|output| output.status.success());
    if !can {
        skipped("doctor of a program in another mount namespace: there can be none");
        return;
    }
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let stays = place.compile("programs/hazards/stays.c", &[]);
    // The library lies in a folder of its own, which the other mount namespace hides.
    let folder = place.join("lib");
    std::fs::create_dir(&folder).unwrap();
    let library = folder.join("libxsched.so");
    std::fs::copy(beside("libxsched.so"), &library).unwrap();
    let inside = |hidden: &Path, preload: &Path| {
        let script = r#"mount -t tmpfs none "$1" && exec env LD_PRELOAD="$2" "$3""#;
        let mut command = place.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
        command.args([hidden, preload, &stays]);
        started(command)
    };
    let without_library = inside(&folder, &library);
    let (code, found, v) = doctor(&place, without_library.pid(), &[]);
    assert_eq!((code, found), (3, vec![("library".to_owned(), "file-missing".to_owned())]), "{v:#}");
    assert!(v.to_string().contains("sees other files than this shell (a container?)"), "{v:#}");
    // The socket is hidden there in the same way.
    let sockets = place.join("run");
    std::fs::create_dir(&sockets).unwrap();
    let mut command = place.xsched(&["daemon", "--socket", sockets.join("x.sock").to_str().unwrap()]);
    let socket = sockets.join("x.sock");
    command.env("XSCHED_SOCKET", &socket);
    let _second = Process::start(command);
    xsched_e2e::until("it listens", || socket.exists());
    let script = r#"mount -t tmpfs none "$1" && exec env LD_PRELOAD="$2" XSCHED_SOCKET="$1/x.sock" "$3""#;
    let mut command = place.command("unshare", &["--mount", "sh", "-c", script, "sh"]);
    command.args([&sockets, &library, &stays]);
    let without_socket = started(command);
    let (code, found, v) = doctor(&place, without_socket.pid(), &["--socket", socket.to_str().unwrap()]);
    assert_eq!((code, found), (3, vec![("daemon".to_owned(), "no-daemon".to_owned())]), "{v:#}");
    assert!(v.to_string().contains("among the files that it sees (a container?)"), "{v:#}");
}
