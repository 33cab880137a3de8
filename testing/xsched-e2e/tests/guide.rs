//! Commands of the guide, the README and the reference: every one is run, or listed here with the reason for which it is not.
//!
//! Blocks tagged `run` are run by the tests of the documents, those tagged `tour` by `tasks.rs`. The others mention programs and a device
//! of the reader's: here these are programs on the simulated device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xsched_e2e::{Place, beside, finish};

/// Beginnings of commands that are not run, with the reasons.
const LISTED: [(&str, &str); 26] = [
    ("./kit.sh", "needs an AMD GPU and an hour; its steps have tests of their own in testing/ladders/hip"),
    ("apt install", "changes the machine: `cargo xtask vm` does it in a guest"),
    ("apt remove", "changes the machine: `cargo xtask vm` does it in a guest"),
    ("systemctl", "changes the machine: `cargo xtask vm` does it in a guest"),
    ("sudo ln -sf", "changes the machine; coming_from_xsched.rs makes such links in a folder"),
    ("cd /usr/local/lib/xsched", "changes the machine; coming_from_xsched.rs makes such links in a folder"),
    ("sudo xsched cdi", "changes the machine; cdi.rs of the command's tests writes such files into a folder"),
    ("podman run", "needs an image with Python and a GPU"),
    ("docker run", "no container runtime is part of the tests"),
    ("xsched run --priority low -- torchrun", "needs PyTorch and several GPUs"),
    ("xsched run --memory-limit 45%", "needs vLLM and a GPU"),
    ("cargo build", "has been done before any test"),
    ("cargo run", "`demo` and `compare` have tests of their own"),
    ("cargo xtask package", "takes a minute: `cargo xtask ci` makes packages"),
    ("cargo xtask install", "takes a minute: `cargo xtask ci` installs into a folder"),
    ("cargo xtask wheel", "takes a minute: `cargo xtask test` makes a wheel"),
    ("cargo xtask test", "is what runs this"),
    ("python3 -m venv", "for the wheel, which `cargo xtask test` makes and installs"),
    ("/tmp/venv/bin/", "for the wheel, which `cargo xtask test` makes and installs"),
    ("xsched kube", "needs a node of a cluster; the tests of xsched-kube start it beside stand-ins"),
    ("xsched compare", "takes a quarter of a minute: compare.rs does it, with these options"),
    ("xsched demo --device cuda", "the same on a stand-in for the driver is in the tests of the command"),
    ("xsched record", "needs programs that go on: record.rs records some"),
    ("xsched simulate today.toml", "needs a recording: record.rs plays one"),
    ("xsched freeze", "needs a program whose memory can leave a CUDA device: cuda_freezing.rs has some"),
    ("xsched demo --secs 50", "takes three minutes; tasks.rs runs a short one"),
];

/// Commands that go on until they are ended: ended here once they have begun well.
const GO_ON: [&str; 4] = ["xsched top --batch", "xsched daemon", "xsched top", "xsched trace --for 5s"];

/// Command of a page.
struct Line {
    /// Page, and line of the block.
    at: String,
    tag: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All commands of a page, with continued lines joined and the text after `#` removed.
fn commands(page: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.strip_prefix(root()).unwrap().display().to_string();
    let (mut found, mut open, mut joined) = (Vec::new(), None, String::new());
    for (n, line) in text.lines().enumerate() {
        if let Some(tags) = line.strip_prefix("```") {
            open = match open {
                None => Some((tags.strip_prefix("sh ").map(str::to_owned), n + 1)),
                Some(_) => None,
            };
            continue;
        }
        let Some((Some(tag), at)) = &open else { continue };
        let line = line.split(" #").next().unwrap().trim();
        let line = line.strip_prefix('#').map_or(line, |_| "");
        match line.strip_suffix('\\') {
            Some(part) => joined += &format!("{} ", part.trim()),
            None => {
                let text = std::mem::take(&mut joined) + line;
                if !text.is_empty() {
                    found.push(Line { at: format!("{name}:{at}"), tag: tag.clone(), text });
                }
            }
        }
    }
    found
}

/// Pages with commands for readers.
fn pages() -> Vec<PathBuf> {
    let guide = std::fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = guide.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.extend(["README.md", "docs/reference/cli.md"].map(|name| root().join(name)));
    pages.sort();
    pages
}

/// Program that has used the device, and waits for a line.
const RESTS: &str = r#"import ctypes, os
stream = ctypes.c_void_p()
sim = ctypes.CDLL(os.environ["SIMDEV_LIBRARY"])
assert sim.simStreamCreate(ctypes.byref(stream)) == 0
kernel = (ctypes.c_uint64 * 5)(1 << 32, 1000)
assert sim.simLaunchKernel(ctypes.byref(kernel), stream) == 0 and sim.simStreamSynchronize(stream) == 0
print("ready", flush=True)
input()
"#;

/// Machine of a reader: a daemon, a device, a running program, and programs to start.
struct Reader {
    place: Place,
    _daemon: xsched_e2e::Process,
    running: xsched_e2e::Process,
}

impl Reader {
    fn new() -> Reader {
        let place = Place::new();
        let daemon = place.daemon(&[]);
        let launches = place.sim_program("launches");
        for name in ["serve", "train", "app", "one", "other"] {
            std::os::unix::fs::symlink(&launches, place.join(name)).unwrap();
        }
        for name in ["serve.py", "train.py", "six_streams.py"] {
            let text = "import ctypes, os\nctypes.CDLL(os.environ['SIMDEV_LIBRARY']).simDeviceSynchronize()\n";
            std::fs::write(place.join(name), text).unwrap();
        }
        for name in ["include", "examples"] {
            std::os::unix::fs::symlink(root().join(name), place.join(name)).unwrap();
        }
        // The process delays none of the programs that are started beside it.
        std::fs::write(place.join("rests.py"), RESTS).unwrap();
        let script = place.join("rests.py");
        let mut command = place.run_command(&["--job", "night"], "python3".as_ref(), &[script.to_str().unwrap()]);
        command.env("SIMDEV_LIBRARY", beside("libsimdev.so"));
        let mut running = xsched_e2e::Process::start(command);
        running.expect("ready");
        Reader { place, _daemon: daemon, running }
    }

