//! Pages of the guide as they stand: the commands of each in one shell on the simulated device, and the resulting screens.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use xsched_e2e::{Place, Process, TIMEOUT, beside, until};

/// Framework that calls the simulated device as others call a vendor's library, and the two programs.
const FILES: [(&str, &str); 3] = [
    ("device.py", include_str!("../../../examples/tour/device.py")),
    ("serve.py", include_str!("../../../examples/tour/serve.py")),
    ("train.py", include_str!("../../../examples/tour/train.py")),
];

/// User and group `nobody`, and another user that needs no account.
const NOBODY: u32 = 65_534;
const COLLEAGUE: u32 = 12_345;

/// Path below the root of the repository.
fn root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap().join(name)
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
    /// Starts a shell in a folder: the home of its user. The command has the environment of a place.
    fn new(mut command: Command, home: &Path, bin: &Path) -> Shell {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.current_dir(home).env("HOME", home).env("PATH", path).env("COLUMNS", "120");
        command.env("SIMDEV_LIBRARY", bin.join("libsimdev.so"));
        command.env_remove("XSCHED_STATS").env_remove("XDG_CONFIG_HOME");
        // As with the wheel, and with an installed copy.
        command.env("PYTHONPATH", root("python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("PKG_CONFIG_PATH", home.join("usr/share/pkgconfig"));
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
                // Remarks about a busy machine, which are not in the page, and what a refused program says at some time.
                Ok(line) if line.contains(": note: ") || line.contains("until the daemon takes it: refused") => {}
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

/// Names in a page for values that differ from run to run.
struct Names {
    /// User of the shell: `anna`.
    uid: u32,
    user: String,
    home: PathBuf,
    bin: PathBuf,
    /// Place of the configuration, where the page has the machine's instead.
    configuration: Option<String>,
    numbers: BTreeMap<String, String>,
}

impl Names {
    fn new(uid: u32, home: PathBuf, bin: PathBuf) -> Names {
        Names { uid, user: name_of(uid), home, bin, configuration: None, numbers: BTreeMap::new() }
    }

    /// Adds the present programs of the user, in the order of their start.
    fn see(&mut self, place: &Place) {
        let Some(ps) = place.ps() else { return };
        self.numbers.insert("4700".into(), ps["daemon"]["pid"].to_string());
        let all = ["programs", "refused"].into_iter().flat_map(|list| ps[list].as_array().unwrap());
        let mut programs: Vec<&Value> = all.filter(|program| program["uid"] == self.uid).collect();
        programs.sort_by_key(|p| (p["name"].as_str().map(str::to_owned), p["pid"].as_u64()));
        for program in programs {
            let pid = program["pid"].to_string();
            let next = (4711..).find(|n| !self.numbers.contains_key(&n.to_string())).unwrap();
            if !self.numbers.values().any(|known| *known == pid) {
                self.numbers.insert(next.to_string(), pid);
            }
        }
    }

    /// Line of the page in the form in which it is typed here.
    fn typed(&self, text: &str) -> String {
        let text = self.numbers.iter().fold(text.to_owned(), |text, (name, here)| text.replace(name, here));
        text.replace("sleep 60", "sleep 0.1")
            .replace("timeout 1 ", "timeout 0.3 ")
            // A look may be taken several times.
            .replace("xsched trace --last 2s\n", "rm -f xsched.pftrace; xsched trace --last 2s\n")
            .replace("[limits.users.anna]", &format!("[limits.users.{}]", self.user))
            .replace("user = \"anna\"", &format!("user = \"{}\"", self.user))
            .replace("/usr/share/doc/xsched/examples", &root("examples").display().to_string())
    }

    /// Line of this screen in the form in which the page has it.
    fn shown(&self, line: &str) -> String {
        let line = self.numbers.iter().fold(line.to_owned(), |line, (name, here)| {
            let word = |w: &str| w.trim_matches(|c: char| !c.is_alphanumeric()) == here;
            line.split_inclusive(' ').map(|w| if word(w) { w.replace(here, name) } else { w.to_owned() }).collect()
        });
        let words: Vec<String> =
            line.split(' ').map(|w| if w == self.user { "anna".into() } else { w.to_owned() }).collect();
        let line = words.join(" ").replace(&format!("users.{}.", self.user), "users.anna.");
        let line = line.replace(&format!("user {} ", self.uid), "user 1000 ");
        let line = line.replace(&format!("user {}:", self.uid), "user 1000:");
        let line = match &self.configuration {
            Some(path) => line.replace(path, "/etc/xsched/config.toml"),
            None => line,
        };
        let line = line.replace(&self.home.display().to_string(), "/home/anna");
        let in_names = self.home.display().to_string().trim_start_matches('/').replace('/', "-");
        let line = line.replace(&in_names, "home-anna");
        line.replace(&self.bin.display().to_string(), "/usr/lib/xsched").trim_end().to_owned()
    }
}

fn name_of(uid: u32) -> String {
    let output = Command::new("id").args(["-un", &uid.to_string()]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
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

/// Screen without the remark of `trace` on a daemon that was late, which stands there on a busy machine only. `trace.rs` tests the remark.
fn without_remarks(screen: Vec<String>) -> Vec<String> {
    let mut is_remark = false;
    let is_kept = |line: &String| {
        is_remark = line.contains(": the daemon was late to take notice") || is_remark && line.starts_with("  ");
        !is_remark
    };
    screen.into_iter().filter(is_kept).collect()
}

/// Reports whether a block changes nothing that a page shows later, so that it may be run again.
fn only_looks(block: &str) -> bool {
    const LOOKS: [&str; 5] =
        ["xsched ps", "xsched top", "xsched trace --last 2s", "xsched usage", "xsched run --priority high -- timeout"];
    block.lines().all(|line| LOOKS.iter().any(|look| line.starts_with(look)))
}

/// Waits until the programs of a user are under way: each was charged, and the best-effort ones beside others have waited; or it was
/// refused.
fn await_programs(place: &Place, uid: u32, count: usize) {
    until("the programs are under way", || {
        let Some(ps) = place.ps() else { return false };
        let programs = ps["programs"].as_array().unwrap().iter().filter(|p| p["uid"] == uid);
        let groups = programs.filter_map(|p| p["groups"].get(0).map(|g| (p, g)));
        let has_begun = |(p, g): &(&Value, &Value)| {
            let has_waited =
                count == 1 || g["waits"]["count"].as_u64() > Some(20) && g["suspensions"].as_u64() > Some(20);
            g["device_us"].as_u64() > Some(200_000) && (has_waited || p["name"] == "serve.py")
        };
        groups.filter(has_begun).count() + ps["refused"].as_array().unwrap().len() == count
    });
}

/// Page that is played.
struct Player<'a> {
    place: &'a Place,
    name: &'a str,
    names: Names,
    shell: Shell,
    /// Programs that were started and go on.
    started: usize,
    /// Commands that were typed, and those of an administrator that were not.
    commands: usize,
}

impl<'a> Player<'a> {
    /// Prepares a shell of a place's own user.
    fn new(place: &'a Place, name: &'a str) -> Player<'a> {
        let (home, bin) = (place.join(""), beside("xsched").parent().unwrap().to_owned());
        let home = PathBuf::from(home.display().to_string().trim_end_matches('/'));
        Player::with(place, name, place.command("sh", &[]), Names::new(own_uid(), home, bin))
    }

    /// Prepares a shell of another user. There must be a daemon. Needs root.
    fn of_another(place: &'a Place, name: &'a str, uid: u32) -> Player<'a> {
        let command = place.command_of(uid, "sh", &[]);
        let home = place.join(&format!("run-{uid}"));
        Player::with(place, name, command, Names::new(uid, home, place.join("build")))
    }

    fn with(place: &'a Place, name: &'a str, command: Command, names: Names) -> Player<'a> {
        put_files(&names.home);
        let shell = Shell::new(command, &names.home, &names.bin);
        Player { place, name, names, shell, started: 0, commands: 0 }
    }

    /// Runs the commands of a block, and returns the lines on the screen then, in the form in which the page has them.
    fn types(&mut self, text: &str, expected: Option<&[&str]>) -> Vec<String> {
        let typed = self.names.typed(&format!("{text}\n"));
        let names = &self.names;
        let shown = |screen: &[String]| without_remarks(screen.iter().map(|line| names.shown(line)).collect());
        let screen = match expected {
            Some(expected) if only_looks(text) => self.shell.shows(&typed, |screen| is_alike(expected, &shown(screen))),
            _ => self.shell.says(&typed),
        };
        let screen = shown(&screen);
        self.started += text.matches(" &").count();
        if text.contains(" &") {
            await_programs(self.place, self.names.uid, self.started);
            self.names.see(self.place);
        }
        self.started -= text.matches("kill 4712").count();
        screen
    }

    /// Plays the page, and compares what is shown. `service` is called for what an administrator does to the machine.
    ///
    /// With `BLESS=1 cargo test -p xsched-e2e --test tasks` the screens are written into the page, except where it has an `…`.
    fn plays(mut self, mut service: impl FnMut(&Names)) -> (String, usize) {
        let path = root("docs/guide").join(self.name);
        let page = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = page.lines().collect();
        let mut faults = Vec::new();
        let mut blessed: BTreeMap<usize, (usize, Vec<String>)> = BTreeMap::new();
        let mut screen = Vec::new();
        let blocks = blocks(&page);
        for (n, (tags, at)) in blocks.iter().cloned().enumerate() {
            let text = lines[at.clone()].join("\n");
            match tags.as_str() {
                "sh tour" => {
                    let expected = blocks.get(n + 1).filter(|(tags, _)| tags == "text");
                    screen = self.types(&text, expected.map(|(_, at)| &lines[at.clone()]));
                    self.commands += at.len();
                }
                "sh root" => {
                    service(&self.names);
                    self.names.see(self.place);
                    self.commands += at.len();
                }
                // A file of the reader's, which the text before it names.
                "toml" => {
                    let text = self.names.typed(&format!("{text}\n"));
                    std::fs::write(self.names.home.join(".config/xsched/config.toml"), text).unwrap();
                }
                "text" => {
                    if !lines[at.clone()].contains(&"…") {
                        blessed.insert(at.start, (at.end, screen.clone()));
                    }
                    if !is_alike(&lines[at.clone()], &screen) {
                        faults.push(format!("{}:{}:\n{}", self.name, at.start, unlike(&lines[at.clone()], &screen)));
                    }
                }
                _ => {}
            }
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, with_screens(&lines, &blessed)).unwrap();
        } else {
            assert!(faults.is_empty(), "{}", faults.join("\n\n"));
        }
        (page, self.commands)
    }
}

