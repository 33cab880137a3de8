//! State of a device in `xsched ps`, in `doctor` and for a scheduler of one's own: CUDA programs on the software driver, and a stand-in for
//! NVIDIA's management library that reports on its device.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use xsched_e2e::{Gpu, Process, until};

const GIB: u64 = 1 << 30;
const DEVICE: &str = "pci:0000:0a:00.0";

/// Folders of the stand-in library and of its values.
fn stand_in(gpu: &Gpu) -> (PathBuf, PathBuf) {
    let (folder, values) = (gpu.place.join("management"), gpu.place.join("values"));
    [&folder, &values].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let library = gpu.place.compile("stand-ins/nvml/nvml.c", &["-shared", "-fPIC"]);
    std::os::unix::fs::symlink(library, folder.join("libnvidia-ml.so.1")).unwrap();
    let set = |name: &str, value: u64| std::fs::write(values.join(name), value.to_string()).unwrap();
    set("memory_used", 61 * GIB);
    set("memory_total", 80 * GIB);
    set("active", 97);
    set("memory_active", 41);
    set("temperature", 88);
    set("temperature_limit", 93);
    set("reasons", 0x4 | 0x20);
    (folder, values)
}

/// Sets the processes in one step, since the stand-in may be reading.
fn tell_processes(values: &Path, text: &str) {
    std::fs::write(values.join("new"), text).unwrap();
    std::fs::rename(values.join("new"), values.join("processes")).unwrap();
}

fn ready(mut program: Process) -> Process {
    program.expect("ready");
    program
}

#[test]
fn ps_shows_a_devices_state_and_the_programs_that_are_hidden_from_it() {
    let gpu = Gpu::new();
    let (folder, values) = stand_in(&gpu);
    let variables: [(&str, &OsStr); 2] = [("LD_LIBRARY_PATH", folder.as_os_str()), ("FAKENVML", values.as_os_str())];
    let _daemon = gpu.place.daemon_with(&[], &variables);
    assert_eq!(gpu.place.ps().unwrap()["devices"], serde_json::json!([]));
    let steady = gpu.program("steady");
    let attached = ready(gpu.run(&[], &steady, &["200", "4"]));
    let hidden = ready(gpu.bare(&steady, &["200", "4"]));
    tell_processes(&values, &format!("{} {}\n{} {}\n", attached.pid(), 51 * GIB, hidden.pid(), 10 * GIB));
    let device = || gpu.place.ps().and_then(|ps| ps["devices"].as_array()?.first().cloned());
    let is_told = |device: serde_json::Value| {
        device["latest"]["outside"] == 1 && device["processes"][1]["memory_bytes"] == 10 * GIB
    };
    until("the hidden program is found with its memory", || device().is_some_and(is_told));
    let found = device().unwrap();
    assert_eq!((&found["device"], &found["source"], &found["stale"]), (&DEVICE.into(), &"nvml".into(), &false.into()));
    let latest = &found["latest"];
    assert_eq!((&latest["memory_used_bytes"], &latest["active_percent"]), (&(61 * GIB).into(), &97.into()));
    assert_eq!(latest["throttle"], serde_json::json!(["power_cap", "sw_thermal"]));
    let processes = found["processes"].as_array().unwrap();
    assert_eq!((&processes[0]["outside"], &processes[1]["outside"]), (&false.into(), &true.into()));
    assert!(!found["history"].as_array().unwrap().is_empty());
    let text = gpu.place.ask(&["ps"]);
    let lines = [
        format!("{DEVICE}: memory 61.0 of 80.0 GiB, active 97 %, 88 °C of 93 °C, slowed down (heat, power limit)"),
        format!("{DEVICE}: used by processes that are not attached: steady ({}, 10.0 GiB)", hidden.pid()),
    ];
    assert!(text.trim_end().ends_with(&lines.join("\n")), "{text}");
    gpu.end(attached);
    hidden.end_steady();
}

#[test]
fn a_scheduler_of_ones_own_is_told_the_devices_state() {
    let gpu = Gpu::new();
    let (folder, values) = stand_in(&gpu);
    let scheduler = gpu.place.join("libscheduler.so");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&scheduler);
    cc.arg(root.join("testing/programs/domains/state_scheduler.c")).arg("-I").arg(root.join("include"));
    assert!(cc.status().expect("a C compiler").success());
    let variables: [(&str, &OsStr); 2] = [("LD_LIBRARY_PATH", folder.as_os_str()), ("FAKENVML", values.as_os_str())];
    let mut daemon = gpu.place.daemon_with(&["--scheduler", scheduler.to_str().unwrap()], &variables);
    let steady = gpu.program("steady");
    let line = |outside| {
        format!(
            "{DEVICE} memory {} of {} active 97 41 heat 88 of 93 power -1 of -1 clock -1 throttle 3 outside {outside}",
            61 * GIB,
            80 * GIB
        )
    };
    let first = ready(gpu.run(&[], &steady, &["200", "4"]));
    until("the device was looked at", || gpu.place.ps().is_some_and(|ps| ps["devices"][0]["stale"] == false));
    let second = ready(gpu.run(&[], &steady, &["200", "4"]));
    until("it is told the state", || daemon.errors().lines().any(|told| told == line(0)));
    assert!(daemon.has_ended().is_none());
    gpu.end(first);
    gpu.end(second);
}

#[test]
fn doctor_says_whether_states_are_told() {
    let gpu = Gpu::new();
    let (folder, values) = stand_in(&gpu);
    let said = |variables: &[(&str, &Path)]| {
        let mut command = gpu.place.xsched(&["doctor"]);
        command.env("LD_LIBRARY_PATH", &folder).env("XSCHED_SYSFS", &values).envs(variables.iter().copied());
        let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        out.lines().map(words).find(|line| line.split(' ').nth(1) == Some("state")).unwrap_or_else(|| panic!("{out}"))
    };
    assert_eq!(said(&[("FAKENVML", &values)]), "ok state of devices from NVML, driver 580.00 (stand-in)");
    // Without its variable the stand-in fails to start.
    let without = said(&[]);
    assert!(without.starts_with("note state ") && without.contains("neither NVML nor amdgpu is here"), "{without}");
}
