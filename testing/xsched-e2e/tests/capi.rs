//! The C API: programs compiled with `include/xsched` and linked with the small libraries, with and without the preload, on every platform
//! with queues for it. The programs are in `testing/programs/capi`, and each checks its own results.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use xsched_e2e::{Gpu, HipGpu, Process, beside, until};

#[allow(dead_code)] // what only the platform suite needs
mod platforms;

use platforms::{Device, Kind, PLATFORMS, Platform};

fn platform(name: &str) -> &'static Platform {
    PLATFORMS.iter().find(|platform| platform.name == name).expect("a platform")
}

/// Runs a test with a program that is built for each platform.
fn on_each(program: &str, test: impl Fn(&Device)) {
    for platform in PLATFORMS.iter().filter(|platform| platform.name != "sim") {
        let name = platform.name;
        let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include").display());
        let hal = format!("-lhal{name}");
        let flags = [include.as_str(), "-Wno-unused-function", "-lpreempt", hal.as_str()];
        match Device::with(platform, &format!("programs/capi/{program}.c"), &flags) {
            Ok(device) => {
                println!("{name}");
                test(&device);
            }
            Err(missing) => xsched_e2e::skipped(&format!("{program} of the C API on {name}: {missing}")),
        }
    }
}

/// Asserts that each check of a program holds, and that stderr has nothing but notes.
#[track_caller]
fn passes(process: Process) {
    let (code, lines, errors) = process.wait();
    let said_well = errors.lines().all(|line| line.starts_with("xsched: ") && !line.contains("internal error"));
    assert!(code == 0 && said_well, "{code} {errors} {lines:#?}");
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("ok ")), "{lines:#?}");
}

/// Path of `testing/programs/capi/compiled.hip`, compiled by AMD's compiler; else the reason for which there is none.
fn compiled_by_hipcc(gpu: &HipGpu) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libraries = beside("libhalhip.so").parent().expect("a folder").to_owned();
    let program = gpu.place.join("compiled");
    let mut hipcc = Command::new("hipcc");
    hipcc.args(["--offload-arch=gfx906", "-w", "-x", "hip"]).arg(root.join("testing/programs/capi/compiled.hip"));
    hipcc.arg("-o").arg(&program).arg("-I").arg(root.join("include")).arg("-L").arg(&libraries);
    hipcc.arg(format!("-Wl,-rpath,{}", libraries.display())).args(["-lpreempt", "-lhalhip"]);
    let done = hipcc.output().map_err(|error| format!("no hipcc ({error}): apt-get install hipcc"))?;
    assert!(done.status.success(), "hipcc: {}", String::from_utf8_lossy(&done.stderr));
    Ok(program)
}

#[test]
fn a_program_of_amds_own_compiler_has_its_queue() {
    let Ok(Kind::Hip(gpu)) = (platform("hip").open)() else {
        return xsched_e2e::skipped("a program of hipcc: no software HIP runtime");
    };
    let program = match compiled_by_hipcc(&gpu) {
        Ok(program) => program,
        Err(missing) => return xsched_e2e::skipped(&missing),
    };
    passes(gpu.bare(&program, &[]));
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    passes(gpu.bare(&program, &[]));
    passes(gpu.run(&[], &program, &[]));
    passes(gpu.run(&["--local", "hpf"], &program, &[]));
}

/// Lays out headers, libraries and the files for pkg-config of this build below a prefix, as they are installed.
fn installed(prefix: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree");
    for folder in ["lib", "share/pkgconfig"] {
        std::fs::create_dir_all(prefix.join(folder)).expect("a folder");
    }
    let libraries = beside("libhalopencl.so").parent().expect("a folder").to_owned();
    for (from, to) in [(root.join("include"), "include"), (libraries, "lib/xsched")] {
        std::os::unix::fs::symlink(from, prefix.join(to)).expect("a link");
    }
    for file in std::fs::read_dir(root.join("dist/pkgconfig")).expect("files").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("text").replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        let text = text.replace("prefix=/usr\n", &format!("prefix={}\n", prefix.display()));
        std::fs::write(prefix.join("share/pkgconfig").join(file.file_name()), text).expect("a file");
    }
}

