//! The Python packages `xsched` and `torch_xsched`, in programs on the software CUDA driver (`testing/programs/python`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xsched_e2e::{Gpu, Process, beside, until};
use xsched_policy::registry;
use xsched_proto::class::Class;

/// Longest time for making, installing or removing a wheel.
const WHEEL_TIMEOUT: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree")
}

/// Starts a Python program of `testing/programs/python`: under `xsched run` with these options, or bare.
fn start(gpu: &Gpu, run: Option<&[&str]>, script: &str, args: &[&str]) -> Process {
    let script = root().join("testing/programs/python").join(script);
    let words: Vec<&str> = std::iter::once(script.to_str().expect("text")).chain(args.iter().copied()).collect();
    let command = match run {
        Some(options) => gpu.place.run_command(options, Path::new("python3"), &words),
        None => gpu.place.command("python3", &words),
    };
    Process::start(prepared(gpu, command))
}

fn prepared(gpu: &Gpu, mut command: Command) -> Command {
    command.env("LD_LIBRARY_PATH", gpu.driver()).env("PYTHONPATH", root().join("python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("XSCHED_PRELOAD", beside("libxsched.so"));
    command
}

#[track_caller]
fn passes(process: Process) {
    let (code, lines, errors) = process.wait();
    assert_eq!((code, errors.as_str()), (0, ""), "{lines:#?}");
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("ok ")), "{lines:#?}");
}

/// Priorities of a program's groups that have queues.
fn priorities(gpu: &Gpu, pid: u32) -> Vec<i64> {
    let program = gpu.place.program(pid).unwrap_or_default();
    let groups = program["groups"].as_array().cloned().unwrap_or_default();
    groups.iter().filter_map(|group| group["priority"].as_i64()).collect()
}

#[test]
fn python_queues_have_priorities_and_are_suspended_one_by_one() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = start(&gpu, Some(&[]), "queues.py", &[]);
    program.expect("here");
    until("the daemon knows the priority", || priorities(&gpu, program.pid()).contains(&20));
    program.tell("go on");
    passes(program);
}

#[test]
fn python_blocks_make_the_process_urgent_and_give_its_class_back() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let rival = gpu.run(&["--priority", "50"], &gpu.program("steady"), &[]);
    let mut program = start(&gpu, Some(&["--priority", "low"]), "enabled.py", &[]);
    program.expect("ready");
    let (own, other) = (program.pid(), rival.pid());
    until("it is known", || gpu.place.group(own).is_some());
    let device = gpu.place.group(own).expect("a group")["device"].as_str().expect("text").to_owned();
    let own_priority = || gpu.place.program(own).and_then(|p| p["priority"].as_i64());
    let mut say = |line: &str| say(&mut program, line);
    until("both are known", || gpu.place.group(own).is_some() && gpu.place.group(other).is_some());
    gpu.place.assert_ahead(other, own, 100);
    say("enter high");
    assert_eq!(own_priority(), Some(128));
    gpu.place.assert_ahead(own, other, 100);
    // Of nested blocks the highest applies, and the end of the last one restores the state before the first.
    say("enter normal");
    assert_eq!(own_priority(), Some(128));
    say("enter realtime");
    assert_eq!(own_priority(), Some(192));
    say("leave");
    assert_eq!(own_priority(), Some(128));
    say("leave");
    say("leave");
    assert_eq!(own_priority(), Some(-128));
    gpu.place.assert_ahead(other, own, 100);
    say("policy cfs");
    // The policy in force on the program's own device applies.
    gpu.place.ask(&["policy", "set", "up", "--device", &device]);
    say("policy priority");
    program.tell("end");
    let (code, lines, errors) = program.wait();
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(lines.iter().all(|line| !line.starts_with("FAIL")), "{lines:?}");
    gpu.end(rival);
}

/// Sends a line to a program, which answers "done".
#[track_caller]
fn say(program: &mut Process, line: &str) {
    program.tell(line);
    program.expect("done");
}

#[test]
fn python_blocks_put_streams_of_named_libraries_into_the_system_domain() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = start(&gpu, Some(&[]), "enabled.py", &[]);
    program.expect("ready");
    until("it is known", || gpu.place.group(program.pid()).is_some());
    say(&mut program, "system high");
    let queues_in = |domain: &str| {
        let groups = gpu.place.program(program.pid()).unwrap_or_default()["groups"].as_array().cloned();
        let groups = groups.unwrap_or_default();
        let of_domain = groups.iter().filter(|group| group["domain"] == domain);
        of_domain.filter_map(|group| group["queues"].as_array()).map(Vec::len).sum::<usize>()
    };
    // The default stream and the stream made after the block belong to the program.
    until("one of three", || (queues_in("system"), queues_in("application")) == (1, 2));
    program.tell("end");
    assert_eq!(program.wait().0, 0);
}

#[test]
fn python_blocks_choose_the_policy_where_no_daemon_decides() {
    let gpu = Gpu::new();
    for options in [["--local", "cfs"].as_slice(), &["--no-daemon"]] {
        let mut program = start(&gpu, Some(options), "enabled.py", &[]);
        program.expect("ready");
        program.tell("local up");
        program.expect("ok the process decides by the policy");
        program.expect("ok and as before after the block");
        program.expect("done");
        program.tell("end");
        assert_eq!(program.wait().0, 0);
    }
}

