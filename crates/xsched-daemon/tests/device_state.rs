//! The state of devices, from a stand-in for NVIDIA's library and a tree of files like AMD's driver's. The daemon is a process of its
//! own, so that it finds the stand-in. Without a test harness: the program plays the daemon, too.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use support::{Client, options, receive, try_connect};
use xsched_daemon::{Options, run};
use xsched_proto::device::{DeviceInfo, DeviceProcess, DeviceState, Source, Throttle};
use xsched_proto::wire::{ClientMsg, DaemonMsg, ProgramOptions, Request};
use xsched_testkit::until;

const FOLDER: &str = "XSCHED_TEST_FOLDER";
/// The only device of the stand-in.
const DEVICE: &str = "pci:0000:0a:00.0";
const GIB: u64 = 1 << 30;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("device-host") {
        xsched_daemon::serve_devices().expect("it answers until the daemon hangs up");
        return ExitCode::SUCCESS;
    }
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let device_host = std::env::current_exe().ok();
        run(Options { log: Some(folder.join("log")), device_host, ..options(folder) })
            .expect("it serves until it is ended");
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 7] = [
        ("what the library tells is shown", || the_state_is_shown(&[])),
        ("what an old library tells is shown", || the_state_is_shown(&["-DOLD"])),
        ("parts of a device are told apart", parts_of_a_device_are_told_apart),
        ("a call that hangs delays no decision", a_call_that_hangs_delays_no_decision),
        ("a library that crashes is opened anew, and not by the daemon", a_library_that_crashes_is_opened_anew),
        ("programs are warned of full memory and the log tells of heat", full_memory_and_heat_are_told),
        ("without the library all else works", without_the_library_all_else_works),
    ];
    // Each test waits for polls most of the time.
    std::thread::scope(|scope| {
        let running = tests.map(|(name, test)| (name, scope.spawn(test)));
        for (name, thread) in running {
            assert!(thread.join().is_ok(), "failed: {name}");
        }
    });
    println!("device_state: {} tests passed", tests.len());
    ExitCode::SUCCESS
}

struct World {
    folder: tempfile::TempDir,
    daemon: Child,
}

