//! OpenCL platforms that implement less than the loader in front of them exports: functions that the preload library itself calls must
//! exist, and a platform that reports no completions is scheduled all the same.

use std::time::Duration;

use serde_json::json;
use xsched_e2e::{Place, Process, until};

/// Functions that OpenCL 1.0 lacks.
const OF_1_0: &str = "clSetEventCallback,clEnqueueMarkerWithWaitList";
/// Functions that the preload library itself calls.
const ALL: &str = "clSetEventCallback,clEnqueueMarkerWithWaitList,clRetainCommandQueue,clGetEventInfo,\
                   clGetCommandQueueInfo,clGetDeviceInfo,clFlush";

/// Place where the only OpenCL platform is an old one, and the test program.
struct Old {
    place: Place,
    vendors: std::path::PathBuf,
    program: std::path::PathBuf,
}

impl Old {
    fn new() -> Old {
        let place = Place::new();
        let driver =
            place.compile("ladders/opencl/old_icd.c", &["-shared", "-fPIC", "-DCL_TARGET_OPENCL_VERSION=300", "-ldl"]);
        let vendors = place.join("vendors");
        std::fs::create_dir(&vendors).expect("a folder");
        std::fs::write(vendors.join("old.icd"), driver.to_str().expect("text")).expect("a file");
        let program = place.opencl_program("passes_cl");
        Old { place, vendors, program }
    }

    /// Starts the program under `xsched run`, on a platform without these functions.
    fn start(&self, options: &[&str], lacks: &str) -> Process {
        let mut command = self.place.run_command(options, &self.program, &[]);
        command.env("OCL_ICD_VENDORS", &self.vendors).env("OLD_ICD_LACKS", lacks);
        let mut program = Process::start(command);
        program.expect("ready");
        program
    }

    /// Ends the program, and checks that its results are right and the scheduler has seen all of it.
    #[track_caller]
    fn end(&self, mut program: Process) {
        let pid = program.pid();
        program.tell("end");
        assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
        let stats = self.place.stats_of(pid);
        assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
        assert_eq!(stats["liveness_overrides"], 0, "nothing is bounded, so that nothing waits: {stats}");
    }
}

/// Has it launch commands of every kind that make the library follow completions.
fn works(program: &mut Process) {
    for line in ["turns 40", "wait", "kernels 200", "finish", "kernels 70", "wait", "turns 30"] {
        program.tell(line);
        program.expect(line.split(' ').next().expect("a word"));
    }
}

fn under_chaos(lacks: &str) {
    let old = Old::new();
    let _daemon = old.place.daemon(&["--policy", "chaos"]);
    let mut programs = [old.start(&[], lacks), old.start(&["--priority", "low"], lacks)];
    for _ in 0..5 {
        programs.iter_mut().for_each(works);
    }
    programs.into_iter().for_each(|program| old.end(program));
}

#[test]
fn a_platform_of_opencl_1_0_under_chaos() {
    under_chaos(OF_1_0);
}

#[test]
fn a_platform_that_lacks_all_that_the_library_calls_under_chaos() {
    under_chaos(ALL);
}

#[test]
fn a_platform_without_callbacks_is_held_at_the_host_gate_and_becomes_idle() {
    let old = Old::new();
    let _daemon = old.place.daemon(&[]);
    let mut urgent = old.start(&["--priority", "high"], OF_1_0);
    let mut program = old.start(&["--priority", "low"], OF_1_0);
    let pid = program.pid();
    works(&mut program);
    until("both are known", || [urgent.pid(), pid].iter().all(|pid| old.place.group(*pid).is_some()));
    until("it is idle, though commands came after the last wait", || {
        old.place.group(pid).is_some_and(|g| g["state"] == "idle")
    });
    old.place.ask(&["suspend", "--pid", &pid.to_string()]);
    program.tell("kernels 50");
    assert_eq!(program.line_within(Duration::from_millis(200)), None, "held");
    works(&mut urgent);
    old.place.ask(&["resume", "--pid", &pid.to_string()]);
    program.expect("kernels");
    old.end(program);
    old.end(urgent);
}
