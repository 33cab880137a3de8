//! `xsched run --share`, beside a stand-in for NVIDIA's `nvidia-cuda-mps-control`: what is started and ended when, and
//! what programs find in their environment. What MPS then does is not tested here.

mod common;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{Place, Said, said, until};

/// Like NVIDIA's in what this is about: `-f` serves the pipe directory until told to quit, without an option it passes
/// commands on. It notes what happens in a file.
const STAND_IN: &str = r#"#!/bin/sh
pipe=${CUDA_MPS_PIPE_DIRECTORY:?}
if [ "$1" != -f ]; then
    read -r line
    echo "$line" > "$pipe/control"
    exit
fi
test -d "$CUDA_MPS_LOG_DIRECTORY" || exit 1
mkfifo "$pipe/control" || exit 1
exec 3<> "$pipe/control"
echo started >> "$MPS_STAND_IN_NOTES"
while read -r line <&3; do
    test "$line" != quit || break
done
rm "$pipe/control"
echo ended >> "$MPS_STAND_IN_NOTES"
"#;

/// What the programs print.
const SHOW: &str = "echo ${CUDA_MPS_PIPE_DIRECTORY-none} ${CUDA_MPS_CLIENT_PRIORITY-none} ${XSCHED_SHARE-none}";

struct Machine {
    place: Place,
}

impl Machine {
    /// One without any MPS of its own.
    fn new() -> Machine {
        let machine = Machine { place: Place::new() };
        machine.place.stand_in("stand-in.so");
        std::fs::create_dir(machine.place.join("bin")).unwrap();
        for tool in ["sh", "mkfifo", "rm", "cat"] {
            std::os::unix::fs::symlink(Path::new("/bin").join(tool), machine.place.join("bin").join(tool)).unwrap();
        }
        machine
    }

    fn with_mps() -> Machine {
        let machine = Machine::new();
        let file = machine.place.join("bin/nvidia-cuda-mps-control");
        std::fs::write(&file, STAND_IN).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        machine
    }

    fn surround(&self, command: &mut Command) {
        command.env("XSCHED_PRELOAD", self.place.join("stand-in.so")).env("PATH", self.place.join("bin"));
        command.env("MPS_STAND_IN_NOTES", self.place.join("notes"));
        // Nothing answers there, whatever this machine has running.
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.place.join("usual")).env_remove("CUDA_MPS_CLIENT_PRIORITY");
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.place.xsched(&["run"]);
        command.args(options).args(["--", "sh", "-c", script]);
        self.surround(&mut command);
        command
    }

    fn show(&self, options: &[&str]) -> Said {
        said(self.run(options, SHOW))
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(self.place.join("notes")).unwrap_or_default()
    }

    fn configure(&self, text: &str) {
        std::fs::create_dir_all(self.place.join("xsched")).unwrap();
        std::fs::write(self.place.join("xsched/config.toml"), text).unwrap();
    }

    /// A user's own MPS daemon at the usual place.
    fn somebodys_mps(&self) -> Somebodys {
        let pipe = self.place.join("usual");
        std::fs::create_dir_all(&pipe).unwrap();
        let mut command = Command::new(self.place.join("bin/nvidia-cuda-mps-control"));
        self.surround(&mut command);
        command.arg("-f").env("CUDA_MPS_LOG_DIRECTORY", &pipe);
        let child = command.spawn().unwrap();
        until("it has started", || self.notes().contains("started"));
        Somebodys { pipe, child }
    }
}

struct Somebodys {
    pipe: PathBuf,
    child: Child,
}

