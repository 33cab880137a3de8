//! docs/guide/coming-from-xsched.md: each row of its tables is tried. A row without a trial fails, and so does a trial without a
//! row.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use xsched_e2e::{Gpu, HipGpu, Place, Process, beside, finish, now_ns, until};

#[path = "../../xsched-cli/tests/common/markdown.rs"]
mod markdown;

/// The first cells of a section's tables, as they stand in backquotes, each with its whole row.
fn rows(heading: &str) -> Vec<(String, String)> {
    let page = markdown::page("docs/guide/coming-from-xsched.md");
    let (_, section) = page.text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `").map(|row| (row, line)));
    rows.map(|(row, line)| (row.split('`').next().unwrap_or_default().to_owned(), line.to_owned())).collect()
}

/// Each row has its trial, by name, and each trial its row.
#[track_caller]
fn all_are_tried<'a>(heading: &str, tried: impl IntoIterator<Item = &'a str>) {
    let there: Vec<String> = rows(heading).into_iter().map(|(name, _)| name).collect();
    let tried: BTreeSet<String> = tried.into_iter().map(str::to_owned).collect();
    assert_eq!(there.iter().cloned().collect::<BTreeSet<_>>(), tried, "{heading}");
    assert_eq!(there.len(), tried.len(), "{heading}: a row stands twice");
}

/// The command under its names of the original.
fn original(place: &Place, name: &str, args: &[&str]) -> Command {
    let link = place.join(name);
    if !link.is_symlink() {
        std::os::unix::fs::symlink(beside("xsched"), &link).unwrap();
    }
    place.command(link, args)
}

