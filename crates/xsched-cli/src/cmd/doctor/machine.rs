//! Checks of the machine: preload library, C library, daemon, platforms.

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use xsched_daemon::mps::PIPE_DIRECTORY;
use xsched_proto::segment::HeardLate;
use xsched_proto::settings::Settings;
use xsched_proto::units;
use xsched_proto::wire::{self, DaemonMsg, ProgramInfo, Request};
use xsched_proto::{paths, variables};

use super::arbiters;
use super::cuda::Cuda;
use super::probe::{self, What};
use super::report::{Cause, Check, Platform, Report};
use crate::{client, folders, preload};

/// Device files that the kernel's drivers give to programs, and the users who may open them by the rules that distributions ship.
const NODES: [(&str, &str); 3] = [
    ("/dev/nvidiactl", "the users that NVreg_DeviceFileMode allows"),
    ("/dev/kfd", "group render"),
    ("/dev/dri", "group render"),
];

/// Runs all checks of the machine.
pub(super) fn examine(socket: Option<&Path>) -> Report {
    let platforms = vec![
        platform(What::Cuda, "cuda", &[1]),
        platform(What::Opencl, "opencl", &[1]),
        platform(What::Hip, "hip", &[1]),
        platform(What::Sim, "sim", &[1, 2, 3]),
    ];
    let mut checks = vec![preload_check(), libc_check()];
    let (daemon, found) = daemon_checks(socket);
    checks.extend(found);
    checks.push(environment_check());
    checks.push(configuration_check());
    checks.extend(arbiters::daemons(socket));
    checks.extend(arbiters::others(daemon));
    checks.extend(arbiters::preloaded());
    checks.push(state_check());
    checks.extend(permission_check(Path::new("/")));
    checks.push(if platforms.iter().any(|p| p.present && p.platform != "sim") {
        Check::ok("device", "there is a device that this version can schedule")
    } else {
        Check::note(
            "device",
            Cause::NoDevice,
            "no real device that this version can schedule",
            "install your device's driver: NVIDIA's, ROCm, or one for OpenCL (PoCL makes a device of the CPU); the simulated \
             device works meanwhile",
        )
    });
    Report { platforms, ..Report::new(None, checks) }
}

