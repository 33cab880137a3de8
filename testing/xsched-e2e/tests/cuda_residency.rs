//! CUDA programs whose memory leaves the device and comes back at random, with the software driver of `xsched-fakecuda`.

use std::path::Path;

use serde_json::{Value, json};
use xsched_e2e::{Gpu, Process};

/// Starts a program under `xsched run`, with memory that moves by a seed; none of it moves without.
fn start(gpu: &Gpu, options: &[&str], seed: Option<&str>, program: &Path, args: &[&str]) -> Process {
    let mut command = gpu.place.run_command(options, program, args);
    command.env("XSCHED_MEMORY", "swap");
    if let Some(seed) = seed {
        command.env("XSCHED_MEMORY_MOVES", seed);
    }
    gpu.with_driver(command)
}

/// Moves of a process that has ended, and those that failed.
fn moves(gpu: &Gpu, pid: u32) -> (u64, u64) {
    let memory = gpu.place.stats_of(pid)["residency"].clone();
    let n = |name: &str| memory[name].as_u64().unwrap_or_else(|| panic!("no memory of {pid} can move: {memory}"));
    (n("moves"), n("failed"))
}

/// Runs the program of known contents under a policy. Its lines are those that it prints bare.
fn moves_under(policy: &str) {
    let gpu = Gpu::new();
    let program = gpu.program("residency");
    let bare = gpu.bare(&program, &["10"]).finish();
    assert!(bare.len() >= 15 && bare.iter().all(|line| line.starts_with("ok ")), "{bare:?}");
    let _daemon = gpu.place.daemon(&["--policy", policy]);
    for seed in ["1", "2"] {
        let process = start(&gpu, &[], Some(seed), &program, &["10"]);
        let pid = process.pid();
        assert_eq!(process.finish(), bare, "seed {seed}");
        let (moves, failed) = moves(&gpu, pid);
        println!("{policy}, seed {seed}: {moves} moves");
        assert!(moves >= 4 && failed == 0, "{moves} moves, {failed} failed");
    }
}

#[test]
fn contents_stay_while_memory_leaves_and_comes_back() {
    moves_under("hpf");
}

#[test]
fn contents_stay_while_gates_close_and_open_too() {
    moves_under("chaos");
}

/// Calls of moves and of allocations fail now and then: moves are undone, and the driver allocates what cannot be chunks.
#[test]
fn contents_stay_while_calls_of_moves_fail() {
    let gpu = Gpu::new();
    let program = gpu.program("residency");
    let bare = gpu.bare(&program, &["10"]).finish();
    let _daemon = gpu.place.daemon(&[]);
    let calls = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"];
    let failing = |name: &&str| (9..200).step_by(11).map(|n| format!("{name}:{n}:999")).collect::<Vec<_>>().join(" ");
    let failing = calls.iter().map(failing).collect::<Vec<_>>().join(" ");
    let mut command = gpu.place.run_command(&[], &program, &["10"]);
    command.env("XSCHED_MEMORY", "swap").env("XSCHED_MEMORY_MOVES", "4").env("FAKECUDA_FAIL_CALL", failing);
    let process = gpu.with_driver(command);
    let pid = process.pid();
    assert_eq!(process.finish(), bare);
    let (moves, failed) = moves(&gpu, pid);
    println!("{failed} of {moves} moves failed");
    assert!(failed >= 1 && failed < moves, "{failed} of {moves} moves failed");
    let why = gpu.place.stats_of(pid)["residency"]["why"].clone();
    assert_eq!(why, json!({"the driver returned error 999": failed}));
}

