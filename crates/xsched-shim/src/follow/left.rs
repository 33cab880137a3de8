//! Report, at the end of the process that `xsched run` became, of descendants that use a device without this library.
//! Nothing else would mention them, least of all if the process itself used no device. The contents of `/proc` decide.

use std::collections::BTreeMap;
use std::path::Path;

use xsched_agent::say;
use xsched_proto::program::file_name;
use xsched_proto::settings::{Log, Settings};

use super::strings::DISABLE;
use crate::stage;

/// Prefixes of GPUs' device files. `/dev/nvidiactl` is left out: tools open it that only read information.
const DEVICES: [&str; 12] = [
    "/dev/kfd",
    "/dev/dri/renderD",
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidia2",
    "/dev/nvidia3",
    "/dev/nvidia4",
    "/dev/nvidia5",
    "/dev/nvidia6",
    "/dev/nvidia7",
    "/dev/nvidia8",
    "/dev/nvidia9",
];
/// Drivers of devices that have no device file.
const DRIVERS: [&str; 2] = ["libsimdev.so", "libpocl.so"];
/// Prefix of all names of this library.
const OWN: &str = "libxsched";
/// Upper limit of programs named.
const NAMED_MAX: usize = 3;

/// Handler for the end of the process that `xsched run` became.
pub(super) extern "C" fn at_exit() {
    // A process that has used a device appears in `xsched ps`, so its user needs no report.
    if stage::is_untouched() {
        let _ = std::panic::catch_unwind(tell);
    }
}

#[cold]
fn tell() {
    if Settings::of_process().log < Log::Info {
        return;
    }
    let all = found(std::process::id());
    for (pid, name) in all.iter().take(NAMED_MAX) {
        say(&format!(
            "process {pid} ({name}) uses a device without xsched: it goes on unscheduled; see `xsched doctor {pid}`"
        ));
    }
    if all.len() > NAMED_MAX {
        say(&format!("so do {} more", all.len() - NAMED_MAX));
    }
}

/// Descendants of a process that use a device without this library: process IDs and names.
fn found(ancestor: u32) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let is_below = |pid: u32| {
        // Parents that change meanwhile may form a circle, so the line is bounded.
        let line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        line.take(parents.len()).skip(1).any(|above| above == ancestor)
    };
    let below = parents.keys().copied().filter(|pid| is_below(*pid));
    below.filter(|pid| is_alone(*pid)).map(|pid| (pid, name(pid))).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain spaces and parentheses itself.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    xsched_proto::text::escaped(name.trim_end()).into_owned()
}

/// Reports whether a process uses a device and has not loaded this library, although `XSCHED_DISABLE` is not set in it.
fn is_alone(pid: u32) -> bool {
    let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else { return false };
    let has = |names: &[&str]| maps.lines().any(|line| names.iter().any(|name| file_name(line).starts_with(name)));
    if has(&[OWN]) || !(has(&DRIVERS) || has_device(pid)) {
        return false;
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    !environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(DISABLE))
}

fn has_device(pid: u32) -> bool {
    let open = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|file| file.to_str().is_some_and(|file| DEVICES.iter().any(|device| file.starts_with(device))))
}
