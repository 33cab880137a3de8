//! Memory of CUDA programs, on the software driver: counted over every way to get it, limited, and told alike by all that a program can
//! ask.

use std::path::Path;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Gpu, HipGpu, Place, Process, Random, signal, until};

/// Limit of most tests, in MiB; devices have 256.
const LIMIT: &str = "64";

/// Runs a program with these variables and no daemon, and returns its lines and complaints.
fn run(gpu: &Gpu, program: &Path, args: &[&str], variables: &[(&str, &str)]) -> (Vec<String>, String) {
    let mut command = gpu.place.run_command(&["--no-daemon"], program, args);
    command.envs(variables.iter().copied());
    let (status, lines, complaints) = gpu.with_driver(command).wait();
    let failed: Vec<&String> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(status == 0 && failed.is_empty() && lines.len() > 20, "{status} {failed:?} {complaints}");
    (lines, complaints)
}

/// Puts the stand-in for NVML beside the driver.
fn with_nvml(gpu: &Gpu) {
    let library = gpu.place.compile("stand-ins/nvml/nvml.c", &["-shared", "-fPIC"]);
    std::fs::copy(library, gpu.driver().join("libnvidia-ml.so.1")).unwrap();
}

#[test]
fn each_way_to_get_memory_is_counted_limited_and_counted_out() {
    let gpu = Gpu::new();
    with_nvml(&gpu);
    let program = gpu.program("limits");
    let values = gpu.place.join(".");
    let values = ("FAKENVML", values.to_str().expect("text"));
    // The device's own figures, as a control of the program.
    let mut bare = gpu.place.command(&program, &[]);
    bare.env(values.0, values.1);
    let lines = gpu.with_driver(bare).finish();
    assert!(lines.iter().all(|line| line.starts_with("ok ")), "{lines:?}");
    let (unlimited, complaints) = run(&gpu, &program, &[], &[values]);
    assert_eq!(unlimited, lines, "without a limit nothing changes");
    assert!(!complaints.contains("memory"), "{complaints}");

    let limit = format!("{LIMIT}MiB");
    let variables = [values, ("XSCHED_MEMORY_LIMIT", limit.as_str()), ("LIMIT_MIB", LIMIT)];
    let (limited, complaints) = run(&gpu, &program, &[], &variables);
    assert_eq!(limited.iter().filter(|line| line.ends_with(": limited")).count(), 14);
    assert_eq!(complaints.matches("out of GPU memory").count(), 1, "one line: {complaints}");
    assert!(complaints.contains("64 MiB"), "{complaints}");
}

#[test]
fn failures_of_the_driver_leave_the_counts_right() {
    let gpu = Gpu::new();
    let program = gpu.program("limits");
    let limit = format!("{LIMIT}MiB");
    // The first allocation and the first free of each way. Where ways share a function, a number for each.
    let fails = "cuMemAlloc_v2:1:2 cuMemFree_v2:1:700 cuMemAlloc_v2:3:2 cuMemFreeAsync:1:700 cuMemAllocPitch_v2:1:2 \
                 cuMemFree_v2:3:700 cuMemAllocManaged:1:2 cuMemFree_v2:5:700 cuMemAllocAsync:1:2 cuMemFreeAsync:3:700 \
                 cuMemAllocAsync:3:2 cuMemFree_v2:7:700 cuMemAllocFromPoolAsync:1:2 cuMemFreeAsync:5:700 cuMemCreate:1:2 \
                 cuMemRelease:1:1 cuMemCreate:3:2 cuMemUnmap:1:1 cuMemCreate:5:2 cuMemRelease:5:1 cuArrayCreate_v2:1:2 \
                 cuArrayDestroy:1:700 cuArray3DCreate_v2:1:2 cuArrayDestroy:3:700 cuMipmappedArrayCreate:1:2 \
                 cuMipmappedArrayDestroy:1:700 cuGraphAddMemAllocNode:1:2 cuGraphDestroy:2:1";
    let variables = [("FAKECUDA_FAIL_CALL", fails), ("XSCHED_MEMORY_LIMIT", limit.as_str()), ("LIMIT_MIB", LIMIT)];
    let (lines, _) = run(&gpu, &program, &["failing"], &variables);
    assert_eq!(lines.iter().filter(|line| line.contains("a failure ")).count(), 28);
}