/// Puts the two programs into a home.
fn put_files(home: &Path) {
    for (name, text) in FILES {
        std::fs::write(home.join(name), text).unwrap();
    }
    std::fs::create_dir_all(home.join(".config/xsched")).unwrap();
}

/// Shapes of a screen and of the lines of the page, for an error message.
fn unlike(page: &[&str], screen: &[String]) -> String {
    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>().join("\n");
    let page: Vec<String> = page.iter().map(|line| (*line).to_owned()).collect();
    format!("{}\nis shown as\n{}", shapes(screen), shapes(&page))
}

/// Page with other screens: from their first lines to behind their last ones.
fn with_screens(lines: &[&str], screens: &BTreeMap<usize, (usize, Vec<String>)>) -> String {
    let (mut out, mut n) = (String::new(), 0);
    while n <= lines.len() {
        if let Some((end, screen)) = screens.get(&n) {
            screen.iter().for_each(|line| out += &format!("{line}\n"));
            n = *end;
        }
        if let Some(line) = lines.get(n) {
            out += &format!("{line}\n");
        }
        n += 1;
    }
    out
}

#[test]
fn the_thirty_tasks_are_done_as_the_page_says() {
    let place = Place::new();
    place.device();
    xsched_e2e::installed(&place.join("usr"));
    let (page, commands) = Player::new(&place, "tasks.md").plays(|_| {});
    assert_eq!(page.matches("\n### ").count(), 30, "thirty tasks");
    assert!(commands > 40, "{commands}");
}

