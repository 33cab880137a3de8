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
}

/// Programs whose memory is small, or not of a kind that moves, are as without; so is one that nothing moves.
#[test]
fn what_does_not_move_is_as_without() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    for name in ["basics", "errors", "capture", "graphs", "contexts", "memory", "vmm", "pools"] {
        let program = gpu.program(name);
        let bare = gpu.bare(&program, &[]);
        let bare_pid = bare.pid();
        let lines = bare.finish();
        // Two of them look at the room on the device, of which there is more while some memory is away.
        let seed = (!["errors", "memory"].contains(&name)).then_some("3");
        let process = start(&gpu, &[], seed, &program, &[]);
        let pid = process.pid();
        let (code, found, errors) = process.wait();
        // Some find the device full, which is reported.
        let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("out of GPU memory")).collect();
        assert_eq!((code, found, errors), (0, lines, Vec::new()), "{name}");
        assert_eq!(gpu.driver_stats(pid)["illegal"], gpu.driver_stats(bare_pid)["illegal"], "{name}");
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
