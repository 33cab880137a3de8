//! `xsched freeze` and `thaw`, and each way in which a program goes on while its memory is away, with the software driver of
//! `xsched-fakecuda`.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use xsched_e2e::{Gpu, Process, signal, until};

const MIB: u64 = 1 << 20;

/// Starts the program with 32 MiB of known contents.
fn start(gpu: &Gpu, options: &[&str]) -> Process {
    start_with(gpu, options, 32)
}

fn start_with(gpu: &Gpu, options: &[&str], mib: u32) -> Process {
    let mut process = gpu.run(options, &gpu.program("freezing"), &[&mib.to_string()]);
    process.expect("ready");
    process
}

/// A daemon whose programs may hold so many MiB.
fn daemon_of(gpu: &Gpu, mib: u32) -> Process {
    let config = gpu.place.join("config.toml");
    std::fs::write(&config, format!("[memory]\ncapacity = \"{mib}MiB\"\n")).expect("a file");
    gpu.place.daemon(&["--config", config.to_str().expect("text")])
}

#[track_caller]
fn works(process: &mut Process) {
    assert_eq!((says(process, "add"), says(process, "check")), ("added".into(), "right".into()));
}

fn says(process: &mut Process, command: &str) -> String {
    process.tell(command);
    process.line()
}

/// Output of `xsched` with these arguments: its exit code and its lines, of stdout or else of stderr.
fn xsched(gpu: &Gpu, args: &[&str]) -> (i32, String) {
    let output = gpu.place.xsched(args).output().expect("xsched runs");
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).trim().to_owned())
}

fn moved(gpu: &Gpu, verb: &str, pid: u32) -> (i32, String) {
    xsched(gpu, &[verb, &pid.to_string()])
}

#[track_caller]
fn freeze(gpu: &Gpu, pid: u32) {
    freeze_of(gpu, pid, 32);
}

#[track_caller]
fn freeze_of(gpu: &Gpu, pid: u32, mib: u32) {
    assert_eq!(moved(gpu, "freeze", pid), (0, format!("{pid} freezing: frozen, {mib} MiB on the host")));
}

/// Memory of a program in `ps --json`: on the device, away, and frozen or not.
fn memory(gpu: &Gpu, pid: u32) -> (u64, u64, bool) {
    let memory = gpu.place.program(pid).expect("attached")["memory"][0]["held"].clone();
    let mib = |name: &str| memory[name].as_u64().unwrap_or_else(|| panic!("{memory}")) / MIB;
    (mib("used_bytes"), mib("away_bytes"), memory["frozen"] == json!(true))
}

/// Waits until a thread of the program waits at its gate.
fn await_waiting(gpu: &Gpu, pid: u32) {
    until("a thread waits", || gpu.place.group(pid).is_some_and(|group| group["waits"]["now"] != json!(0)));
}

#[test]
fn frozen_memory_leaves_the_device_and_comes_back_with_its_contents() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut process = start(&gpu, &["--memory", "swap"]);
    let pid = process.pid();
    assert_eq!(moved(&gpu, "thaw", pid), (0, format!("{pid} freezing: was not frozen")));
    let (on_device, ..) = memory(&gpu, pid);
    for _ in 0..2 {
        freeze(&gpu, pid);
        assert_eq!(memory(&gpu, pid), (on_device - 32, 32, true));
        assert!(gpu.place.ask(&["ps"]).contains(" frozen "), "{}", gpu.place.ask(&["ps"]));
        assert_eq!(moved(&gpu, "freeze", pid), (0, format!("{pid} freezing: is frozen already")));
        process.tell("add");
        await_waiting(&gpu, pid);
        // `resume` lets a suspended program go on, and no frozen one.
        assert_eq!(moved(&gpu, "resume", pid).0, 0);
        assert_eq!(memory(&gpu, pid), (on_device - 32, 32, true));
        assert!(process.line_within(Duration::ZERO).is_none(), "it waits");
        assert_eq!(moved(&gpu, "thaw", pid), (0, format!("{pid} freezing: thawed")));
        process.expect("added");
        assert_eq!((says(&mut process, "check"), memory(&gpu, pid)), ("right".into(), (on_device, 0, false)));
    }
    // A suspended program stays suspended.
    assert_eq!(moved(&gpu, "suspend", pid).0, 0);
    freeze(&gpu, pid);
    assert_eq!(moved(&gpu, "thaw", pid).0, 0);
    process.tell("add");
    await_waiting(&gpu, pid);
    assert_eq!(moved(&gpu, "resume", pid).0, 0);
    process.expect("added");
    assert_eq!((says(&mut process, "check"), says(&mut process, "free")), ("right".into(), "freed".into()));
    process.finish();
    assert_eq!(gpu.driver_stats(pid)["illegal"], json!(0));
}

