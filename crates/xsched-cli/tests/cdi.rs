//! `xsched cdi`: the file that engines read belongs to the command, and the hook that engines run never stops a container.

mod common;

use std::io::Write;
use std::process::{Output, Stdio};

use common::Place;

fn cdi(place: &Place, words: &[&str]) -> Output {
    // Any file serves as the library.
    let library = place.join("libxsched.so");
    std::fs::write(&library, "").unwrap();
    let mut command = place.xsched(&["cdi", "generate", "--output"]);
    command.arg(place.join("cdi")).args(words).env("XSCHED_PRELOAD", library).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_file_is_written_checked_and_removed() {
    let place = Place::new();
    let file = place.join("cdi/xsched.dev-class.json");
    let run = |words: &[&str]| {
        let Output { status, stdout, stderr } = cdi(&place, words);
        (status.code().unwrap(), text(&stdout) + &text(&stderr))
    };
    let (code, said) = run(&["--check"]);
    assert!(code == 3 && said.contains("there is no"), "{said}");
    assert!(!file.exists());
    let (code, said) = run(&[]);
    assert!(code == 0 && said.contains("--device xsched.dev/class=low"), "{said}");
    assert!(said.contains("engines look into /etc/cdi and /var/run/cdi"), "{said}");
    let first = std::fs::read_to_string(&file).unwrap();
    assert!(first.contains("XSCHED_SOCKET=/run/xsched/xsched.sock") && !first.contains("LD_PRELOAD"), "{first}");
    assert_eq!(run(&["--check"]).0, 0);
    assert_eq!(run(&["--check", "--socket", "/srv/x/d.sock"]).0, 3);
    assert_eq!(run(&["--socket", "/srv/x/d.sock"]).0, 0);
    let second = std::fs::read_to_string(&file).unwrap();
    assert!(second.contains("XSCHED_SOCKET=/run/xsched/d.sock") && second.contains("\"/srv/x\""), "{second}");
    assert_eq!(std::fs::read_dir(place.join("cdi")).unwrap().count(), 1, "nothing else is left");
    assert_eq!((run(&["--remove"]).0, file.exists()), (0, false));
    assert_eq!(run(&["--remove"]).0, 0);
    assert_eq!(run(&["--socket", "/d.sock"]).0, 2);
    assert_eq!(run(&["--check", "--remove"]).0, 2);
}

#[test]
fn a_file_of_another_owner_stays() {
    let place = Place::new();
    let folder = place.join("cdi");
    let file = folder.join("xsched.dev-class.json");
    std::fs::create_dir(&folder).unwrap();
    for theirs in ["{\"kind\": \"xsched.dev/class\"}", "nonsense"] {
        std::fs::write(&file, theirs).unwrap();
        for words in [&[][..], &["--check"], &["--remove"]] {
            let done = cdi(&place, words);
            assert!(done.status.code() == Some(3) && text(&done.stderr).contains("stays as it is"), "{done:?}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), theirs);
        }
    }
    std::fs::remove_file(&file).unwrap();
    std::fs::write(folder.join("other.yaml"), "kind: xsched.dev/class\n").unwrap();
    let done = cdi(&place, &[]);
    assert!(done.status.code() == Some(3) && text(&done.stderr).contains("other.yaml defines"), "{done:?}");
    assert!(!file.exists());
}

#[test]
fn what_the_file_has_engines_run_is_a_command() {
    let place = Place::new();
    assert!(cdi(&place, &["--socket", place.join("run/d.sock").to_str().unwrap()]).status.success());
    let text_of_it = std::fs::read_to_string(place.join("cdi/xsched.dev-class.json")).unwrap();
    let spec: serde_json::Value = serde_json::from_str(&text_of_it).unwrap();
    let edits = spec["devices"].as_array().unwrap().iter().map(|device| &device["containerEdits"]);
    let hooks = edits.chain([&spec["containerEdits"]]).flat_map(|edits| edits["hooks"].as_array().unwrap());
    let mut run = 0;
    for hook in hooks {
        let words: Vec<&str> = hook["args"].as_array().unwrap()[1..].iter().map(|w| w.as_str().unwrap()).collect();
        let done = place.command(hook["path"].as_str().unwrap().as_ref(), &words).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        // The hook understood its arguments: it fails only at the state of the container.
        assert!(text(&done.stderr).contains("its state cannot be read"), "{done:?}");
        run += 1;
    }
    assert_eq!(run, 6, "five classes, and the end of a container");
}

#[test]
fn the_hook_steps_aside_whatever_it_is_told() {
    let place = Place::new();
    let hook = |words: &[&str], input: &str| {
        let mut command = place.xsched(&["cdi", "hook", "--socket-folder"]);
        command.arg(place.join("run")).args(words);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    };
    for input in ["", "nonsense", "{}", "{\"id\": \"../../x\", \"bundle\": \"/nowhere\"}", "{\"id\": \"abc\"}"] {
        let done = hook(&["--class", "low"], input);
        assert_eq!(done.status.code(), Some(0), "{input}: {done:?}");
        assert!(text(&done.stderr).contains("not scheduled: "), "{input}: {done:?}");
        assert!(done.stdout.is_empty());
    }
    // The container that had an id is recorded, with the reason why it is not scheduled, until it ends.
    let record = place.join("run-containers/abc.json");
    assert!(std::fs::read_to_string(&record).unwrap().contains("cannot be read"));
    assert_eq!(std::fs::read_dir(place.join("run-containers")).unwrap().count(), 1);
    let socket = place.join("run/d.sock");
    let by_option = place.xsched(&["cdi", "list", "--socket"]).arg(&socket).output().unwrap();
    let by_variable = place.xsched(&["cdi", "list"]).env("XSCHED_SOCKET", &socket).output().unwrap();
    for listed in [by_option, by_variable] {
        let listed = text(&listed.stdout);
        assert!(listed.lines().any(|line| line.starts_with("abc ") && line.contains("not scheduled")), "{listed}");
    }
    assert_eq!(hook(&["--ended"], "{\"id\": \"abc\"}").status.code(), Some(0));
    assert!(!record.exists());
}
