//! `xsched daemon status`, `reload` and `stop`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use xsched_proto::paths;
use xsched_proto::text::escaped;
use xsched_proto::units;
use xsched_proto::wire::{DaemonInfo, DaemonMsg, Request};

use crate::client;
use crate::failure::{Error, Result, print, print_json};

/// Longest wait for the end of a daemon.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Answer in the form of `--json`.
#[derive(Serialize)]
struct Status<'a> {
    version: u32,
    socket: String,
    daemon: &'a DaemonInfo,
    programs: usize,
}

fn path(socket: Option<&Path>) -> PathBuf {
    paths::socket_path(socket.map(Path::to_owned)).0
}

/// Shows the daemon.
pub(super) fn status(socket: Option<&Path>, json: bool) -> Result {
    let answer = client::ask(socket, Request::Ps)?;
    let programs = answer.iter().filter(|part| matches!(part, DaemonMsg::Program(_))).count();
    let daemon = answer.iter().find_map(|part| if let DaemonMsg::Daemon(info) = part { Some(info) } else { None });
    let Some(daemon) = daemon else {
        return Err(Error::environment("the daemon says nothing about itself: restart it with this version"));
    };
    let socket = path(socket).display().to_string();
    if json {
        return print_json(&Status { version: 1, socket, daemon, programs });
    }
    print(&text(&socket, daemon, programs))
}

fn text(socket: &str, daemon: &DaemonInfo, programs: usize) -> String {
    let up = units::of_s(daemon.uptime_s);
    let mut out = format!("daemon         process {}, version {}, up {up}\n", daemon.pid, daemon.version);
    let devices = daemon.device_policies.iter().map(|(device, policy)| format!(", {policy} on {}", escaped(device)));
    let files = if daemon.configuration.is_empty() { "no file".to_owned() } else { daemon.configuration.join(", ") };
    let others = match daemon.hidden_programs {
        0 => String::new(),
        n => format!(", and {n} of other users"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "socket         {}", escaped(socket));
    let _ = writeln!(out, "policy         {}{}", escaped(&daemon.policy), devices.collect::<String>());
    let _ = writeln!(out, "configuration  {}", escaped(&files));
    let _ = writeln!(out, "programs       {programs}{others}");
    for line in [&daemon.scheduler_failure, &daemon.configuration_fault].into_iter().flatten() {
        let _ = writeln!(out, "trouble        {}", escaped(line));
    }
    for line in &daemon.warnings {
        let _ = writeln!(out, "warning        {}", escaped(line));
    }
    if daemon.panics > 0 {
        let _ = writeln!(out, "faults         {} of its own, caught: the log has them", daemon.panics);
    }
    out
}

/// Has the configuration read again.
pub(super) fn reload(socket: Option<&Path>) -> Result {
    let mut out = String::new();
    for part in client::ask(socket, Request::Reload)? {
        if let DaemonMsg::Note { text } = part {
            let _ = writeln!(out, "{}", escaped(&text));
        }
    }
    print(&(out + "the configuration was read again\n"))
}

/// Ends the daemon.
pub(super) fn stop(socket: Option<&Path>) -> Result {
    let path = path(socket);
    // The process, and no later one of its number: a socket that a service manager holds would start another.
    let process = client::server(&path).and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    client::ask(socket, Request::Stop)?;
    if let Some(process) = &process {
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        let ended = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&PATIENCE)));
        if ended != Ok(1) {
            let why = format!("the daemon at {} was told to end, and has not ended within 10 s", path.display());
            return Err(Error::environment(why));
        }
    }
    print(&format!(
        "the daemon at {} has ended; programs that it had go on unscheduled\n",
        escaped(&path.display().to_string())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_a_line_for_each_thing_and_for_what_is_wrong() {
        let mut daemon = DaemonInfo {
            pid: 7,
            version: "1.2.3".into(),
            policy: "hpf".into(),
            device_policies: [("sim:0".to_owned(), "up".to_owned())].into(),
            uptime_s: 65,
            dropped_clients: 0,
            hidden_programs: 2,
            configuration: Vec::new(),
            configuration_fault: None,
            scheduler_failure: None,
            warnings: Vec::new(),
            panics: 0,
        };
        let expected = "daemon         process 7, version 1.2.3, up 1 m 5 s\nsocket         /s\n\
                        policy         hpf, up on sim:0\nconfiguration  no file\nprograms       1, and 2 of other users\n";
        assert_eq!(text("/s", &daemon, 1), expected);
        daemon.configuration = vec!["/a".into(), "/b".into()];
        daemon.scheduler_failure = Some("the scheduler failed".into());
        let told = text("/s", &daemon, 1);
        assert!(told.contains("configuration  /a, /b\n") && told.ends_with("trouble        the scheduler failed\n"));
        daemon.warnings = vec!["metrics: no port".into()];
        daemon.panics = 3;
        let told = text("/s", &daemon, 1);
        let parts = "warning        metrics: no port\nfaults         3 of its own, caught: the log has them\n";
        assert!(told.ends_with(&format!("failed\n{parts}")), "{told}");
    }
}