fn platform(what: What, name: &'static str, levels: &[u8]) -> Platform {
    // The GPU is examined as `xsched run` shows it to a program: without MPS, which the examination alone would start.
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

/// Checks that the library exists, and that the loader accepts it.
fn preload_check() -> Check {
    let name = "preload";
    let found = preload::find().and_then(|library| Ok((preload::speakable(&library)?, library)));
    let (speakable, library) = match found {
        Ok(both) => both,
        Err(why) => {
            return Check::fail(
                name,
                Cause::NoLibrary,
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
            Cause::LibraryNotLoadable,
            format!("{} does not load: {why}", library.display()),
            "take a libxsched.so that was made for this machine, or set XSCHED_PRELOAD to one",
        ),
    }
}

fn libc_check() -> Check {
    // SAFETY: returns a static C string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned();
    let parts: Vec<u32> = version.split('.').filter_map(|p| p.parse().ok()).collect();
    if parts.as_slice() >= [2, 28].as_slice() {
        Check::ok("glibc", version)
    } else {
        Check::fail("glibc", Cause::OldGlibc, version, "2.28 or later is needed")
    }
}

/// Checks that there is a source for the state of devices. Everything else works without it.
fn state_check() -> Check {
    let name = "state";
    let advice = "nothing to do without such a GPU; else install the part of NVIDIA's driver that has libnvidia-ml.so.1 (in a container: \
                  NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    match probe::run(What::State, &[]) {
        Ok(found) if found.names.is_empty() => Check::note(
            name,
            Cause::NoState,
            "no memory, activity or heat of devices in `xsched ps`: neither NVML nor amdgpu is here",
            advice,
        ),
        Ok(found) => Check::ok(name, format!("of devices from {}", found.names.join(", "))),
        Err(why) => Check::note(
            name,
            Cause::NoState,
            format!("no memory, activity or heat of devices in `xsched ps`: {why}"),
            advice,
        ),
    }
}

/// Checks the variables of programs that are started here.
fn environment_check() -> Check {
    let name = "environment";
    let settings = Settings::of_process();
    let unknown = settings.without_effect.into_iter().map(|(_, line)| line).collect::<Vec<_>>();
    let platforms = variables::text("XSCHED_PLATFORMS").and_then(|list| wire::Platform::fault_in(&list));
    let faults = settings.complaints.into_iter().chain(platforms).collect::<Vec<_>>();
    if !faults.is_empty() {
        Check::fail(name, Cause::BadVariable, faults.join("; "), "correct or unset it")
    } else if variables::is_disabled() {
        Check::note(
            name,
            Cause::SwitchedOff,
            "XSCHED_DISABLE switches scheduling off for what is started from here",
            "unset it",
        )
    } else if !unknown.is_empty() {
        Check::note(name, Cause::UselessVariable, unknown.join("; "), "correct or unset it")
    } else {
        Check::ok(name, "every variable of xsched that is set has effect")
    }
}

/// Checks the files that a daemon started by `run` would read.
fn configuration_check() -> Check {
    let name = "configuration";
    let files: Vec<_> = folders::configuration().into_iter().filter(|file| file.exists()).collect();
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    match xsched_daemon::check_config(&files) {
        Ok(_) if files.is_empty() => Check::ok(name, "none; the defaults hold"),
        Ok(remarks) if remarks.is_empty() => Check::ok(name, shown),
        Ok(remarks) => Check::note(name, Cause::OddConfiguration, remarks.join("; "), "change it at your leisure"),
        Err(why) => Check::fail(
            name,
            Cause::BadConfiguration,
            why.line(),
            "correct it: no daemon starts with it, and programs run unscheduled",
        ),
    }
}

/// Checks for device files that this user may not open.
fn permission_check(root: &Path) -> Option<Check> {
    use rustix::fs::{Access, AtFlags, CWD};
    let files = |place: &Path| match place.is_dir() {
        true => std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()).collect(),
        false => vec![place.to_owned()],
    };
    let is_closed = |file: &PathBuf| {
        let is_node = !file.is_dir() && file.exists();
        is_node && rustix::fs::accessat(CWD, file, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS).is_err()
    };
    let closed = NODES.iter().filter_map(|(place, group)| {
        let file = files(&root.join(place.trim_start_matches('/'))).into_iter().find(is_closed)?;
        Some((file, group))
    });
    let (file, group) = closed.into_iter().next()?;
    let found = format!("this user may not open {}, and so sees no device of that driver", file.display());
    let advice = format!(
        "it is for {group}: `sudo usermod -aG render,video $USER` and a new login, where the driver goes by groups"
    );
    Some(Check::note("permission", Cause::NoPermission, found, advice))
}

