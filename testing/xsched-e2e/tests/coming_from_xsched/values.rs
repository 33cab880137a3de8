//! Values of a program that can be given in three ways, and two values whose effect is new to users who know only classes.

use serde_json::json;
use xsched_e2e::{Place, Process, now_ns, until};

use crate::{all_are_tried, end, preloaded, running};

/// Value that can be given in three ways, in the words of each: the page's row, the words, and its path in `ps`.
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
    // No other program is on the device, and no operator suspended this one.
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
