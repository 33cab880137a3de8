//! `xsched check` on the devices of a machine without a GPU. CUDA and HIP are the software stand-ins here.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use xsched_e2e::{Gpu, HipGpu, Place};

/// Runs the command: its JSON, exit code and stderr.
fn answer(mut command: Command) -> (Value, i32, String) {
    let output = command.arg("--json").output().expect("xsched runs");
    let said = String::from_utf8(output.stderr).expect("text");
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (report, output.status.code().expect("a code"), said)
}

/// Asserts that all steps of a platform have equal results, and that the launches are counted.
#[track_caller]
fn assert_equal(command: Command, platform: &str, skipped: &[&str], launches: u64) {
    let (report, code, said) = answer(command);
    assert_eq!((code, said.as_str()), (0, ""), "{report:#}");
    assert_eq!(report["differs"], false);
    let part = report["parts"].as_array().unwrap().iter().find(|p| p["name"] == platform).expect("the platform");
    let steps = part["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|s| s["step"].as_str().unwrap()).collect();
    let expected = ["device count", "set device", "properties", "malloc", "memcpy, there and back", "memset", "kernel"];
    assert_eq!(names, [&expected[..], &["free", "launches scheduled"]].concat());
    for step in steps {
        let is_skipped = skipped.contains(&step["step"].as_str().unwrap());
        assert_eq!(step["verdict"], if is_skipped { "skipped" } else { "ok" }, "{step}");
        assert!(step["bare"] == step["xsched"] || step["step"] == "launches scheduled", "{step}");
    }
    assert_eq!(part["launches"], launches, "copies, sets and the kernel: {part:#}");
}

#[test]
fn the_simulated_device_behaves_the_same() {
    let place = Place::new();
    assert_equal(place.xsched(&["check", "--device", "sim"]), "sim", &[], 8);
}

#[test]
fn pocl_behaves_the_same() {
    let place = Place::new();
    assert_equal(place.xsched(&["check", "--device", "opencl", "--python", "none"]), "opencl", &[], 8);
}

#[test]
fn a_cuda_driver_behaves_the_same() {
    let gpu = Gpu::new();
    let mut command = gpu.place.xsched(&["check", "--device", "cuda", "--python", "none"]);
    command.env("LD_LIBRARY_PATH", gpu.driver());
    assert_equal(command, "cuda", &[], 8);
}

#[test]
fn a_hip_runtime_behaves_the_same() {
    let gpu = HipGpu::new();
    let mut command = gpu.place.xsched(&["check", "--device", "hip", "--python", "none"]);
    command.env("LD_LIBRARY_PATH", &gpu.runtime);
    assert_equal(command, "hip", &["kernel"], 6);
}

/// Three cases: a Python with another result under xsched, one that dies there, and one without PyTorch.
#[test]
fn a_difference_is_told_and_is_exit_code_1() {
    let place = Place::new();
    let python = |name: &str, script: &str| {
        let file = place.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    };
    let step = |outcome: &str| format!("echo '{{\"step\":\"import torch\",\"outcome\":{outcome}}}'");
    let says = format!("test -n \"$XSCHED_DISABLE\" && {} || {}", step("{\"ok\":\"1\"}"), step("{\"ok\":\"2\"}"));
    let dies = format!("{}\ntest -n \"$XSCHED_DISABLE\" || kill -SEGV $$", step("{\"ok\":\"1\"}"));
    let lacks = step("{\"none\":\"no torch\"}");
    for (name, script, code, expected) in [
        ("says", &says, 1, "import torch             DIFFERS  bare: 1; under xsched: 2"),
        ("dies", &dies, 1, "end                      DIFFERS  bare: -; under xsched: ended by signal 11"),
        ("lacks", &lacks, 0, "pytorch: not here (no torch)"),
    ] {
        let file = python(name, script);
        let output =
            place.xsched(&["check", "--device", "opencl", "--python", file.to_str().unwrap()]).output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains(expected), "{expected}: {table} {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{table}");
    }
}

#[test]
fn without_a_device_the_reason_is_told() {
    let place = Place::new();
    std::fs::write(place.join("libcuda.so.1"), "no library").unwrap();
    let mut command = place.xsched(&["check", "--device", "cuda", "--python", "none"]);
    command.env("LD_LIBRARY_PATH", place.join(""));
    let (report, code, said) = answer(command);
    assert_eq!((code, report), (3, Value::Null));
    assert!(said.starts_with("xsched: check: no device: cuda: ") && said.lines().count() == 1, "{said}");
}