#[test]
fn what_a_context_itself_takes_counts_too() {
    let gpu = Gpu::with(1, &[]);
    with_nvml(&gpu);
    let program = gpu.program("churn");
    let values = gpu.place.join(".");
    let mut command = gpu.place.run_command(&["--no-daemon"], &program, &["1"]);
    command.env("FAKENVML", &values).env("FAKECUDA_CONTEXT_MIB", "10").env("XSCHED_MEMORY_LIMIT", "64MiB");
    let mut process = gpu.with_driver(command);
    process.expect("ready");
    assert_eq!(used(&mut process, 0), 10 << 20);
    process.tell("end");
    assert_eq!(process.wait().0, 0);
}

#[test]
fn pools_are_asked_for_their_size_seldom() {
    const PAIRS: u64 = 4_000;
    let gpu = Gpu::with(1, &[("SIMDEV_MEMORY_MIB", "2048")]);
    let program = gpu.program("churn");
    for limit in ["", "1GiB"] {
        let mut command = gpu.place.run_command(&["--no-daemon"], &program, &["1"]);
        if !limit.is_empty() {
            command.env("XSCHED_MEMORY_LIMIT", limit);
        }
        let mut process = gpu.with_driver(command);
        process.expect("ready");
        process.tell(&format!("pairs {PAIRS}"));
        process.expect("paired");
        process.tell("end");
        let pid = process.pid();
        assert_eq!(process.wait().0, 0);
        let calls = &gpu.driver_stats(pid)["calls"];
        assert!(calls["cuMemAllocAsync"].as_u64() >= Some(PAIRS), "{calls}");
        assert!(calls["cuMemPoolGetAttribute"].as_u64() < Some(PAIRS / 10), "limit {limit}: {calls}");
    }
}

#[test]
fn a_daemon_measures_what_a_program_has_besides() {
    let gpu = Gpu::new();
    with_nvml(&gpu);
    let values = gpu.place.join(".");
    let _daemon =
        gpu.place.daemon_with(&[], &[("FAKENVML", values.as_os_str()), ("LD_LIBRARY_PATH", gpu.driver().as_os_str())]);
    let program = gpu.program("churn");
    let told = |pid: u32| gpu.place.program(pid).map(|told| told["memory"][0]["held"]["overhead_bytes"].clone());
    let mut processes: Vec<Process> =
        [&["--memory-limit", "64MiB"][..], &[]].map(|options| gpu.run(options, &program, &["1"])).into();
    processes.iter_mut().for_each(|process| process.expect("ready"));
    assert_eq!([take(&mut processes[0], 8), take(&mut processes[1], 8)], ["took 0", "took 0"]);
    let lines: String = processes.iter().map(|process| format!("{} {}\n", process.pid(), 18 << 20)).collect();
    std::fs::write(values.join("new"), lines).unwrap();
    std::fs::rename(values.join("new"), values.join("processes")).unwrap();
    for process in &processes {
        until("it is measured", || told(process.pid()) == Some(Value::from(10 << 20)));
    }
    assert_eq!(used(&mut processes[0], 0), 18 << 20, "the limited one sees it");
    assert_eq!([take(&mut processes[0], 48), take(&mut processes[0], 46)], ["took 2", "took 0"], "of 64, less 18");
    for mut process in processes {
        process.tell("end");
        assert_eq!(process.wait().0, 0);
    }
}

/// Answer of a program `besides`: the result of what it did, and what it is told then, in bytes.
struct Told {
    result: u64,
    free: u64,
    total: u64,
    /// Total memory by the management library, version by version, and by the driver's device.
    totals: [u64; 3],
    /// Memory in use by the management library, version by version.
    used: [u64; 2],
    /// The management library's figure of the process.
    own: u64,
}

