//! The real daemon: how it starts and is found, that it ends when idle, and its answers.

mod common;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, alive, said, until};

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn ten_runs_at_once_start_one_daemon() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let mut children: Vec<_> = (0..10)
        .map(|_| {
            let mut command = place.xsched(&["run", "--require", "sh", "-c", "echo $XSCHED_SOCKET"]);
            command.env("XSCHED_PRELOAD", place.join("stand-in.so"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in &mut children {
        let (mut out, mut err) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
        assert_eq!(out.trim_end(), place.socket().to_str().unwrap());
    }
    let pid = place.daemon_pid().expect("a daemon answers");
    let socket = place.socket();
    let daemons: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&p| {
            let line = std::fs::read(format!("/proc/{p}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|&b| b == 0).collect();
            words.contains(&&b"daemon"[..]) && words.contains(&socket.as_os_str().as_encoded_bytes()) && alive(p)
        })
        .collect();
    assert_eq!(daemons, [pid]);
}

#[test]
fn a_command_waits_for_a_daemon_that_another_one_starts() {
    let place = Place::new();
    // As `xsched run` has it from before the daemon begins until it answers.
    let lock = std::fs::File::create(place.join("x.sock.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let ask = |args: &[&str]| {
        let mut command = place.xsched(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let asked = [ask(&["policy", "get"]), ask(&["ps"]), ask(&["top", "--once"])];
    let mut daemon = place.xsched(&["daemon"]).spawn().unwrap();
    for child in asked {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
    drop(lock);
    place.end_daemon();
    daemon.wait().unwrap();
    said(place.xsched(&["policy", "get"])).one_line(3, "no daemon answers");
}

#[test]
fn a_started_daemon_is_on_its_own() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let mut command = place.xsched(&["run", "--require", "sh", "-c", "ps -o sid= -p $$ | tr -d ' '"]);
    command.env("XSCHED_PRELOAD", place.join("stand-in.so")).env("LD_PRELOAD", place.join("stand-in.so"));
    // This pipe is inherited; a daemon that kept it would keep it open for ever.
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::from(writer));
    let answer = said(command);
    answer.quiet(0);
    // `said` dropped the command, and with it the pipe's last writer, unless the daemon has one.
    let mut reader = reader;
    assert_eq!(reader.read(&mut [0u8]).unwrap(), 0);
    let pid = place.daemon_pid().expect("a daemon answers");
    let proc = |what: &str| format!("/proc/{pid}/{what}");
    assert_eq!(std::fs::read_link(proc("cwd")).unwrap().to_str(), Some("/"));
    for fd in 0..3 {
        assert_eq!(std::fs::read_link(proc(&format!("fd/{fd}"))).unwrap().to_str(), Some("/dev/null"));
    }
    let stat = std::fs::read_to_string(proc("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_ne!(fields[1], std::process::id().to_string(), "not our child");
    assert_ne!(fields[3], answer.out.trim(), "a session of its own");
    let maps = std::fs::read_to_string(proc("maps")).unwrap();
    assert!(!maps.contains("stand-in"), "LD_PRELOAD is for the program");
}

#[test]
fn a_daemon_that_cannot_be_started_is_said_and_the_command_runs() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let run = |options: &[&str]| {
        let mut command = place.xsched(&["run", "--socket", "/no/such/folder/s.sock"]);
        command.args(options).args(["--", "sh", "-c", "exit 4"]).env("XSCHED_PRELOAD", place.join("stand-in.so"));
        said(command)
    };
    run(&[]).one_line(4, "sh runs unscheduled");
    run(&["--require"]).one_line(3, "--require was given");
    assert!(place.daemon_pid().is_none());
}

#[test]
fn a_daemon_ends_when_it_has_been_idle() {
    let place = Place::new();
    let mut daemon = place.xsched(&["daemon", "--idle-exit", "1"]).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    until("it ends", || !alive(daemon.id()));
    assert!(daemon.wait().unwrap().success());
    assert!(!place.socket().exists(), "its socket goes with it");
}

#[test]
fn a_daemon_stays_while_a_program_that_was_started_has_not_attached_yet() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let mut daemon = place.xsched(&["daemon", "--idle-exit", "1"]).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    // The program never calls a device, like one that still loads its model.
    let mut command = place.xsched(&["run", "--require", "sh", "-c", "read -r end"]);
    command.env("XSCHED_PRELOAD", place.join("stand-in.so"));
    let mut program = command.stdin(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_millis(2500);
    until("the idle time is well over", || {
        assert!(alive(daemon.id()), "the daemon left a program behind");
        Instant::now() > end
    });
    drop(program.stdin.take());
    program.wait().unwrap();
    until("it ends", || !alive(daemon.id()));
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn ps_policy_and_refusals() {
    let place = Place::new();
    let mut daemon = place.xsched(&["daemon", "--policy", "UP"]).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    let ps = said(place.xsched(&["ps", "--json"]));
    ps.quiet(0);
    let v = parse(&ps.out);
    assert_eq!((&v["version"], &v["programs"]), (&2.into(), &serde_json::json!([])));
    assert_eq!(v["daemon"]["pid"], daemon.id());
    assert_eq!(v["daemon"]["policy"], "up");
    assert!(said(place.xsched(&["ps"])).out.contains("no program is attached"));

    assert_eq!(said(place.xsched(&["policy", "get"])).out, "up\n");
    let set = said(place.xsched(&["policy", "set", "Priority"]));
    set.quiet(0);
    assert_eq!(set.out, "policy: up → hpf\n");
    assert_eq!(said(place.xsched(&["policy", "set", "hpf"])).out, "policy: hpf as before\n");
    assert_eq!(parse(&said(place.xsched(&["policy", "get", "--json"])).out)["current"], "hpf");
    assert_eq!(parse(&said(place.xsched(&["policy", "--json", "get"])).out)["current"], "hpf");
    said(place.xsched(&["policy", "--socket", "/nowhere/s", "get"])).one_line(3, "/nowhere/s");
    assert_eq!(parse(&said(place.xsched(&["policy", "--json"])).out)["current"], "hpf");

    // A policy for a device that cannot exist is refused, and noted for one that nothing uses.
    said(place.xsched(&["policy", "set", "up", "--device", "nosuch"])).one_line(2, "no device has the key 'nosuch'");
    let noted = said(place.xsched(&["policy", "set", "up", "--device", "sim:7"]));
    let both = format!("{}{}", noted.out, noted.err);
    assert_eq!(noted.code, Some(0));
    assert!(both.contains("no program uses sim:7 now: the policy counts once one does"), "{noted:?}");

    let nobody = std::process::id().to_string();
    said(place.xsched(&["hint", "--pid", &nobody, "--weight", "5"])).one_line(3, &nobody);
    said(place.xsched(&["suspend", "--pid", &nobody])).one_line(3, &nobody);
    said(place.xsched(&["resume", "--pid", &nobody])).one_line(3, &nobody);

    let second = said(place.xsched(&["daemon"]));
    second.one_line(3, "already serves");

    let doctor = said(place.xsched(&["doctor", "--json", "--pid", &nobody]));
    let v = parse(&doctor.out);
    assert_eq!((doctor.code, &v["ok"], &v["pid"]), (Some(3), &false.into(), &std::process::id().into()));
    let _ = std::process::Command::new("kill").arg(daemon.id().to_string()).status();
    assert!(daemon.wait().unwrap().success(), "SIGTERM is how it is told to end");
}

#[test]
fn a_daemon_tells_what_it_is_is_told_to_reload_and_to_stop() {
    let place = Place::new();
    let config = place.join("more.toml");
    std::fs::write(&config, "policy = \"up\"\n").unwrap();
    let log = std::fs::File::create(place.join("log")).unwrap();
    let mut command = place.xsched(&["daemon", "--config", config.to_str().unwrap()]);
    let mut daemon = command.stderr(log).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    let written = || std::fs::read_to_string(place.join("log")).unwrap();
    let (socket, file) = (place.socket().display().to_string(), config.display().to_string());
    until("it says how it was started", || {
        written().contains(&format!("listens at {socket}, policy up, configuration {file}\n"))
    });
    let status = said(place.xsched(&["daemon", "status"]));
    status.quiet(0);
    for line in [&socket, "policy         up\n", &file, &format!("process {},", daemon.id()), "programs       0\n"] {
        assert!(status.out.contains(line), "{line}: {status:?}");
    }
    let json = parse(&said(place.xsched(&["daemon", "status", "--json"])).out);
    assert_eq!((&json["daemon"]["configuration"], &json["socket"]), (&serde_json::json!([file]), &socket.into()));

    std::fs::write(&config, "plicy = \"up\"\n").unwrap();
    said(place.xsched(&["daemon", "reload"])).one_line(2, "more.toml:1: unknown key `plicy`");
    let fault = "the configuration stays as it was: ";
    for look in [&["ps"][..], &["daemon", "status"], &["doctor"]] {
        let shown = said(place.xsched(look)).out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(fault), "{look:?}: {shown}");
    }
    std::fs::write(&config, "policy = \"pup\"\n").unwrap();
    let reload = said(place.xsched(&["daemon", "reload"]));
    reload.quiet(0);
    assert_eq!(reload.out, "the configuration was read again\n");
    let status = said(place.xsched(&["daemon", "status"])).out;
    assert!(status.contains("policy         pup\n") && !status.contains(fault), "{status}");

    let stop = said(place.xsched(&["daemon", "stop"]));
    stop.quiet(0);
    // The daemon is a child of this test, and stays until it is waited for; it has ended all the same.
    assert!(daemon.try_wait().unwrap().is_some_and(|status| status.success()), "{stop:?}");
    for word in ["status", "reload", "stop"] {
        said(place.xsched(&["daemon", word])).one_line(3, "no daemon answers at");
    }
}

#[test]
fn a_stopped_daemon_is_told_from_none() {
    let place = Place::new();
    let mut daemon = place.xsched(&["daemon"]).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args([name, &daemon.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    said(place.xsched(&["ps"])).one_line(3, "does not answer");
    signal("-CONT");
    said(place.xsched(&["ps"])).quiet(0);
    signal("-TERM");
    daemon.wait().unwrap();
}

/// Daemons of `demo`, `check` and `compare` are started in this way.
#[test]
fn a_daemon_that_is_to_read_no_usual_configuration_starts_beside_a_wrong_one() {
    let place = Place::new();
    let folder = place.join("xsched");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "plicy = 1\n").unwrap();
    said(place.xsched(&["daemon"]))
        .one_line(2, "config.toml:1: unknown key `plicy` of the top level: did you mean `policy`?");
    let mut daemon = place.xsched(&["daemon", "--no-usual-config", "--idle-exit", "1"]).spawn().unwrap();
    until("it answers", || place.daemon_pid().is_some());
    until("it ends", || !alive(daemon.id()));
    assert!(daemon.wait().unwrap().success());
}

/// The service manager opens the port for a service without a network (dist/xsched-metrics.socket). The port is in use here, so that the
/// daemon could not open it itself.
#[test]
fn metrics_are_told_at_a_socket_that_the_service_manager_has_opened() {
    use std::io::Write;
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = place.join("config.toml");
    std::fs::write(&config, format!("[metrics]\nlisten = \"{address}\"\n")).unwrap();
    let script = r#"exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@""#;
    let words = ["-c", script, "sh", env!("CARGO_BIN_EXE_xsched"), "daemon", "--config", config.to_str().unwrap()];
    let mut command = place.command(std::path::Path::new("sh"), &words);
    let mut daemon = command.stdin(std::os::fd::OwnedFd::from(listener)).stderr(Stdio::null()).spawn().unwrap();
    until("it serves", || place.daemon_pid().is_some());
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("xsched_uptime_seconds"), "{text}");
    place.end_daemon();
    assert!(daemon.wait().unwrap().success());
}