/// What a command said: exit code, stdout, stderr.
fn said(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn quiet(command: Command) -> String {
    let shown = format!("{command:?}");
    let (code, out, err) = said(command);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{shown}: {out}");
    out
}

/// A program without end on the simulated device, with the library preloaded as XSched's users do it.
fn preloaded(place: &Place, variables: &[(&str, &str)]) -> Process {
    let mut command = place.command(place.sim_program("steady"), &[]);
    command.env("LD_PRELOAD", beside("libxsched.so")).envs(variables.iter().copied());
    Process::start(command)
}

/// One that has begun to launch.
fn running(place: &Place, variables: &[(&str, &str)]) -> Process {
    let mut program = preloaded(place, variables);
    program.expect("ready");
    program
}

/// Ends it: what it said on stderr, and what it counted.
fn end(place: &Place, mut program: Process) -> (String, Value) {
    program.tell("end");
    let pid = program.pid();
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
    (errors, place.stats_of(pid))
}

/// The name of the program's only queue, once the daemon knows it.
fn queue(place: &Place, pid: u32) -> String {
    let mut found = None;
    until("it has a queue", || {
        let groups = place.program(pid).and_then(|p| p["groups"].as_array().cloned()).unwrap_or_default();
        found = groups.iter().find_map(|g| g["queues"][0]["id"].as_str().map(str::to_owned));
        found.is_some()
    });
    found.unwrap_or_default()
}

/// Ends a server that was started by a trial.
fn serves(place: &Place, args: &[&str], policy: &str) -> String {
    let mut server = Process::start(original(place, "xserver", args));
    let pid = server.pid();
    until("the server answers", || {
        assert!(server.has_ended().is_none(), "{}", server.errors());
        place.ps().is_some_and(|ps| ps["daemon"]["pid"] == pid)
    });
    assert_eq!(place.ps().unwrap()["daemon"]["policy"], policy);
    let errors = server.errors();
    xsched_e2e::signal(pid, rustix::process::Signal::TERM);
    assert_eq!(server.wait().0, 0);
    errors
}

#[test]
fn commands_of_the_original_do_what_the_page_says() {
    let place = Place::new();
    let xcli = |args: &[&str]| quiet(original(&place, "xcli", args));
    assert_eq!(serves(&place, &[], "hpf"), "");
    assert_eq!(serves(&place, &["MLFQ"], "mlfq"), "");
    let line = format!(
        "xsched: port 50000 is not opened: programs and commands find the daemon by its socket, {}\n",
        place.socket().display()
    );
    assert_eq!(serves(&place, &["HPF", "50000"], "hpf"), line);
    // It is not in use, whatever it is.
    assert_eq!(said(original(&place, "xserver", &["HPF", "70000"])).0, Some(2));

    let _daemon = place.daemon(&[]);
    let program = running(&place, &[]);
    let pid = program.pid().to_string();
    let q = queue(&place, program.pid());
    let group = || place.group(program.pid()).unwrap();
    let hints = || place.program(program.pid()).unwrap()["hints"].clone();

    let mut top = Process::start(original(&place, "xcli", &["top"]));
    for _ in 0..2 {
        top.find("a head", |line| line.starts_with("policy hpf, daemon").then_some(()));
        top.find("the program", |line| line.ends_with("  steady").then_some(()));
    }
    drop(top);
    let list = xcli(&["list"]);
    assert!(list.lines().any(|l| l.contains(&q) && l.contains(&pid) && l.ends_with("  steady")), "{list}");

    xcli(&["config", "-x", &q, "-l", "1"]);
    assert_eq!(group()["level"], 1);
    xcli(&["config", "-x", &q[1..], "-t", "16"]);
    xcli(&["config", "-x", &q, "-b", "8"]);
    assert_eq!((&group()["threshold"], &group()["batch"]), (&json!(16), &json!(8)));

    assert_eq!(xcli(&["policy", "-q"]), "hpf\n");
    xcli(&["policy", "-s", "-n", "UP"]);
    assert_eq!(xcli(&["policy", "-q"]), "up\n");

    xcli(&["hint", "-x", &q, "-u", "30"]);
    xcli(&["hint", "-x", &q, "-t", "900"]);
    xcli(&["hint", "--pid", &pid, "-u", "40"]);
    assert_eq!(hints()["utilization"], "40");
    xcli(&["hint", "--pid", &pid, "-t", "800"]);
    assert_eq!(hints()["timeslice"], "800");
    // Those that a policy does not look at are told, as by our own command.
    xcli(&["policy", "-s", "-n", "HPF"]);
    let (code, _, err) = said(original(&place, "xcli", &["hint", "-x", &q, "-u", "30"]));
    assert_eq!((code, err.as_str()), (Some(0), "xsched: the policy hpf does not look at: utilization\n"));
    xcli(&["hint", "--pid", &pid, "-p", "20"]);
    assert_eq!(group()["priority"], 20);
    xcli(&["hint", "-x", &q, "-p", "-256"]);
    let held = || place.program(program.pid()).unwrap()["groups"].as_array().unwrap().clone();
    until("its queue does not run any more", || held().iter().any(|g| g["priority"] == -256));
    let q = held().iter().find(|g| g["priority"] == -256).unwrap()["queues"][0]["id"].as_str().unwrap().to_owned();
    xcli(&["hint", "-x", &q, "-p", "-3"]);
    until("it has another priority", || held().iter().any(|g| g["priority"] == -3 && g["state"] == "running"));
    end(&place, program);

    let (code, out, err) = said(original(&place, "xcli", &["hint", "--pid", "1", "-p", "300"]));
    assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
    all_are_tried(
        "Commands",
        [
            "xserver",
            "xserver POLICY",
            "xserver POLICY PORT",
            "xcli top",
            "xcli list",
            "xcli config -x Q -l L",
            "xcli config -x Q -t T",
            "xcli config -x Q -b B",
            "xcli policy -q",
            "xcli policy -s -n NAME",
            "xcli hint -x Q -p P",
            "xcli hint -x Q -u U",
            "xcli hint -x Q -t US",
            "xcli hint --pid PID -p P",
            "xcli hint --pid PID -u U",
            "xcli hint --pid PID -t US",
        ],
    );
}

#[test]
fn commands_named_on_the_page_are_accepted() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "up"]);
    let program = running(&place, &[]);
    let pid = program.pid().to_string();
    let value = |word: &str| match word {
        // It has another name after a priority of its own.
        "Q" => queue(&place, program.pid()),
        "PID" => pid.clone(),
        "L" | "K" => "1".into(),
        "T" => "16".into(),
        "B" | "P" => "8".into(),
        "U" => "30".into(),
        "US" => "900".into(),
        "US:LAX:CRITICAL" => "900:low:high".into(),
        "NAME" => "UP".into(),
        other => other.into(),
    };
    let mut run = 0;
    for (_, row) in rows("Commands").into_iter().chain(rows("Functions")) {
        for words in row.split('`').filter_map(|code| code.strip_prefix("xsched ")) {
            // The trials above start the daemon, and `run` starts a program.
            if words.starts_with("daemon") || words.starts_with("run") || words.ends_with("--help") {
                continue;
            }
            let words: Vec<String> = words.split(' ').map(value).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            println!("xsched {}", words.join(" "));
            place.ask(&words);
            run += 1;
        }
    }
    assert!(run > 20, "{run}");
    end(&place, program);
}