fn ask(process: &mut Process, line: &str) -> Told {
    process.tell(line);
    let answer = process.line();
    let words = answer.strip_prefix("told ").map(|rest| rest.split(' ').map(|word| word.parse().expect("a number")));
    let found: Vec<u64> = words.unwrap_or_else(|| panic!("{answer}")).collect();
    let [result, free, total, first, first_used, second, second_used, whole, own] = found[..] else {
        panic!("{answer}")
    };
    Told { result, free, total, totals: [first, second, whole], used: [first_used, second_used], own }
}

#[test]
fn what_a_limited_program_is_told_is_what_ps_and_the_driver_tell() {
    const LIMIT: u64 = 64 << 20;
    let gpu = Gpu::new();
    with_nvml(&gpu);
    let values = gpu.place.join(".");
    let start = || {
        gpu.place.daemon_with(&[], &[("FAKENVML", values.as_os_str()), ("LD_LIBRARY_PATH", gpu.driver().as_os_str())])
    };
    let mut daemon = start();
    let mut command = gpu.place.run_command(&["--memory-limit", "64MiB"], &gpu.program("besides"), &[]);
    command.env("FAKENVML", &values).env("FAKECUDA_CONTEXT_MIB", "10").env("FAKECUDA_MODULE_MIB", "2");
    let mut process = gpu.with_driver(command);
    let pid = process.pid();
    process.expect("ready");
    let in_ps = || gpu.place.program(pid).and_then(|told| told["memory"][0]["held"]["used_bytes"].as_u64());
    let agree = |process: &mut Process| {
        let mut last = 0;
        until("all figures are the same", || {
            let told = ask(process, "tell");
            assert_eq!((told.total, told.totals), (LIMIT, [LIMIT; 3]));
            assert!(told.free <= LIMIT && told.used.iter().all(|used| *used <= LIMIT), "at each moment");
            last = told.own;
            LIMIT - told.free == told.own && told.used == [told.own; 2] && in_ps() == Some(told.own)
        });
        last >> 20
    };
    assert_eq!(agree(&mut process), 12, "a context and a module");
    // The driver is asked when the program asks, not each second only.
    let looks = values.join("looks");
    std::fs::write(&looks, "").unwrap();
    let began = Instant::now();
    until("the driver was asked more often than each second", || {
        ask(&mut process, "tell");
        std::fs::metadata(&looks).unwrap().len() > began.elapsed().as_secs() + 5
    });
    let steps = [
        ("take 8", 20),
        ("order 4", 24),
        ("load", 26),
        ("take 2", 28),
        ("load", 30),
        ("unload", 28),
        ("free", 26),
        ("free", 22),
        ("take 16", 38),
        ("reset", 10),
        ("order 6", 16),
        ("load", 18),
    ];
    for (line, own) in steps {
        assert_eq!(ask(&mut process, line).result, 0, "{line}");
        assert_eq!(agree(&mut process), own, "{line}");
    }
    signal(daemon.pid(), Signal::KILL);
    daemon.wait();
    assert_eq!(ask(&mut process, "take 4").result, 0);
    daemon = start();
    until("it is there again", || in_ps().is_some());
    assert_eq!(agree(&mut process), 22, "a later daemon");
    // Memory that is told to be free is had, and no more; and what a module had is had by others.
    assert_eq!(ask(&mut process, "take 42").result, 0);
    assert_eq!(agree(&mut process), 64);
    assert_eq!(["take 2", "order 2"].map(|line| ask(&mut process, line).result), [2, 2]);
    assert_eq!(ask(&mut process, "unload").result, 0);
    until("it has the module's memory", || ask(&mut process, "take 2").result == 0);
    assert_eq!(agree(&mut process), 64);
    assert_eq!(ask(&mut process, "take 1").result, 2);
    process.tell("end");
    assert_eq!(process.wait().0, 0);
    daemon.tell("");
}

