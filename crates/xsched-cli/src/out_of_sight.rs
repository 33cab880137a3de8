//! Daemons whose programs this command's daemon does not schedule, and which do not schedule its programs: those of other users, and in
//! containers.
//!
//! `/proc` shows them. A process sees those of its own pid namespace and of the namespaces below it: the machine sees the containers', a
//! container sees neither the machine's nor another container's, and reports that it is one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;
use xsched_proto::paths::{Origin, SYSTEM_SOCKET};

/// Target of `/proc/self/ns/pid` outside of all containers: `PROC_PID_INIT_INO` of the kernel.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const CURE: &str = "a system daemon schedules all together: `systemctl enable --now xsched`";
const CURE_OF_CONTAINERS: &str = "run the machine's daemon and mount /run/xsched in the container";

/// Daemon at a path where programs look by themselves. A daemon at another path was put there on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Other {
    /// Process id of the daemon, as seen from here.
    pub(crate) pid: u32,
    /// User id of its user.
    pub(crate) uid: u32,
    /// True if it has process ids of its own: it is in a container.
    pub(crate) in_container: bool,
}

impl Other {
    /// Description in one line.
    pub(crate) fn line(&self) -> String {
        let Other { pid, uid, .. } = self;
        let place = if self.in_container { "in a container " } else { "" };
        format!(
            "user {uid} has a daemon of its own {place}(process {pid}): programs of the two are not scheduled together"
        )
    }

    /// Advice to the user.
    pub(crate) fn cure(&self) -> &'static str {
        if self.in_container { CURE_OF_CONTAINERS } else { CURE }
    }
}

/// All other daemons, except the one that serves here, which is process `ours`.
pub(crate) fn others(ours: Option<u32>) -> Vec<Other> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| Some(*pid) != ours).filter_map(other).collect()
}

fn other(pid: u32) -> Option<Other> {
    let at = format!("/proc/{pid}");
    let command = std::fs::read(format!("{at}/cmdline")).ok()?;
    let words: Vec<&str> =
        command.split(|byte| *byte == 0).map(|word| std::str::from_utf8(word).unwrap_or("")).collect();
    let is_usual = socket_of(&words).is_some_and(|socket| socket.is_none_or(is_usual));
    let uid = std::fs::metadata(&at).ok().filter(|_| is_usual)?.uid();
    let status = std::fs::read_to_string(format!("{at}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().count();
    Some(Other { pid, uid, in_container: numbers > 1 })
}

/// Socket in a daemon's command line; none = this is no daemon's command line.
fn socket_of<'a>(words: &[&'a str]) -> Option<Option<&'a Path>> {
    let [program, "daemon", options @ ..] = words else { return None };
    if Path::new(program).file_name()? != "xsched" {
        return None;
    }
    let after = options.iter().skip_while(|word| **word != "--socket").nth(1).copied();
    let joined = || options.iter().find_map(|word| word.strip_prefix("--socket="));
    Some(after.or_else(joined).map(Path::new))
}

/// Reports whether programs find a daemon there by themselves.
fn is_usual(socket: &Path) -> bool {
    let of_a_user = |before: &str, after: &str| {
        let number = socket.to_str().and_then(|path| path.strip_prefix(before)?.strip_suffix(after));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    socket == Path::new(SYSTEM_SOCKET)
        || of_a_user("/run/user/", "/xsched/xsched.sock")
        || of_a_user("/tmp/xsched-", "/xsched.sock")
}

/// Reason for which programs of a container may not be seen by a daemon that was found there; none outside of containers, and with the
/// machine's daemon.
pub(crate) fn of_a_container(origin: Origin) -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
    let is_inside = namespace.is_some_and(|name| name.as_os_str() != FIRST_PID_NAMESPACE);
    (is_inside && origin == Origin::User).then(|| {
        format!("this is a container without the machine's daemon: programs outside are not scheduled with its own; {CURE_OF_CONTAINERS}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_known_by_its_command_line() {
        let socket = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            socket_of(&words).map(|socket| socket.map(|path| path.to_str().unwrap().to_owned()))
        };
        assert_eq!(socket("xsched daemon"), Some(None));
        assert_eq!(socket("/usr/bin/xsched daemon --log l --socket /s"), Some(Some("/s".into())));
        assert_eq!(socket("/usr/bin/xsched daemon --socket=/s"), Some(Some("/s".into())));
        for other in ["xsched run daemon", "xschedd daemon", "sh -c xsched daemon", ""] {
            assert_eq!(socket(other), None, "{other}");
        }
    }

    #[test]
    fn a_place_of_its_own_is_on_purpose() {
        for usual in ["/run/xsched/xsched.sock", "/run/user/7/xsched/xsched.sock", "/tmp/xsched-0/xsched.sock"] {
            assert!(is_usual(Path::new(usual)), "{usual}");
        }
        for other in ["/tmp/xsched-a/xsched.sock", "/tmp/s", "/run/user/7/xsched/other.sock"] {
            assert!(!is_usual(Path::new(other)), "{other}");
        }
    }
}
