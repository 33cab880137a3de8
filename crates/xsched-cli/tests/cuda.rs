//! CUDA in the command, with a stand-in for NVIDIA's library: calls of `doctor` and the demo, and their use of the answers.

mod common;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Place, said};

/// Stand-in for libcuda.so.1: two devices, and kernels that take 1 µs for ten iterations. Environment variables set faults of the machine.
const STAND_IN: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static uint64_t in_flight_ns;

int cuDriverGetVersion(int *version) { *version = number("CUDA_STAND_IN_VERSION", 13000); return 0; }
int cuInit(unsigned flags) { return flags ? 1 : number("CUDA_STAND_IN_INIT", 0); }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Stand-In %d", device); return 0; }
int cuDeviceGetPCIBusId(char *id, int length, int device) { snprintf(id, length, "0000:4%d:0A.0", device); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 0xa0 + device, 16); return 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case 16: *value = 4; return 0;
    case 20: *value = number("CUDA_STAND_IN_MODE", 0); return 0;
    case 39: *value = 2048; return 0;
    case 123: *value = number("CUDA_STAND_IN_WAIT_VALUE", 1); return 0;
    case 133: *value = 0; return 0;
    }
    return 1;
}

int cuGetErrorName(int error, const char **name)
{
    *name = error == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
    return *name ? 0 : 1;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 1; }
int cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)3; return flags == 1 ? 0 : 1; }
int cuModuleLoadData(void **module, const char *image)
{
    *module = (void *)4;
    return strstr(image, ".entry spin(") ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = (void *)5;
    return module == (void *)4 && !strcmp(name, "spin") ? 0 : 500;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = bytes; return 0; }

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
    uint64_t n = *(uint64_t *)arguments[0];
    uint64_t out = *(uint64_t *)arguments[1];
    int fits = (uint64_t)x * threads * 4 == out;
    int flat = y == 1 && z == 1 && ty == 1 && tz == 1;
    if (function != (void *)5 || stream != (void *)3 || shared || extra || !flat || !fits)
        return 1;
    in_flight_ns += n * 100ull;
    return 0;
}

int cuStreamSynchronize(void *stream)
{
    struct timespec time = {in_flight_ns / 1000000000, in_flight_ns % 1000000000};
    in_flight_ns = 0;
    nanosleep(&time, NULL);
    return stream == (void *)3 ? 0 : 1;
}
"#;

fn with_stand_in(place: &Place, args: &[&str]) -> Command {
    let file = place.join("libcuda.so.1");
    if !file.exists() {
        let made: PathBuf = place.compile("libcuda.so.1", STAND_IN, &["-shared", "-fPIC", "-Wall", "-Werror"]);
        assert_eq!(made, file);
    }
    let mut command = place.xsched(args);
    command.env("LD_LIBRARY_PATH", place.path()).env_remove("CUDA_MPS_PIPE_DIRECTORY");
    command
}

fn cuda_of(doctor: &str) -> serde_json::Value {
    let v: serde_json::Value = serde_json::from_str(doctor).unwrap_or_else(|e| panic!("{e}: {doctor}"));
    v["platforms"].as_array().unwrap().iter().find(|p| p["platform"] == "cuda").unwrap().clone()
}

#[test]
fn doctor_shows_driver_devices_and_the_levels_that_follow() {
    let place = Place::new();
    let cuda = cuda_of(&said(with_stand_in(&place, &["doctor", "--json"])).out);
    assert_eq!((&cuda["present"], &cuda["levels"]), (&true.into(), &serde_json::json!([1, 2, 3])), "{cuda:#}");
    let details = &cuda["cuda"];
    assert_eq!((&details["cuda_version"], &details["levels_spatial"]), (&"13.0".into(), &serde_json::json!([1, 2])));
    let second = serde_json::json!({
        "name": "Stand-In 1",
        "pci": "0000:41:0a.0",
        "uuid": "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1",
        "compute_mode": "default",
        "stream_memory_ops": true,
        "mps": false,
    });
    assert_eq!(details["devices"][1], second);
    let text = said(with_stand_in(&place, &["doctor"])).out;
    assert!(text.contains("Stand-In 0, Stand-In 1; levels 1, 2, 3"), "{text}");
    assert!(text.contains("Stand-In 0 at 0000:40:0a.0, GPU-a0a0a0a0-"), "{text}");

    let mut command = with_stand_in(&place, &["doctor", "--json"]);
    command.env("CUDA_STAND_IN_WAIT_VALUE", "0").env("CUDA_STAND_IN_MODE", "3");
    let cuda = cuda_of(&said(command).out);
    assert_eq!(
        (&cuda["levels"], &cuda["cuda"]["levels_spatial"]),
        (&serde_json::json!([1, 3]), &serde_json::json!([1]))
    );
    assert_eq!(cuda["cuda"]["devices"][0]["compute_mode"], "exclusive-process");
}

