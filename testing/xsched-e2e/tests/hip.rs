//! HIP programs under the scheduler, with the software runtime of `xsched-fakehip` as `libamdhip64`: the same results as without it, every
//! launch counted, gates that hold, and groups by stream priority. The behaviour of AMD's hardware is not tested here.

use xsched_e2e::{HipGpu, Process, beside, now_ns, until};

/// Major versions of the runtime.
const MAJORS: [u32; 3] = [5, 6, 7];
/// Programs of `testing/programs/hip` that print a line for each check and end by themselves.
const PROGRAMS: [&str; 16] = [
    "capture",
    "copies",
    "errors",
    "events",
    "graphs",
    "kernels",
    "library",
    "memops",
    "memory",
    "minimal",
    "module",
    "multithread",
    "procaddress",
    "reset",
    "spt",
    "streams",
];

/// Asserts that a program's lines bare and under the scheduler are equal, and that every launch is counted.
fn same(gpu: &HipGpu, name: &str, major: u32, options: &[&str]) {
    if (name, major) == ("procaddress", 5) || name == "library" && major < 7 {
        // Such releases have no such functions.
        return;
    }
    let program = gpu.program(name, major);
    // Copies of the runtime, of which one of the programs opens two.
    let copies = MAJORS.map(|major| gpu.runtime.join(format!("libamdhip64.so.{major}")));
    let copies = copies.each_ref().map(|path| path.to_str().expect("text"));
    let args: &[&str] = if name == "copies" { &copies[..2] } else { &[] };
    let process = gpu.bare(&program, args);
    let pid = process.pid();
    let (code, lines, errors) = process.wait();
    assert!(code == 0 && !lines.is_empty() && lines.iter().all(|l| l.starts_with("ok ")), "{name}: {lines:?} {errors}");
    let misused = gpu.copies_stats(pid);
    let process = gpu.run(options, &program, args);
    let pid = process.pid();
    let (code, under, errors) = process.wait();
    assert_eq!((code, under), (0, lines), "{name}, HIP {major}, {options:?}: {errors}");
    gpu.assert_counts(pid);
    assert!(["errors", "procaddress"].contains(&name) || gpu.place.stats_of(pid)["launches"] != 0, "{name}: launches");
    let stats = gpu.copies_stats(pid);
    for (bare, under) in misused.iter().zip(&stats) {
        assert_eq!(under["major"], bare["major"], "{name}: {under}");
        // For a stream that does not exist the library makes one query, before the program's own call is refused.
        assert!(name == "errors" || under["misuse"] == bare["misuse"], "{name}: {under}");
    }
    assert_eq!(stats.len(), misused.len(), "{name}: as many copies");
}

#[test]
fn programs_print_the_same_alone_under_the_scheduler() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    for name in PROGRAMS {
        for major in MAJORS {
            println!("{name}, HIP {major}");
            same(&gpu, name, major, &[]);
        }
    }
}

fn same_under_chaos(level: &str) {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "chaos"]);
    for (name, major) in PROGRAMS.into_iter().zip(MAJORS.into_iter().cycle()) {
        println!("{name}, HIP {major}, level {level}");
        same(&gpu, name, major, &["--level", level]);
    }
}

#[test]
fn programs_print_the_same_under_chaos_at_level_1() {
    same_under_chaos("1");
}

#[test]
fn programs_print_the_same_under_chaos_at_level_2() {
    same_under_chaos("2");
}

#[test]
fn programs_print_the_same_beside_a_rival() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let steady = gpu.program("steady", 6);
    for (own, rivals) in [("high", "low"), ("low", "normal")] {
        // The rival leaves the device for a while now and then, so that the program behind it makes progress.
        let us = if own == "high" { "200" } else { "20" };
        let mut rival = gpu.run(&["--priority", rivals], &steady, &[us, "1"]);
        rival.expect("ready");
        rival.progress_after(0);
        let ends = if own == "low" {
            // This rival ends when the program has waited for it.
            let program = gpu.program("kernels", 5);
            let behind = gpu.run(&["--priority", own], &program, &[]);
            let pid = behind.pid();
            until("it is known", || gpu.place.program(pid).is_some());
            rival.progress_after(now_ns());
            gpu.end(rival);
            let (code, lines, errors) = behind.wait();
            assert!(code == 0 && lines.iter().all(|l| l.starts_with("ok ")), "{lines:?} {errors}");
            gpu.assert_counts(pid);
            None
        } else {
            for name in PROGRAMS {
                println!("{name} ahead of a rival");
                same(&gpu, name, 6, &["--priority", own]);
            }
            Some(rival)
        };
        if let Some(rival) = ends {
            gpu.end(rival);
        }
    }
}

