//! Bad input from a generator with a seed: options, configuration, environments, files and signals. Whatever is given, the command ends by
//! itself with an exit code that it documents, and says one clear line if it refuses; it never panics.
//!
//! A seed of your own: `XSCHED_TEST_SEED=7 cargo test -p xsched-cli --test generated`. A failure prints the seed and the command.

mod common;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::Place;

/// Time after which a command counts as hanging. The slowest takes half a second on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn seed() -> u64 {
    std::env::var("XSCHED_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_127)
}

/// Values that people and programs give by mistake.
fn value(random: &mut Random) -> OsString {
    let texts = [
        "",
        " ",
        "0",
        "-1",
        "-256",
        "256",
        "99999999999999999999",
        "1e400",
        "NaN",
        "inf",
        "0x10",
        "1_000",
        "5 ms",
        "5ms",
        "1,5",
        "½",
        "high ",
        "HIGH",
        "nice",
        "--",
        "-",
        "~",
        "/",
        "/dev/null",
        "/does/not/exist",
        "../..",
        ".",
        "*",
        "a\nb",
        "a\tb",
        "\u{1b}[31mred",
        "\u{202e}abc",
        "💥",
        "{}",
        "[]",
        "null",
        "true",
        "a=b",
        "=",
        "k=",
        ",",
        "low,high",
        ":",
        "1:2:3",
        "'",
        "\"",
        "$(id)",
        "%s%n",
    ];
    match random.below(texts.len() + 2) {
        0 => OsString::from_vec(b"\xff\xfe".to_vec()),
        1 => "x".repeat(5_000).into(),
        n => texts[n - 2].into(),
    }
}

/// Ends a command that hangs, and returns the output of one that does not.
fn output(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The pipes are read by threads, so that no command waits for room.
    let read = |mut pipe: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    };
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("hangs: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Ends with one of these exit codes. One that refuses (2, 3) says so in one line of at most so many characters.
fn ends(command: Command, codes: &[i32]) -> i32 {
    let shown = format!("seed {}: {command:?}", seed());
    let out = output(command);
    let said = String::from_utf8_lossy(&out.stderr);
    let code = out.status.code();
    assert!(!said.contains("panicked") && out.status.signal().is_none(), "{shown}: {} {said}", out.status);
    let code = code.unwrap();
    assert!(codes.contains(&code), "{shown}: exit code {code}, not of {codes:?}: {said}");
    if code == 2 || code == 3 {
        let mut lines = said.lines().filter(|line| !line.starts_with("xsched: warning"));
        let line = lines.next().unwrap_or_else(|| panic!("{shown}: refuses without a word"));
        assert!(lines.next().is_none(), "{shown}: more than a line: {said}");
        assert!(line.starts_with("xsched") && (20..1_000).contains(&line.chars().count()), "{shown}: {line}");
        assert!(!line.chars().any(char::is_control), "{shown}: control characters: {line:?}");
    }
    code
}

/// Options with a value, by the command's own help.
fn options_of(place: &Place, command: &[&str]) -> Vec<String> {
    let help = place.xsched(&[command, &["--help"]].concat()).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    let option = |line: &str| {
        let at = line.trim_start().find("--")?;
        let (name, rest) = line.trim_start()[at..].split_once(' ')?;
        rest.trim_start().starts_with('<').then(|| name.trim_end_matches([',', '=']).to_owned())
    };
    text.lines().filter(|line| line.trim_start().starts_with('-')).filter_map(option).collect()
}

#[test]
fn options() {
    let (place, mut random) = (Place::new(), Random(seed()));
    let commands: [&[&str]; 20] = [
        &["run"],
        &["ps"],
        &["usage"],
        &["top"],
        &["trace"],
        &["policy", "set"],
        &["policy", "get"],
        &["hint"],
        &["suspend"],
        &["resume"],
        &["freeze"],
        &["thaw"],
        &["doctor"],
        &["check"],
        &["demo"],
        &["compare"],
        &["config", "check"],
        &["config", "show"],
        &["daemon"],
        &["completions"],
    ];
    let known = commands.map(|command| options_of(&place, command));
    assert!(known.iter().map(Vec::len).sum::<usize>() > 60, "{known:?}");
    for _ in 0..90 {
        let at = random.below(commands.len());
        let mut command = place.xsched(commands[at]);
        if random.below(4) > 0 && !known[at].is_empty() {
            // One argument with its value: a value may begin with a dash.
            let mut word = OsString::from(random.pick(&known[at]));
            word.push("=");
            word.push(value(&mut random));
            command.arg(word);
        } else {
            let word = value(&mut random);
            // `run` takes a bare word for the program, with everything after it.
            command.arg(if commands[at] == ["run"] { "--".into() } else { word });
        }
        // A command that is good so far fails here, before it begins its work.
        command.arg("--no-such-option");
        if commands[at] == ["run"] && random.below(2) == 0 {
            command.args(["--", "true"]);
        }
        ends(command, &[2, 3, 127]);
    }
}

/// Configuration that a daemon takes, for mutations.
const CONFIG: &str = "policy = \"hpf\"\nidle_exit = 60\n\n[pool]\nenabled = true\nurgent = \"auto\"\nproven_minutes = 10\n\n\
[class.low]\nweight = 50\n\n[[rule]]\nexe = \"python3\"\npriority = \"low\"\n\n[limits.users.root]\nmax_priority = \"high\"\n";

/// Changes one thing of a text: a line is lost, doubled, cut, or gets another value.
fn mutated(random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = CONFIG.lines().map(|line| line.as_bytes().to_vec()).collect();
    for _ in 0..1 + random.below(3) {
        let at = random.below(lines.len());
        match random.below(5) {
            0 => _ = lines.remove(at),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let end = random.below(lines[at].len() + 1);
                lines[at].truncate(end);
            }
            3 => {
                let key = String::from_utf8_lossy(&lines[at]).split(" =").next().unwrap_or("x").to_owned();
                let quoted = random.below(2) == 0;
                let value = value(random).into_encoded_bytes();
                lines[at] = [
                    key.as_bytes(),
                    b" = ",
                    if quoted { b"\"" } else { b"" },
                    &value,
                    if quoted { b"\"" } else { b"" },
                ]
                .concat();
            }
            _ => lines.insert(at, value(random).into_encoded_bytes()),
        }
    }
    lines.join(&b'\n')
}

