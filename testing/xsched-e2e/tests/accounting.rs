//! Device time that `xsched usage` reports, against the time that the kernels took on the simulated device, whose times are exact; also of
//! programs and of daemons that are gone.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use xsched_e2e::{Place, Process, one_of, until};

/// Row of the output: its key, its four times in ns (GPU time, by the driver, at most, resident), its number of programs.
type Row = (String, [u64; 4], u64);

/// Rows of `xsched usage`, with times in ns.
fn usage(place: &Place, by: &str) -> Vec<Row> {
    let csv = place.ask(&["usage", "--by", by, "--csv"]);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let ns = |text: &str| text.replace('.', "").parse().expect("ns");
        (fields[0].to_owned(), [1, 2, 3, 4].map(|at| ns(fields[at])), fields[5].parse().expect("a number"))
    };
    csv.lines().skip(1).map(row).collect()
}

fn of<'a>(rows: &'a [Row], key: &str) -> &'a Row {
    rows.iter().find(|row| row.0 == key).unwrap_or_else(|| panic!("no {key} in {rows:?}"))
}

fn gpu_s(rows: &[Row], key: &str) -> f64 {
    of(rows, key).1[0] as f64 / 1e9
}

fn load(place: &Place) -> std::path::PathBuf {
    place.device();
    place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"])
}

fn result(program: Process) -> Value {
    let result: Value = serde_json::from_str(program.finish().last().expect("a line")).expect("JSON");
    assert_eq!(result["check"], "ok");
    result
}

/// Starts a program that has nothing to do for minutes: completions are followed where another program is registered.
fn idle(place: &Place, load: &Path) -> Process {
    let args = ["lc", "--kernels", "1", "--us", "10", "--period-us", "600000000", "--requests", "2"];
    let program = place.run(&["--job", "idle"], load, &args);
    until("it is idle", || place.group(program.pid()).is_some_and(|g| g["state"] == "idle" && g["launches"] != 0));
    program
}

/// Starts a program with requests of five kernels of 1 ms each.
fn requests(place: &Place, load: &Path, job: &str, period_us: u64, count: u64) -> Process {
    let (period, count) = (period_us.to_string(), count.to_string());
    let args = ["lc", "--kernels", "5", "--us", "1000", "--period-us", &period, "--requests", &count];
    place.run(&["--job", job], load, &args)
}

fn end(daemon: Process, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &daemon.pid().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    daemon.wait();
}

/// Ratio of the charge for requests of 5 ms in such periods to the time that the program measured for them, all together: a thread that a
/// busy machine wakes late reports late, the program's or the one that charges.
fn charged_over_seen(period_us: u64) -> f64 {
    let place = Place::new();
    let load = load(&place);
    let _daemon = place.daemon(&[]);
    let _idle = idle(&place, &load);
    let count = 1_000_000 / period_us;
    let result = result(requests(&place, &load, "requests", period_us, count));
    let (exact, charged) = (count as f64 * 0.005, gpu_s(&usage(&place, "job"), "requests"));
    let seen = count as f64 * result["mean_ms"].as_f64().expect("ms") / 1_000.0;
    println!("{exact:.4} s of kernels, {seen:.4} s as seen, {charged:.4} s charged");
    assert!(charged >= 0.995 * exact, "{charged} of {exact}");
    charged / seen
}

/// Requests keep the device for 20, 50 and 90 % of the time. The last pauses are about as short as the time for which the device is kept
/// for the next request.
#[test]
fn requests_are_charged_what_their_kernels_take() {
    for (period_us, percent) in [(25_000, 5), (10_000, 5), (5_550, 15)] {
        one_of(5, &format!("{percent} % more charged than seen at most"), || {
            let ratio = charged_over_seen(period_us);
            if ratio < 1.0 + f64::from(percent) / 100.0 { Ok(()) } else { Err(format!("{ratio:.3}")) }
        });
    }
}