/// A folder as an installation has it: the library, and links to it.
fn links(place: &Place) -> PathBuf {
    let folder = place.join("lib");
    std::fs::create_dir(&folder).unwrap();
    let library = folder.join("libxsched.so");
    std::os::unix::fs::symlink(beside("libxsched.so"), &library).unwrap();
    for name in ["cuda", "hip", "opencl"] {
        std::os::unix::fs::symlink("libxsched.so", folder.join(format!("libshim{name}.so"))).unwrap();
    }
    folder
}

/// The libraries of a folder, as `LD_PRELOAD` takes them.
fn list(folder: &Path, names: &[&str]) -> String {
    names.iter().map(|name| folder.join(name).display().to_string()).collect::<Vec<_>>().join(":")
}

#[test]
fn libraries_of_the_original_schedule_every_launch_once() {
    let opencl = "LD_PRELOAD=libshimopencl.so";
    {
        let place = Place::new();
        let folder = links(&place);
        let _daemon = place.daemon(&[]);
        let program = place.opencl_program("passes_cl");
        let launches = |preload: String| {
            let mut command = place.command(&program, &[]);
            command.env("LD_PRELOAD", preload);
            let mut program = Process::start(command);
            let pid = program.pid();
            program.expect("ready");
            program.tell("kernels 3");
            program.expect("kernels");
            assert!(place.group(pid).is_some(), "the daemon knows it");
            program.tell("end");
            let (code, lines, errors) = program.wait();
            assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
            let stats = place.stats_of(pid);
            assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
            (stats["launches"].clone(), errors)
        };
        let alone = launches(list(&folder, &["libxsched.so"]));
        assert!(alone.0.as_u64() > Some(2) && alone.1.is_empty(), "{alone:?}");
        assert_eq!(launches(list(&folder, &["libshimopencl.so"])), alone, "{opencl}");
        let all = ["libshimcuda.so", "libshimhip.so", "libshimopencl.so", "libxsched.so"];
        assert_eq!(launches(list(&folder, &all)), alone);
        // A copy is another library: it would schedule what is scheduled already.
        std::fs::copy(beside("libxsched.so"), folder.join("copy.so")).unwrap();
        for names in [["libshimopencl.so", "copy.so"], ["copy.so", "libshimopencl.so"]] {
            let (once, errors) = launches(list(&folder, &names));
            assert_eq!((once, errors.lines().count()), (alone.0.clone(), 1), "{errors}");
            assert!(errors.contains(&format!("{} steps aside for", names[1])), "{errors}");
        }
    }
    {
        let gpu = Gpu::new();
        let folder = links(&gpu.place);
        let _daemon = gpu.place.daemon(&[]);
        let program = gpu.program("steady");
        for names in [&["libshimcuda.so"][..], &["libshimcuda.so", "libxsched.so"]] {
            let mut command = gpu.place.command(&program, &[]);
            command.env("LD_LIBRARY_PATH", gpu.place.join("driver"));
            command.env("FAKECUDA_STATS", gpu.place.join("driver-stats")).env("LD_PRELOAD", list(&folder, names));
            let mut steady = Process::start(command);
            steady.expect("ready");
            // Its launches are those that the driver counts.
            gpu.end(steady);
        }
        linked(&gpu.place, &folder);
    }
    let target = beside("libxsched.so").ancestors().nth(2).unwrap().join("hip-runtime");
    if target.join("libamdhip64.so.6").is_file() {
        let gpu = HipGpu::new();
        let folder = links(&gpu.place);
        let _daemon = gpu.place.daemon(&[]);
        let mut command = gpu.place.command(gpu.program("kernels", 6), &[]);
        command.env("LD_PRELOAD", list(&folder, &["libshimhip.so"]));
        let process = gpu.with_runtime(command);
        let pid = process.pid();
        let (code, _, errors) = process.wait();
        assert_eq!((code, errors.as_str()), (0, ""));
        gpu.assert_counts(pid);
    } else {
        xsched_e2e::skipped("LD_PRELOAD=libshimhip.so: no software HIP runtime; run `cargo xtask hip-runtime`");
    }
    all_are_tried(
        "Libraries",
        [
            "LD_PRELOAD=libshimcuda.so",
            "LD_PRELOAD=libshimhip.so",
            opencl,
            "LD_PRELOAD=libshimcuda.so:libxsched.so",
            "-lshimcuda",
        ],
    );
}