#[test]
fn what_prevents_it_is_named_and_nothing_moves() {
    let gpu = Gpu::new();
    let config = gpu.place.join("config.toml");
    std::fs::write(&config, "").expect("a file");
    let _daemon = gpu.place.daemon(&["--config", config.to_str().expect("text")]);
    let (mut plain, mut swap) = (start(&gpu, &["--job", "a"]), start(&gpu, &["--job", "a", "--memory", "swap"]));
    let (plain_pid, pid) = (plain.pid(), swap.pid());
    let line = |pid: u32, why: &str| (3, format!("xsched: process {pid} (freezing) {why}"));
    let not_started = line(plain_pid, "was not started with --memory swap");
    assert_eq!(moved(&gpu, "freeze", plain_pid), not_started);
    assert_eq!(xsched(&gpu, &["freeze", "--job", "a"]), not_started, "neither of the two");
    assert!(!memory(&gpu, pid).2);
    // Live, both ways.
    freeze(&gpu, pid);
    std::fs::write(&config, "[memory]\nswap = false\n").expect("a file");
    gpu.place.ask(&["daemon", "reload"]);
    until("its memory is back", || memory(&gpu, pid) == (memory(&gpu, pid).0, 0, false));
    assert_eq!(says(&mut swap, "check"), "right");
    let off = line(pid, "cannot be frozen: the configuration has `[memory] swap = false`");
    assert_eq!(moved(&gpu, "freeze", pid), off);
    std::fs::write(&config, "").expect("a file");
    gpu.place.ask(&["daemon", "reload"]);
    freeze(&gpu, pid);
    assert_eq!(moved(&gpu, "thaw", pid).0, 0);
    assert_eq!((says(&mut swap, "check"), says(&mut plain, "check")), ("right".into(), "right".into()));
    assert_eq!(says(&mut swap, "free"), "freed");
    assert_eq!(moved(&gpu, "freeze", pid), line(pid, "was not frozen: none of its memory can leave the device"));
    // A program that ends before it has answered.
    let mut third = start(&gpu, &["--memory", "swap"]);
    signal(third.pid(), Signal::STOP);
    let mut command = gpu.place.xsched(&["freeze", &third.pid().to_string()]);
    let waiting = Process::start({
        command.stdin(std::process::Stdio::null());
        command
    });
    until("it is asked", || gpu.place.group(third.pid()).is_some_and(|group| group["state"] == "suspended"));
    signal(third.pid(), Signal::KILL);
    until("it has ended", || third.has_ended().is_some());
    let (code, _, errors) = waiting.wait();
    assert_eq!((code, errors.trim()), (3, &*line(third.pid(), "ended before it answered").1));
}

