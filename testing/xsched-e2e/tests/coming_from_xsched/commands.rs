//! Trials of `xserver` and `xcli`, and of the policies by their names.

use serde_json::json;
use xsched_e2e::{Place, Process, until};

use crate::{all_are_tried, end, original, queue, quiet, rows, running, said};

/// Starts a server, checks its policy, ends it, and returns its lines on stderr.
fn serves(place: &Place, args: &[&str], policy: &str) -> String {
    let mut server = Process::start(original(place, "xserver", args));
    let pid = server.pid();
    until("the server answers", || {
        assert!(server.has_ended().is_none(), "{}", server.errors());
        place.ps().is_some_and(|ps| ps["daemon"]["pid"] == pid)
    });
    assert_eq!(place.ps().unwrap()["daemon"]["policy"], policy);
    let errors = server.complaints();
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
    // The number of the port has no effect, but must be a valid one all the same.
    assert_eq!(said(original(&place, "xserver", &["HPF", "70000"])).0, Some(2));

    let _daemon = place.daemon(&[]);
    let program = running(&place, &[]);
    let pid = program.pid().to_string();
    let q = queue(&place, program.pid());
    let group = || place.group(program.pid()).unwrap();
    let hints = || place.program(program.pid()).unwrap()["hints"].clone();

    let mut top = Process::start(original(&place, "xcli", &["top"]));
    for _ in 0..2 {
        top.find("a head", |line| line.starts_with("xsched top 1 program, by gpu, policy hpf, daemon").then_some(()));
        top.find("the program", |line| line.ends_with(" steady").then_some(()));
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
    // Hints that a policy does not use are reported, as by our own command.
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
        // The queue has another name once it has a priority of its own.
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
            // The trials above start the daemon and `top`, which goes on; `run` starts a program.
            if ["daemon", "run", "top"].iter().any(|first| words.starts_with(first)) || words.ends_with("--help") {
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
    // All eleven policies.
    let all = ["HPF", "HHPF", "CHPF", "UP", "PUP", "SPUP", "KEDF", "LAX", "AWF", "CFS", "MLFQ"];
    assert_eq!(tried, all);
    end(&place, program);
}