/// A program that is linked with the library before its driver is scheduled without a preload, and once with one.
fn linked(place: &Place, folder: &Path) {
    let search = format!("-L{}", folder.display());
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display());
    let program = place.compile(
        "hazards/steady.c",
        &["-Wl,--no-as-needed", &search, &rpath, "-lshimcuda", "-lsimdev", "-lpthread", "-lm"],
    );
    for preload in [None, Some("libxsched.so")] {
        let mut command = place.command(&program, &[]);
        command.envs(preload.map(|name| ("LD_PRELOAD", list(folder, &[name]))));
        let mut steady = Process::start(command);
        steady.expect("ready");
        steady.progress_after(now_ns());
        steady.tell("end");
        let (code, lines, errors) = steady.wait();
        assert_eq!((code, errors.as_str()), (0, ""));
        place.assert_counts(&lines);
    }
}

/// How a variable is tried: a value, and what must hold then.
enum Trial {
    /// `ps` shows this of the program, at this path.
    Shown(&'static str, &'static str, Value),
    /// One line on stderr that has these words, and the program is scheduled as without it.
    Line(&'static str, &'static str),
    /// No daemon knows the program, and its launches are scheduled (or not) all the same.
    Alone(&'static str, bool),
    /// Nothing changes.
    Same(&'static str),
}

/// Every variable with its trials, and a value that makes no sense.
fn variables() -> Vec<(&'static str, Vec<Trial>, Option<&'static str>)> {
    use Trial::*;
    let library = || vec![Line("/lib/libvendor.so", "LD_LIBRARY_PATH")];
    let other = || vec![Line("/lib/libvendor.so", "the platforms here are cuda, hip, opencl, sim, hsa")];
    vec![
        ("XSCHED_SCHEDULER", vec![Same("GLB"), Alone("LCL", true), Alone("APP", false)], Some("ALL")),
        ("XSCHED_POLICY", vec![Alone("HPF", true), Alone("cfs", true)], Some("FIFO")),
        ("XSCHED_AUTO_XQUEUE", vec![Same("ON"), Alone("OFF", false)], Some("MAYBE")),
        ("XSCHED_AUTO_XQUEUE_LEVEL", vec![Shown("1", "/groups/0/level", json!(1))], Some("4")),
        ("XSCHED_AUTO_XQUEUE_THRESHOLD", vec![Shown("7", "/groups/0/threshold", json!(7))], Some("-1")),
        ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", vec![Shown("3", "/groups/0/batch", json!(3))], Some("many")),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", vec![Shown("140", "/priority", json!(140))], Some("-257")),
        ("XSCHED_AUTO_XQUEUE_UTILIZATION", vec![Shown("30", "/hints/utilization", json!("30"))], Some("101")),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", vec![Shown("900", "/hints/timeslice", json!("900"))], Some("99")),
        (
            "XSCHED_AUTO_XQUEUE_DEADLINE",
            vec![Shown("5000", "/hints/deadline", json!("5000")), Shown("-1", "/hints/deadline", json!("none"))],
            Some("0"),
        ),
        ("XSCHED_AUTO_XQUEUE_KDEADLINE", vec![Shown("2", "/hints/k", json!("2"))], Some("65")),
        (
            "XSCHED_AUTO_XQUEUE_LAXITY",
            vec![
                Shown("2000:low:high", "/hints/laxity", json!("2000:-128:128")),
                Shown("-1", "/hints/laxity", json!("none")),
            ],
            Some("5:low"),
        ),
        ("XSCHED_CUDA_LIB", library(), None),
        ("XSCHED_HIP_LIB", library(), None),
        ("XSCHED_OPENCL_LIB", library(), None),
        ("XSCHED_ASCEND_LIB", other(), None),
        ("XSCHED_CUDLA_LIB", other(), None),
        ("XSCHED_LEVELZERO_LIB", other(), None),
        ("XSCHED_VPI_LIB", other(), None),
        ("XSCHED_CUDA_LV3_IMPL", vec![Same("TSG"), Line("TRAP", "time slices")], Some("MAGIC")),
    ]
}

/// The program is known to the daemon, or not.
#[track_caller]
fn is_attached(place: &Place, program: &Process) -> bool {
    place.program(program.pid()).is_some_and(|p| p["groups"].as_array().is_some_and(|g| !g.is_empty()))
}

fn try_variable(place: &Place, name: &str, trial: &Trial) {
    let (Trial::Shown(value, ..) | Trial::Line(value, _) | Trial::Alone(value, _) | Trial::Same(value)) = trial;
    println!("{name}={value}");
    let program = running(place, &[(name, value)]);
    let attached = is_attached(place, &program);
    let shown = place.program(program.pid());
    let (errors, stats) = end(place, program);
    // What the policy in force does not look at is told, whoever says it.
    let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("does not look at")).collect();
    let scheduled = stats["unscheduled"]["attach"] == 0;
    assert!(stats["launches"].as_u64() > Some(0), "{stats}");
    match trial {
        Trial::Shown(_, path, wanted) => {
            let shown = shown.unwrap_or_else(|| panic!("{name}: the daemon does not know it"));
            assert_eq!(shown.pointer(path), Some(wanted), "{name}={value}");
        }
        Trial::Line(_, words) => {
            let [line] = errors[..] else { panic!("{name}={value}: not one line: {errors:?}") };
            assert!(line.starts_with(&format!("xsched: {name}")) && line.contains(words), "{line}");
            assert!(attached && scheduled);
            return;
        }
        Trial::Alone(_, wanted) => {
            assert!(!attached, "{name}={value}");
            assert_eq!(scheduled, *wanted, "{name}={value}: {stats}");
        }
        Trial::Same(_) => assert!(attached && scheduled, "{name}={value}"),
    }
    assert_eq!(errors, [""; 0], "{name}={value}");
}