#[test]
fn each_device_of_a_program_has_the_limit_by_itself() {
    let gpu = Gpu::with_devices(2);
    let _daemon = gpu.place.daemon(&[]);
    let program = gpu.program("two_devices");
    let mut limits = Vec::new();
    for (options, in_all, plain) in
        [(&[][..], 256, [29, 28]), (&["--memory-limit", "64MiB"], 64, [5, 4]), (&["--memory-limit", "25%"], 64, [5, 4])]
    {
        let (status, lines, complaints) = gpu.run(options, &program, &[]).wait();
        assert!(status == 0, "{lines:?} {complaints}");
        let expected =
            |d: usize| format!("ok device {d}: {} plain, {} ordered, error 2, {in_all} MiB in all", plain[d], 3 + d);
        assert_eq!(
            lines.iter().filter(|line| line.contains(" plain")).collect::<Vec<_>>(),
            [&expected(0), &expected(1)]
        );
        limits.push(lines);
    }
    assert_eq!(limits[1], limits[2]);
}

#[test]
fn programs_of_hip_are_counted_and_limited() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let program = gpu.program("limits", 6);
    let ways = ["plain", "managed", "rows", "box", "ordered"];
    for (options, told, pieces, error) in [(&[][..], 256, 16, 0), (&["--memory-limit", "64MiB"], 64, 8, 2)] {
        let process = gpu.run(options, &program, &[]);
        let pid = process.pid();
        let (status, lines, complaints) = process.wait();
        assert!(status == 0 && lines.iter().all(|line| line.starts_with("ok ")), "{lines:?} {complaints}");
        assert_eq!(lines[0], format!("ok told: {told} {told} {told} MiB"));
        let expected = ways.map(|way| format!("ok {way}: {pieces} pieces, error {error}"));
        let found = lines.iter().filter(|line| line.contains(" pieces"));
        assert_eq!(found.cloned().collect::<Vec<_>>(), expected);
        let at_end = &gpu.place.stats_of(pid)["memory"][0];
        assert_eq!(["used", "plain", "pooled", "host"].map(|part| at_end[part].as_u64()), [Some(0); 4], "{at_end}");
        assert!(at_end["peak"].as_u64() >= Some(64 << 20), "{at_end}");
    }
}

#[test]
fn programs_of_opencl_are_counted_and_limited() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.compile("programs/opencl/limits.c", &["-lOpenCL"]);
    let lines = place.run(&[], &program, &[]).finish();
    let expected = [
        "told: 0 0",
        "buffers: 16 pieces, error 0",
        "images: 16 pieces, error 0",
        "the program's own: 16 pieces, error 0",
        "shared: 16 pieces",
    ];
    assert_eq!(lines, expected);
    let process = place.run(&["--memory-limit", "64MiB"], &program, &[]);
    let pid = process.pid();
    let (status, lines, complaints) = process.wait();
    let expected = [
        "told: 1 1",
        "buffers: 8 pieces, error -4",
        "images: 8 pieces, error -4",
        "the program's own: 16 pieces, error 0",
        "shared: 8 pieces",
    ];
    assert_eq!((status, lines), (0, expected.map(str::to_owned).to_vec()), "{complaints}");
    assert_eq!(complaints.matches("out of GPU memory: the limit of the program is 64 MiB").count(), 1, "{complaints}");
    // OpenCL does not tell what is free: the daemon knows what is reserved and held.
    let mut urgent = place.run(&["--priority", "high", "--memory-reserve", "100%"], &program, &["hold"]);
    urgent.expect("ready");
    let (_, lines, _) = place.run(&["--priority", "low"], &program, &[]).wait();
    assert_eq!(lines[1], "buffers: 0 pieces, error -4");
    urgent.tell("end");
    urgent.finish();
    let at_end = &place.stats_of(pid)["memory"][0];
    assert_eq!((&at_end["used"], &at_end["peak"]), (&Value::from(0), &Value::from(64 << 20)), "{at_end}");
}