#[test]
fn a_driver_that_cannot_be_used_is_told_by_doctor_and_the_demo() {
    let place = Place::new();
    for (name, value, says) in [
        ("CUDA_STAND_IN_VERSION", "8000", "the driver knows CUDA 8.0 only; install one for CUDA 9.0 or newer"),
        ("CUDA_STAND_IN_INIT", "100", "the driver finds no CUDA device"),
        ("CUDA_STAND_IN_INIT", "999", "cuInit returned CUDA_ERROR_UNKNOWN"),
        ("CUDA_STAND_IN_INIT", "12345", "cuInit returned 12345"),
    ] {
        let mut doctor = with_stand_in(&place, &["doctor", "--json"]);
        let cuda = cuda_of(
            &said({
                doctor.env(name, value);
                doctor
            })
            .out,
        );
        assert_eq!((&cuda["present"], &cuda["note"]), (&false.into(), &says.into()), "{cuda:#}");
        let mut demo = with_stand_in(&place, &["demo", "--device", "cuda", "--secs", "1", "--rounds", "1"]);
        demo.env(name, value).env("XSCHED_PRELOAD", place.stand_in("stand-in.so"));
        said(demo).one_line(3, says);
    }
    for (mode, says) in [("2", "takes no programs"), ("3", "takes one program at a time")] {
        let mut demo = with_stand_in(&place, &["demo", "--device", "cuda", "--secs", "1", "--rounds", "1"]);
        demo.env("CUDA_STAND_IN_MODE", mode).env("XSCHED_PRELOAD", place.stand_in("stand-in.so"));
        said(demo).one_line(3, says);
    }
}

#[test]
fn the_demo_calibrates_its_kernels_on_the_device() {
    let place = Place::new();
    let answer = said(with_stand_in(&place, &["demo-worker", "--role", "calibrate", "--platform", "cuda"]));
    answer.quiet(0);
    let v: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(v["Ok"]["device"], "Stand-In 0");
    // An iteration takes 100 ns. A sleep is never too short, and the shortest of many is hardly too long.
    for (role, exact) in [("critical", 1_000.0), ("best_effort", 10_000.0)] {
        let found = v["Ok"][role].as_f64().unwrap();
        assert!((0.5 * exact..=exact).contains(&found), "{role}: {v}");
    }
}

#[test]
fn the_demos_programs_run_their_bursts_on_the_device() {
    let place = Place::new();
    // The worker's input ends only after this line, so that it is not told to stop before it has begun.
    let worker = |role: &str, until: &str| -> Vec<String> {
        let mut command = with_stand_in(&place, &["demo-worker", "--platform", "cuda", "--requests", "3"]);
        command.args(["--iterations", "100", "--role", role]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take();
        input.as_mut().unwrap().write_all(b"go\n").unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines = lines.inspect(|line| drop(input.take_if(|_| line.starts_with(until)))).collect();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        lines
    };
    let critical = worker("lc", "{");
    assert_eq!(critical[0], "ready");
    let v: serde_json::Value = serde_json::from_str(&critical[1]).unwrap();
    let latencies = v["latencies_ns"].as_array().unwrap();
    // A request has 20 kernels of 10 µs.
    assert!(latencies.len() == 3 && latencies.iter().all(|l| l.as_u64().unwrap() >= 200_000), "{v}");
    let lines = worker("be", "running");
    assert_eq!(lines[..2], ["ready", "running"]);
    let v: serde_json::Value = serde_json::from_str(&lines[2]).unwrap();
    let (kernels, seconds) = (v["kernels"].as_u64().unwrap(), v["seconds"].as_f64().unwrap());
    assert!(kernels >= 32 && kernels.is_multiple_of(32) && seconds >= kernels as f64 * 10e-6, "{v}");
}