#[test]
fn python_blocks_end_well_without_their_daemon() {
    let gpu = Gpu::new();
    let daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = start(&gpu, Some(&[]), "enabled.py", &[]);
    program.expect("ready");
    until("it is known", || gpu.place.group(program.pid()).is_some());
    say(&mut program, "enter high");
    drop(daemon);
    say(&mut program, "leave");
    until("a warning says so", || program.errors().contains("priority 0 cannot be given back"));
    // The next daemon gets the program's own class, and the next block changes it there.
    let _next = gpu.place.daemon(&["--policy", "hpf"]);
    let priority = || gpu.place.program(program.pid()).and_then(|p| p["priority"].as_i64());
    until("it is known again", || priority() == Some(0));
    program.tell("enter high");
    program.expect("done");
    assert_eq!(gpu.place.program(program.pid()).expect("a program")["priority"], 128);
    program.tell("end");
    assert_eq!(program.wait().0, 0);
}

#[test]
fn python_queues_take_streams_of_pytorch() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = start(&gpu, Some(&[]), "stand_in.py", &[]);
    program.expect("here");
    until("four priorities", || [-50, 0, 7].iter().all(|p| priorities(&gpu, program.pid()).contains(p)));
    program.tell("go on");
    passes(program);
}

#[test]
fn python_programs_without_the_preload_are_told_the_cure() {
    let gpu = Gpu::new();
    passes(start(&gpu, None, "bare.py", &[]));
    passes(start(&gpu, None, "bare.py", &["late"]));
    passes(start(&gpu, None, "bare.py", &["child"]));
}

#[test]
fn python_programs_start_themselves_again_under_the_preload() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    passes(start(&gpu, None, "bare.py", &["ensure"]));
    // A program read from standard input cannot be started again.
    let mut program = Process::start(prepared(&gpu, gpu.place.command("python3", &["-"])));
    program.tell("import xsched\nxsched.ensure()");
    let (code, _, errors) = program.wait();
    assert!(code == 1 && errors.contains("standard input"), "{code} {errors}");
    // Nor can it be started a second time.
    let mut command = gpu.place.command("python3", &["-c", "import xsched; xsched.ensure()"]);
    command.env("XSCHED_PYTHON_ENSURED", "1");
    let (code, _, errors) = Process::start(prepared(&gpu, command)).wait();
    assert!(code == 1 && errors.contains("xsched doctor"), "{code} {errors}");
}

/// Runs a command, and checks that it succeeds.
#[track_caller]
fn done(mut command: Command) -> String {
    let output = xsched_e2e::finish(
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"),
        WHEEL_TIMEOUT,
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Asserts that a file asks for no version of glibc beyond 2.28, as the wheel's tag promises. (`cargo xtask wheel` checks it too.)
#[track_caller]
fn needs_old_glibc_only(file: &Path) {
    let mut symbols = Command::new("objdump");
    symbols.arg("-T").arg(file);
    let symbols = done(symbols);
    let versions = symbols.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    });
    assert!(versions.max() <= Some(28), "{}", file.display());
}

/// Makes a wheel of this build, in a virtual environment of its own; none where Python cannot make one.
fn installed(gpu: &Gpu) -> Option<PathBuf> {
    let place = &gpu.place;
    let (stage, environment) = (place.join("stage"), place.join("venv"));
    std::fs::create_dir(&stage).expect("a folder");
    let libraries =
        ["libxsched.so", "libsimdev.so", "libpreempt.so", "libhalcuda.so", "libhalhip.so", "libhalopencl.so"];
    for name in ["xsched"].into_iter().chain(libraries) {
        let mut strip = Command::new("strip");
        strip.arg("--strip-unneeded").arg("-o").arg(stage.join(name)).arg(beside(name));
        done(strip);
        needs_old_glibc_only(&stage.join(name));
    }
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let script = text(&root().join("python/wheel.py"));
    let (bin, out) = (text(&stage), text(&place.join("wheel")));
    let version = env!("CARGO_PKG_VERSION");
    let wheel = done(place.command("python3", &[&script, "--bin", &bin, "--out", &out, "--version", version]));
    let venv = place.command("python3", &["-m", "venv", &text(&environment)]).output().expect("python3 runs");
    if !venv.status.success() {
        xsched_e2e::skipped("the wheel in a virtual environment: python3 -m venv fails; apt-get install python3-venv");
        return None;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel.trim()];
    done(place.command(environment.join("bin/python"), &pip));
    Some(environment)
}