/// Each use of memory for which it must stay: the command names it, `ps` shows it, and neither this program nor another of the same command
/// has moved.
#[test]
fn a_use_that_prevents_a_freeze_is_named() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let device = gpu.place.join("dev/infiniband/uverbs0");
    std::fs::create_dir_all(device.parent().expect("a folder")).expect("folders");
    std::fs::write(&device, "").expect("a file");
    let open = format!("open {}", device.display());
    let shared = ("of its GPU memory are exported to other processes (IPC)", "exported");
    let multicast = ("of its GPU memory are bound to multicast objects (NVLink SHARP)", "bound to multicast objects");
    let registered =
        ("of its GPU memory are registered for other hardware (RDMA)", "registered for other hardware (RDMA)");
    let managed = ("of its memory are managed: the driver moves them", "managed");
    let ways = [
        ("share", "4 MiB ", shared),
        ("export", "2 MiB ", shared),
        ("multicast", "2 MiB ", multicast),
        ("range", "4 MiB ", multicast),
        ("dma-buf", "4 MiB ", registered),
        ("tokens", "4 MiB ", registered),
        ("all-tokens", "4 MiB ", registered),
        ("synchronous", "4 MiB ", registered),
        ("managed", "1 MiB ", managed),
        ("variable", "4 KiB ", managed),
        ("library", "4 KiB ", managed),
        (&open, "it has a device open by which other hardware accesses memory (RDMA)", ("", "")),
    ];
    let job = ["--memory", "swap", "--job", "a"];
    let mut other = start_with(&gpu, &job, 4);
    let program = gpu.program("freezing");
    let mut all = ways.map(|_| gpu.run(&job, &program, &["4"]));
    all.iter_mut().for_each(|process| process.expect("ready"));
    for (process, (way, part, (why, shown))) in all.iter_mut().zip(&ways) {
        let pid = process.pid();
        assert_eq!(says(process, way), "kept");
        let before = memory(&gpu, pid);
        // The program alone finds that a device is open, when it is asked.
        let verb = if *way == open { "was not" } else { "cannot be" };
        let line = (3, format!("xsched: process {pid} (freezing) {verb} frozen: {part}{why}"));
        assert_eq!(moved(&gpu, "freeze", pid), line, "{way}");
        works(process);
        assert_eq!(memory(&gpu, pid), before, "{way}");
        let details = gpu.place.ask(&["ps", &pid.to_string()]);
        assert!(details.contains(&format!("{part}{shown}")), "{way}: {details}");
    }
    assert_eq!(xsched(&gpu, &["freeze", "--job", "a"]).0, 3);
    assert_eq!(memory(&gpu, other.pid()).1, 0);
    works(&mut other);
    let process = &mut all[ways.len() - 1];
    assert_eq!(says(process, "close"), "kept");
    freeze_of(&gpu, process.pid(), 4);
    assert_eq!(moved(&gpu, "thaw", process.pid()).0, 0);
    works(process);
}

/// Each way in which a gate opens while memory is away: the program goes on, with memory of the host, and its contents are right.
#[test]
fn a_program_goes_on_in_each_way_in_which_a_gate_opens() {
    let gpu = Gpu::new();
    let stays = |name: &str| ["silent", "signal", "fork"].contains(&name);
    for way in ["killed", "stopped", "silent", "signal", "fork", "exit"] {
        let daemon = gpu.place.daemon(&[]);
        let mut process = start(&gpu, &["--memory", "swap"]);
        let pid = process.pid();
        assert_eq!(says(&mut process, "signals"), "handles");
        freeze(&gpu, pid);
        match way {
            "killed" => signal(daemon.pid(), Signal::KILL),
            "stopped" => drop(gpu.place.ask(&["daemon", "stop"])),
            "silent" => signal(daemon.pid(), Signal::STOP),
            "signal" => {
                process.tell("add");
                await_waiting(&gpu, pid);
                // Each launch and each copy that waits needs a signal.
                for line in ["added", "right"] {
                    let mut answer = None;
                    until("signals let it through", || {
                        signal(pid, Signal::USR1);
                        answer = process.line_within(Duration::from_millis(100));
                        answer.is_some()
                    });
                    assert_eq!(answer.as_deref(), Some(line));
                    if line == "added" {
                        process.tell("check");
                    }
                }
                until("its memory is away again", || memory(&gpu, pid).1 == 32);
            }
            "fork" => assert_eq!(says(&mut process, "fork"), "child 7"),
            "exit" => {
                process.tell("end");
                process.expect("free at exit 0");
                assert_eq!(process.wait().0, 0, "{way}");
                continue;
            }
            _ => unreachable!(),
        }
        if way == "signal" || way == "fork" {
            assert_eq!(moved(&gpu, "thaw", pid).0, 0, "{way}");
        }
        for round in 0..2 {
            assert_eq!(
                (says(&mut process, "check"), says(&mut process, "add")),
                ("right".into(), "added".into()),
                "{way}, {round}"
            );
        }
        if way == "silent" {
            signal(daemon.pid(), Signal::CONT);
        }
        if stays(way) {
            until("it is attached", || gpu.place.program(pid).is_some());
        }
        // Frozen as before, where a daemon is back.
        if way == "silent" {
            until("its memory is away again", || memory(&gpu, pid) == (memory(&gpu, pid).0, 32, true));
            assert_eq!(moved(&gpu, "thaw", pid).0, 0);
        }
        assert_eq!(says(&mut process, "check"), "right", "{way}");
        assert_eq!(says(&mut process, "free"), "freed", "{way}");
        assert_eq!(process.wait().0, 0, "{way}");
    }
}