#[test]
fn variables_of_the_original_have_effect_or_say_what_takes_their_place() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    for (name, trials, wrong) in variables() {
        trials.iter().for_each(|trial| try_variable(&place, name, trial));
        let Some(wrong) = wrong else { continue };
        println!("{name}={wrong}");
        // The library goes on with what holds without it.
        let program = running(&place, &[(name, wrong)]);
        assert_eq!(is_attached(&place, &program), name != "XSCHED_POLICY", "{name}={wrong}");
        let (errors, stats) = end(&place, program);
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.starts_with(&format!("xsched: {name}")) && errors.contains("use "), "{errors}");
        assert_eq!(stats["unscheduled"]["attach"], 0, "{name}={wrong}: {stats}");
        // The command refuses it.
        let mut command = place.xsched(&["run", "--", "/bin/false"]);
        command.env(name, wrong);
        let (code, _, errors) = said(command);
        assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.starts_with(&format!("xsched: {name}")) && errors.contains("use "), "{errors}");
    }
    all_are_tried("Variables", variables().iter().map(|(name, ..)| *name));
}

/// A value that is said in three ways, in the words of each: the page's row, what is said, and where `ps` shows it.
struct Said {
    row: &'static str,
    variable: &'static str,
    option: &'static str,
    key: &'static str,
    values: [&'static str; 3],
    path: &'static str,
}

const SAID: [Said; 9] = [
    Said {
        row: "priority -255..255",
        variable: "XSCHED_AUTO_XQUEUE_PRIORITY",
        option: "--priority",
        key: "priority",
        values: ["-255", "0", "-77"],
        path: "/groups/0/priority",
    },
    Said {
        row: "priority -256",
        variable: "XSCHED_AUTO_XQUEUE_PRIORITY",
        option: "--priority",
        key: "priority",
        values: ["-256", "-256", "-256"],
        path: "/groups/0/priority",
    },
    Said {
        row: "utilization 0..100",
        variable: "XSCHED_AUTO_XQUEUE_UTILIZATION",
        option: "--utilization",
        key: "utilization",
        values: ["0", "100", "30"],
        path: "/hints/utilization",
    },
    Said {
        row: "timeslice 100..10000000",
        variable: "XSCHED_AUTO_XQUEUE_TIMESLICE",
        option: "--timeslice",
        key: "timeslice",
        values: ["100", "10000000", "900"],
        path: "/hints/timeslice",
    },
    Said {
        row: "deadline",
        variable: "XSCHED_AUTO_XQUEUE_DEADLINE",
        option: "--deadline",
        key: "deadline",
        values: ["5000", "none", "700"],
        path: "/hints/deadline",
    },
    Said {
        row: "laxity",
        variable: "XSCHED_AUTO_XQUEUE_LAXITY",
        option: "--laxity",
        key: "laxity",
        values: ["2000:-128:128", "none", "700:-3:3"],
        path: "/hints/laxity",
    },
    Said {
        row: "level 1..3",
        variable: "XSCHED_AUTO_XQUEUE_LEVEL",
        option: "--level",
        key: "level",
        values: ["1", "3", "2"],
        path: "/groups/0/level",
    },
    Said {
        row: "threshold",
        variable: "XSCHED_AUTO_XQUEUE_THRESHOLD",
        option: "--threshold",
        key: "threshold",
        values: ["16", "0", "5"],
        path: "/groups/0/threshold",
    },
    Said {
        row: "batch size",
        variable: "XSCHED_AUTO_XQUEUE_BATCH_SIZE",
        option: "--batch",
        key: "batch",
        values: ["8", "0", "3"],
        path: "/groups/0/batch",
    },
];

/// Waits until `ps` shows a value of a program.
#[track_caller]
fn await_shown(place: &Place, program: &Process, path: &str, wanted: &str) {
    until(&format!("{path} is {wanted}"), || {
        let shown = place.program(program.pid()).and_then(|p| p.pointer(path).cloned());
        shown.is_some_and(|v| v.as_str().map_or(v.to_string(), str::to_owned) == wanted)
    });
}

#[test]
fn values_are_said_by_environment_hint_and_rule() {
    let place = Place::new();
    for Said { row, variable, option, key, values: [by_environment, by_hint, by_rule], path } in SAID {
        println!("{row}");
        let rule = place.join("rule.toml");
        let value = if by_rule.parse::<i64>().is_ok() { by_rule.to_owned() } else { format!("\"{by_rule}\"") };
        std::fs::write(&rule, format!("[[rule]]\nexe = \"*/steady\"\n{key} = {value}\n")).unwrap();
        let _daemon = place.daemon(&["--config", rule.to_str().unwrap()]);
        let told = preloaded(&place, &[(variable, by_environment)]);
        await_shown(&place, &told, path, by_environment);
        let given = preloaded(&place, &[]);
        await_shown(&place, &given, path, by_rule);
        place.ask(&["hint", "--pid", &given.pid().to_string(), option, by_hint]);
        await_shown(&place, &given, path, by_hint);
    }
    all_are_tried("Values", SAID.iter().map(|said| said.row));
}

#[test]
fn priority_minus_256_keeps_a_program_from_running_until_it_has_another_one() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let mut held = preloaded(&place, &[("XSCHED_AUTO_XQUEUE_PRIORITY", "-256")]);
    place.await_state(held.pid(), "suspended");
    let pid = held.pid().to_string();
    // It is alone on the device, and no operator suspended it.
    place.ask(&["resume", "--pid", &pid]);
    place.await_state(held.pid(), "suspended");
    place.ask(&["hint", "--pid", &pid, "--priority", "-255"]);
    held.expect("ready");
    held.progress_after(now_ns());
    place.ask(&["hint", "--pid", &pid, "--priority", "-256"]);
    place.await_state(held.pid(), "suspended");
    place.ask(&["hint", "--pid", &pid, "--priority", "high"]);
    held.progress_after(now_ns());
    let (errors, stats) = end(&place, held);
    assert_eq!((errors.as_str(), &stats["unscheduled"]["attach"]), ("", &json!(0)));
}