/// Memory that a program says it has, after this many bursts.
fn used(process: &mut Process, bursts: u64) -> u64 {
    process.tell(&format!("go {bursts}"));
    let line = process.line();
    line.strip_prefix("used ").and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Result of an allocation of this many MiB by a program `churn`.
fn take(process: &mut Process, mib: u64) -> String {
    process.tell(&format!("take {mib}"));
    process.line()
}

#[test]
fn a_limit_that_the_daemon_keeps_holds_for_each_way() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let program = gpu.program("limits");
    let mut command = gpu.place.run_command(&["--memory-limit", &format!("{LIMIT}MiB")], &program, &[]);
    command.env("LIMIT_MIB", LIMIT);
    let (status, lines, complaints) = gpu.with_driver(command).wait();
    let failed: Vec<&String> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(status == 0 && failed.is_empty(), "{failed:?} {complaints}");
    assert_eq!(lines.iter().filter(|line| line.ends_with(": limited")).count(), 14);
    assert!(complaints.contains("out of GPU memory: the limit of the program is 64 MiB"), "{complaints}");
    let stats = gpu.place.stats().into_iter().map(|(_, stats)| stats["memory"][0].clone());
    let left = |stats: &Value| stats["refused"].as_u64() > Some(14) && stats["peak"].as_u64() == Some(64 << 20);
    let at_end = stats.into_iter().find(left).expect("the parent's");
    for part in ["used", "plain", "pooled", "virtual", "graph", "array", "overhead", "exported", "host"] {
        assert_eq!(at_end[part], 0, "{at_end}");
    }
}

#[test]
fn shared_and_pinned_memory_is_told_apart() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut process = gpu.run(&[], &gpu.program("churn"), &["1"]);
    process.expect("ready");
    process.tell("share");
    assert_eq!(process.line(), format!("used {}", 6 << 20), "the device's own figure");
    let told = gpu.place.program(process.pid()).expect("it is known");
    let held = &told["memory"][0]["held"];
    let mib = |name: &str| held[name].as_u64().map(|bytes| bytes >> 20);
    let figures = ["used_bytes", "plain_bytes", "virtual_bytes", "exported_bytes", "host_bytes"].map(mib);
    assert_eq!(figures, [6, 4, 2, 6, 1].map(Some), "{held}");
    process.tell("end");
    process.finish();
}

/// Does what a line says to a program `kinds`, and returns the number that it answers.
fn does(process: &mut Process, line: &str) -> i64 {
    // Each line has a number.
    process.tell(&if line.contains(' ') { line.to_owned() } else { format!("{line} 0") });
    let answer = process.line();
    answer.strip_prefix("done ").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}: {answer}"))
}

/// A program `kinds`, its answers, and what `ps` tells of it after each step: it does not ask for its memory, which would bring the
/// counts up to date.
#[test]
fn memory_of_pools_and_graphs_and_shared_memory_counts_by_each_step_alone() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut command = gpu.place.run_command(&[], &gpu.program("kinds"), &[]);
    command.env("FAKECUDA_FAIL_CALL", "cuMemPoolDestroy:1:1");
    let mut process = gpu.with_driver(command);
    process.expect("ready");
    let pid = process.pid();
    let held = || {
        let told = gpu.place.program(pid).expect("it is known");
        let held = &told["memory"][0]["held"];
        let parts = [
            "used_bytes",
            "plain_bytes",
            "pooled_bytes",
            "virtual_bytes",
            "graph_bytes",
            "exported_bytes",
            "host_bytes",
        ];
        parts.map(|part| held[part].as_u64().expect("a number") >> 20)
    };
    let none = [0; 7];
    let pooled = |mib| [mib, 0, mib, 0, 0, 0, 0];
    let of_graphs = |mib| [mib, 0, 0, 0, mib, 0, 0];
    let steps = [
        ("create", 0, none),
        ("pool 8", 0, pooled(8)),
        ("pool 8", 0, pooled(16)),
        ("back", 0, pooled(16)),
        ("trim", 0, pooled(8)),
        ("back", 0, pooled(8)),
        ("destroy", 1, pooled(8)),
        ("pool 4", 0, pooled(8)),
        ("back", 0, pooled(8)),
        ("destroy", 0, none),
        ("node 8", 0, of_graphs(8)),
        ("ungraph", 0, none),
        ("capture 8192", 0, of_graphs(8)),
        ("ungraph", 0, none),
        ("share", 0, [4, 2, 0, 2, 0, 4, 0]),
        ("unshare", 0, [2, 2, 0, 0, 0, 2, 0]),
        ("unshare", 0, none),
        ("host", 0, [0, 0, 0, 0, 0, 0, 3]),
        ("unhost", 0, none),
        ("order 8", 0, pooled(8)),
        ("node 8", 0, [16, 0, 8, 0, 8, 0, 0]),
        ("reset", 0, none),
    ];
    for (n, (line, result, parts)) in steps.into_iter().enumerate() {
        assert_eq!((does(&mut process, line), held()), (result, parts), "step {n}: {line}");
    }
    process.tell("end 0");
    assert_eq!(process.wait().0, 0);
}