#[test]
fn the_desktop_user_is_done_in_five_commands() {
    let place = Place::new();
    place.device();
    let (_, commands) = Player::new(&place, "desktop.md").plays(|_| {});
    assert_eq!(commands, 5);
}

/// The package and its unit change the machine: `cargo xtask vm` tries them in a guest. Here the daemon is started as it is.
#[test]
fn the_administrator_is_done_in_five_commands() {
    let place = Place::new();
    place.device();
    let (mut running, mut is_up) = (Vec::new(), false);
    let mut player = Player::new(&place, "administrator.md");
    player.names.configuration = Some(player.names.home.join(".config/xsched/config.toml").display().to_string());
    let (_, commands) = player.plays(|names| {
        if !std::mem::replace(&mut is_up, true) {
            let configuration = names.home.join(".config");
            running.push(place.daemon_with(&[], &[("XDG_CONFIG_HOME", configuration.as_os_str())]));
            running.extend(["serve.py", "train.py"].map(|program| program_of(&place, names.uid, names, program)));
            await_programs(&place, names.uid, 2);
        }
    });
    assert_eq!(commands, 5);
}

#[test]
fn the_colleague_on_a_shared_node_is_done_in_five_commands() {
    if own_uid() != 0 {
        return xsched_e2e::skipped("the page on a shared node: needs root, to run programs of two users");
    }
    let place = Place::new();
    place.device();
    let _daemon = place.daemon(&[]);
    let player = Player::of_another(&place, "shared-node.md", NOBODY);
    let _colleague = program_of(&place, COLLEAGUE, &player.names, "serve.py");
    await_programs(&place, COLLEAGUE, 1);
    let (_, commands) = player.plays(|_| {});
    assert_eq!(commands, 5);
}

/// Starts one of the two programs, which lie in the home of the shell's user.
fn program_of(place: &Place, uid: u32, names: &Names, program: &str) -> Process {
    let file = names.home.join(program);
    let args = [file.to_str().unwrap()];
    let mut command = if uid == own_uid() {
        place.run_command(&[], "python3".as_ref(), &args)
    } else {
        place.run_command_of(uid, &[], "python3".as_ref(), &args)
    };
    command.env("SIMDEV_LIBRARY", names.bin.join("libsimdev.so"));
    Process::start(command)
}