#[test]
fn utilization_moves_the_shares_of_running_programs_between_0_and_100() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "up"]);
    let [first, second] = [running(&place, &[]), running(&place, &[])];
    let hint = |of: &Process, value: &str| {
        place.ask(&["hint", "--pid", &of.pid().to_string(), "--utilization", value]);
    };
    for (ahead, behind) in [(&first, &second), (&second, &first)] {
        hint(ahead, "100");
        hint(behind, "0");
        place.assert_ahead(ahead.pid(), behind.pid(), 300);
    }
    for program in [first, second] {
        end(&place, program);
    }
}

#[test]
fn policies_of_the_original_are_in_force_by_their_names() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = running(&place, &[]);
    let mut tried = Vec::new();
    for (name, row) in rows("Policies") {
        quiet(original(&place, "xcli", &["policy", "-s", "-n", &name]));
        let ours = quiet(original(&place, "xcli", &["policy", "-q"]));
        assert!(row.ends_with(&format!("| `{}` |", ours.trim())), "{row}: {ours}");
        let before = place.launches(program.pid());
        until("the program gets on", || place.launches(program.pid()) > before);
        tried.push(name);
    }
    // All eleven of them.
    let all = ["HPF", "HHPF", "CHPF", "UP", "PUP", "SPUP", "KEDF", "LAX", "AWF", "CFS", "MLFQ"];
    assert_eq!(tried, all);
    end(&place, program);
}

