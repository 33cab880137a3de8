//! `xsched top` in a real terminal: tmux reads the screen and presses keys. Two programs of the simulated device are listed, sorted,
//! suspended and resumed.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use xsched_e2e::{Place, Process, beside, now_ns, signal, skipped, until};

/// Terminal with a shell that runs a command and then writes how it ended.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Starts a terminal; none where there is no tmux.
    fn new(place: &Place, size: (u32, u32), variables: &[&str], command: &str) -> Option<Terminal> {
        if !Command::new("tmux").arg("-V").output().is_ok_and(|done| done.status.success()) {
            skipped("a terminal with xsched top in it: tmux is not installed");
            return None;
        }
        let terminal = Terminal { socket: place.join("tmux.sock") };
        let (x, y) = (size.0.to_string(), size.1.to_string());
        // The state of the terminal before and after must be equal.
        let script = format!(
            "stty -g > before; {} {} {command}; echo \"ended $?\" > ended; stty -g > after; cmp before after && echo same > same; \
             exec sleep 1000",
            variables.join(" "),
            beside("xsched").display()
        );
        let mut tmux = place.command("tmux", &["-f", "/dev/null", "-u", "-S"]);
        tmux.arg(&terminal.socket).args(["new-session", "-d", "-x", &x, "-y", &y, "-s", "t", "sh", "-c", &script]);
        tmux.env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("TMUX");
        let done = tmux.current_dir(place.join("")).output().expect("tmux runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let done = Command::new("tmux").args(["-u", "-S"]).arg(&self.socket).args(args).env_remove("TMUX").output();
        String::from_utf8_lossy(&done.expect("tmux runs").stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "t"])
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "t"], keys].concat());
    }

    /// Waits until the screen satisfies a condition.
    #[track_caller]
    fn shows(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let mut looks = 0;
        until(what, || {
            screen = self.screen();
            looks += 1;
            if looks % 500 == 499 {
                eprintln!("waiting: {what}\n{screen}");
            }
            wanted(&screen)
        });
        screen
    }

    /// Process id of the command in it.
    fn pid(&self) -> u32 {
        let shell = self.tmux(&["list-panes", "-t", "t", "-F", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("a shell");
        children.trim().parse().expect("its only child")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Result of the command in a terminal, once the terminal is as it was before.
#[track_caller]
fn ended(place: &Place) -> String {
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    until("it ends and the terminal is as before", || read("same") == "same\n");
    read("ended").trim().to_owned()
}

/// Line of a program on the screen.
fn row(screen: &str, pid: u32) -> Option<&str> {
    let pid = pid.to_string();
    let mut lines = screen.lines().skip(2);
    // Below the table, the selected program has another line.
    lines.find(|line| line.split_whitespace().next() == Some(&pid) && line.starts_with(' '))
}

fn shows_state(screen: &str, program: &Process, state: &str) -> bool {
    row(screen, program.pid()).is_some_and(|row| row.contains(&format!(" {state} ")))
}

#[test]
fn top_shows_sorts_suspends_and_resumes_in_a_terminal() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (mut low, high) = place.low_held_by_high();
    let Some(terminal) = Terminal::new(&place, (80, 24), &[], "top") else { return };
    let screen = terminal.shows("both programs", |screen| {
        shows_state(screen, &low, "ready") && shows_state(screen, &high, "running") && screen.contains("0 %")
    });
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(row(&screen, low.pid()).is_some_and(|row| row.contains(" steady ") && row.contains(" low ")), "{screen}");
    let above = |screen: &str, first: u32, second: u32| {
        let at = |pid| row(screen, pid).and_then(|row| screen.find(row));
        at(first).zip(at(second)).is_some_and(|(first, second)| first < second)
    };
    terminal.shows("the busy one first", |screen| above(screen, high.pid(), low.pid()));
    terminal.press(&["s"]);
    terminal
        .shows("the waiting one first", |screen| screen.contains("by wait") && above(screen, low.pid(), high.pid()));
    // The selection stays with its program: the busy one, which is now second.
    terminal.press(&["Home", "Down", "x"]);
    let question = format!("{} steady: suspend, until it is resumed? y = yes", high.pid());
    terminal.shows("the question", |screen| screen.contains(&question));
    assert_ne!(place.group(high.pid()).expect("a group")["state"], "suspended", "nothing happens before the answer");
    terminal.press(&["y"]);
    terminal
        .shows("suspended", |screen| shows_state(screen, &high, "suspended") && shows_state(screen, &low, "running"));
    low.progress_after(now_ns());
    terminal.press(&["r"]);
    terminal.shows("the question", |screen| screen.contains("resume? y = yes"));
    terminal.press(&["y"]);
    terminal.shows("resumed", |screen| shows_state(screen, &high, "running") && shows_state(screen, &low, "ready"));
    terminal.press(&["c", "l"]);
    terminal.shows("the question", |screen| screen.contains("class low? y = yes"));
    terminal.press(&["y"]);
    until("its class is low", || place.program(high.pid()).is_some_and(|program| program["class"] == "low"));
    terminal.press(&["?"]);
    terminal.shows("help", |screen| screen.contains("Keys and columns"));
    terminal.press(&["Space", "q"]);
    assert_eq!(ended(&place), "ended 0");
    assert!(!terminal.screen().contains("PROGRAM"), "the screen from before is back");
}

#[test]
fn top_goes_on_without_colours_in_a_wider_terminal_and_restores_it_on_sigterm() {
    let place = Place::new();
    let daemon = place.daemon(&["--policy", "hpf"]);
    let (low, high) = place.low_held_by_high();
    let Some(terminal) = Terminal::new(&place, (140, 50), &["NO_COLOR=1"], "top --filter steady") else { return };
    let all = |screen: &str| shows_state(screen, &low, "ready") && shows_state(screen, &high, "running");
    terminal.shows("both programs", |screen| all(screen) && screen.contains("LAUNCH/S"));
    let colours = terminal.tmux(&["capture-pane", "-e", "-p", "-t", "t"]);
    assert!(
        !["\x1b[3", "\x1b[4", "\x1b[9"].iter().any(|colour| {
            colours
                .match_indices(colour)
                .any(|(at, _)| colours[at + 3..].starts_with(|c: char| ('0'..='7').contains(&c)))
        }),
        "{colours:?}"
    );
    // The terminal gets narrower: columns without room are left out.
    terminal.tmux(&["resize-window", "-t", "t", "-x", "80", "-y", "24"]);
    terminal.shows("a narrow table", |screen| all(screen) && !screen.contains("LAUNCH/S"));
    // Another daemon replaces the first one.
    drop(daemon);
    terminal.shows("that there is no daemon", |screen| screen.contains("no daemon answers at"));
    let _daemon = place.daemon(&["--policy", "hpf"]);
    terminal.shows("both programs again", |screen| all(screen) && !screen.contains("no daemon"));
    signal(terminal.pid(), Signal::TERM);
    assert_eq!(ended(&place), "ended 143");
}

#[test]
fn top_prints_a_table_where_there_is_no_terminal() {
    let place = Place::new();
    let (code, lines, errors) = Process::start(place.xsched(&["top", "--once"])).wait();
    assert_eq!((code, lines.len()), (3, 0), "{errors}");
    assert!(errors.starts_with("xsched: no daemon answers at "), "{errors}");
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (low, high) = place.low_held_by_high();
    let mut table = String::new();
    until("one waits for the other", || {
        table = place.ask(&["top", "--once", "--sort", "pid"]);
        shows_state(&table, &low, "ready") && shows_state(&table, &high, "running")
    });
    assert!(table.starts_with("xsched top 2 programs, by pid, policy hpf, daemon "), "{table}");
    let row = row(&table, low.pid()).expect("a row");
    assert!(row.contains(" steady "), "what holds it: {row}");
    // A cause and a remedy stand below the table, and where `ps` is asked for the program.
    let reason = format!(
        "{} steady: waits #: steady (high) has the device, and goes first → usual for low; for more: `xsched hint {0} -p high`",
        low.pid()
    );
    let (begin, end) = reason.split_once('#').expect("both halves");
    let tells = |text: &str| {
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        joined.split_once(begin).is_some_and(|(_, rest)| rest.contains(end))
    };
    for words in [&["top", "--once"][..], &["ps", &low.pid().to_string()]] {
        until("it tells why", || tells(&place.ask(words)));
    }
    assert!(!place.ask(&["ps"]).contains(" → "), "nothing was asked for");
    let mut batch = Process::start(place.xsched(&["top", "--batch", "--interval", "200ms", "--filter", "high"]));
    for _ in 0..3 {
        batch.find("a head", |line| line.starts_with("xsched top ").then_some(()));
        let row = batch.find("a row", |line| line.ends_with(" steady").then(|| line.to_owned()));
        assert!(row.trim_start().starts_with(&high.pid().to_string()), "{row}");
    }
    for (args, says) in [
        (&["top", "--interval", "1ms"][..], "xsched: --interval: '1ms' is no interval: use a time from 200 ms to 1 h"),
        (&["top", "--sort", "size"], "xsched: --sort: 'size' is no order: use gpu, wait, priority, "),
        (&["top", "--once", "--batch"], "xsched: the argument '--once' cannot be used with '--batch'"),
    ] {
        let (code, _, errors) = Process::start(place.xsched(args)).wait();
        assert_eq!(code, 2, "{errors}");
        assert!(errors.starts_with(says), "{errors}");
    }
}
