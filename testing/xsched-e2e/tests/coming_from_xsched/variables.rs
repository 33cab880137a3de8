//! Trials of the variables `XSCHED_*`.

use serde_json::{Value, json};
use xsched_e2e::{Gpu, Place, Process, beside};

use crate::{all_are_tried, end, running, said};

/// Trial of a variable: a value, and its expected effect.
enum Trial {
    /// The program's entry in `ps` has this value, at this path.
    Shown(&'static str, &'static str, Value),
    /// One line on stderr has these words, and the program is scheduled as without the variable.
    Line(&'static str, &'static str),
    /// No daemon knows the program. Its launches are scheduled all the same, or they are not, which one line says.
    Alone(&'static str, bool),
    /// The program's streams have no XQueue, and nothing counts their launches.
    Passed(&'static str),
    /// The variable changes nothing.
    Same(&'static str),
}

/// Variables with their trials, and a value of each that makes no sense.
fn variables() -> Vec<(&'static str, Vec<Trial>, Option<&'static str>)> {
    use Trial::*;
    let library = || vec![Line("/lib/libvendor.so", "LD_LIBRARY_PATH")];
    let other = || vec![Line("/lib/libvendor.so", "the platforms here are cuda, hip, opencl, sim, hsa")];
    vec![
        ("XSCHED_SCHEDULER", vec![Same("GLB"), Alone("LCL", true), Alone("APP", false)], Some("ALL")),
        ("XSCHED_POLICY", vec![Alone("HPF", true), Alone("cfs", true)], Some("FIFO")),
        ("XSCHED_AUTO_XQUEUE", vec![Same("ON"), Passed("OFF")], Some("MAYBE")),
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

/// Reports whether the program is known to the daemon.
#[track_caller]
fn is_attached(place: &Place, program: &Process) -> bool {
    place.program(program.pid()).is_some_and(|p| p["groups"].as_array().is_some_and(|g| !g.is_empty()))
}

fn try_variable(place: &Place, name: &str, trial: &Trial) {
    let (Trial::Shown(value, ..)
    | Trial::Line(value, _)
    | Trial::Alone(value, _)
    | Trial::Passed(value)
    | Trial::Same(value)) = trial;
    println!("{name}={value}");
    let program = running(place, &[(name, value)]);
    let attached = is_attached(place, &program);
    let shown = place.program(program.pid());
    let (errors, stats) = end(place, program);
    // A line about hints that the policy in force does not use may come in addition.
    let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("does not look at")).collect();
    let scheduled = stats["unscheduled"]["attach"] == 0;
    assert_eq!(stats["launches"] == 0, matches!(trial, Trial::Passed(_)), "{stats}");
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
            if !wanted {
                let [line] = errors[..] else { panic!("{name}={value}: not one line: {errors:?}") };
                assert!(line.starts_with("xsched: runs unscheduled: ") && line.contains(name), "{line}");
                return;
            }
        }
        Trial::Passed(_) => assert!(shown.is_some() && !attached, "{name}={value}"),
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
        // The library uses the default instead.
        let program = running(&place, &[(name, wrong)]);
        assert_eq!(is_attached(&place, &program), name != "XSCHED_POLICY", "{name}={wrong}");
        let (errors, stats) = end(&place, program);
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.starts_with(&format!("xsched: {name}")) && errors.contains("use "), "{errors}");
        assert_eq!(stats["unscheduled"]["attach"], 0, "{name}={wrong}: {stats}");
        // The command refuses the value.
        let mut command = place.xsched(&["run", "--", "/bin/false"]);
        command.env(name, wrong);
        let (code, _, errors) = said(command);
        assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.starts_with(&format!("xsched: {name}")) && errors.contains("use "), "{errors}");
    }
    all_are_tried("Variables", variables().iter().map(|(name, ..)| *name));
}

/// Tried on the platforms that stand-ins and PoCL offer here; the programs check their results.
#[test]
fn variables_that_leave_streams_without_a_queue_change_no_result() {
    const OFF: (&str, &str) = ("XSCHED_AUTO_XQUEUE", "OFF");
    {
        let place = Place::new();
        let _daemon = place.daemon(&[]);
        let mut command = place.command(place.opencl_program("passes_cl"), &[]);
        command.env("LD_PRELOAD", beside("libxsched.so")).env(OFF.0, OFF.1);
        let mut program = Process::start(command);
        program.expect("ready");
        program.tell("turns 20");
        program.expect("turns");
        assert!(place.program(program.pid()).is_some() && !is_attached(&place, &program));
        program.tell("finish");
        program.expect("finish");
        program.tell("end");
        let pid = program.pid();
        assert_eq!(program.finish(), ["ok"]);
        assert_eq!(place.stats_of(pid)["launches"], 0);
    }
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&[]);
    for name in ["streams", "graphs", "events", "capture"] {
        let program = gpu.program(name);
        let lines = gpu.bare(&program, &[]).wait();
        let mut command = gpu.place.run_command(&[], &program, &[]);
        command.env(OFF.0, OFF.1);
        let process = gpu.with_driver(command);
        let pid = process.pid();
        let (code, under, errors) = process.wait();
        assert_eq!((code, &under), (0, &lines.1), "{name}: {errors}");
        assert_eq!(gpu.place.stats_of(pid)["launches"], 0, "{name}");
    }
}