#[test]
fn progress_is_told_by_the_device_while_somebody_shares_it() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let steady = gpu.program("steady", 6);
    let mut alone = gpu.run(&[], &steady, &["100", "8"]);
    alone.expect("ready");
    alone.progress_after(0);
    let pid = alone.pid();
    gpu.end(alone);
    assert_eq!(gpu.runtime_stats(pid)["writes"], 0, "nothing is added to a program that is alone");
    let start = |class: &str| {
        let mut program = gpu.run(&["--priority", class, "--level", "1"], &steady, &["100", "8"]);
        program.expect("ready");
        program
    };
    let (low, mut high) = (start("low"), start("high"));
    high.progress_after(now_ns());
    let pids = [low.pid(), high.pid()];
    until("the bound knows of completions", || {
        let groups = pids.map(|pid| gpu.place.group(pid));
        groups.iter().any(|g| g.as_ref().is_some_and(|g| g["device_us"].as_u64() > Some(0)))
    });
    gpu.end(high);
    gpu.end(low);
    for pid in pids {
        let stats = gpu.runtime_stats(pid);
        assert_eq!(stats["waits"], 0, "level 1 has no gate on the device: {stats}");
    }
    assert!(pids.iter().any(|pid| gpu.runtime_stats(*pid)["writes"].as_u64() > Some(0)));
}

#[test]
fn streams_of_each_priority_are_groups_of_their_own() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    for major in MAJORS {
        let mut program = gpu.run(&["--priority", "high"], &gpu.program("priorities", major), &[]);
        let pid = program.pid();
        program.expect("ready");
        let mut groups = Vec::new();
        until("three groups", || {
            groups = gpu.place.program(pid).map_or(Vec::new(), |p| p["groups"].as_array().cloned().unwrap_or_default());
            groups.len() == 3
        });
        let mut queues: Vec<usize> = groups.iter().map(|g| g["queues"].as_array().unwrap().len()).collect();
        queues.sort_unstable();
        assert_eq!(queues, [1, 1, 3], "both default streams and the one of priority 0 go together: {groups:?}");
        assert!(groups.iter().all(|g| g["platform"] == "hip"), "{groups:?}");
        assert!(groups.iter().all(|g| g["device"].as_str().is_some_and(|d| d.starts_with("pci:"))), "{groups:?}");
        program.tell("end");
        let lines = program.finish();
        assert!(lines.len() == 5 && lines.iter().all(|l| l.starts_with("ok ")), "{lines:?}");
        gpu.assert_counts(pid);
    }
}

#[test]
fn a_group_whose_last_stream_is_destroyed_while_it_works_becomes_idle() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    // Without a rival, commands in flight would not be followed.
    let mut neighbour = gpu.run(&[], &gpu.program("priorities", 7), &[]);
    neighbour.expect("ready");
    let mut program = gpu.run(&["--priority", "high"], &gpu.program("destroys", 7), &[]);
    let pid = program.pid();
    program.expect("destroyed");
    let mut groups = Vec::new();
    until("both groups are idle", || {
        groups = gpu.place.program(pid).map_or(Vec::new(), |p| p["groups"].as_array().cloned().unwrap_or_default());
        groups.len() == 2 && groups.iter().all(|g| g["state"] == "idle")
    });
    assert!(groups.iter().any(|g| g["queues"].as_array().is_some_and(Vec::is_empty)), "{groups:?}");
    program.tell("end");
    assert_eq!(program.finish(), ["ok the default stream goes on"]);
    gpu.assert_counts(pid);
    neighbour.tell("end");
    neighbour.finish();
}

#[test]
fn hooks_of_hip_alone_count_each_launch_once() {
    let mut gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    gpu.environment = vec![("XSCHED_PLATFORMS", "hip".into())];
    same(&gpu, "kernels", 6, &[]);
    gpu.environment = vec![("XSCHED_PLATFORMS", "cuda,opencl,sim".into())];
    let program = gpu.program("kernels", 6);
    let process = gpu.run(&[], &program, &[]);
    let pid = process.pid();
    let (code, lines, errors) = process.wait();
    assert!(code == 0 && lines.iter().all(|l| l.starts_with("ok ")), "{lines:?} {errors}");
    assert!(gpu.place.stats().iter().all(|(p, stats)| *p != pid || stats["launches"] == 0), "none of HIP's");
}