    /// Command in the form in which it is typed on this machine.
    fn typed(&self, line: &Line) -> String {
        let pid = self.running.pid().to_string();
        let uid = rustix::process::geteuid().as_raw().to_string();
        let text = line.text.trim_end_matches('&').trim();
        let text = text.replace("4711", &pid).replace("--user 1001", &format!("--user {uid}"));
        let text = text.replace("pci:0000:41:00.0", "sim:0").replace("/tmp/try.sock", "try.sock");
        if !text.contains("--queue q") {
            return text;
        }
        // A queue gets another name when it moves to a group of its own.
        let program = self.place.program(self.running.pid()).unwrap();
        let groups = program["groups"].as_array().unwrap().iter();
        let queue = groups.filter_map(|group| group["queues"][0]["id"].as_str()).next().expect("a queue").to_owned();
        ["q7", "q3"]
            .iter()
            .fold(text, |text, name| text.replace(&format!("--queue {name} "), &format!("--queue {queue} ")))
    }

    /// Runs a line: its exit code, and its output.
    fn run(&self, line: &Line) -> (i32, String) {
        let mut text = self.typed(line);
        let goes_on = GO_ON.iter().any(|begin| line.text.starts_with(begin)) && !text.contains("--once");
        if goes_on {
            // The guide's daemon already runs, so that this one needs another socket.
            let apart = if text.starts_with("xsched daemon") && !text.contains("--socket") {
                " --socket apart.sock"
            } else {
                ""
            };
            text = format!("exec timeout --preserve-status 0.5 {text}{apart}");
        }
        let mut command: Command = self.place.command("sh", &["-c", &text]);
        let path = format!("{}:{}", beside("xsched").parent().unwrap().display(), std::env::var("PATH").unwrap());
        command.current_dir(self.place.join("")).env("PATH", path).env("SIMDEV_LIBRARY", beside("libsimdev.so"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(command.spawn().unwrap(), Duration::from_secs(20));
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        // A command that goes on is ended by the test, which is its good end.
        let code = output.status.code().unwrap_or(143);
        (if goes_on && code == 143 { 0 } else { code }, said)
    }
}

#[test]
fn every_command_runs_or_has_a_reason_why_not() {
    let reader = Reader::new();
    let (mut elsewhere, mut run, mut parsed, mut listed) = (0, 0, 0, 0);
    let mut used = BTreeSet::new();
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for line in pages().iter().flat_map(|page| commands(page)) {
        if ["run", "tour"].contains(&line.tag.as_str()) {
            elsewhere += 1;
        } else if let Some((begin, _)) = LISTED.iter().find(|(begin, _)| line.text.starts_with(begin)) {
            used.insert(*begin);
            // Lines of xsched are parsed by a test of the command line all the same.
            if begin.starts_with("xsched") { parsed += 1 } else { listed += 1 }
        } else if line.tag == "gpu" && line.at.contains("amd-kit") {
            // The meaning of a line of the kit stands beside it.
            listed += 1;
        } else if line.at.contains("guide/recipes.md") {
            // Recipes need PyTorch, engines of containers, SLURM or the machine's own files: benches/recipes/play.py plays them.
            listed += 1;
        } else {
            run += 1;
            if seen.insert(line.text.clone()) {
                let (code, said) = reader.run(&line);
                if code != 0 {
                    faults.push(format!("{}: {}: exit code {code}: {said}", line.at, line.text));
                }
            }
        }
    }
    println!("commands: {} run by other tests, {run} run here, {parsed} only parsed, {listed} listed", elsewhere);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(elsewhere > 40 && run > 40, "{elsewhere} and {run} commands were run");
    let stale: Vec<_> = LISTED.iter().map(|(begin, _)| *begin).filter(|begin| !used.contains(begin)).collect();
    assert!(stale.is_empty(), "no page has {stale:?}");
}
