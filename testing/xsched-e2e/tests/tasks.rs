//! `docs/guide/tasks.md` as it stands: its commands in one shell on the simulated device, and the resulting screens.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use xsched_e2e::{Place, TIMEOUT, beside, until};

/// Framework that calls the simulated device as others call a vendor's library, and the two programs.
const FILES: [(&str, &str); 3] = [
    ("device.py", include_str!("../../../examples/tour/device.py")),
    ("serve.py", include_str!("../../../examples/tour/serve.py")),
    ("train.py", include_str!("../../../examples/tour/train.py")),
];

/// Path of the page.
fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/tasks.md")
}

/// Blocks between ``` of the page, with the words after the first ```, and their lines.
fn blocks(page: &str) -> Vec<(String, std::ops::Range<usize>)> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (n, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(tags), None) => open = Some((tags.to_owned(), n + 1)),
            (Some(_), Some((tags, first))) => found.push((tags, first..n)),
            (None, still) => open = still,
        }
    }
    found
}

/// Shell that runs blocks of commands.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn new(place: &Place) -> Shell {
        let mut command = place.command("sh", &[]);
        let path = format!("{}:{}", beside("xsched").parent().unwrap().display(), std::env::var("PATH").unwrap());
        command.current_dir(place.join("")).env("PATH", path).env("SIMDEV_LIBRARY", beside("libsimdev.so"));
        command.env("COLUMNS", "120").env_remove("XSCHED_STATS").env_remove("XDG_CONFIG_HOME");
        // Processes that the shell starts end with it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "exec 2>&1").unwrap();
        Shell { child, stdin, lines }
    }

    /// Runs a block that only shows something, again and again until the screen has the lines of the page: the program on the device
    /// changes all the time.
    fn shows(&mut self, block: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut said = Vec::new();
        // If it never does, the last screen shows the reason.
        xsched_e2e::so_within(std::time::Duration::from_secs(5), || {
            said = self.says(block);
            wanted(&said)
        });
        said
    }

    /// Runs a block, and returns the lines on the screen then.
    fn says(&mut self, block: &str) -> Vec<String> {
        const END: &str = "--- that was the block ---";
        writeln!(self.stdin, "{block}\necho '{END}'").unwrap();
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(2 * TIMEOUT) {
                Ok(line) if line == END => return said,
                // Remarks about a busy machine, which are not in the page.
                Ok(line) if line.contains(": note: ") => {}
                Ok(line) => said.push(line),
                Err(_) => panic!("{block}: no end after {said:#?}"),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Names in the page for values that differ from run to run.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Adds the present programs, in the order of their start.
    fn see(&mut self, place: &Place) {
        let Some(ps) = place.ps() else { return };
        self.0.insert("4700".into(), ps["daemon"]["pid"].to_string());
        let mut programs: Vec<&Value> = ps["programs"].as_array().unwrap().iter().collect();
        programs.sort_by_key(|p| (p["name"].as_str().map(str::to_owned), p["pid"].as_u64()));
        for program in programs {
            let pid = program["pid"].to_string();
            let next = (4711..).find(|n| !self.0.contains_key(&n.to_string())).unwrap();
            if !self.0.values().any(|known| *known == pid) {
                self.0.insert(next.to_string(), pid);
            }
        }
    }

    /// Line of the page in the form in which it is typed here.
    fn typed(&self, text: &str) -> String {
        let text = self.0.iter().fold(text.to_owned(), |text, (name, here)| text.replace(name, here));
        text.replace("sleep 60", "sleep 0.1")
            .replace("timeout 1 ", "timeout 0.3 ")
            // A look may be taken several times.
            .replace("xsched trace ", "rm -f xsched.pftrace; xsched trace ")
            .replace("[limits.users.anna]", &format!("[limits.users.{}]", user()))
    }

    /// Line of this screen in the form in which the page has it.
    fn shown(&self, place: &Place, line: &str) -> String {
        let line = self.0.iter().fold(line.to_owned(), |line, (name, here)| {
            let word = |w: &str| w.trim_matches(|c: char| !c.is_alphanumeric()) == here;
            line.split_inclusive(' ').map(|w| if word(w) { w.replace(here, name) } else { w.to_owned() }).collect()
        });
        let folder = place.join("").display().to_string();
        let bin = beside("xsched").parent().unwrap().display().to_string();
        let words: Vec<String> =
            line.split(' ').map(|w| if w == user() { "anna".into() } else { w.to_owned() }).collect();
        let line = words.join(" ").replace(&format!("users.{}.", user()), "users.anna.");
        line.replace(folder.trim_end_matches('/'), "/home/anna").replace(&bin, "/usr/lib/xsched").trim_end().to_owned()
    }
}

fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Shape of a line: its words, which are equal each time. Figures with their units, and states that change all the time, are replaced.
fn shape(line: &str) -> String {
    const UNITS: [&str; 10] = ["ms", "s", "µs", "us", "%", "GiB", "MiB", "m", "h", "d"];
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        // A time in ms may begin in the same way.
        let is_fraction =
            word.split_once('.').is_some_and(|(_, digits)| digits.starts_with(|c: char| c.is_ascii_digit()));
        let is_name =
            word.starts_with("47") && word.len() >= 4 && !is_fraction || ["sim:0", "P50", "P99"].contains(&word);
        let is_figure = word == "-" || word.chars().any(|c| c.is_ascii_digit());
        let is_bar = word.chars().all(|c| ('▁'..='█').contains(&c));
        let word = match word {
            "idle" | "running" | "ready" => "#",
            word if is_bar || UNITS.contains(&word) => continue,
            _ if is_figure && !is_name => "#",
            word => word,
        };
        if word != "#" || words.last() != Some(&"#") {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Reports whether the screen has the lines of the page; a line of the page that is `…` stands for any lines.
fn is_alike(page: &[&str], screen: &[String]) -> bool {
    match page.split_first() {
        None => screen.is_empty(),
        Some((&"…", rest)) => (0..=screen.len()).any(|n| is_alike(rest, &screen[n..])),
        Some((line, rest)) => {
            screen.split_first().is_some_and(|(s, more)| shape(s) == shape(line) && is_alike(rest, more))
        }
    }
}

/// Reports whether a block changes nothing, so that it may be run again.
fn only_looks(block: &str) -> bool {
    block.lines().all(|line| {
        ["xsched ps", "xsched top", "xsched trace", "xsched usage"].iter().any(|look| line.starts_with(look))
    })
}

/// Waits until the programs of a block are under way: each was charged, and the best-effort ones have waited.
fn await_programs(place: &Place, count: usize) {
    until("the programs are under way", || {
        let Some(ps) = place.ps() else { return false };
        let groups = ps["programs"].as_array().unwrap().iter().filter_map(|p| p["groups"].get(0).map(|g| (p, g)));
        let has_begun = |(p, g): &(&Value, &Value)| {
            let has_waited = g["waits"]["count"].as_u64() > Some(20) && g["suspensions"].as_u64() > Some(20);
            g["device_us"].as_u64() > Some(200_000) && (has_waited || p["name"] == "serve.py")
        };
        groups.filter(has_begun).count() == count
    });
}

/// With `BLESS=1 cargo test -p xsched-e2e --test tasks` the screens are written into the page, except where it has an `…`.
#[test]
fn the_twenty_tasks_are_done_as_the_page_says() {
    let page = std::fs::read_to_string(path()).unwrap();
    let lines: Vec<&str> = page.lines().collect();
    let place = Place::new();
    place.device();
    for (name, text) in FILES {
        std::fs::write(place.join(name), text).unwrap();
    }
    let (mut shell, mut names) = (Shell::new(&place), Names::default());
    let mut faults = Vec::new();
    let mut blessed: BTreeMap<usize, (usize, Vec<String>)> = BTreeMap::new();
    let (mut screen, mut done, mut started) = (Vec::new(), 0, 0);
    let blocks = blocks(&page);
    for (n, (tags, at)) in blocks.iter().cloned().enumerate() {
        let text = lines[at.clone()].join("\n");
        match tags.as_str() {
            "sh tour" => {
                let typed = names.typed(&text);
                let expected = blocks.get(n + 1).filter(|(tags, _)| tags == "text").map(|(_, at)| &lines[at.clone()]);
                screen = match expected {
                    Some(expected) if only_looks(&text) => shell.shows(&typed, |screen| {
                        let screen: Vec<String> = screen.iter().map(|line| names.shown(&place, line)).collect();
                        is_alike(expected, &screen)
                    }),
                    _ => shell.says(&typed),
                };
                started += text.matches(" &").count();
                if text.contains(" &") {
                    await_programs(&place, started);
                    names.see(&place);
                }
                started -= text.matches("kill 4712").count();
                done += 1;
            }
            "text" => {
                let screen: Vec<String> = screen.iter().map(|line| names.shown(&place, line)).collect();
                if !lines[at.clone()].contains(&"…") {
                    blessed.insert(at.start, (at.end, screen.clone()));
                }
                if !is_alike(&lines[at.clone()], &screen) {
                    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>().join("\n");
                    let page: Vec<String> = lines[at.clone()].iter().map(|line| (*line).to_owned()).collect();
                    faults.push(format!("line {}:\n{}\nis shown as\n{}", at.start, shapes(&screen), shapes(&page)));
                }
            }
            _ => {}
        }
    }
    if std::env::var_os("BLESS").is_some() {
        let mut out = String::new();
        let mut n = 0;
        while n < lines.len() {
            match blessed.get(&n) {
                Some((end, screen)) => {
                    screen.iter().for_each(|line| out += &format!("{line}\n"));
                    n = *end;
                }
                None => {
                    out += &format!("{}\n", lines[n]);
                    n += 1;
                }
            }
            // An empty block ends where it begins.
            if blessed.get(&n).is_some_and(|(end, _)| *end == n) && n < lines.len() && out.ends_with("```text\n") {
                let (_, screen) = &blessed[&n];
                screen.iter().for_each(|line| out += &format!("{line}\n"));
                out += &format!("{}\n", lines[n]);
                n += 1;
            }
        }
        std::fs::write(path(), out).unwrap();
        return;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert_eq!(page.matches("\n## ").count(), 20, "twenty tasks");
    assert!(done >= 19, "{done}");
}
