//! The library, the daemon, the simulated device and the command together.

mod common;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use common::{Place, beside, library, said, until};
use xsched_testkit::one_of;

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The demo's best-effort program, which runs on the simulated device under the scheduler.
struct Busy {
    child: Child,
    stdin: Option<ChildStdin>,
    sim: Child,
}

impl Busy {
    fn start(place: &Place, options: &[&str]) -> Busy {
        library();
        beside("libsimdev.so");
        let sim_socket = place.join("sim.sock");
        let sim = place.xsched(&["sim-device", "--socket", sim_socket.to_str().unwrap()]).spawn().unwrap();
        until("the device answers", || sim_socket.exists());
        let mut command = place.xsched(&["run", "--require"]);
        command.args(options).args(["--", env!("CARGO_BIN_EXE_xsched"), "demo-worker", "--platform", "sim"]);
        command.args(["--role", "be"]).env("SIMDEV_SOCKET", &sim_socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        writeln!(stdin, "go").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "running");
        std::thread::spawn(move || lines.for_each(drop));
        Busy { child, stdin: Some(stdin), sim }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.sim.kill();
        let _ = self.sim.wait();
    }
}

/// Only program, and its only group.
fn group(place: &Place) -> (serde_json::Value, serde_json::Value) {
    let program = parse(&said(place.xsched(&["ps", "--json"])).out)["programs"][0].clone();
    let group = program["groups"][0].clone();
    (program, group)
}

#[test]
fn ps_shows_a_program_its_device_and_every_launch() {
    let place = Place::new();
    let busy = Busy::start(&place, &["--priority", "low", "--weight", "7"]);
    let (program, first) = group(&place);
    assert_eq!(program["pid"], busy.child.id());
    assert_eq!(
        (&program["class"], &program["priority"], &program["weight"]),
        (&"low".into(), &(-128).into(), &7.into())
    );
    assert!(program["share"].is_null(), "this device is shared in one way only");
    assert_eq!((&first["device"], &first["platform"]), (&"sim:0".into(), &"sim".into()));
    let keys: Vec<&str> = first.as_object().unwrap().keys().map(String::as_str).collect();
    for key in [
        "id",
        "device",
        "platform",
        "level",
        "state",
        "queues",
        "launches",
        "unscheduled",
        "liveness_overrides",
        "suspensions",
        "device_us",
        "wait_us",
    ] {
        assert!(keys.contains(&key), "{key} in {keys:?}");
    }
    let launches = |g: &serde_json::Value| g["launches"].as_u64().unwrap();
    assert!(launches(&first) >= 64);
    until("launches are counted on", || launches(&group(&place).1) > launches(&first));
    assert_eq!(first["unscheduled"], serde_json::json!({"attach": 0, "passthrough": 0, "error": 0}));
}

#[test]
fn a_daemon_that_cannot_be_started_is_told_once() {
    let place = Place::new();
    library();
    let sim_socket = place.join("sim.sock");
    let mut sim = place.xsched(&["sim-device", "--socket", sim_socket.to_str().unwrap()]).spawn().unwrap();
    until("the device answers", || sim_socket.exists());
    let mut command = place.xsched(&["run", "--socket", "/no/such/folder/s.sock", "--", env!("CARGO_BIN_EXE_xsched")]);
    command.args(["demo-worker", "--platform", "sim", "--role", "be"]).env("SIMDEV_SOCKET", &sim_socket);
    let go = place.join("go");
    std::fs::write(&go, "go\n").unwrap();
    command.stdin(std::fs::File::open(go).unwrap());
    let launched = said(command);
    let _ = sim.kill();
    let _ = sim.wait();
    // The program launched, so the library in it looked for the daemon too.
    launched.one_line(0, "runs unscheduled");
    assert!(launched.out.contains("kernels"), "{launched:?}");
}