#[test]
fn configurations() {
    let (place, mut random) = (Place::new(), Random(seed() ^ 1));
    let (file, mut refused) = (place.join("config.toml"), 0);
    for _ in 0..50 {
        let text = mutated(&mut random);
        std::fs::write(&file, &text).unwrap();
        let shown = String::from_utf8_lossy(&text).into_owned();
        let out = output(place.xsched(&["config", "check", "--config", file.to_str().unwrap()]));
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!said.contains("panicked"), "seed {}: {shown}\n{said}", seed());
        let code = out.status.code();
        assert!(matches!(code, Some(0..=2)), "seed {}: {code:?}: {shown}\n{said}", seed());
        if code == Some(2) {
            refused += 1;
            let line = said.lines().next().unwrap_or_default();
            assert!(line.len() > 20 && line.len() < 1_000, "seed {}: {shown}\n{said}", seed());
        }
    }
    assert!(refused > 10, "{refused} of 50 are refused: the generator is too kind");
}

#[test]
fn environments() {
    let (place, mut random) = (Place::new(), Random(seed() ^ 2));
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/environment.md")).unwrap();
    let mut names: Vec<&str> = page.split('`').filter(|word| word.starts_with("XSCHED_")).collect();
    names.retain(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    assert!(names.len() > 30, "{names:?}");
    for _ in 0..40 {
        let commands: [&[&str]; 4] =
            [&["run", "--no-daemon", "--", "true"], &["ps"], &["config", "show"], &["policy", "get"]];
        let command = commands[random.below(commands.len())];
        let mut command = place.xsched(command);
        for _ in 0..1 + random.below(2) {
            let value = value(&mut random);
            command.env(random.pick(&names), value);
        }
        ends(command, &[0, 2, 3]);
    }
}

#[test]
fn files() {
    let place = Place::new();
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(place.join("folder")).unwrap();
    std::fs::write(place.join("empty"), "").unwrap();
    std::fs::write(place.join("bytes"), [0, 159, 146, 150].repeat(1_000)).unwrap();
    std::fs::write(place.join("numbers"), "[1, 2, 3]").unwrap();
    std::fs::write(place.join("big"), vec![b'='; 3 << 20]).unwrap();
    std::os::unix::fs::symlink(place.join("loop"), place.join("loop")).unwrap();
    for name in ["folder", "empty", "bytes", "numbers", "big", "loop", "missing"] {
        let file = path(name);
        ends(place.xsched(&["compare", "--from", &file, "--svg", &path("out.svg")]), &[2]);
        ends(place.xsched(&["config", "check", "--config", &file]), if name == "empty" { &[0] } else { &[2] });
        let mut at = place.xsched(&["ps"]);
        at.env("XSCHED_SOCKET", &file);
        ends(at, &[3]);
        ends(place.xsched(&["ps", "--socket", &file]), &[3]);
    }
    for out in ["folder", "missing/file", "loop"] {
        ends(place.xsched(&["compare", "--from", &path("numbers"), "--html", &path(out)]), &[2]);
        ends(place.xsched(&["man", "--dir", &path(out)]), &[0, 2, 3]);
    }
    let long = path(&"s".repeat(200));
    ends(place.xsched(&["ps", "--socket", &long]), &[2, 3]);
    ends(place.xsched(&["run", "--no-daemon", "--", &path("folder")]), &[126, 127, 2, 3]);
    ends(place.xsched(&["run", "--no-daemon", "--", &path("bytes")]), &[126, 127, 2, 3]);
}

#[test]
fn signals() {
    let place = Place::new();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        // `run` becomes the program: a signal ends that as it would without xsched.
        let script = format!("kill -{signal} $$; sleep 100");
        let out = output(place.xsched(&["run", "--no-daemon", "--", "sh", "-c", &script]));
        assert_eq!(out.status.signal(), Some(number), "{}", String::from_utf8_lossy(&out.stderr));
        // A reader that goes away ends a command without a word.
        let mut piped = place.command(std::path::Path::new("sh"), &[]);
        piped.args(["-c", "\"$0\" man xsched-run | head -c 1 >/dev/null", env!("CARGO_BIN_EXE_xsched")]);
        let out = output(piped);
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