/// Process id of the daemon that answers, and checks of it and of its programs.
fn daemon_checks(socket: Option<&Path>) -> (Option<u32>, Vec<Check>) {
    let (path, _) = paths::socket_path(socket.map(Path::to_owned));
    let name = "daemon";
    let answer = match client::ask_if_there(socket, Request::PsAll) {
        Ok(Some(answer)) => answer,
        Ok(None) => {
            let shown = path.display();
            let found = format!(
                "none at {shown}: `xsched run` starts one; `xsched daemon` shows what stands in its way if it cannot"
            );
            return (None, vec![Check::ok(name, found)]);
        }
        Err(e) => {
            let advice = "end it by its process id; `xsched run` starts a new one";
            return (None, vec![Check::fail(name, Cause::NoAnswer, e.line(), advice)]);
        }
    };
    let told = || answer.iter().filter_map(|m| if let DaemonMsg::Program(p) = m { Some(&**p) } else { None });
    let programs = told().filter(|p| p.ended_s.is_none()).count();
    let daemon = answer.iter().find_map(|m| match m {
        DaemonMsg::Daemon(d) => Some(d),
        _ => None,
    });
    let Some(d) = daemon else {
        let advice = "restart it with this version";
        return (None, vec![Check::fail(name, Cause::NoAnswer, "it says nothing about itself", advice)]);
    };
    let about = format!(
        "process {}, version {}, policy {}, {programs} program{}, at {}",
        d.pid,
        d.version,
        d.policy,
        if programs == 1 { "" } else { "s" },
        path.display()
    );
    let ours = env!("CARGO_PKG_VERSION");
    let mut checks = vec![if d.version == ours {
        Check::ok(name, about)
    } else {
        let found = format!("{about}; this command is of version {ours}");
        Check::note(name, Cause::OtherVersion, found, "restart the daemon; programs go on and attach again")
    }];
    if let Some(found) = &d.scheduler_failure {
        let advice = "mend the scheduler (the daemon's log has its last lines) and restart the daemon";
        checks.push(Check::note(name, Cause::SchedulerFailed, found, advice));
    }
    let advice = "mend what it says and restart the daemon; programs are scheduled all the same";
    checks.extend(d.warnings.iter().map(|found| Check::note(name, Cause::PartFailed, found, advice)));
    if d.panics > 0 {
        let found = format!("it has caught {} faults of its own; each cost a message, or a part of a task", d.panics);
        checks.push(Check::note(
            name,
            Cause::Faults,
            found,
            "report the lines with \"a fault of the daemon\" of its log",
        ));
    }
    if let Some(found) = &d.configuration_fault {
        checks.push(Check::note(name, Cause::BadConfiguration, found, "mend it, then `xsched daemon reload`"));
    }
    checks.extend(late_check(told()));
    for device in answer.iter().filter_map(|m| if let DaemonMsg::Device(device) = m { Some(device) } else { None }) {
        let outside = device.processes.iter().flatten().filter(|p| p.outside);
        let names: Vec<String> =
            outside.map(|p| format!("{} ({})", p.name.as_deref().unwrap_or("unknown"), p.pid)).collect();
        if !names.is_empty() {
            checks.push(Check::note(
                "programs",
                Cause::NotAttached,
                format!("{} is used by processes that are not attached: {}", device.device, names.join(", ")),
                "start them with `xsched run`; `xsched doctor PID` tells why one is not attached",
            ));
        }
    }
    (Some(d.pid), checks)
}

/// Checks whether the daemon noticed in time that programs wanted their devices, recently ended programs included.
fn late_check<'a>(programs: impl Iterator<Item = &'a ProgramInfo>) -> Option<Check> {
    let groups = programs.flat_map(|p| &p.groups);
    let late = groups.fold(HeardLate::default(), |late, group| late.and(group.heard_late));
    let found = format!(
        "the daemon was late {} time{} to take notice that a program wanted its device, by up to {}: less urgent programs kept it \
         until then",
        late.count,
        if late.count == 1 { "" } else { "s" },
        units::of_us(late.longest_us)
    );
    let advice = "the machine did not give the daemon a processor: run it as a system service, or as root, so that it goes before \
                  ordinary threads; or leave processors free";
    (late.count > 0).then(|| Check::note("decisions", Cause::LateDaemon, found, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_device_that_may_not_be_opened_is_told() {
        let root = tempfile::tempdir().unwrap();
        assert!(permission_check(root.path()).is_none(), "there is none");
        std::fs::create_dir(root.path().join("dev")).unwrap();
        let node = root.path().join("dev/kfd");
        std::fs::write(&node, "").unwrap();
        assert!(permission_check(root.path()).is_none());
        std::fs::set_permissions(&node, PermissionsExt::from_mode(0o000)).unwrap();
        // Root may open any file.
        if !rustix::process::geteuid().is_root() {
            let check = permission_check(root.path()).unwrap();
            assert!(check.found.contains("dev/kfd") && check.advice.unwrap().contains("group render"));
        }
    }
}
