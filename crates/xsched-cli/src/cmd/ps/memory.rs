//! Memory of programs on devices: a cell of the table, and a line of details.

use std::time::Duration;

use xsched_proto::account::{OPEN_TO_HARDWARE, PARTITIONED, of_bytes};
use xsched_proto::text::escaped;
use xsched_proto::units;
use xsched_proto::wire::{MemoryInfo, ProgramInfo};

/// Memory that a program holds: on a device, or on all that it uses; none = it is not counted.
pub(super) fn held(program: &ProgramInfo, device: Option<&str>) -> Option<u64> {
    let here = |memory: &&MemoryInfo| device.is_none_or(|device| memory.device == device);
    let mut all = program.memory.iter().filter(here).map(|memory| memory.held.used_bytes).peekable();
    all.peek()?;
    Some(all.fold(0, u64::saturating_add))
}

/// Limit of a program on a device.
pub(super) fn limit(program: &ProgramInfo, device: Option<&str>) -> Option<u64> {
    let mut here = program.memory.iter().filter(|memory| device.is_none_or(|device| memory.device == device));
    here.find_map(|memory| memory.limit_bytes)
}

/// Details on the memory of a program, in a line for each device; none where nothing is held and no limit applies.
pub(super) fn lines(program: &ProgramInfo) -> impl Iterator<Item = String> + '_ {
    let line = |(device, text)| format!("{:>8} {} on {device}: memory {text}", program.pid, escaped(&program.name));
    details(program).map(line)
}

/// Details on the memory of a program, by device.
pub(crate) fn details(program: &ProgramInfo) -> impl Iterator<Item = (String, String)> + '_ {
    let told = |memory: &&MemoryInfo| {
        memory.held.used_bytes > 0
            || memory.held.away_bytes > 0
            || memory.limit_bytes.is_some()
            || memory.reserve_bytes > 0
            || memory.held.refused > 0
    };
    program.memory.iter().filter(told).map(|memory| (escaped(&memory.device).into_owned(), text(memory)))
}

fn text(memory: &MemoryInfo) -> String {
    let held = &memory.held;
    let kinds = [
        (held.plain_bytes, "plain"),
        (held.pooled_bytes, "in pools"),
        (held.virtual_bytes, "virtual"),
        (held.graph_bytes, "of graphs"),
        (held.array_bytes, "in arrays"),
        (held.overhead_bytes, "of contexts and modules"),
    ];
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, kind)| format!("{} {kind}", of_bytes(*bytes)))
        .collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let some = |bytes: u64, text: &dyn Fn(String) -> String| (bytes > 0).then(|| text(of_bytes(bytes)));
    let others = memory.program_used_bytes.saturating_sub(held.used_bytes);
    let parts = [
        Some(format!("{} of {}{kinds}", of_bytes(held.used_bytes), of_bytes(memory.capacity_bytes))),
        memory.limit_bytes.map(|limit| format!("limit {}", of_bytes(limit))),
        some(others, &|text| format!("{text} more in other processes of the program")),
        some(held.exported_bytes, &|text| format!("{text} exported")),
        some(held.multicast_bytes, &|text| format!("{text} bound to multicast objects")),
        some(held.registered_bytes, &|text| format!("{text} registered for other hardware (RDMA)")),
        some(held.managed_bytes, &|text| format!("{text} managed")),
        held.partitioned.then(|| PARTITIONED.to_owned()),
        held.open_to_hardware.then(|| OPEN_TO_HARDWARE.to_owned()),
        some(held.away_bytes, &|text| format!("{text} away on the host{}", if held.frozen { ", frozen" } else { "" })),
        some(held.host_bytes, &|text| format!("{text} of pinned host memory")),
        memory.idle_s.map(|s| {
            let time = units::of(Duration::from_secs(s.into()));
            let times =
                if memory.idle_leaves > 0 { format!(", {} times so far", memory.idle_leaves) } else { String::new() };
            format!("leaves after {time} idle{times}")
        }),
        some(memory.reserve_bytes, &|text| format!("{text} reserved")),
        some(memory.keep_free_bytes, &|text| format!("leaves {text} to more urgent programs")),
        (held.refused > 0).then(|| match held.wanted_bytes {
            0 => format!("{} allocations refused", held.refused),
            wanted => format!("{} allocations refused, the last lacked {}", held.refused, of_bytes(wanted)),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}