#[test]
fn suspend_keeps_a_program_off_the_device_and_resume_lets_it_go_on() {
    let place = Place::new();
    let busy = Busy::start(&place, &[]);
    said(place.xsched(&["suspend", "--pid", &busy.pid()])).quiet(0);
    until("it is suspended", || group(&place).1["state"] == "suspended");
    // Commands in flight complete; then the number of launches stands still.
    let mut before = group(&place).1["launches"].clone();
    until("launches stand still", || {
        let now = group(&place).1["launches"].clone();
        std::mem::replace(&mut before, now.clone()) == now
    });
    assert_eq!(group(&place).1["launches"], before);
    said(place.xsched(&["resume", "--pid", &busy.pid()])).quiet(0);
    until("it goes on", || group(&place).1["launches"] != before);
}

#[test]
fn a_hint_changes_a_running_program_and_a_queue_of_it() {
    let place = Place::new();
    let busy = Busy::start(&place, &[]);
    let told = said(place.xsched(&["hint", "--pid", &busy.pid(), "--priority", "low", "--weight", "300"]));
    assert_eq!((told.code, told.err.as_str()), (Some(0), "xsched: the policy hpf does not look at: weight\n"));
    let (program, group) = group(&place);
    assert_eq!((&program["class"], &program["weight"]), (&"low".into(), &300.into()));
    let queue = group["queues"][0]["id"].as_str().unwrap().to_owned();
    said(place.xsched(&["hint", "--queue", &queue, "--priority", "-5"])).quiet(0);
    said(place.xsched(&["hint", "--queue", "q999999", "--priority", "-5"])).one_line(3, "q999999");
}

#[test]
fn doctor_shows_who_owns_the_functions_of_a_program() {
    let place = Place::new();
    let busy = Busy::start(&place, &[]);
    let doctor = said(place.xsched(&["doctor", "--json", "--pid", &busy.pid()]));
    let v = parse(&doctor.out);
    assert_eq!((doctor.code, &v["ok"]), (Some(0), &true.into()), "{v:#}");
    let launch = v["functions"].as_array().unwrap().iter().find(|f| f["name"] == "simLaunchKernel");
    let launch = launch.unwrap_or_else(|| panic!("{v:#}"));
    assert!(launch["file"].as_str().unwrap().ends_with("/libsimdev.so"), "{launch}");
    assert!(launch["address"].as_str().unwrap().starts_with("0x"));
    assert!(!v["queues"].as_array().unwrap().is_empty());
}