/// Two programs that want the device all the time have all of it together, whichever has it when.
#[test]
fn what_programs_are_charged_sums_to_the_busy_time() {
    let place = Place::new();
    let load = load(&place);
    let _daemon = place.daemon(&["--policy", "up"]);
    let start = |job: &str, weight: &str, us: &str| {
        place.run(&["--job", job, "--weight", weight], &load, &["be", "--us", us, "--batch", "16", "--secs", "2"])
    };
    let begin = Instant::now();
    let done = [start("one", "300", "200"), start("other", "100", "500")].map(result);
    let kernels =
        [200, 500].iter().zip(&done).map(|(us, r)| r["done"].as_f64().expect("a number") * f64::from(*us) / 1e6);
    let exact: f64 = kernels.sum();
    let (jobs, devices) = (usage(&place, "job"), usage(&place, "device"));
    assert_eq!(devices.len(), 1);
    let sums = [0, 1, 2, 3].map(|at| jobs.iter().map(|row| row.1[at]).sum::<u64>());
    assert_eq!(sums, devices[0].1, "to the ns");
    assert_eq!((devices[0].0.as_str(), devices[0].2), ("sim:0", 2));
    let [gpu, _, at_most, resident] = devices[0].1.map(|ns| ns as f64 / 1e9);
    println!(
        "{exact:.4} s of kernels, {gpu:.4} s charged, of which {at_most:.4} s not followed, {resident:.4} s resident"
    );
    // The remaining time is changes of contexts, and time in which a busy machine keeps the programs from launching.
    assert!(gpu >= 0.99 * exact && gpu <= begin.elapsed().as_secs_f64(), "{gpu} of {exact}");
    assert!(resident >= gpu && jobs.iter().all(|row| row.1[3] >= row.1[0]));
}

/// GPU time of the programs of a job by `ps --all`, in µs, with that by which policies share, and the number of their groups.
fn gpu_us_of(place: &Place, job: &str) -> (u64, u64, u64) {
    let answer: Value = serde_json::from_str(&place.ask(&["ps", "--all", "--json"])).expect("JSON");
    let programs = answer["programs"].as_array().expect("a list").iter().filter(|program| program["job"] == job);
    let groups: Vec<&Value> = programs.flat_map(|program| program["groups"].as_array().expect("a list")).collect();
    let sum = |name: &str| groups.iter().map(|group| group[name].as_u64().expect("µs")).sum::<u64>();
    (sum("gpu_us"), sum("device_us"), groups.len() as u64)
}

/// Of programs that share the device, of one that had it alone, and of one that is still there.
#[test]
fn ps_and_usage_tell_the_same_gpu_time() {
    let place = Place::new();
    let load = load(&place);
    let _daemon = place.daemon(&["--policy", "up"]);
    result(requests(&place, &load, "alone", 20_000, 20));
    let _idle = idle(&place, &load);
    let start =
        |job: &str, us: &str| place.run(&["--job", job], &load, &["be", "--us", us, "--batch", "16", "--secs", "0.5"]);
    for program in [start("one", "200"), start("other", "500")] {
        result(program);
    }
    for job in ["alone", "idle", "one", "other"] {
        let usage_ns = of(&usage(&place, "job"), job).1[0];
        let (gpu_us, device_us, groups) = gpu_us_of(&place, job);
        println!("{job}: {usage_ns} ns by usage, {gpu_us} us by ps, {device_us} us by the policy's measure");
        assert!(groups > 0 && gpu_us <= usage_ns / 1_000, "{job}");
        // Each group's is cut to µs.
        assert!(usage_ns / 1_000 - gpu_us <= groups, "{job}: {usage_ns} ns by usage, {gpu_us} us by ps");
    }
}

/// Without another program on the device nothing is followed, and no driver tells of the simulated device: what is charged is told
/// to be too much, perhaps.
#[test]
fn time_that_nothing_has_measured_is_told_apart() {
    let place = Place::new();
    let load = load(&place);
    let _daemon = place.daemon(&[]);
    result(requests(&place, &load, "alone", 20_000, 50));
    let rows = usage(&place, "job");
    let [gpu, by_driver, at_most, resident] = of(&rows, "alone").1;
    assert_eq!((gpu, by_driver), (at_most, 0));
    assert_eq!(gpu, resident);
}

