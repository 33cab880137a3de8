//! Programs that share a device by space: a private MPS daemon of xsched's, with the stand-ins for NVIDIA's programs, so that what
//! the pool does is done by a device.

use std::path::PathBuf;

use xsched_e2e::{Gpu, Process, beside, now_ns, until};

/// The pipe directory of the private MPS daemon, once there is one.
fn private(gpu: &Gpu) -> PathBuf {
    let all = gpu.place.join("x.sock.mps");
    let mut folders = std::fs::read_dir(all).expect("a private MPS daemon").map(|entry| entry.unwrap().path());
    let folder = folders.next().expect("a private MPS daemon");
    assert_eq!(folders.next(), None, "only one");
    folder.join("pipe")
}

fn ask(gpu: &Gpu, line: &str) -> String {
    gpu.place.mps_says(private(gpu).to_str().unwrap(), line).unwrap()
}

fn clients(gpu: &Gpu) -> Vec<u32> {
    let list = ask(gpu, &format!("get_client_list {}", ask(gpu, "get_server_list")));
    list.lines().map(|pid| pid.parse().unwrap()).collect()
}

fn steady(gpu: &Gpu, options: &[&str]) -> Process {
    let mut program = gpu.run(options, &gpu.program("steady"), &["200", "8"]);
    program.expect("ready");
    program.progress_after(0);
    program
}

#[test]
fn pooled_programs_are_clients_of_one_private_server_and_all_of_their_launches_are_scheduled() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon_with_mps(&["--policy", "hpf"]);
    let pooled = ["--share", "spatial", "--mps", "start"];
    let (mut one, mut other) = (steady(&gpu, &pooled), steady(&gpu, &pooled));
    let mut alone = steady(&gpu, &["--share", "time"]);
    let mut pids = vec![one.pid(), other.pid()];
    pids.sort_unstable();
    assert_eq!(clients(&gpu), pids);
    for program in [&mut one, &mut other, &mut alone] {
        program.progress_after(now_ns());
    }
    let pipe = private(&gpu);
    for mut program in [one, other, alone] {
        let pid = program.pid();
        program.tell("end");
        // The first one of a pool is told what sharing by space means.
        let (code, lines, errors) = program.wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok every kernel has run once")), "{errors}");
        gpu.assert_counts(pid);
    }
    until("MPS has ended with its last program", || !pipe.exists());
}

/// What a server needs to have its slice rewritten is preloaded into the control daemon, which hands its environment on.
#[test]
fn an_mps_server_with_the_library_preloaded_serves_as_without_it() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let library = beside("libxsched.so");
    let _mps = gpu.place.mps_daemon("pipe", &[("LD_PRELOAD", library.to_str().unwrap())]);
    let mut command = gpu.place.command(gpu.program("steady"), &["200", "8"]);
    command.env("CUDA_MPS_PIPE_DIRECTORY", gpu.place.join("pipe"));
    let mut program = gpu.with_driver(command);
    program.expect("ready");
    program.progress_after(now_ns());
    let server = gpu.place.mps_says("pipe", "get_server_list").unwrap();
    assert_eq!(gpu.place.mps_says("pipe", &format!("get_client_list {server}")), Ok(program.pid().to_string()));
    let maps = std::fs::read_to_string(format!("/proc/{server}/maps")).unwrap();
    assert!(maps.contains("libxsched.so"), "it is preloaded");
    program.end_steady();
}

/// A program `pooled`, which does what it is told.
fn told(gpu: &Gpu, options: &[&str]) -> Process {
    let mut program = gpu.run(options, &gpu.program("pooled"), &[]);
    program.expect("context 0");
    program
}

#[track_caller]
fn says(program: &mut Process, line: &str, answer: &str) {
    program.tell(line);
    assert_eq!(program.line(), answer);
}

#[test]
fn a_fault_of_a_pooled_program_ends_the_pool_and_nothing_outside() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon_with_mps(&["--policy", "hpf"]);
    let pooled = ["--share", "spatial", "--mps", "start"];
    let (mut one, mut other) = (told(&gpu, &pooled), told(&gpu, &pooled));
    let mut outside = told(&gpu, &["--share", "time", "--priority", "high"]);
    // An assertion that fails is its program's own affair.
    let mut third = told(&gpu, &pooled);
    says(&mut third, "assert", "assert 710");
    says(&mut other, "sync", "sync 0");
    says(&mut one, "crash", "crash 700");
    says(&mut other, "sync", "sync 700");
    says(&mut outside, "give 10", "given 0");
    says(&mut outside, "sync", "sync 0");
    assert_eq!(ask(&gpu, &format!("get_server_status {}", ask(&gpu, "get_server_list"))), "FAULT");
}
