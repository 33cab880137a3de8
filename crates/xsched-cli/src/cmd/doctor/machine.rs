//! The machine: preload library, C library, daemon, platforms.

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use serde::Serialize;
use xsched_daemon::mps::PIPE_DIRECTORY;
use xsched_proto::settings::Settings;
use xsched_proto::wire::{self, DaemonMsg, Request};
use xsched_proto::{paths, variables};

use super::cuda::Cuda;
use super::probe::{self, What};
use super::{Check, Report, Status, lines};
use crate::{client, folders, preload};

/// What was found.
#[derive(Serialize)]
pub(super) struct Machine {
    version: u32,
    ok: bool,
    checks: Vec<Check>,
    platforms: Vec<Platform>,
}

/// One vendor interface.
#[derive(Serialize)]
struct Platform {
    platform: &'static str,
    present: bool,
    devices: Vec<String>,
    /// Preemption levels this version can do on it.
    levels: Vec<u8>,
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cuda: Option<Cuda>,
}

impl Report for Machine {
    fn checks(&self) -> &[Check] {
        &self.checks
    }

    fn text(&self) -> String {
        let mut out = lines(&self.checks);
        out.push_str("\nplatforms\n");
        for p in &self.platforms {
            let levels = p.levels.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
            let what = match p.present {
                true => format!("{}; levels {levels}", p.devices.join(", ")),
                false => "not here".to_owned(),
            };
            let note = p.note.as_deref().map(|n| format!(" ({n})")).unwrap_or_default();
            out.push_str(&format!("      {:<10} {what}{note}\n", p.platform));
            for line in p.cuda.iter().flat_map(Cuda::lines) {
                out.push_str(&format!("      {:<10} {line}\n", ""));
            }
        }
        out
    }
}

/// Runs all checks.
pub(super) fn examine(socket: Option<&Path>) -> Machine {
    let platforms = vec![
        platform(What::Cuda, "cuda", &[1]),
        platform(What::Opencl, "opencl", &[1]),
        platform(What::Hip, "hip", &[1]),
        platform(What::Sim, "sim", &[1, 2, 3]),
    ];
    let mut checks =
        vec![preload_check(), libc_check(), daemon_check(socket), environment_check(), configuration_check()];
    checks.extend(other_daemons(socket));
    checks.push(state_check());
    checks.push(if platforms.iter().any(|p| p.present && p.platform != "sim") {
        Check::ok("device", "there is a device that this version can schedule")
    } else {
        Check::note(
            "device",
            "no real device that this version can schedule",
            "install your device's driver: NVIDIA's, ROCm, or one for OpenCL (PoCL makes a device of the CPU); the simulated \
             device works meanwhile",
        )
    });
    let ok = checks.iter().all(|c| c.status != Status::Fail);
    Machine { version: 1, ok, checks, platforms }
}

fn platform(what: What, name: &'static str, levels: &[u8]) -> Platform {
    // The GPU is looked at as `xsched run` shows it to a program: without MPS, which a look alone would start.
    let nowhere = OsStr::new("/dev/null");
    let (devices, why, driver, known) = match probe::run(what, &[(PIPE_DIRECTORY, nowhere)]) {
        Ok(found) => (found.names, found.why, found.cuda, found.levels),
        Err(why) => (Vec::new(), Some(why.to_string()), None, None),
    };
    let cuda = driver.map(Cuda::new);
    let levels = cuda.as_ref().map(|c| c.levels_by_time.clone()).or(known).unwrap_or_else(|| levels.to_vec());
    let present = !devices.is_empty();
    let note = if present { None } else { why.or_else(|| Some("no device".to_owned())) };
    Platform { platform: name, present, devices, levels, note, cuda }
}

/// Is the library there, and does the loader take it?
fn preload_check() -> Check {
    let name = "preload";
    let found = preload::find().and_then(|library| Ok((preload::speakable(&library)?, library)));
    let (speakable, library) = match found {
        Ok(both) => both,
        Err(why) => {
            return Check::fail(
                name,
                why.line(),
                "build or install xsched whole: libxsched.so belongs beside the command",
            );
        }
    };
    let value = preload::prepend(&speakable, std::env::var_os("LD_PRELOAD").as_deref());
    match probe::run(What::Preload, &[("LD_PRELOAD", &value)]) {
        Ok(found) => Check::ok(name, format!("{} loads here", found.names.join(", "))),
        Err(why) => Check::fail(
            name,
            format!("{} does not load: {why}", library.display()),
            "take a libxsched.so that was made for this machine, or set XSCHED_PRELOAD to one",
        ),
    }
}