#[test]
fn memory_that_a_pool_keeps_is_released_for_an_allocation_at_the_limit() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut process = gpu.run(&["--memory-limit", "64MiB"], &gpu.program("kinds"), &[]);
    process.expect("ready");
    for (line, result) in [("create", 0), ("pool 40", 0), ("back", 0), ("take 40", 0), ("pool 32", 2), ("take 24", 0)] {
        assert_eq!(does(&mut process, line), result, "{line}");
    }
    assert_eq!(["capture 80", "tell"].map(|line| does(&mut process, line)), [2, 0], "a capture is limited, too");
    process.tell("end 0");
    assert_eq!(process.wait().0, 0);
}

#[test]
fn an_advance_ends_at_the_limit_and_at_a_reserve() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut limited = gpu.run(&["--memory-limit", "64MiB"], &gpu.program("kinds"), &[]);
    limited.expect("ready");
    assert_eq!(["pairs 100", "small"].map(|line| does(&mut limited, line)), [0, 1024], "64 MiB of 64");
    limited.tell("end 0");
    assert_eq!(limited.wait().0, 0);
    // Captured allocations are a graph's, and not of the advance.
    let mut process = gpu.run(&[], &gpu.program("kinds"), &[]);
    process.expect("ready");
    assert_eq!(["pairs 3", "capture 64"].map(|line| does(&mut process, line)), [0, 0]);
    let told = gpu.place.program(process.pid()).expect("it is known");
    assert_ne!(told["memory"][0]["held"]["graph_bytes"], 0, "{told}");
    process.tell("end 0");
    assert_eq!(process.wait().0, 0);
    let mut urgent = gpu.run(&["--priority", "high", "--memory-reserve", "100MiB"], &gpu.program("kinds"), &[]);
    urgent.expect("ready");
    let mut low = gpu.run(&["--priority", "low"], &gpu.program("kinds"), &[]);
    low.expect("ready");
    assert_eq!(["pairs 100", "small"].map(|line| does(&mut low, line)), [0, 156 * 16], "of 256 MiB, less 100");
    for mut process in [low, urgent] {
        process.tell("end 0");
        assert_eq!(process.wait().0, 0);
    }
}

#[test]
fn memory_that_may_be_allocated_in_advance_is_not_told_as_held() {
    let gpu = Gpu::with(1, &[("SIMDEV_MEMORY_MIB", "2048")]);
    let _daemon = gpu.place.daemon(&[]);
    let mut process = gpu.run(&["--memory-limit", "1GiB"], &gpu.program("churn"), &["1"]);
    process.expect("ready");
    process.tell("pairs 100");
    process.expect("paired");
    let told = gpu.place.program(process.pid()).expect("it is known");
    let held = told["memory"][0]["held"]["used_bytes"].as_u64();
    assert!(held <= Some(4 << 20), "{held:?}");
    // Nor when the advance has ended.
    assert_eq!(take(&mut process, 8), "took 0");
    let used = used(&mut process, 0);
    let told = gpu.place.program(process.pid()).expect("it is known");
    assert_eq!((told["memory"][0]["held"]["used_bytes"].as_u64(), used), (Some(8 << 20), 8 << 20));
    process.tell("end");
    process.finish();
}