/// A later daemon learns of a frozen program from the program itself.
#[test]
fn a_later_daemon_knows_a_frozen_program() {
    let gpu = Gpu::new();
    let mut daemon = gpu.place.daemon(&[]);
    let mut process = start(&gpu, &["--memory", "swap"]);
    let pid = process.pid();
    freeze(&gpu, pid);
    for launches_without in [false, true] {
        signal(daemon.pid(), Signal::KILL);
        until("the daemon has ended", || daemon.has_ended().is_some());
        if launches_without {
            assert_eq!(says(&mut process, "check"), "right");
        }
        daemon = gpu.place.daemon(&[]);
        until("it is frozen", || {
            gpu.place.program(pid).is_some_and(|program| program["memory"][0]["held"]["frozen"] == json!(true))
                && memory(&gpu, pid).1 == 32
        });
        process.tell("add");
        await_waiting(&gpu, pid);
        assert_eq!(moved(&gpu, "thaw", pid), (0, format!("{pid} freezing: thawed")));
        process.expect("added");
        freeze(&gpu, pid);
    }
    assert_eq!(moved(&gpu, "thaw", pid).0, 0);
    assert_eq!(says(&mut process, "check"), "right");
    assert_eq!(process.wait().0, 0);
}

/// Each of the driver's calls fails now and then: a freeze that fails leaves the program as it was, a thaw that fails leaves it frozen.
#[test]
fn a_failing_call_is_undone() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let calls = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyDtoDAsync_v2"];
    let failing = |(at, name): (usize, &&str)| {
        (at + 4..200).step_by(5).map(|n| format!("{name}:{n}:999")).collect::<Vec<_>>().join(" ")
    };
    let failing = calls.iter().enumerate().map(failing).collect::<Vec<_>>().join(" ");
    let mut command = gpu.place.run_command(&["--memory", "swap"], &gpu.program("freezing"), &["32"]);
    command.env("FAKECUDA_FAIL_CALL", failing);
    let mut process = gpu.with_driver(command);
    process.expect("ready");
    let pid = process.pid();
    let (mut done, mut refused) = ([0, 0], [0, 0]);
    while done[1] < 12 {
        for (which, verb) in ["freeze", "thaw"].into_iter().enumerate() {
            loop {
                let (code, line) = moved(&gpu, verb, pid);
                if which == 0 || code == 0 {
                    assert_eq!(memory(&gpu, pid).2, (code == 0) == (which == 0), "{line}");
                }
                if code == 0 {
                    done[which] += 1;
                    break;
                }
                refused[which] += 1;
                assert!(code == 3 && line.ends_with("the driver returned error 999"), "{code} {line}");
                assert_eq!(memory(&gpu, pid).2, which == 1, "{line}");
                if which == 0 {
                    assert_eq!(
                        (says(&mut process, "check"), says(&mut process, "add")),
                        ("right".into(), "added".into())
                    );
                }
            }
        }
        assert_eq!((says(&mut process, "check"), says(&mut process, "add")), ("right".into(), "added".into()));
    }
    println!("{done:?} done, {refused:?} refused");
    assert!(refused.iter().all(|n| *n >= 2), "{refused:?}");
    process.finish();
}

/// Without room on the device a program stays frozen, with the holders of the room named, and nothing is lost.
#[test]
fn a_program_without_room_stays_frozen() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 50);
    let mut first = start(&gpu, &["--memory", "swap"]);
    let pid = first.pid();
    freeze(&gpu, pid);
    let mut second = start(&gpu, &["--memory", "swap"]);
    let (code, line) = moved(&gpu, "thaw", pid);
    let begin =
        format!("xsched: process {pid} (freezing) was not thawed, and stays frozen: the limit of the device is 50 MiB");
    assert!(code == 3 && line.starts_with(&begin), "{code} {line}");
    assert!(memory(&gpu, pid).2);
    assert_eq!(says(&mut second, "check"), "right");
    freeze(&gpu, second.pid());
    assert_eq!(moved(&gpu, "thaw", pid).0, 0);
    assert_eq!(says(&mut first, "check"), "right");
    assert_eq!(says(&mut first, "free"), "freed");
    assert_eq!(moved(&gpu, "thaw", second.pid()).0, 0);
    assert_eq!(says(&mut second, "check"), "right");
    let stats: Value = {
        first.finish();
        second.finish();
        gpu.driver_stats(pid)
    };
    assert_eq!(stats["illegal"], json!(0), "{stats}");
}