fn libc_check() -> Check {
    // SAFETY: returns a static C string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned();
    let parts: Vec<u32> = version.split('.').filter_map(|p| p.parse().ok()).collect();
    if parts.as_slice() >= [2, 34].as_slice() {
        Check::ok("glibc", version)
    } else {
        Check::fail("glibc", version, "2.34 or later is needed")
    }
}

/// What tells how devices are? All else works without it.
fn state_check() -> Check {
    let name = "state";
    let advice = "nothing to do without such a GPU; else install the part of NVIDIA's driver that has libnvidia-ml.so.1 (in a container: \
                  NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    match probe::run(What::State, &[]) {
        Ok(found) if found.names.is_empty() => Check::note(
            name,
            "no memory, activity or heat of devices in `xsched ps`: neither NVML nor amdgpu is here",
            advice,
        ),
        Ok(found) => Check::ok(name, format!("of devices from {}", found.names.join(", "))),
        Err(why) => Check::note(name, format!("no memory, activity or heat of devices in `xsched ps`: {why}"), advice),
    }
}

/// What programs that are started here are told by variables.
fn environment_check() -> Check {
    let name = "environment";
    let settings = Settings::of_process();
    let unknown = settings.without_effect.into_iter().map(|(_, line)| line).collect::<Vec<_>>();
    let platforms = variables::text("XSCHED_PLATFORMS").and_then(|list| wire::Platform::fault_in(&list));
    let faults = settings.complaints.into_iter().chain(platforms).collect::<Vec<_>>();
    if !faults.is_empty() {
        Check::fail(name, faults.join("; "), "correct or unset it")
    } else if variables::is_disabled() {
        Check::note(name, "XSCHED_DISABLE switches scheduling off for what is started from here", "unset it")
    } else if !unknown.is_empty() {
        Check::note(name, unknown.join("; "), "correct or unset it")
    } else {
        Check::ok(name, "every variable of xsched that is set has effect")
    }
}

/// What a daemon that `run` starts would read.
fn configuration_check() -> Check {
    let name = "configuration";
    let files: Vec<_> = folders::configuration().into_iter().filter(|file| file.exists()).collect();
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    match xsched_daemon::check_config(&files) {
        Ok(_) if files.is_empty() => Check::ok(name, "none; the defaults hold"),
        Ok(remarks) if remarks.is_empty() => Check::ok(name, shown),
        Ok(remarks) => Check::note(name, remarks.join("; "), "change it at your leisure"),
        Err(why) => Check::fail(name, why.line(), "correct it: no daemon starts with it, and programs run unscheduled"),
    }
}

/// Daemons where a program of this user would find one with another environment. Each schedules its own programs, and none with
/// those of another.
fn other_daemons(socket: Option<&Path>) -> Vec<Check> {
    let (ours, _) = paths::socket_path(socket.map(Path::to_owned));
    let same =
        |path: &Path| path == ours || path.canonicalize().is_ok_and(|p| ours.canonicalize().is_ok_and(|o| p == o));
    let others = paths::usual_sockets().into_iter().filter(|path| !same(path));
    let answering = others.filter(|path| path.exists() && client::ask(Some(path), Request::Ps).is_ok());
    let check = |path: PathBuf| {
        let found = format!(
            "another one answers at {}: its programs and those of this one are not scheduled together",
            path.display()
        );
        let advice = "give both the same XDG_RUNTIME_DIR or XSCHED_SOCKET; for several users, run a system daemon";
        Check::note("daemons", found, advice)
    };
    answering.map(check).collect()
}

fn daemon_check(socket: Option<&Path>) -> Check {
    let (path, _) = paths::socket_path(socket.map(Path::to_owned));
    match client::ask_if_there(socket, Request::Ps) {
        Ok(Some(answer)) => {
            let programs = answer.iter().filter(|m| matches!(m, DaemonMsg::Program(_))).count();
            let about = answer.iter().find_map(|m| match m {
                DaemonMsg::Daemon(d) => Some(format!("process {}, version {}, policy {}", d.pid, d.version, d.policy)),
                _ => None,
            });
            let about = about.unwrap_or_else(|| "it says nothing about itself".to_owned());
            Check::ok("daemon", format!("{about}, {programs} programs, at {}", path.display()))
        }
        Ok(None) => Check::ok(
            "daemon",
            format!(
                "none at {}: `xsched run` starts one; `xsched daemon` shows what stands in its way if it cannot",
                path.display()
            ),
        ),
        Err(e) => Check::fail("daemon", e.line(), "end it by its process id; `xsched run` starts a new one"),
    }
}