impl Drop for Somebodys {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that stays until told to end.
struct Staying {
    child: Child,
    stdin: Option<ChildStdin>,
    _stdout: BufReader<ChildStdout>,
    shown: String,
}

impl Staying {
    fn start(machine: &Machine, options: &[&str]) -> Staying {
        let mut command = machine.run(options, &format!("{SHOW}; read -r end"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        stdout.read_line(&mut shown).unwrap();
        Staying { stdin: child.stdin.take(), child, _stdout: stdout, shown: shown.trim().to_owned() }
    }

    fn end(mut self) {
        writeln!(self.stdin.take().unwrap()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn programs_of_one_daemon_share_a_private_mps_that_ends_with_the_last() {
    let machine = Machine::with_mps();
    let first = Staying::start(&machine, &["--share", "spatial", "--mps", "start", "--priority", "high"]);
    let words: Vec<&str> = first.shown.split(' ').collect();
    assert_eq!(words[1..], ["0", "spatial"], "{}", first.shown);
    let pipe = PathBuf::from(words[0]);
    let mut beside = machine.place.socket().into_os_string();
    beside.push(".mps");
    assert!(pipe.starts_with(&beside), "{} is beside the socket", pipe.display());
    // The second finds the first's; less urgent, it yields.
    let second = Staying::start(&machine, &["--share", "spatial", "--mps", "start"]);
    assert_eq!(second.shown, format!("{} 1 spatial", pipe.display()));
    assert_eq!(machine.notes(), "started\n");
    // One that shares by time has no part in it.
    let third = machine.show(&["--share", "time"]);
    third.quiet(0);
    assert!(third.out.ends_with("usual none time\n"), "{third:?}");
    first.end();
    // The daemon has seen the end of the first, and those of the second are still served.
    let fourth = machine.show(&["--share", "spatial", "--mps", "start", "--priority", "low"]);
    assert_eq!(fourth.out, format!("{} 1 spatial\n", pipe.display()));
    assert_eq!(machine.notes(), "started\n");
    second.end();
    until("MPS has ended", || machine.notes() == "started\nended\n");
    until("its folder is gone", || !pipe.exists());
    // And again, from the start.
    let again = machine.show(&["--share", "spatial", "--mps", "start"]);
    again.one_line(0, "a GPU fault of one program ends all");
    assert!(machine.notes().starts_with("started\nended\nstarted\n"));
    until("MPS has ended", || machine.notes().ends_with("started\nended\n"));
}

#[test]
fn a_daemon_that_ends_takes_its_mps_along_and_clears_up_what_a_killed_one_left() {
    let machine = Machine::with_mps();
    let first = Staying::start(&machine, &["--share", "spatial", "--mps", "start"]);
    let daemon = machine.place.daemon_pid().unwrap().to_string();
    assert!(Command::new("kill").args(["-KILL", &daemon]).status().unwrap().success());
    until("the daemon is gone", || !common::alive(daemon.parse().unwrap()));
    assert_eq!(machine.notes(), "started\n", "programs still use it");
    let second = Staying::start(&machine, &["--share", "spatial", "--mps", "start"]);
    assert_ne!(second.shown, first.shown);
    let times = |what: &str| machine.notes().lines().filter(|line| *line == what).count();
    until("the old one is told to end", || (times("started"), times("ended")) == (2, 1));
    machine.place.end_daemon();
    until("the new one too", || times("ended") == 2);
    first.end();
    second.end();
}

#[test]
fn without_mps_spatial_sharing_is_refused_with_what_to_do() {
    let machine = Machine::new();
    machine
        .show(&["--share", "spatial"])
        .one_line(3, "start one with `nvidia-cuda-mps-control -d`, or give --mps start");
    machine.show(&["--share", "spatial", "--mps", "start"]).one_line(3, "install NVIDIA's compute utilities");
    machine.show(&["--share", "spatial", "--local", "hpf"]).one_line(3, "no MPS daemon answers at");
    let mut nested = machine.run(&[], SHOW);
    nested.env("XSCHED_SHARE", "sideways");
    said(nested).one_line(2, "XSCHED_SHARE: 'sideways' is no way to share: use time, spatial or auto");
    // A program that needs none of this runs.
    let plain = machine.show(&[]);
    plain.quiet(0);
    assert!(plain.out.ends_with("usual none none\n"), "{plain:?}");
}

#[test]
fn an_mps_daemon_that_runs_is_used_when_asked_for_and_else_kept_away_from() {
    let machine = Machine::with_mps();
    let somebodys = machine.somebodys_mps();
    let spatial = machine.show(&["--share", "spatial", "--mps", "start", "--priority", "200"]);
    assert_eq!(spatial.out, format!("{} 0 spatial\n", somebodys.pipe.display()));
    let alone = machine.show(&["--share", "spatial", "--local", "hpf"]);
    assert_eq!(alone.out, format!("{} 1 spatial\n", somebodys.pipe.display()));
    let nowhere = machine.place.join("xsched/no-mps");
    let time = machine.show(&["--share", "time"]);
    time.quiet(0);
    assert_eq!(time.out, format!("{} none time\n", nowhere.display()));
    assert_eq!(std::fs::read_dir(&nowhere).unwrap().count(), 0);
    let auto = machine.show(&[]);
    auto.one_line(0, "time sharing: not under the MPS daemon at");
    assert_eq!(auto.out, format!("{} none none\n", nowhere.display()));
    // A run within a run shares as the outer one does.
    let mut nested = machine.place.xsched(&["run", "--share", "spatial", "--", env!("CARGO_BIN_EXE_xsched")]);
    nested.args(["run", "--", "sh", "-c", SHOW]);
    machine.surround(&mut nested);
    assert_eq!(said(nested).out, format!("{} 1 spatial\n", somebodys.pipe.display()));
    // None of this ended or started one.
    assert_eq!(machine.notes(), "started\n");
    drop(somebodys);
    // What is left of it in the folder does not count.
    machine.show(&["--share", "time"]).quiet(0);
    machine.show(&["--share", "spatial"]).one_line(3, "no MPS daemon answers");
}

#[test]
fn auto_chooses_mps_only_where_the_configuration_lets_it() {
    let machine = Machine::with_mps();
    let way = |options: &[&str]| {
        let shown = machine.show(options).out;
        shown.trim_end().rsplit(' ').next().unwrap().to_owned()
    };
    machine.configure("[mps]\nstart = true\n");
    assert_eq!(way(&[]), "none");
    assert_eq!(way(&["--share", "spatial"]), "spatial", "configured to start");
    machine.configure("[mps]\nauto = true\n");
    assert_eq!(way(&[]), "none", "there is none, and none may be started");
    machine.configure("[mps]\nauto = true\nstart = true\n");
    assert_eq!(way(&[]), "spatial");
    assert_eq!(way(&["--priority", "low"]), "spatial");
    assert_eq!(way(&["--priority", "high"]), "none");
    assert_eq!(way(&["--share", "time"]), "time");
    assert_eq!(way(&["--mps", "running"]), "none");
    machine.configure("[mps]\nauto = true\nstart = true\nmax_class = \"high\"\n");
    assert_eq!(way(&["--priority", "high"]), "spatial");
}
