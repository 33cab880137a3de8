//! Golden recordings: written and random worlds are played against a daemon over its socket, and every gate word, message and answer that
//! follows from each step is compared with `tests/golden/*.txt`.
//!
//! The recordings are made anew by
//!
//! ```text
//! cargo test -p xsched-daemon --test golden -- --bless
//! ```
//!
//! and only for an intended change of behaviour: each line that differs afterwards is part of the change, and the commit gives the reason.
//! A line that was not meant to change is an error of the daemon.
//!
//! `-- --seeds 40 FOLDER` plays forty other random worlds of each kind and writes them to a folder, so that two builds can be compared in
//! more than the kept recordings: `diff -r` of both folders must find nothing.
//!
//! Needs root, since the changes that a command may make depend on its user.

mod support;

#[path = "golden/parse.rs"]
mod parse;
#[path = "golden/program.rs"]
mod program;
#[path = "golden/random.rs"]
mod random;
#[path = "golden/scripts.rs"]
mod scripts;
#[path = "golden/text.rs"]
mod text;
#[path = "golden/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use program::{be_daemon, be_program};
use random::{KINDS, Kind};
use scripts::{COMMANDS, SCRIPTS};
use world::Disturbed;

/// Head of each recording.
const HEAD: &str = "\
# A line a step: the step | = the answer to a command | words that changed, by program and slot | NAME: messages to a program.
# Words: + granted, - not; Y yields, C contended, X exclusive; b budget_us, l level (1 if not told), n grants, t budget_commands,
# a batch_commands, y yields_to/yields_epoch; be: best-effort programs with time slices on a device. 'gone' words are those that are left.
# Left out: numbers of sessions; numbers of groups, which are by the order of their appearance; stalled and everything else that follows from
# how long something takes; where a job spans devices, X, which lasts for 20 ms after a gate has closed.
";
/// Largest number of attempts to play a world without a disturbance by time.
const TRIES: usize = 20;
/// Number of worlds that are played at a time: each mostly waits for its daemon.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(program::FOLDER) {
        return be_daemon(Path::new(&folder));
    }
    if let Some(socket) = std::env::var_os(program::SOCKET) {
        return be_program(Path::new(&socket));
    }
    if !rustix::process::geteuid().is_root() {
        xsched_testkit::skipped("golden recordings of decisions need root");
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == "--seeds") {
        let [number, folder] = &words[at + 1..] else { panic!("use --seeds NUMBER FOLDER") };
        return play_more(number.parse().expect("a number"), Path::new(folder));
    }
    let blesses = words.iter().any(|word| word == "--bless");
    let (mut lines, mut differing) = (0, 0);
    for (name, recorded) in play_all(usual()) {
        lines += recorded.len();
        if let Err(why) = compare(name, recorded, blesses) {
            differing += 1;
            println!("{why}");
        }
    }
    println!("golden: {lines} lines, {differing} recordings differ");
    if differing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// World to play: name of its recording, its title there, and the function that plays it.
type Play = (&'static str, String, Box<dyn Fn() -> Result<Vec<String>, Disturbed> + Sync>);

/// Worlds that are recorded.
fn usual() -> Vec<Play> {
    let mut plays: Vec<Play> = vec![(COMMANDS.name, COMMANDS.name.to_owned(), Box::new(|| COMMANDS.play()))];
    for script in &SCRIPTS {
        plays.push(("written", script.name.to_owned(), Box::new(|| script.play())));
    }
    for kind in &KINDS {
        for seed in kind.seeds {
            plays.push(random_play(kind, seed));
        }
    }
    plays
}

fn random_play(kind: &'static Kind, seed: u64) -> Play {
    (kind.name, format!("{} {seed}", kind.name), Box::new(move || random::play(kind, seed)))
}

/// Plays this many other random worlds of each kind, and writes them to a folder.
fn play_more(n: u64, folder: &Path) -> ExitCode {
    std::fs::create_dir_all(folder).unwrap();
    let seeds = 1_000..1_000 + n;
    let plays = KINDS.iter().flat_map(|kind| seeds.clone().map(|seed| random_play(kind, seed))).collect();
    for (name, lines) in play_all(plays) {
        println!("{name}: {} lines", lines.len());
        std::fs::write(folder.join(name), lines.join("\n") + "\n").unwrap();
    }
    ExitCode::SUCCESS
}

/// Plays worlds, some at a time, and returns the lines of each recording.
fn play_all(plays: Vec<Play>) -> BTreeMap<&'static str, Vec<String>> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); plays.len()]));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((at, (_, title, play))) = nth(&plays, next.fetch_add(1, SeqCst)) {
                    let lines = undisturbed(title, play);
                    all.lock().unwrap()[at] = lines;
                }
            });
        }
    });
    let mut recordings: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for ((name, title, _), lines) in plays.iter().zip(all.into_inner().unwrap()) {
        let recording = recordings.entry(name).or_default();
        recording.push(format!("world {title}"));
        recording.extend(lines);
    }
    recordings
}

fn nth(plays: &[Play], at: usize) -> Option<(usize, &Play)> {
    Some((at, plays.get(at)?))
}

/// Plays a world until no attempt is disturbed by time.
fn undisturbed(title: &str, play: impl Fn() -> Result<Vec<String>, Disturbed>) -> Vec<String> {
    for _ in 0..TRIES {
        match play() {
            Ok(lines) => return lines,
            Err(Disturbed(why)) => println!("{title}: played again: {why}"),
        }
    }
    panic!("{title}: the machine is too busy: each of {TRIES} times the world was disturbed");
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"))
}

/// Compares lines with a recording, or records them.
///
/// # Errors
/// The first line that differs, in both versions, and lines before it.
fn compare(name: &str, lines: Vec<String>, blesses: bool) -> Result<(), String> {
    let now: Vec<&str> = HEAD.lines().chain(lines.iter().map(String::as_str)).collect();
    if blesses {
        std::fs::write(file(name), now.join("\n") + "\n").unwrap();
        return Ok(());
    }
    let text = std::fs::read_to_string(file(name)).unwrap_or_default();
    let then: Vec<&str> = text.lines().collect();
    let all = 0..now.len().max(then.len());
    let differs = |at: usize| now.get(at) != then.get(at);
    let Some(first) = all.clone().find(|at| differs(*at)) else { return Ok(()) };
    let n = all.filter(|at| differs(*at)).count();
    let before = now[first.saturating_sub(6)..first].join("\n  ");
    let of = |side: &[&str]| side.get(first).copied().unwrap_or("(nothing)").to_owned();
    let actual = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.txt"));
    std::fs::write(&actual, now.join("\n") + "\n").unwrap();
    Err(format!(
        "{name}.txt: {n} lines differ, the first is line {}:\n  {before}\nrecorded:\n  {}\nnow:\n  {}\nall of it now: {}",
        first + 1,
        of(&then),
        of(&now),
        actual.display()
    ))
}
