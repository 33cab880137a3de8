//! What an earlier daemon left in its folder: a daemon starts with any of it, answers and ends.

use std::sync::LazyLock;

use crate::running::Running;
use crate::scratch;

/// Stands for this machine's boot, which no corpus can know.
const BOOT: &str = "BOOT";

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
    let daemon = Running::start(&socket, Some(&state));
    let (info, _) = daemon.ps();
    daemon.end();
    crate::planted(|| info.policy != "hpf");
}