#[test]
fn a_program_that_finds_the_device_full_says_who_holds_it() {
    let gpu = Gpu::new();
    let log = gpu.place.join("log");
    let _daemon = gpu.place.daemon(&["--log", log.to_str().expect("text")]);
    let program = gpu.program("churn");
    let mut holder = gpu.run(&["--priority", "low"], &program, &["1"]);
    holder.expect("ready");
    assert_eq!(take(&mut holder, 200), "took 0");
    let mut other = gpu.run(&[], &program, &["2"]);
    other.expect("ready");
    assert_eq!([take(&mut other, 100), take(&mut other, 100), take(&mut other, 8)], ["took 2", "took 2", "took 0"]);
    other.tell("end");
    let (status, _, said) = other.wait();
    assert_eq!((status, said.matches("out of GPU memory").count()), (0, 1), "{said}");
    assert!(said.contains("200 MiB of 256 MiB are churn's (low)"), "{said}");
    let logged = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.lines().filter(|line| line.contains("refused")).map(str::to_owned).collect::<Vec<_>>()
    };
    until("the end of the program is logged", || logged().len() == 2);
    let lines = logged();
    assert!(lines[0].contains(": 100 MiB of ") && lines[0].contains("were refused by the driver: 200 MiB of 256 MiB"));
    assert!(lines[1].ends_with(": 1 more allocations were refused before it ended"), "{lines:?}");
    holder.tell("end");
    holder.finish();
}

#[test]
fn room_that_an_urgent_program_has_reserved_stays_free() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let program = gpu.program("churn");
    let mut urgent = gpu.run(&["--priority", "high", "--memory-reserve", "100MiB"], &program, &["1"]);
    urgent.expect("ready");
    let mut low = gpu.run(&["--priority", "low"], &program, &["2"]);
    low.expect("ready");
    assert_eq!([take(&mut low, 180), take(&mut low, 140)], ["took 2", "took 0"], "of 256, less 100");
    assert_eq!(take(&mut urgent, 110), "took 0");
    for process in [low, urgent] {
        process.wait();
    }
}

/// Bursts of each process in a round, processes at a time, rounds: 10,000 bursts in all.
const BURSTS: u64 = 50;
const PROCESSES: usize = 4;
const ROUNDS: usize = 50;

#[test]
fn programs_that_allocate_at_random_and_are_killed_are_counted_as_the_device_counts() {
    let gpu = Gpu::with(1, &[("SIMDEV_MEMORY_MIB", "2048")]);
    let program = gpu.program("churn");
    let mut device = gpu.bare(&program, &["device"]);
    device.expect("ready");
    let mut random = Random(20);
    let mut started = 0;
    let mut start = || {
        started += 1;
        let mut command = gpu.place.run_command(&["--no-daemon"], &program, &[&started.to_string()]);
        command.env("XSCHED_MEMORY_LIMIT", "512MiB");
        let mut process = gpu.with_driver(command);
        process.expect("ready");
        process
    };
    let mut running: Vec<Process> = (0..PROCESSES).map(|_| start()).collect();
    let mut killed = 0;
    for round in 0..ROUNDS {
        let sum: u64 = running.iter_mut().map(|process| used(process, BURSTS)).sum();
        let whole = used(&mut device, 0);
        assert_eq!(sum, whole, "round {round}, seed 20");
        if round % 4 == 3 {
            let victim = running.swap_remove(random.below(PROCESSES));
            // In the midst of its allocations.
            let mut victim = victim;
            victim.tell("go 1000000");
            signal(victim.pid(), Signal::KILL);
            victim.wait();
            killed += 1;
            let rest: u64 = running.iter_mut().map(|process| used(process, 0)).sum();
            until("the device has freed what it had", || used(&mut device, 0) == rest);
            running.push(start());
        }
    }
    assert_eq!(killed, ROUNDS / 4);
    for process in running {
        signal(process.pid(), Signal::KILL);
        process.wait();
    }
    until("all is free", || used(&mut device, 0) == 0);
    device.tell("end");
    device.finish();
}