/// A limit of the host's memory keeps memory from leaving that would exceed it. A reload puts another one in force.
#[test]
fn the_host_store_has_a_limit() {
    let gpu = Gpu::new();
    let config = gpu.place.join("config.toml");
    std::fs::write(&config, "[memory]\nhost_limit = \"40MiB\"\n").expect("a file");
    let _daemon = gpu.place.daemon(&["--config", config.to_str().expect("text")]);
    let mut both = [start(&gpu, &["--memory", "swap"]), start(&gpu, &["--memory", "swap"])];
    let pids = both.each_ref().map(Process::pid);
    freeze(&gpu, pids[0]);
    let why = "cannot be frozen: the host store would hold 64 MiB of 40 MiB";
    assert_eq!(moved(&gpu, "freeze", pids[1]), (3, format!("xsched: process {} (freezing) {why}", pids[1])));
    assert_eq!(says(&mut both[1], "check"), "right");
    std::fs::write(&config, "[memory]\nhost_limit = \"64MiB\"\n").expect("a file");
    gpu.place.ask(&["daemon", "reload"]);
    freeze(&gpu, pids[1]);
    // Memory that is away stays.
    std::fs::write(&config, "[memory]\nhost_limit = \"1MiB\"\n").expect("a file");
    gpu.place.ask(&["daemon", "reload"]);
    assert_eq!(pids.map(|pid| memory(&gpu, pid).1), [32, 32]);
    for (process, pid) in both.iter_mut().zip(pids) {
        assert_eq!(moved(&gpu, "thaw", pid).0, 0);
        assert_eq!(says(process, "check"), "right");
    }
    both.into_iter().for_each(|process| drop(process.finish()));
}

/// Memory of a program that launches nothing leaves by itself, and comes back with the next launch.
#[test]
fn the_memory_of_an_idle_program_leaves_by_itself() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut process = start(&gpu, &["--memory", "swap", "--memory-idle", "1s"]);
    let pid = process.pid();
    for times in 1..3 {
        until("its memory is away", || memory(&gpu, pid).1 == 32);
        let details = gpu.place.ask(&["ps", &pid.to_string()]);
        let line = format!("32 MiB away on the host, leaves after 1 s idle, {times} times so far");
        assert!(details.contains(&line), "{details}");
        assert_eq!((says(&mut process, "add"), says(&mut process, "check")), ("added".into(), "right".into()));
    }
    process.finish();
}

/// A stopped program does not begin to freeze. The command says so, and the program goes on as if it was never asked.
#[test]
fn a_stopped_program_is_not_waited_for() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut process = start(&gpu, &["--memory", "swap"]);
    let pid = process.pid();
    signal(pid, Signal::STOP);
    let line = |why: &str| (3, format!("xsched: process {pid} (freezing) {why}"));
    let why = "was not frozen: it has not begun within 15 s: is it stopped?";
    assert_eq!(moved(&gpu, "freeze", pid), line(why));
    signal(pid, Signal::CONT);
    assert_eq!((says(&mut process, "add"), says(&mut process, "check")), ("added".into(), "right".into()));
    until("it has found both orders", || moved(&gpu, "freeze", pid).0 == 0);
    assert_eq!(memory(&gpu, pid).1, 32);
    assert_eq!(moved(&gpu, "thaw", pid).0, 0);
    assert_eq!(says(&mut process, "check"), "right");
    process.finish();
}

/// An urgent program gets the room of a best-effort one at once. That one goes on with memory of the host, and has its own back later.
#[test]
fn an_urgent_program_gets_the_room_of_another() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 50);
    let mut low = start(&gpu, &["--memory", "swap", "--priority", "low"]);
    let pid = low.pid();
    for _ in 0..2 {
        let mut urgent = start(&gpu, &["--priority", "high"]);
        assert_eq!((memory(&gpu, pid).1, memory(&gpu, urgent.pid()).0), (32, 32));
        assert_eq!((says(&mut low, "add"), says(&mut low, "check")), ("added".into(), "right".into()));
        assert_eq!(memory(&gpu, pid).1, 32, "on the host");
        assert_eq!((says(&mut urgent, "add"), says(&mut urgent, "check")), ("added".into(), "right".into()));
        urgent.finish();
        until("its memory is back", || memory(&gpu, pid) == (32, 0, false));
        assert_eq!((says(&mut low, "check"), says(&mut low, "add")), ("right".into(), "added".into()));
    }
    low.finish();
}