/// The command of `examples/c-api/README.md`, with an installed copy.
#[test]
fn the_opencl_example_is_compiled_by_pkg_config_and_runs_without_daemon_and_preload() {
    let Ok(Kind::Plain(place)) = (platform("opencl").open)() else {
        return xsched_e2e::skipped("the OpenCL example of the C API: no OpenCL device");
    };
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return xsched_e2e::skipped("the OpenCL example of the C API: apt-get install pkg-config");
    }
    installed(&place.join("usr"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree");
    let example = root.join("examples/c-api");
    let page = std::fs::read_to_string(example.join("README.md")).expect("the page");
    let compile = page.lines().find(|line| line.starts_with("cc ")).expect("a line that compiles");
    let compile = compile
        .replace("opencl.c", example.join("opencl.c").to_str().expect("text"))
        .replace("cc ", "cc -Wall -Wextra -Werror ");
    let mut command = place.command("sh", &["-c", &compile]);
    let done = command.current_dir(place.join("")).env("PKG_CONFIG_PATH", place.join("usr/share/pkgconfig")).output();
    let done = done.expect("sh runs");
    assert!(done.status.success(), "{compile}: {}", String::from_utf8_lossy(&done.stderr));
    let (code, lines, errors) = Process::start(place.command(place.join("opencl"), &[])).wait();
    assert_eq!((code, errors.as_str(), lines.len()), (0, "", 2), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains(": the urgent queue took ")), "{lines:?}");
    // The other vendors' names lead to their libraries, and to the common one.
    for (module, library) in [("xsched", "-lpreempt"), ("xsched-cuda", "-lhalcuda"), ("xsched-hip", "-lhalhip")] {
        let mut command = place.command("pkg-config", &["--libs", module]);
        let said = command.env("PKG_CONFIG_PATH", place.join("usr/share/pkgconfig")).output().expect("pkg-config runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(library) && said.contains("-lpreempt") && said.contains("-rpath"), "{module}: {said}");
    }
}

const WITHOUT_DAEMON: [(&str, &str); 1] = [("XSCHED_LOG", "error")];

#[test]
fn every_function_does_what_it_says_with_and_without_the_preload() {
    on_each("calls", |device| {
        passes(device.bare(&[]));
        passes(device.preloaded(&WITHOUT_DAEMON, &[]));
        let _daemon = device.place().daemon(&["--policy", "hpf"]);
        passes(device.bare(&[]));
        passes(device.run(&[], &[]));
        passes(device.run(&["--local", "up"], &[]));
    });
}

#[test]
fn a_program_suspends_and_resumes_its_queues_by_itself() {
    on_each("manual", |device| {
        passes(device.bare(&[]));
        passes(device.bare(&["exit"]));
        passes(device.preloaded(&WITHOUT_DAEMON, &["transparent"]));
        let _daemon = device.place().daemon(&["--policy", "hpf"]);
        passes(device.run(&[], &["transparent"]));
        passes(device.run(&[], &["exit"]));
    });
}

#[test]
fn a_scheduler_in_the_process_puts_the_more_urgent_queue_first() {
    // On a busy machine, which of the two queues has the device at a moment is partly chance; everything else must hold each time.
    let in_order = |start: &dyn Fn() -> Process| {
        xsched_e2e::one_of(5, "the more urgent queue first", || {
            let (code, lines, errors) = start().wait();
            let spoilt =
                |line: &&String| line.starts_with("FAIL the less urgent") || line.starts_with("FAIL each has its");
            let bad: Vec<&String> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
            assert!(errors.is_empty() && bad.iter().all(spoilt), "{code} {errors} {lines:#?}");
            if code == 0 && !lines.is_empty() { Ok(()) } else { Err(format!("{bad:?}")) }
        });
    };
    on_each("local", |device| {
        in_order(&|| device.bare(&[]));
        let _daemon = device.place().daemon(&["--policy", "hpf"]);
        in_order(&|| device.run(&[], &[]));
    });
}

#[test]
fn many_threads_lose_nothing_and_launch_nothing_twice() {
    on_each("threads", |device| {
        passes(device.bare(&[]));
        for policy in ["hpf", "chaos"] {
            let _daemon = device.place().daemon(&["--policy", policy]);
            passes(device.run(&[], &[]));
        }
    });
}

/// Group of a program's XQueue, which the program has set apart by a hint.
fn group(device: &Device, pid: u32, priority: i64) -> Option<Value> {
    let program = device.place().program(pid)?;
    let groups = program["groups"].as_array()?;
    groups.iter().find(|group| group["priority"] == priority && group["queues"] != Value::Array(vec![])).cloned()
}

#[test]
fn what_a_program_says_of_a_queue_reaches_the_daemon_and_the_next_one() {
    on_each("hints", |device| {
        for preload in [false, true] {
            let daemon = device.place().daemon(&["--policy", "up"]);
            let mut program = if preload { device.run(&[], &[]) } else { device.bare(&[]) };
            program.expect("ok made");
            let pid = program.pid();
            until("the daemon knows of the queue", || group(device, pid, 77).is_some());
            program.tell("give 60");
            program.expect("ok given");
            // Launches inside a command are part of it: a command counts once, with the preload too.
            let launches = || group(device, pid, 77).and_then(|group| group["launches"].as_u64());
            until("each command counts once", || launches() == Some(60));
            program.tell("priority 78");
            program.expect("ok hinted");
            until("a new priority is known", || group(device, pid, 78).is_some());
            drop(daemon);
            let _next = device.place().daemon(&["--policy", "hpf"]);
            until("the next daemon knows it too", || group(device, pid, 78).is_some());
            program.tell("give 5");
            program.expect("ok given");
            program.tell("end");
            let (code, _, errors) = program.wait();
            assert_eq!(code, 0, "{errors}");
        }
    });
}

#[test]
fn a_rival_of_another_process_holds_what_is_submitted() {
    on_each("hints", |device| {
        let _daemon = device.place().daemon(&["--policy", "hpf"]);
        let mut program = device.bare(&[]);
        program.expect("ok made");
        let pid = program.pid();
        until("the daemon knows of the queue", || group(device, pid, 77).is_some());
        device.place().ask(&["suspend", "--pid", &pid.to_string()]);
        program.tell("give 3");
        until("it waits", || group(device, pid, 77).is_some_and(|group| group["state"] == "suspended"));
        assert!(program.line_within(std::time::Duration::from_millis(50)).is_none(), "nothing is given");
        device.place().ask(&["resume", "--pid", &pid.to_string()]);
        program.expect("ok given");
        program.tell("end");
        let (code, _, errors) = program.wait();
        assert_eq!(code, 0, "{errors}");
    });
}

#[test]
fn commands_run_where_scheduling_is_off() {
    on_each("hints", |device| {
        for off in [("XSCHED_DISABLE", "1"), ("XSCHED_PLATFORMS", "sim")] {
            for preload in [false, true] {
                let mut program = device.with_variables(&[off], preload, &[]);
                program.expect("ok made");
                program.tell("give 30");
                program.expect("ok given");
                program.tell("end");
                let (code, _, errors) = program.wait();
                assert_eq!((code, errors.as_str()), (0, ""), "{off:?}");
            }
        }
    });
}

#[test]
fn a_python_program_puts_xqueues_on_its_streams() {
    let gpu = Gpu::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/programs/capi/streams.py");
    let start = |command: Command| {
        let mut command = command;
        let libraries = beside("libpreempt.so").parent().expect("a folder").to_owned();
        command.env("LD_LIBRARY_PATH", format!("{}:{}", libraries.display(), gpu.driver().display()));
        Process::start(command)
    };
    let script = script.to_str().expect("text");
    passes(start(gpu.place.command("python3", &[script])));
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    passes(start(gpu.place.run_command(&[], Path::new("python3"), &[script])));
    // Beside a second interpreter, a thread that has Python's lock is still distinguished from one that has not.
    passes(start(gpu.place.run_command(&[], Path::new("python3"), &[script, "--second"])));
}