/// A runtime on a CUDA driver that uses the same library: its calls of that driver are no commands of the program.
#[test]
fn a_runtime_on_a_cuda_driver_is_counted_once_whichever_hooks_there_are() {
    let mut gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let driver = gpu.place.join("driver");
    std::fs::create_dir(&driver).unwrap();
    std::os::unix::fs::symlink(beside("libfakecuda.so"), driver.join("libcuda.so.1")).unwrap();
    let path = format!("{}:{}", gpu.runtime.display(), driver.display());
    for platforms in ["", "hip"] {
        gpu.environment = vec![
            ("FAKEHIP_BACKEND", "cuda".into()),
            ("LD_LIBRARY_PATH", path.clone()),
            ("XSCHED_PLATFORMS", platforms.into()),
            ("FAKECUDA_STATS", gpu.place.join("driver-stats").to_str().expect("text").into()),
        ];
        for name in ["kernels", "streams", "graphs", "multithread"] {
            same(&gpu, name, 6, &[]);
        }
        let mut program = gpu.run(&[], &gpu.program("priorities", 7), &[]);
        let pid = program.pid();
        program.expect("ready");
        let groups = gpu.place.program(pid).expect("a program")["groups"].as_array().cloned().unwrap();
        assert!(groups.iter().all(|g| g["platform"] == "hip"), "hooks {platforms:?}: {groups:?}");
        program.tell("end");
        program.finish();
        gpu.assert_counts(pid);
    }
    let driver_ran = std::fs::read_to_string(gpu.place.join("driver-stats")).unwrap();
    assert!(driver_ran.contains("\"kernels\":"), "the driver was used: {driver_ran}");
}

#[test]
fn a_runtime_that_calls_its_own_exports_is_counted_once() {
    let mut gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    gpu.environment = vec![("FAKEHIP_REENTER", "1".into())];
    for (name, major) in ["kernels", "memory", "module", "streams"].into_iter().zip(MAJORS.into_iter().cycle()) {
        same(&gpu, name, major, &[]);
    }
}

/// Suspends a program beside a rival, a few times. Returns the number of waits for a gate that the device was given, and the programs'
/// output on stderr.
fn gates_of(gpu: &HipGpu, options: &[&str]) -> (u64, String) {
    let _daemon = gpu.place.daemon(&["--policy", "chaos"]);
    let steady = gpu.program("steady", 6);
    let start = || {
        let mut program = gpu.run(options, &steady, &["200", "16"]);
        program.expect("ready");
        program.progress_after(0);
        program
    };
    let mut programs = [start(), start()];
    for program in &mut programs {
        for _ in 0..5 {
            program.progress_after(now_ns());
        }
    }
    let (mut waits, mut said) = (0, String::new());
    for mut program in programs {
        let pid = program.pid();
        program.tell("end");
        let (code, lines, errors) = program.wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok every kernel has run once")));
        gpu.assert_counts(pid);
        waits += gpu.runtime_stats(pid)["waits"].as_u64().unwrap();
        said += &errors;
    }
    (waits, said)
}

#[test]
fn gates_on_the_device_are_for_devices_that_are_not_amds_unless_forced() {
    let mut gpu = HipGpu::new();
    let (waits, said) = gates_of(&gpu, &["--level", "2"]);
    assert!(waits > 0 && said.is_empty(), "{waits} {said}");
    gpu.environment = vec![("FAKEHIP_NAME", "AMD Instinct MI300X".into())];
    let (waits, said) = gates_of(&gpu, &[]);
    assert_eq!((waits, said.as_str()), (0, ""), "not by itself");
    let (waits, said) = gates_of(&gpu, &["--level", "2"]);
    assert!(waits > 0 && said.contains("a gate that waits is a kernel that spins"), "{waits} {said}");
}

/// A command that waits at a gate on the device must not count as its program's share.
#[test]
fn a_fair_policy_shares_the_device_between_programs_whose_level_nobody_forces() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "up"]);
    let steady = gpu.program("steady", 6);
    let programs = ["high", "low"].map(|class| {
        let mut program = gpu.run(&["--priority", class], &steady, &["100", "8"]);
        program.expect("ready");
        program
    });
    let pids = programs.each_ref().map(Process::pid);
    until("both are known", || pids.iter().all(|pid| gpu.place.group(*pid).is_some()));
    let before = pids.map(|pid| gpu.place.launches(pid));
    until("both get on", || (0..2).all(|at| gpu.place.launches(pids[at]) >= before[at] + 2000));
    let made = [0, 1].map(|at| gpu.place.launches(pids[at]) - before[at]);
    assert!(made.iter().all(|n| n * 3 > made[0].max(made[1])), "{made:?} launches");
    programs.into_iter().for_each(|program| gpu.end(program));
}