/// An urgent program that lacks less than a best-effort one has takes a part of that: the rest stays on the device.
#[test]
fn an_urgent_program_takes_a_part_of_what_another_has() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 200);
    let mut low = start_with(&gpu, &["--memory", "swap", "--priority", "low"], 160);
    let pid = low.pid();
    works(&mut low);
    let mut urgent = start_with(&gpu, &["--priority", "high"], 64);
    for _ in 0..2 {
        works(&mut urgent);
        works(&mut low);
    }
    assert_eq!((memory(&gpu, pid), memory(&gpu, urgent.pid()).0), ((96, 64, false), 64));
    let mut more = start_with(&gpu, &["--priority", "high"], 100);
    assert_eq!(memory(&gpu, pid), (32, 128, false), "64 MiB at least where 60 were lacking");
    works(&mut low);
    works(&mut more);
    more.finish();
    urgent.finish();
    until("its memory is back", || memory(&gpu, pid) == (160, 0, false));
    works(&mut low);
    low.finish();
    assert_eq!(gpu.driver_stats(pid)["illegal"], json!(0));
}

/// Memory that kernels name stays on the device or comes back to it, and memory that none uses goes to the host instead.
#[test]
fn memory_in_use_is_on_the_device() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 232);
    let start = |arguments: &[&str]| {
        let mut process = gpu.run(&["--memory", "swap", "--priority", "low"], &gpu.program("freezing"), arguments);
        process.expect("ready");
        process
    };
    // Lent: what was added last is what is used.
    let mut low = start(&["64", "0", "96"]);
    assert_eq!(says(&mut low, "many"), "0");
    let mut urgent = start_with(&gpu, &["--priority", "high"], 132);
    assert_eq!(memory(&gpu, low.pid()), (96, 64, false));
    assert_eq!(says(&mut low, "many"), "0");
    let ends = |mut process: Process| {
        works(&mut process);
        assert_eq!(says(&mut process, "idle"), "right");
        let pid = process.pid();
        // The second program says on its stderr that a part of its memory was on the host.
        assert_eq!(process.wait().0, 0);
        assert_eq!(gpu.driver_stats(pid)["illegal"], json!(0));
    };
    ends(low);
    // Without room from the beginning: what is used is on the host, until it has changed places with what is not.
    let mut other = start(&["32", "0", "96"]);
    assert_eq!(memory(&gpu, other.pid()), (96, 32, false));
    until("its memory in use is on the device", || says(&mut other, "many") == "0");
    assert_eq!(memory(&gpu, other.pid()), (96, 32, false));
    ends(other);
    works(&mut urgent);
    urgent.finish();
}

/// Memory for which no room can be made is the host's from the beginning, unless the program's own limit forbids it.
#[test]
fn memory_without_room_is_the_hosts_from_the_beginning() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 100);
    let mut urgent = start_with(&gpu, &["--priority", "high"], 64);
    let mut low = start_with(&gpu, &["--memory", "swap", "--priority", "low"], 64);
    let pid = low.pid();
    assert_eq!((memory(&gpu, pid), memory(&gpu, urgent.pid()).0), ((0, 64, false), 64));
    // Where the host has no room either (the first call only tries properties), an allocation is refused, counted and reported.
    let mut command =
        gpu.place.run_command(&["--memory", "swap", "--priority", "low"], &gpu.program("freezing"), &["64"]);
    command.env("FAKECUDA_FAIL_CALL", "cuMemCreate:2:2 cuMemCreate:3:2");
    let process = gpu.with_driver(command);
    let refused = process.pid();
    let (code, _, errors) = process.wait();
    assert!(code != 0 && errors.contains("neither the device nor the host has room for it (64 MiB more"), "{errors}");
    let at_end = &gpu.place.stats_of(refused)["memory"][0];
    assert_eq!(["used", "refused"].map(|part| at_end[part].as_u64()), [Some(0), Some(1)], "{at_end}");
    works(&mut low);
    works(&mut urgent);
    freeze_of(&gpu, pid, 64);
    urgent.finish();
    assert_eq!(moved(&gpu, "thaw", pid), (0, format!("{pid} freezing: thawed")));
    works(&mut low);
    assert_eq!(memory(&gpu, pid), (64, 0, false));
    // More than a program's own limit, or than the device has, is refused as without.
    for (options, mib) in [(vec!["--memory-limit", "40MiB"], "64"), (vec![], "101")] {
        let options = [&["--memory", "swap"], &options[..]].concat();
        let (code, out, _) = gpu.run(&options, &gpu.program("freezing"), &[mib]).wait();
        assert!(code != 0 && out.iter().all(|line| line != "ready"), "{options:?}: {code} {out:?}");
    }
    let (code, _, errors) = low.wait();
    let said =
        "xsched: the device has no room: memory of this program lies on the host, which is slow, until there is some";
    assert_eq!((code, errors.trim()), (0, said));
    assert_eq!(gpu.driver_stats(pid)["illegal"], json!(0));
}