#[test]
fn usage_outlives_programs_and_daemons() {
    let place = Place::new();
    let load = load(&place);
    // Time that its kernels took, in seconds.
    let run = |job: &str| {
        let options = ["--job", job, "--priority", "high"];
        let done = result(place.run(&options, &load, &["be", "--us", "200", "--batch", "16", "--secs", "0.5"]));
        done["done"].as_f64().expect("a number") * 200e-6
    };
    let daemon = place.daemon(&[]);
    let first = run("first");
    // Ended as by a service manager.
    end(daemon, "TERM");
    let daemon = place.daemon(&[]);
    let second = run("second");
    let before = usage(&place, "job");
    assert!(gpu_s(&before, "first") > 0.9 * first && gpu_s(&before, "second") > 0.4 * second, "{before:?}");
    // A killed daemon loses the time that it has not written yet.
    end(daemon, "KILL");
    let _daemon = place.daemon(&[]);
    let after = usage(&place, "job");
    assert_eq!(of(&before, "first"), of(&after, "first"));
    assert_eq!(of(&before, "second"), of(&after, "second"));
    let all = usage(&place, "program");
    assert_eq!((all.len(), all[0].0.as_str(), all[0].2), (1, "simload", 2));
    assert_eq!(usage(&place, "class")[0].0, "high");
    assert_eq!(usage(&place, "user")[0].2, 2);
    let text = place.ask(&["usage"]);
    assert!(text.starts_with("PROGRAM ") && text.contains("simload "), "{text}");
    let json: Value = serde_json::from_str(&place.ask(&["usage", "--by", "class", "--json"])).expect("JSON");
    assert_eq!((&json["version"], &json["rows"][0]["key"]), (&1.into(), &"high".into()));
    let rows = place.ask(&["usage", "--since", "1s", "--csv"]);
    assert!(rows.lines().count() <= 2, "{rows}");
}

/// A daemon of a user ends a minute after its last program.
#[test]
fn usage_and_the_programs_that_ended_are_told_without_a_daemon() {
    let place = Place::new();
    let load = load(&place);
    let asked = |args: &[&str]| {
        let done = place.xsched(args).output().expect("xsched runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let absent = |args: &[&str]| {
        let (code, out, said) = asked(args);
        assert_eq!((code, out.as_str(), said.lines().count()), (Some(3), "", 1), "{args:?}: {said}");
        assert!(said.contains("no daemon answers at") && said.contains("`xsched run` starts one"), "{said}");
    };
    // Nothing was recorded yet.
    absent(&["usage"]);
    absent(&["ps", "--all"]);
    let daemon = place.daemon(&[]);
    let program = requests(&place, &load, "gone", 20_000, 20);
    let pid = program.pid();
    result(program);
    let before = usage(&place, "job");
    end(daemon, "TERM");
    let (code, csv, said) = asked(&["usage", "--by", "job", "--csv"]);
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}");
    assert!(said.contains("no daemon answers at") && said.contains("records in /"), "{said}");
    let ns = csv.lines().nth(1).and_then(|line| line.strip_prefix("gone,")?.split(',').next()).expect("a row");
    // The last part may be charged after the question.
    assert!(ns.replace('.', "").parse::<u64>().expect("ns") >= of(&before, "gone").1[0], "{csv} {before:?}");
    let (code, table, said) = asked(&["ps", "--all"]);
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}");
    let row = table.lines().nth(1).expect("a row");
    assert!(row.contains(&format!("{pid} ")) && row.contains("sim:0") && row.contains("simload (job gone)"), "{table}");
    assert!(table.starts_with("     PID USER"), "{table}");
    let (code, none, _) = asked(&["ps", "--all", "--job", "another"]);
    assert_eq!((code, none.as_str()), (Some(0), "no program of the last hour is recorded\n"));
    absent(&["ps"]);
    absent(&["ps", "--all", "--json"]);
}