/// Memory of every kind, by several threads, streams and graphs; contents stay, and nothing is left in the driver, not even if calls of
/// moves and of frees fail now and then.
#[test]
fn contents_of_every_kind_stay_and_nothing_is_left() {
    let gpu = Gpu::new();
    let program = gpu.program("residency_ways");
    let _daemon = gpu.place.daemon(&[]);
    let calls = [
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemAddressReserve",
        "cuMemAddressFree",
        "cuEventRecord",
        "cuEventCreate",
    ];
    let failing = |name: &&str| (9..400).step_by(23).map(|n| format!("{name}:{n}:999")).collect::<Vec<_>>().join(" ");
    let failing = calls.iter().map(failing).collect::<Vec<_>>().join(" ");
    // Steps, threads, seed, pieces of memory; the last has no memory that a program maps itself, whose refusals would be its own.
    let cases: [(&[&str], &str); 3] =
        [(&["200", "3", "1", "4"], ""), (&["1500", "1", "2", "2"], ""), (&["200", "3", "3", "4", "5"], &failing)];
    for (args, failing) in cases {
        let bare = gpu.bare(&program, args).finish();
        let mut command = gpu.place.run_command(&[], &program, args);
        command.env("XSCHED_MEMORY", "swap").env("XSCHED_MEMORY_MOVES", args[2]).env("ALONE", "1");
        command.env("FAKECUDA_FAIL_CALL", failing);
        let process = gpu.with_driver(command);
        let pid = process.pid();
        assert_eq!(process.finish(), bare, "{args:?}");
        let (moves, failed) = moves(&gpu, pid);
        println!("{args:?}: {failed} of {moves} moves failed");
        assert!(moves >= 4 && (failed > 0) != failing.is_empty(), "{args:?}: {failed} of {moves} moves failed");
        let driver = gpu.driver_stats(pid);
        let left = ["handles", "ranges", "illegal"].map(|name| driver[name].as_u64());
        assert_eq!(left, [Some(0); 3], "{args:?}: {driver}");
    }
}

/// A context ends with commands in flight that use its memory, and the process ends with handlers that use it: all as without xsched,
/// wherever memory is at that moment.
#[test]
fn contexts_and_processes_end_wherever_memory_is() {
    let gpu = Gpu::new();
    let program = gpu.program("residency_ends");
    let _daemon = gpu.place.daemon(&[]);
    for way in ["reset", "exit", "early"] {
        let mut command = gpu.place.command(&program, &[way]);
        command.env("FAKECUDA_ENDS", "1");
        let bare = gpu.with_driver(command).finish();
        for seed in ["1", "2"] {
            let mut command = gpu.place.run_command(&[], &program, &[way]);
            command.env("XSCHED_MEMORY", "swap").env("XSCHED_MEMORY_MOVES", seed).env("FAKECUDA_ENDS", "1");
            let process = gpu.with_driver(command);
            let pid = process.pid();
            assert_eq!(process.finish(), bare, "{way}, seed {seed}");
            let driver = gpu.driver_stats(pid);
            assert_eq!(driver["illegal"], json!(0), "{way}, seed {seed}: {driver}");
        }
    }
}

/// The driver refuses everything from some call on, as after a fault of the device: the program ends with the driver's error, also if its
/// memory is away at that time.
#[test]
fn a_lost_context_ends_no_program_in_a_wait() {
    let gpu = Gpu::new();
    let program = gpu.program("residency");
    let _daemon = gpu.place.daemon(&[]);
    for n in (200..1400).step_by(100) {
        let mut command = gpu.place.run_command(&[], &program, &["10"]);
        command
            .env("XSCHED_MEMORY", "swap")
            .env("XSCHED_MEMORY_MOVES", "1")
            .env("FAKECUDA_FAIL", format!("{n} 700 all"));
        let (status, lines, errors) = gpu.with_driver(command).wait();
        assert!(
            status != 0 && (errors.contains("700") || lines.concat().contains("700")),
            "call {n}: {status} {lines:?} {errors}"
        );
    }
}