/// Two best-effort programs that do not fit together take turns.
#[test]
fn best_effort_programs_that_do_not_fit_take_turns() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 50);
    let mut both = [start(&gpu, &["--memory", "swap"]), start(&gpu, &["--memory", "swap"])];
    let pids = [both[0].pid(), both[1].pid()];
    for _ in 0..3 {
        for which in [0, 1] {
            let process = &mut both[which];
            assert_eq!((says(process, "add"), says(process, "check")), ("added".into(), "right".into()));
            let (own, other) = (memory(&gpu, pids[which]), memory(&gpu, pids[1 - which]));
            assert_eq!((own, other), ((32, 0, false), (0, 32, false)), "one of them has the room");
        }
    }
    for process in both {
        assert_eq!(process.wait().2, "", "nobody is told of memory that lacks");
    }
}

/// Without limits only the driver knows how much room is lacking: less than all that comes back.
#[test]
fn programs_of_different_sizes_take_turns_on_a_device_without_limits() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut both = [start_with(&gpu, &["--memory", "swap"], 160), start_with(&gpu, &["--memory", "swap"], 128)];
    for n in 0..6 {
        works(&mut both[n % 2]);
        let of = [0, 1].map(|which| memory(&gpu, both[which].pid()));
        let expected = if n % 2 == 0 { [(160, 0, false), (0, 128, false)] } else { [(0, 160, false), (128, 0, false)] };
        assert_eq!(of, expected);
    }
    for process in both {
        assert_eq!(process.wait().2, "", "nobody is told of memory that lacks");
    }
}

/// A program is killed while its memory leaves in pieces for another one, which has the room all the same.
#[test]
fn a_program_is_killed_while_its_memory_leaves_for_another() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 165);
    let mut stays = start_with(&gpu, &["--memory", "swap"], 160);
    let pid = stays.pid();
    for _ in 0..4 {
        let goes = start_with(&gpu, &["--memory", "swap"], 160);
        stays.tell("add");
        until("some of it has left", || memory(&gpu, goes.pid()).1 > 0);
        signal(goes.pid(), Signal::KILL);
        assert_eq!(stays.line(), "added");
        assert_eq!((says(&mut stays, "check"), memory(&gpu, pid)), ("right".into(), (160, 0, false)));
    }
    assert_eq!(stays.wait().2, "", "nobody is told of memory that lacks");
    assert_eq!(gpu.driver_stats(pid)["illegal"], json!(0));
}

/// Memory of one program comes in pieces while the other's leaves: each has more than one piece.
#[test]
fn memory_comes_while_another_programs_leaves() {
    let gpu = Gpu::new();
    let _daemon = daemon_of(&gpu, 165);
    let mut both = [start_with(&gpu, &["--memory", "swap"], 160), start_with(&gpu, &["--memory", "swap"], 160)];
    for n in 0..20 {
        works(&mut both[n % 2]);
        let of = [0, 1].map(|which| memory(&gpu, both[which].pid()));
        assert_eq!((of[n % 2], of[1 - n % 2]), ((160, 0, false), (0, 160, false)));
    }
    let beside = both.map(|process| {
        let pid = process.pid();
        assert_eq!(process.wait().2, "", "nobody is told of memory that lacks");
        assert_eq!(gpu.driver_stats(pid)["illegal"], json!(0));
        gpu.place.stats_of(pid)["residency"]["beside"]["moves"].as_u64().expect("a count")
    });
    assert!(beside.iter().sum::<u64>() > 0, "{beside:?}");
}
