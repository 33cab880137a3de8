//! State of devices, below the table of programs.

use std::collections::BTreeSet;
use std::time::Duration;

use xsched_proto::device::DeviceInfo;
use xsched_proto::program::file_name;
use xsched_proto::text::escaped;
use xsched_proto::units;

use crate::width::Width;

/// State of a device in one line, and in another the processes that use it without being attached.
pub(super) fn lines(device: &DeviceInfo, width: Width) -> String {
    let state = &device.latest;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = state.memory_used_bytes.zip(state.memory_total_bytes);
    let with_limit = |value: Option<i64>, limit: Option<i64>, unit: &str| {
        let limit = limit.map_or_else(String::new, |limit| format!(" of {limit} {unit}"));
        value.map(|value| format!("{value} {unit}{limit}"))
    };
    let reasons = state.throttle.iter().flatten().map(|reason| reason.text()).collect::<BTreeSet<_>>();
    let slowed = (!reasons.is_empty()).then(|| reasons.into_iter().collect::<Vec<_>>().join(", "));
    let parts = [
        device.stale.then(|| {
            format!("as of {} ago, its driver does not answer", units::of(Duration::from_millis(state.age_ms)))
        }),
        memory.map(|(used, total)| format!("memory {:.1} of {:.1} GiB", gib(used), gib(total))),
        state.active_percent.map(|percent| format!("active {percent} %")),
        with_limit(state.temperature_c.map(i64::from), state.temperature_limit_c.map(i64::from), "°C"),
        with_limit(state.power_w.map(i64::from), state.power_limit_w.map(i64::from), "W"),
        state.sm_clock_mhz.map(|mhz| format!("{mhz} MHz")),
        slowed.map(|reasons| format!("slowed down ({reasons})")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let mut out = width.fold(&format!("{}: {}", escaped(&device.device), parts.join(", ")));
    let outside = device.processes.iter().flatten().filter(|p| p.outside).map(|p| {
        let memory = p.memory_bytes.map_or_else(String::new, |bytes| format!(", {:.1} GiB", gib(bytes)));
        format!("{} ({}{memory})", escaped(file_name(p.name.as_deref().unwrap_or_default())), p.pid)
    });
    let outside: Vec<String> = outside.collect();
    if !outside.is_empty() {
        let line =
            format!("{}: used by processes that are not attached: {}", escaped(&device.device), outside.join(", "));
        out.push_str(&width.fold(&line));
    }
    out
}
