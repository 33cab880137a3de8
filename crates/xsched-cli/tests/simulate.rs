//! `xsched simulate`: the page of the guide as it stands, the scenarios of the examples, and faults in a file.

mod common;
#[path = "common/markdown.rs"]
mod markdown;

use std::process::Command;

use common::{Place, said};
use markdown::{page, root};

/// The command, in the root of the repository.
fn simulate(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.xsched(&[&["simulate"], arguments].concat());
    command.current_dir(root());
    command
}

/// With `BLESS=1` the screens are written into the page.
#[test]
fn the_page_shows_what_the_command_prints() {
    let place = Place::new();
    let page = page("docs/guide/simulate.md");
    let mut lines = page.text.lines();
    let (mut anew, mut played) = (String::new(), 0);
    while let Some(line) = lines.next() {
        anew += &format!("{line}\n");
        if line != "```sh tour" {
            continue;
        }
        let typed = lines.next().expect("a command");
        let words: Vec<&str> = typed.strip_prefix("xsched simulate ").expect(typed).split(' ').collect();
        let screen = said(simulate(&place, &words)).out;
        anew += &format!("{typed}\n```\n\n```text\n{screen}```\n");
        let old = lines.by_ref().skip(3).take_while(|line| *line != "```");
        old.for_each(drop);
        played += 1;
    }
    assert!(played >= 3);
    let path = root().join("docs/guide/simulate.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, anew).unwrap();
    } else {
        assert_eq!(page.text, anew, "BLESS=1 writes the screens into the page");
    }
}

/// `benches/cuda/calibrate.py --write` puts another table into the page.
#[test]
fn the_page_of_calibration_shows_what_its_command_prints() {
    let script = root().join("benches/cuda/calibrate.py");
    let xsched = env!("CARGO_BIN_EXE_xsched");
    let mut command = Command::new("python3");
    command.arg(script).args(["--xsched", xsched, "--check"]);
    let said = said(command);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn every_scenario_of_the_examples_is_played_and_says_what_is_asked() {
    let place = Place::new();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("examples/scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let json = place.join("a.json");
        let said = said(simulate(&place, &[&path.display().to_string(), "--json", &json.display().to_string()]));
        assert_eq!(said.code, Some(0), "{}: {said:?}", path.display());
        assert!(said.out.lines().next().is_some_and(|line| line.contains('?')), "{}: no question", path.display());
        let schema: serde_json::Value =
            serde_json::from_str(&common::said(simulate(&place, &["--schema"])).out).unwrap();
        let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        assert!(jsonschema::is_valid(&schema, &file), "{file}");
        for program in file["runs"].as_array().unwrap().iter().flat_map(|run| run["programs"].as_array().unwrap()) {
            assert!(program["requests"].as_u64() > Some(10), "{}: {program}", path.display());
        }
        names.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    assert!(names.len() >= 10, "{names:?}");
    let text = page("docs/guide/simulate.md").text;
    names.iter().for_each(|name| assert!(text.contains(name.as_str()), "the page does not name {name}"));
}

#[test]
fn the_scenario_of_the_page_is_accepted() {
    let place = Place::new();
    let text = page("docs/guide/simulate.md").text;
    let (_, rest) = text.split_once("```text scenario\n").unwrap();
    let scenario = rest.split("```").next().unwrap().replace("time = \"20s\"", "time = \"3s\"");
    std::fs::write(place.join("a.toml"), scenario).unwrap();
    let said = said(simulate(&place, &[&place.join("a.toml").display().to_string()]));
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn faults_are_told_in_one_line_with_what_was_meant() {
    let place = Place::new();
    let good = "time = \"1s\"\n[[device]]\n[[program]]\nname = \"a\"\nkernels = [{ time = \"1ms\" }]\n";
    let cases = [
        (good.replace("time = \"1s\"", "tiem = \"1s\""), "line 1: unknown key `tiem`: did you mean `time`?"),
        (good.replace("\"1ms\"", "\"soon\""), "line 5: 'soon' is no time: use a time such as 200us"),
        (good.replace("time = \"1s\"\n", ""), "`time` is missing"),
        (good.replace("[[device]]", "[[device]]\npreemption = \"slcies\""), "did you mean `slices`?"),
        (format!("policy = \"hfp\"\n{good}"), "policy: 'hfp' is no policy"),
        (good.replace("name", "class = \"hgih\"\nname"), "program a: 'hgih' is no priority"),
        (format!("{good}[[event]]\nat = \"1ms\"\nkill = \"b\"\n"), "event at 1ms: 'b' is no program: use a"),
        (format!("{good}[[event]]\nat = \"1ms\"\n"), "use one of policy, kill, restart, and program with class"),
        (good.replace("name", "arrivals = { file = \"none\" }\nname"), "program a: none: "),
        (good.replace("name", "memory = 100\nname"), "memory: use up to 80 GiB"),
    ];
    for (text, line) in cases {
        std::fs::write(place.join("a.toml"), text).unwrap();
        said(simulate(&place, &[&place.join("a.toml").display().to_string()])).one_line(2, line);
    }
    said(simulate(&place, &["/no/such/file"])).one_line(2, "/no/such/file: ");
    std::fs::write(place.join("a.toml"), good).unwrap();
    let file = place.join("a.toml").display().to_string();
    said(simulate(&place, &[&file, "--policy", "external"])).one_line(2, "external asks a process");
    said(simulate(&place, &[&file, "--move", "b:gpu1"])).one_line(2, "'b' is no program: use a");
    said(simulate(&place, &[&file, "--move", "gpu1"])).one_line(2, "--move: 'gpu1' names no program: use one such as");
    said(simulate(&place, &[&file, "--priority", "a:hgih"])).one_line(2, "--priority: 'hgih' is no priority");
    let two = [file.as_str(), "--weight", "a:300", "--policy", "hpf", "--policy", "slo"];
    said(simulate(&place, &two)).one_line(2, "--policy: one beside --move, --priority and --weight");
    said(simulate(&place, &[&file, "--json", "/no/such/folder/a"])).one_line(3, "cannot write /no/such/folder/a");
}

#[test]
fn figures_depend_on_the_seed_alone_and_the_trace_has_the_programs() {
    let place = Place::new();
    let scenario = "examples/scenarios/torchrun.toml";
    let trace = place.join("a.pftrace").display().to_string();
    let out = |arguments: &[&str]| said(simulate(&place, &[&[scenario], arguments].concat())).out;
    let first = out(&["--trace", &trace]);
    assert_eq!(first, out(&[]), "machines are played by several threads, in any order");
    assert_ne!(first, out(&["--seed", "2"]));
    let has = |text: &str| {
        let bytes = std::fs::read(&trace).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    assert!(has("device 7") && has("server 3: requests") && has("job 1: requests"));
    // Where the device has no gates of its own, threads wait on the host.
    said(simulate(&place, &["examples/scenarios/long-kernels.toml", "--trace", &trace]));
    assert!(has("solver on device 0") && has("waits at its gate"));
}