/// Answers of the driver about memory of every kind are the same whether it moves or not.
#[test]
fn answers_about_memory_are_the_drivers() {
    let gpu = Gpu::new();
    let program = gpu.program("residency_answers");
    let args = ["3", "wrong"];
    let bare = gpu.bare(&program, &args).finish();
    assert!(bare.len() > 1000, "{bare:?}");
    let _daemon = gpu.place.daemon(&[]);
    for seed in [None, Some("1"), Some("2")] {
        let process = start(&gpu, &[], seed, &program, &args);
        let pid = process.pid();
        let lines = process.finish();
        let differ: Vec<_> = bare.iter().zip(&lines).filter(|(one, other)| one != other).take(10).collect();
        assert!(differ.is_empty() && bare.len() == lines.len(), "{seed:?}: {differ:?}");
        // The driver would take a handle of the library's for an address.
        let illegal = gpu.driver_stats(pid)["illegal_calls"].clone();
        assert!(!illegal.to_string().contains("handle"), "{seed:?}: {illegal}");
    }
}

/// Another process opens memory by CUDA IPC, with memory that moves or without; it stays on the device, and is said to.
#[test]
fn another_process_opens_memory_that_moves() {
    let gpu = Gpu::new();
    let program = gpu.program("residency_ipc");
    let bare = gpu.bare(&program, &[]).finish();
    let _daemon = gpu.place.daemon(&[]);
    for other in ["", "XSCHED_MEMORY="] {
        let mut command = gpu.place.run_command(&[], &program, &[]);
        command.env("XSCHED_MEMORY", "swap").env("XSCHED_MEMORY_MOVES", "3");
        if !other.is_empty() {
            let script = gpu.place.join("other");
            std::fs::write(&script, format!("#!/bin/sh\nexport {other}\nexec \"$@\"\n")).unwrap();
            std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            command.env("CHILD", script);
        }
        let lines = gpu.with_driver(command).finish();
        assert_eq!(lines, bare, "{other:?}");
    }
    let pinned = gpu.program("residency_pins");
    let process = start(&gpu, &[], Some("4"), &pinned, &[]);
    let pid = process.pid();
    assert!(process.finish().iter().all(|line| line.starts_with("ok ")));
    let expected = json!({
        "shared with other processes": (4 + 6) << 20,
        "not mapped exactly once": 4 << 20,
        "registered for direct access by other hardware": 2 << 20,
    });
    assert_eq!(gpu.place.stats_of(pid)["residency"]["pinned"], expected);
}

/// Programs that test the driver, with memory that moves. A context that was reset, further contexts and devices have memory that does
/// not, as ever.
#[test]
fn other_programs_are_as_without() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    for name in ["basics", "errors", "capture", "graphs", "contexts", "memory", "vmm", "pools"] {
        let program = gpu.program(name);
        let lines = gpu.bare(&program, &[]).finish();
        // Two of them look at the room on the device, of which there is more while some memory is away.
        let seed = (!["errors", "memory"].contains(&name)).then_some("3");
        let (code, found, errors) = start(&gpu, &[], seed, &program, &[]).wait();
        // Some find the device full, which is reported.
        let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("out of GPU memory")).collect();
        assert_eq!((code, found, errors), (0, lines, Vec::new()), "{name}");
    }
    let program = gpu.program("residency");
    let process = start(&gpu, &[], None, &program, &["5"]);
    let pid = process.pid();
    assert!(process.finish().iter().all(|line| line.starts_with("ok ")));
    assert_eq!(moves(&gpu, pid), (0, 0));
    gpu.assert_counts(pid);
}

/// Without `XSCHED_MEMORY` there is nothing of it in a program.
#[test]
fn other_programs_have_no_movable_memory() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    let mut command = gpu.place.run_command(&[], &gpu.program("residency"), &["5"]);
    command.env("XSCHED_MEMORY_MOVES", "1");
    let process = gpu.with_driver(command);
    let pid = process.pid();
    assert!(process.finish().iter().all(|line| line.starts_with("ok ")));
    let stats: Value = gpu.place.stats_of(pid);
    assert_eq!(stats["residency"], json!(null), "{stats}");
    gpu.assert_counts(pid);
}
