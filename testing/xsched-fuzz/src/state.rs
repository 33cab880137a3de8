//! State that an earlier daemon left in its folder: a daemon starts with any state that it takes over, answers, obeys it and ends.

use std::sync::LazyLock;

use crate::running::Running;
use crate::scratch;

/// Placeholder for the id of this machine's boot, which a seed cannot contain.
const BOOT: &str = "BOOT";

/// Keys of both files, policies with parameters, and values that have a meaning.
pub(crate) const WORDS: &[&str] = &[
    BOOT,
    "boot",
    "policies",
    "programs",
    "is",
    "instead_of",
    "pid",
    "start",
    "user",
    "held",
    "hinted",
    "priority",
    "class",
    "weight",
    "timeslice_us",
    "level",
    "longest_us",
    "faults",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "4294967296",
    "hpf",
    "up",
    "cfs",
    "fair",
    "mlfq",
    "kedf",
    "chaos",
    "levels",
    "k=2",
    "by=user",
    "latency_us=9",
    "sim:probe",
    "low",
    "high",
    "system",
    "\n",
    "\0",
    "\"\"",
    "= {}",
];

static BOOT_ID: LazyLock<String> =
    LazyLock::new(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned());

pub(crate) fn run(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (kept, unsuitable) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let (socket, state) = (scratch::place("s"), scratch::place("state"));
    std::fs::create_dir_all(&state).expect("a folder of ours");
    let name = socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
    let kept = String::from_utf8_lossy(kept).replacen(BOOT, &BOOT_ID, 1);
    scratch::write(&state.join(format!("runtime-{name}.toml")), kept.as_bytes());
    scratch::write(&state.join("unsuitable.toml"), unsuitable);
    scratch::write(&state.join("proven.toml"), unsuitable);
    let taken = xsched_daemon::kept_state(&state, &socket, "hpf");
    crate::planted::planted(|| taken.iter().any(|line| line.starts_with(": ")));
    if taken.is_empty() {
        // A daemon that takes over nothing starts as with an empty folder.
        return;
    }
    let daemon = Running::start(&socket, Some(&state));
    let (info, _) = daemon.ps();
    daemon.end();
    let is_told = |policy: &str| taken.iter().any(|line| line.strip_prefix(": ") == Some(policy));
    assert!(info.policy == "hpf" || is_told(&info.policy), "{} is in force, of {taken:?}", info.policy);
}