/// Functions of the C interface, by header.
const FUNCTIONS: [(&str, &[&str]); 5] = [
    (
        "hint.h",
        &[
            "XHintSetScheduler",
            "XHintPriority",
            "XHintUtilization",
            "XHintTimeslice",
            "XHintLaxity",
            "XHintDeadline",
            "XHintKDeadline",
        ],
    ),
    (
        "xqueue.h",
        &[
            "XQueueCreate",
            "XQueueDestroy",
            "XQueueGet",
            "XQueueSetPreemptLevel",
            "XQueueSetLaunchConfig",
            "XQueueSubmit",
            "XQueueWait",
            "XQueueWaitAll",
            "XQueueQuery",
            "XQueueSuspend",
            "XQueueResume",
            "XQueueProfileHwCommandCount",
            "HwQueueDestroy",
            "HwQueueLaunch",
            "HwQueueSynchronize",
            "HwCommandCreateCallback",
            "HwCommandDestroy",
        ],
    ),
    ("cuda/hal.h", &["CudaQueueCreate", "CudaQueueGet"]),
    ("hip/hal.h", &["HipQueueCreate"]),
    ("opencl/hal.h", &["OclQueueCreate"]),
];

/// FUNCTIONS ARE TO BE TRIED HERE: a call of each, once the C interface (`include/xsched/xqueue.h`) is in the tree. What an
/// unchanged program has instead is tried by `commands_named_on_the_page_are_accepted`. Where the headers are, they must
/// declare what the page names.
#[test]
fn functions_of_the_original_are_on_the_page_and_declared_where_there_are_headers() {
    all_are_tried("Functions", FUNCTIONS.iter().flat_map(|(_, names)| names.iter().copied()));
    let place = Place::new();
    let include = markdown::root().join("include");
    for (header, names) in FUNCTIONS {
        if !include.join("xsched").join(header).is_file() {
            xsched_e2e::skipped(&format!("functions of xsched/{header}: there is no such header"));
            continue;
        }
        let pointers: String = names.iter().map(|name| format!("(void *){name}, ")).collect();
        let source = place.join("names.c");
        let text = format!("#include <xsched/{header}>\nvoid *const names[] = {{ {pointers}0 }};\n");
        std::fs::write(&source, text).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I"]).arg(&include).arg(&source);
        cc.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let done = finish(cc.spawn().unwrap(), xsched_e2e::TIMEOUT);
        assert!(done.status.success(), "{header}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