#[test]
fn python_wheel_brings_the_command_the_libraries_and_both_packages() {
    let gpu = Gpu::new();
    let Some(environment) = installed(&gpu) else { return };
    let command = |program: &str, args: &[&str]| {
        let mut command = gpu.place.command(environment.join("bin").join(program), args);
        command.env("LD_LIBRARY_PATH", gpu.driver()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let version = format!("xsched {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(done(command("xsched", &["--version"])).trim(), version);
    assert_eq!(done(command("python", &["-m", "xsched", "--version"])).trim(), version);
    assert_eq!(
        done(command("python", &["-c", "import xsched; print(xsched.__version__)"])).trim(),
        env!("CARGO_PKG_VERSION")
    );
    assert!(environment.join("include/xsched/cuda/hal.h").is_file());

    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    assert!(done(command("python", &["-m", "xsched", "ps", "--json"])).contains("hpf"));
    assert!(done(command("xcli", &["policy", "-q"])).contains("hpf"));
    let python = environment.join("bin/python");
    let python = python.to_str().expect("text");
    let script = |name: &str| root().join("testing/programs/python").join(name).to_str().expect("text").to_owned();
    let mut program = Process::start(command("xsched", &["run", "--", python, &script("queues.py")]));
    program.expect("here");
    program.tell("go on");
    passes(program);
    passes(Process::start(command("python", &[&script("bare.py"), "ensure"])));

    // All files of the wheel are on its list.
    done(command("python", &["-m", "pip", "uninstall", "--quiet", "--yes", "xsched"]));
    for left in ["bin/xsched", "lib/xsched/libxsched.so", "include/xsched/xsched.h"] {
        assert!(!environment.join(left).exists(), "{left} stays");
    }
}

/// A user's first minutes with the wheel, on a machine without a GPU: the environment's `bin` is the only folder of xsched in PATH.
#[test]
fn python_wheel_shows_itself_without_a_gpu() {
    let gpu = Gpu::new();
    let Some(environment) = installed(&gpu) else { return };
    let path = format!("{}:/usr/bin:/bin", environment.join("bin").display());
    let command = |words: &str| {
        let mut command = gpu.place.command("sh", &["-c", words]);
        // The variables of the tests name this build's files.
        for name in ["XSCHED_PRELOAD", "SIMDEV_LIBRARY", "SIMDEV_SERVER"] {
            command.env_remove(name);
        }
        command.env("PATH", &path).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&environment);
        command
    };
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let demo = done(command("xsched demo --device sim --secs 1 --rounds 1"));
    assert!(demo.contains("together, under xsched"), "{demo}");
    let check = xsched_e2e::finish(
        command("xsched check --device sim").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"),
        WHEEL_TIMEOUT,
    );
    // A busy machine makes a step slow, which is no fault of the wheel.
    let errors = String::from_utf8_lossy(&check.stderr);
    assert!(matches!(check.status.code(), Some(0 | 1)) && !errors.contains("libsimdev"), "{check:?}");
    let doctor: serde_json::Value = serde_json::from_str(&done(command("xsched doctor --json || true"))).expect("JSON");
    let mut platforms = doctor["platforms"].as_array().expect("platforms").iter();
    assert!(platforms.any(|one| one["platform"] == "sim" && one["present"] == true), "{doctor}");
    // The programs of the tour find the simulated device by themselves.
    let tour = environment.join("share/doc/xsched/examples/tour");
    let python = environment.join("bin/python");
    let mut serve = command(&format!(
        "exec xsched run --priority high -- {} {}",
        python.display(),
        tour.join("serve.py").display()
    ));
    serve.current_dir(&tour);
    let serve = Process::start(serve);
    until("the program of the tour is scheduled", || {
        let group = gpu.place.group(serve.pid());
        group.is_some_and(|group| group["device"].as_str().is_some_and(|device| device.starts_with("sim:")))
    });
}

#[test]
fn python_knows_the_policies_and_priorities_that_there_are() {
    let gpu = Gpu::new();
    let script = "import json; from xsched import program as p; \
                  print(json.dumps([p._POLICIES, p._DAEMONS_POLICIES, p._OTHER_NAMES, p.CLASSES]))";
    let said = done(prepared(&gpu, gpu.place.command("python3", &["-c", script])));
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let header = std::fs::read_to_string(root().join("include/xsched/types.h")).expect("the header");
    let numbers = said[0].as_object().expect("policies");
    assert_eq!(numbers.len(), header.matches("    kPolicy").count() - 1, "all but the unknown one");
    for entry in registry::listed() {
        let daemons = said[1].as_array().expect("names").iter().any(|name| name == entry.name);
        assert!(numbers.contains_key(entry.name) != daemons, "{}", entry.name);
        for alias in entry.aliases {
            assert_eq!(said[2][alias], entry.name);
        }
    }
    // The numbers have the order of the header, and so of XSched's names.
    for (short, long) in [("hpf", "HighestPriorityFirst"), ("laxity", "Laxity"), ("mlfq", "MultiLevelFeedbackQueue")] {
        let name = said[2][short].as_str().unwrap_or(short);
        assert!(header.contains(&format!("kPolicy{long} = {}", numbers[name])), "{short}");
    }
    let classes = said[3].as_object().expect("classes");
    for (class, number) in classes {
        let number = i32::try_from(number.as_i64().expect("a number")).expect("a priority");
        let name = if class == "batch" { "low" } else { class.as_str() };
        assert_eq!(Class::of(number).to_string(), name);
    }
}