impl World {
    /// Starts a daemon with the stand-in, compiled with these flags, or without one.
    fn start(flags: Option<&[&str]>, values: &[(&str, u64)]) -> World {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvml", "lib", "sys"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        if let Some(flags) = flags {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/nvml/nvml.c");
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
            cc.arg(folder.path().join("lib/libnvidia-ml.so.1")).arg(source).args(flags);
            let done = cc.output().expect("a C compiler");
            assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FOLDER, folder.path()).env("LD_LIBRARY_PATH", folder.path().join("lib"));
        command.env("FAKENVML", folder.path().join("nvml")).env("XSCHED_SYSFS", folder.path().join("sys"));
        let daemon = command.spawn().unwrap();
        let world = World { folder, daemon };
        values.iter().for_each(|(name, value)| world.set(name, *value));
        until("the daemon listens", || try_connect(&world.socket()).is_some());
        world
    }

    fn socket(&self) -> PathBuf {
        options(self.folder.path()).socket
    }

    fn nvml(&self, name: &str) -> PathBuf {
        self.folder.path().join("nvml").join(name)
    }

    /// Sets a value that the stand-in reports from now on. In one step, since it may be reading.
    fn set(&self, name: &str, value: impl ToString) {
        std::fs::write(self.nvml("new"), value.to_string()).unwrap();
        std::fs::rename(self.nvml("new"), self.nvml(name)).unwrap();
    }

    fn attach(&self, priority: i32, device: &str) -> Client {
        let options = ProgramOptions { priority: Some(priority), ..ProgramOptions::default() };
        let client = Client::attach(&self.socket(), options);
        client.group(0, device);
        client
    }

    fn devices(&self) -> BTreeMap<String, DeviceInfo> {
        let answer = support::ask(&self.socket(), Request::Ps).unwrap().into_iter();
        let devices = answer.filter_map(|message| match message {
            DaemonMsg::Device(info) => Some((info.device.clone(), *info)),
            _ => None,
        });
        devices.collect()
    }

    /// Waits until a device's state satisfies a condition, and returns the state.
    #[track_caller]
    fn until(&self, key: &str, what: &str, so: impl Fn(&DeviceInfo) -> bool) -> DeviceInfo {
        let mut found = None;
        until(what, || {
            found = self.devices().remove(key).filter(|device| so(device));
            found.is_some()
        });
        found.unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Values that the stand-in reports.
const VALUES: [(&str, u64); 10] = [
    ("memory_used", 61 * GIB),
    ("memory_total", 80 * GIB),
    ("active", 97),
    ("memory_active", 41),
    ("temperature", 64),
    ("temperature_limit", 93),
    ("power_mw", 310_900),
    ("power_limit_mw", 700_000),
    ("clock", 1_755),
    // Power limit, and a clock set by a user, which is no reason to report.
    ("reasons", 0x4 | 0x2),
];

fn the_state_is_shown(flags: &[&str]) {
    let world = World::start(Some(flags), &VALUES);
    assert!(world.devices().is_empty() && !world.nvml("open").exists(), "it is not opened for nothing");
    let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let (own, outside, unseen) = (std::process::id(), other.id(), u32::MAX - 1);
    world.set("processes", format!("{own} {GIB}\n{outside} {}\n{unseen} 5\n", u64::MAX));
    let client = world.attach(0, DEVICE);
    let device = world.until(DEVICE, "it is looked at", |device| {
        // Until it executes another program, a child process has its parent's name.
        !device.stale && device.processes.iter().flatten().any(|p| p.name.as_deref() == Some("cat"))
    });
    let expected = DeviceState {
        age_ms: device.latest.age_ms,
        memory_used_bytes: Some(61 * GIB),
        memory_total_bytes: Some(80 * GIB),
        active_percent: Some(97),
        memory_active_percent: Some(41),
        temperature_c: Some(64),
        temperature_limit_c: Some(93),
        power_w: Some(310),
        power_limit_w: Some(700),
        sm_clock_mhz: Some(1_755),
        throttle: Some(vec![Throttle::PowerCap]),
        outside: Some(1),
    };
    assert_eq!((&device.latest, device.source), (&expected, Source::Nvml));
    assert_eq!(device.name.as_deref(), Some("Stand-in"));
    let name = std::fs::read_to_string("/proc/self/comm").unwrap().trim().to_owned();
    let process = |pid, name: Option<&str>, memory_bytes, outside| DeviceProcess {
        pid,
        name: name.map(str::to_owned),
        memory_bytes,
        outside,
    };
    let processes = vec![
        process(own, Some(&name), Some(GIB), false),
        process(outside, Some("cat"), None, true),
        process(unseen, None, Some(5), false),
    ];
    assert_eq!(device.processes, Some(processes));
    // The driver's figure of a program, beyond what it counts itself, is told as its overhead.
    client.segment().memory[0].used_bytes.store(GIB / 4, SeqCst);
    client.say(&ClientMsg::MemoryDevice { slot: 0, device: DEVICE.into(), capacity_bytes: 80 * GIB });
    let overhead = |message| match message {
        DaemonMsg::Program(program) => program.memory.first().map(|memory| memory.held.overhead_bytes),
        _ => None,
    };
    until("its overhead is known", || {
        let told = support::ask(&world.socket(), Request::Ps).unwrap().into_iter().find_map(overhead);
        told == Some(GIB - GIB / 4)
    });
    // Unsupported values are left out; the others are reported.
    std::fs::remove_file(world.nvml("temperature")).unwrap();
    std::fs::remove_file(world.nvml("processes")).unwrap();
    let device = world.until(DEVICE, "it is looked at again", |device| device.latest.temperature_c.is_none());
    assert_eq!((device.latest.power_w, device.latest.outside, device.processes), (Some(310), None, None));
    let seen: Vec<_> = device.history.iter().map(|state| state.temperature_c).collect();
    assert!(seen.len() >= 2 && seen[0] == Some(64) && seen[seen.len() - 1].is_none(), "{seen:?}");
    assert!(device.history.is_sorted_by(|a, b| a.age_ms >= b.age_ms), "the oldest first");
    assert!(world.nvml("open").exists());
    drop(client);
    until("it is closed after the last program", || !world.nvml("open").exists());
    assert_eq!(world.devices().len(), 1, "what was seen is still told");
    drop(other.stdin.take());
    other.wait().unwrap();
}

fn parts_of_a_device_are_told_apart() {
    let world = World::start(Some(&[]), &VALUES);
    world.set("mig", 1);
    let keys = [0, 1].map(|n| format!("mig:73696d75-6c61-7465-6420-63756461200{n}"));
    let clients = [&keys[0], &keys[1], "pci:../../../nvml", "sim:0"].map(|key| world.attach(0, key));
    let part = world.until(&keys[1], "it is looked at", |_| true);
    assert_eq!((part.latest.memory_total_bytes, part.latest.active_percent), (Some(40 * GIB), None));
    assert_eq!(part.latest.temperature_c, Some(64), "the board's");
    assert!(world.devices().keys().eq(&keys), "nothing else is known: {:?}", world.devices().keys());
    drop(clients);
}

/// Time to take the device from one program and to give it back, as the median of many.
fn handover(low: &Client, high: &Client) -> Duration {
    let once = |_| {
        let begin = Instant::now();
        high.ready(0);
        low.until_closed(0);
        high.idle(0);
        low.until_open(0);
        begin.elapsed()
    };
    let mut all: Vec<Duration> = (0..51).map(once).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

fn a_call_that_hangs_delays_no_decision() {
    let world = World::start(Some(&[]), &VALUES);
    let (low, high) = (world.attach(-128, DEVICE), world.attach(128, DEVICE));
    low.ready(0);
    world.until(DEVICE, "it is looked at", |_| true);
    let control = handover(&low, &high);
    world.set("hang", 1);
    until("the call hangs", || world.nvml("hangs").exists());
    let late = xsched_testkit::Lateness::begin();
    let hanging = handover(&low, &high);
    let allowed = 5 * control + late.allows(Duration::from_millis(20));
    println!("from a launch to the closed gate and back: {control:?}, while the library hangs {hanging:?}");
    assert!(hanging < allowed, "{hanging:?}, allowed {allowed:?}");
    let stale = world.until(DEVICE, "what is known is told to be old", |device| device.stale);
    assert!(stale.latest.age_ms >= 5_000 && stale.latest.memory_used_bytes == Some(61 * GIB));
    handover(&low, &high);
    // A program that attaches and leaves meanwhile does not wait either.
    drop(world.attach(0, DEVICE));
    std::fs::remove_file(world.nvml("hang")).unwrap();
    world.until(DEVICE, "it goes on", |device| !device.stale);
}

fn a_library_that_crashes_is_opened_anew() {
    let world = World::start(Some(&[]), &VALUES);
    let (low, high) = (world.attach(-128, DEVICE), world.attach(128, DEVICE));
    low.ready(0);
    world.until(DEVICE, "it is looked at", |_| true);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", world.daemon.id())).unwrap();
    assert!(!maps.contains("libnvidia-ml"), "{maps}");
    world.set("crash", 1);
    until("it crashes", || world.nvml("crashes").exists());
    handover(&low, &high);
    std::fs::remove_file(world.nvml("crash")).unwrap();
    world.set("temperature", 71);
    world.until(DEVICE, "it is looked at again", |device| device.latest.temperature_c == Some(71));
}

fn full_memory_and_heat_are_told() {
    let world = World::start(Some(&[]), &VALUES);
    world.set("memory_used", 76 * GIB);
    // All memory is reported as that of a process other than this one.
    world.set("processes", format!("1 {}\n", 76 * GIB));
    let first = world.attach(0, DEVICE);
    world.until(DEVICE, "it is looked at", |_| true);
    assert_eq!(first.unread(), 0, "nothing was known when it came");
    let second = world.attach(0, DEVICE);
    let Some((DaemonMsg::Note { text }, _)) = receive(&second.socket) else { panic!("no note") };
    assert_eq!(text, format!("others use 76.0 of the 80.0 GiB of {DEVICE}: allocations may fail"));
    second.group(1, DEVICE);
    // The daemon answers this after its messages about the group.
    world.devices();
    assert_eq!(second.unread(), 0, "once");
    world.set("processes", format!("{} {}\n", std::process::id(), 76 * GIB));
    world.until(DEVICE, "it is its own", |d| d.processes.iter().flatten().any(|p| p.pid == std::process::id()));
    let third = world.attach(0, DEVICE);
    world.devices();
    assert_eq!(third.unread(), 0);
    assert!(!world.log().contains("heat"));
    world.set("reasons", 0x40 | 0x8);
    let hot = |d: &DeviceInfo| d.history.iter().filter(|state| state.is_hot()).count() >= 3;
    let device = world.until(DEVICE, "it is hot", hot);
    assert_eq!(device.latest.throttle, Some(vec![Throttle::HwThermal, Throttle::HwSlowdown]));
    let line = format!("{DEVICE} is slowed down by heat: 64 °C (its limit is 93 °C), 1755 MHz");
    until("the log tells", || world.log().contains(&line));
    assert_eq!(world.log().matches("heat").count(), 1, "{}", world.log());
}

fn without_the_library_all_else_works() {
    // A file of this name that is no library, so that the machine's own library is not found.
    let world = World::start(None, &[]);
    std::fs::write(world.folder.path().join("lib/libnvidia-ml.so.1"), "no library").unwrap();
    let folder = world.folder.path().join("sys/bus/pci/devices/0000:c1:00.0");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [("vendor", "0x1002"), ("mem_info_vram_total", "100"), ("mem_info_vram_used", "30")] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let (low, high) = (world.attach(-128, DEVICE), world.attach(128, DEVICE));
    low.ready(0);
    handover(&low, &high);
    assert!(world.devices().is_empty());
    // The device's state comes from AMD's driver, and is read once a device is wanted again.
    drop((low, high));
    until("they have left", || world.log().matches("has left").count() == 2);
    let amd = world.attach(0, "pci:0000:c1:00.0");
    let device = world.until("pci:0000:c1:00.0", "it is looked at", |_| true);
    assert_eq!((device.source, device.processes), (Source::Amdgpu, None));
    let state = device.latest;
    assert_eq!((state.memory_used_bytes, state.memory_total_bytes, state.outside), (Some(30), Some(100), None));
    assert_eq!((state.active_percent, state.throttle), (None, None));
    drop(amd);
    assert!(!world.log().contains("nvidia"), "it is no trouble: {}", world.log());
}