#[test]
fn doctor_finds_the_library_loadable_here() {
    let place = Place::new();
    library();
    let v = parse(&said(place.xsched(&["doctor", "--json"])).out);
    let check =
        |name: &str| v["checks"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap()["status"].clone();
    assert_eq!((check("preload"), check("glibc"), check("daemon")), ("ok".into(), "ok".into(), "ok".into()), "{v:#}");
    let sim = v["platforms"].as_array().unwrap().iter().find(|p| p["platform"] == "sim").unwrap().clone();
    assert_eq!((&sim["present"], &sim["levels"]), (&true.into(), &serde_json::json!([1, 2, 3])));
}

#[test]
fn a_library_that_does_not_load_is_found_by_doctor() {
    let place = Place::new();
    std::fs::write(place.join("broken.so"), "no library").unwrap();
    let mut command = place.xsched(&["doctor", "--json"]);
    command.env("XSCHED_PRELOAD", place.join("broken.so"));
    let answer = said(command);
    let v = parse(&answer.out);
    assert_eq!((answer.code, &v["ok"], &v["checks"][0]["status"]), (Some(3), &false.into(), &"fail".into()));
}

#[test]
fn the_demo_measures_on_the_simulated_device() {
    let place = Place::new();
    library();
    xsched_testkit::one_of(5, "slices of 2 ms shared with a rival, and none under xsched", || {
        let (json, svg) = (place.join("demo.json"), place.join("demo.svg"));
        let mut command = place.xsched(&["demo", "--device", "sim", "--secs", "2", "--rounds", "2", "--json"]);
        command.arg(&json).arg("--svg").arg(&svg);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert!(err.starts_with("xsched: demo on Simulated device 0: rounds: 2, about 7 s\n"), "{err}");
        // On a slow machine there are lines on the progress. On a pipe none has control characters.
        assert!(err.lines().skip(1).all(|line| line.starts_with("xsched: demo: round ")), "{err}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("100 requests each") && table.contains("together, under xsched"), "{table}");
        let v = parse(&std::fs::read_to_string(json).unwrap());
        assert_eq!(v["platform"], "sim");
        let figure = |case: &str, what: &str| v[case][what].as_f64().unwrap();
        for case in ["alone", "native", "xsched"] {
            assert!(figure(case, "p50_ms") >= 5.0, "five kernels of 1 ms take at least 5 ms: {v}");
            assert!(figure(case, "p99_ms") >= figure(case, "p50_ms"));
        }
        for case in ["native", "xsched"] {
            assert!(figure(case, "best_effort_per_s") > 0.0);
        }
        assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
        // Contention costs more than half of the time alone, and scheduling clearly reduces that.
        let [alone, native, xsched] = ["alone", "native", "xsched"].map(|case| figure(case, "p50_ms"));
        if native > 1.5 * alone && xsched < native { Ok(()) } else { Err(v.to_string()) }
    });
}

#[test]
fn the_demo_measures_on_a_cuda_driver_and_auto_chooses_it() {
    let place = Place::new();
    library();
    let driver = beside("libfakecuda.so");
    std::os::unix::fs::symlink(driver, place.join("libcuda.so.1")).unwrap();
    let json = place.join("demo.json");
    // If the machine is busy while the kernels are calibrated, they become too short.
    one_of(5, "20 kernels of 0.1 ms take at least 2 ms", || {
        let mut command = place.xsched(&["demo", "--secs", "1", "--rounds", "2", "--json"]);
        command.arg(&json).env("LD_LIBRARY_PATH", place.path());
        let mut answer = said(command);
        answer.err =
            answer.err.lines().filter(|line| !line.starts_with("xsched: demo")).map(|l| format!("{l}\n")).collect();
        answer.one_line(0, "time sharing: nvidia-cuda-mps-control is not in the daemon's PATH");
        assert!(answer.out.contains("(cuda), 50 requests each: 20 kernels of 0.1 ms, every 20 ms"), "{}", answer.out);
        assert!(answer.out.contains("best-effort: 32 kernels of 1 ms"), "{}", answer.out);
        let v = parse(&std::fs::read_to_string(&json).unwrap());
        assert_eq!(v["platform"], "cuda");
        for case in ["native", "xsched"] {
            assert!(v[case]["best_effort_per_s"].as_f64().unwrap() > 0.0, "{v}");
        }
        let is_short = |case: &&str| v[case]["p50_ms"].as_f64().unwrap() < 2.0;
        match ["alone", "native", "xsched"].into_iter().find(is_short) {
            None => Ok(()),
            Some(case) => Err(format!("{case}: {v}")),
        }
    });
}

#[test]
fn an_interrupted_demo_ends_its_programs_and_leaves_no_file() {
    let place = Place::new();
    library();
    let files = ["demo.json", "demo.svg"].map(|name| place.join(name));
    let mut command = place.xsched(&["demo", "--device", "sim", "--secs", "600", "--json"]);
    command.arg(&files[0]).arg("--svg").arg(&files[1]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let demo = child.id();
    let children = || -> Vec<u32> {
        let text = std::fs::read_to_string(format!("/proc/{demo}/task/{demo}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
    };
    // The three are the simulated device, the daemon and a program.
    until("its programs run", || children().len() >= 3);
    let before = children();
    let _ = std::process::Command::new("kill").args(["-INT", &demo.to_string()]).status();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(before.into_iter().all(|pid| !common::alive(pid)));
    assert!(files.iter().all(|file| !file.exists()));
}

#[test]
fn ps_tells_of_a_program_that_ended_and_obeys_its_schema() {
    let place = Place::new();
    let schema = parse(&said(place.xsched(&["ps", "--schema"])).out);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let obeys = |answer: &serde_json::Value| {
        let faults: Vec<String> =
            validator.iter_errors(answer).map(|e| format!("{} at {}", e, e.instance_path())).collect();
        assert!(faults.is_empty(), "{faults:?}");
    };
    let busy = Busy::start(&place, &["--job", "night", "--priority", "low"]);
    let pid = busy.pid();
    let answer = parse(&said(place.xsched(&["ps", "--json"])).out);
    obeys(&answer);
    let program = &answer["programs"][0];
    assert_eq!((&program["name"], &program["job"]), (&"xsched".into(), &"night".into()));
    let words: Vec<&str> = program["command"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
    assert_eq!(words[1..], ["demo-worker", "--platform", "sim", "--role", "be"]);
    let mut broken = answer.clone();
    broken["programs"][0]["class"] = "urgent".into();
    assert!(!validator.is_valid(&broken), "the schema refuses what is wrong");
    // COLUMNS stands for a terminal of 60 columns. Lines for a pipe are not cut.
    let mut narrow = place.xsched(&["ps"]);
    narrow.env("COLUMNS", "60");
    let narrow = said(narrow).out;
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(narrow.contains(&pid) && narrow.contains(" xsched\n"), "{narrow}");
    let wide = said(place.xsched(&["ps", "--wide", "--sort", "gpu-time", "--class", "low"])).out;
    assert!(wide.contains("xsched demo-worker --platform sim --role be\n"), "{wide}");
    assert!(said(place.xsched(&["ps", "--class", "high"])).out.contains("1 program is attached, none as asked for"));
    drop(busy);
    until("it has left", || said(place.xsched(&["ps", "--json"])).out.contains("\"programs\": []"));
    let answer = parse(&said(place.xsched(&["ps", "--all", "--json", &pid])).out);
    obeys(&answer);
    let ended = &answer["programs"][0];
    assert!(ended["ended_s"].is_u64() && ended["groups"][0]["launches"].as_u64().unwrap() >= 64, "{ended}");
    assert!(said(place.xsched(&["ps", "-a"])).out.contains(" ended "));
}

#[test]
fn completions_know_programs_jobs_devices_and_queues() {
    let place = Place::new();
    let busy = Busy::start(&place, &["--job", "night"]);
    let offered = |words: &[&str]| -> Vec<String> {
        let mut ask = place.xsched(&["--", "xsched"]);
        ask.args(words).env("XSCHED_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        said(ask).out.lines().map(str::to_owned).collect()
    };
    assert!(offered(&["hint", ""]).contains(&busy.pid()), "{:?}", offered(&["hint", ""]));
    assert_eq!(offered(&["suspend", "--job", ""]), ["night"]);
    assert_eq!(offered(&["ps", "--device", "s"]), ["sim:0"]);
    assert!(offered(&["hint", "--queue", "q"]).iter().all(|queue| queue.starts_with('q')));
}

#[test]
fn a_launcher_with_all_that_it_started_is_suspended_by_its_process_id() {
    let place = Place::new();
    let busy = Busy::start(&place, &["--job", "night"]);
    // This process started the program, and is not attached itself.
    let launcher = std::process::id().to_string();
    let done = said(place.xsched(&["suspend", &launcher]));
    assert_eq!((done.code, done.out), (Some(0), format!("{} xsched: suspended\n", busy.pid())));
    let done = said(place.xsched(&["suspend", "--job", "night"]));
    assert_eq!(done.out, format!("{} xsched: is suspended already\n", busy.pid()));
    let done = said(place.xsched(&["resume", "--all"]));
    assert_eq!(done.out, format!("{} xsched: resumed\n", busy.pid()));
    let done = said(place.xsched(&["hint", &busy.pid(), "--priority", "high"]));
    assert_eq!(done.out, format!("{} xsched: normal → high\n", busy.pid()));
    said(place.xsched(&["resume", "--job", "weekend"])).one_line(3, "has the job 'weekend': see xsched ps");
}
