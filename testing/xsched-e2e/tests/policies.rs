//! Promises of each policy, once more in real time, on the simulated device; and a switch through all policies under load.
//!
//! The promises themselves are tested in virtual time (`crates/xsched-policy/tests`). Here programs run, and device time as it was charged
//! is compared, or commands by the programs' own count. Each test prints its figure.

#[allow(dead_code, reason = "the platform suite uses the rest")]
mod platforms;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use platforms::{Device, PLATFORMS};
use xsched_daemon::container_record::{Record, folder};
use xsched_e2e::{Lateness, Place, Process, least_of, now_ns, one_of, quantile};
use xsched_policy::registry;
use xsched_proto::class::Class;

/// Tries at measurements that other work on the machine can spoil, see [`one_of`].
const TRIES: u32 = 5;
/// Id of another user.
const NOBODY: u32 = 65_534;

/// Place with simulated devices, and the workload of the platform suite for them.
struct Bench {
    place: Place,
    work: PathBuf,
}

impl Bench {
    fn with_devices(count: u32) -> Bench {
        let place = Place::new();
        place.devices(count);
        let work = place.compile("programs/suite/work.c", &["-DPLATFORM=\"sim.h\"", "-lpthread", "-lm", "-lsimdev"]);
        Bench { place, work }
    }

    fn new() -> Bench {
        Bench::with_devices(1)
    }

    fn start(&self, options: &[&str], args: &[&str]) -> Process {
        let mut program = self.place.run(options, &self.work, args);
        program.expect("ready");
        program
    }

    /// Starts a program that always has something for the device, in commands of 0.2 ms.
    fn steady(&self, options: &[&str]) -> Process {
        let mut program = self.start(options, &["steady", "200", "8"]);
        program.progress_after(0);
        program
    }

    /// Starts a program like that of [`Bench::steady`], with so much on the device that a thread which a busy machine wakes late does not
    /// leave it to others.
    fn deep(&self, options: &[&str]) -> Process {
        let mut program = self.start(options, &["steady", "200", "64"]);
        program.progress_after(0);
        program
    }

    /// Starts a program that launches this many commands of 0.5 ms at each request.
    fn requests(&self, options: &[&str], count: &str) -> Process {
        self.start(options, &["requests", "500", count])
    }

    /// Device time of each program at one moment, in µs.
    fn used_us(&self, programs: &[&Process]) -> Vec<f64> {
        let ps = self.place.ps().expect("a daemon");
        let shown = ps["programs"].as_array().expect("a list");
        let of = |program: &&Process| {
            let entry = shown.iter().find(|entry| entry["pid"] == program.pid()).expect("attached");
            entry["groups"][0]["device_us"].as_f64().expect("device time")
        };
        programs.iter().map(of).collect()
    }

    /// Waits for an interval in which the parts of the time that each program has the device, in percent, satisfy a condition. Each try
    /// measures for longer, so that a machine which is late at the beginning or the end counts for less.
    #[track_caller]
    fn parts_are(&self, what: &str, programs: &[&Process], are_so: impl Fn(&[f64]) -> bool) {
        let mut secs = 0;
        one_of(TRIES, what, || {
            secs += 1;
            let parts = self.parts(programs, secs);
            println!("{what}: {parts:.2?} % of the time");
            if are_so(&parts) { Ok(()) } else { Err(format!("{parts:.2?} %")) }
        });
    }

    /// Asserts that device time is divided in this way: within two points of the aims, of the time that all of them have.
    #[track_caller]
    fn divided(&self, what: &str, programs: &[&Process], aims: &[f64]) {
        self.parts_are(&format!("{what}, aim {aims:?}"), programs, |parts| {
            let all: f64 = parts.iter().sum();
            parts.iter().zip(aims).all(|(part, aim)| (100.0 * part / all - aim).abs() <= 2.0)
        });
    }

    /// Part of the time, in percent, that each program has the device within `secs` seconds.
    fn parts(&self, programs: &[&Process], secs: u64) -> Vec<f64> {
        let look = || (now_ns(), self.used_us(programs));
        let (began, before) = look();
        std::thread::sleep(Duration::from_secs(secs)); // what is measured
        let (ended, after) = look();
        let passed_us = (ended - began) as f64 / 1e3;
        before.iter().zip(after).map(|(before, after)| 100.0 * (after - before) / passed_us).collect()
    }
}

/// Ends a program, and checks its results.
#[track_caller]
fn end(mut program: Process) {
    program.tell("end");
    let lines = program.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"), "{lines:?}");
}

/// Makes a request, and returns its begin and end, in ns.
fn request(program: &mut Process) -> (u64, u64) {
    program.tell("request");
    program.find("the end of a request", |line| {
        let (begin, end) = line.strip_prefix("done ")?.split_once(' ')?;
        Some((begin.parse().ok()?, end.parse().ok()?))
    })
}

/// Checks that a percentage is within a range.
fn is_within(what: &str, percent: f64, wanted: &std::ops::Range<f64>) -> Result<(), String> {
    println!("{what}: {percent:.1} %");
    if wanted.contains(&percent) { Ok(()) } else { Err(format!("{what}: {percent:.1} %, {wanted:?} wanted")) }
}

/// Number of commands that a program launched between two times, in ns.
fn given_between(program: &mut Process, (from, to): (u64, u64)) -> u64 {
    program.tell(&format!("between {from} {to}"));
    program.find("its count", |line| line.strip_prefix("between ")?.parse().ok())
}

/// Number of commands that a steady program launches in `ns` while nothing delays it.
fn unhindered(program: &mut Process, ns: u64) -> f64 {
    let began = now_ns();
    while u128::from(50_000_000_u64) > program.progress_after(began).as_nanos() {}
    given_between(program, (began, began + 50_000_000)) as f64 * ns as f64 / 50e6
}

/// Commands that a steady program launches beside requests, in percent of those that it could launch in that time.
fn beside_requests(steady: &mut Process, urgent: &mut Process, times: u32) -> f64 {
    let (mut given, mut possible) = (0, 0.0);
    for _ in 0..times {
        let (from, to) = request(urgent);
        steady.progress_after(to);
        given += given_between(steady, (from, to));
        possible += unhindered(steady, to - from);
    }
    100.0 * given as f64 / possible
}

/// Tests the division of device time by utilization, among programs that always want the device.
fn parts_by_utilization(policy: &str) {
    for utilizations in [&["75", "25"][..], &["50", "30", "20"]] {
        let bench = Bench::new();
        let _daemon = bench.place.daemon(&["--policy", policy]);
        let programs: Vec<_> = utilizations.iter().map(|u| bench.deep(&["--utilization", u])).collect();
        let aims: Vec<f64> = utilizations.iter().map(|u| u.parse().expect("a number")).collect();
        bench.divided(policy, &programs.iter().collect::<Vec<_>>(), &aims);
        programs.into_iter().for_each(end);
    }
}

#[test]
fn up_divides_device_time_by_utilization() {
    parts_by_utilization("up");
}

#[test]
fn pup_divides_device_time_by_utilization() {
    parts_by_utilization("pup");
}

#[test]
fn spup_divides_device_time_by_utilization() {
    parts_by_utilization("spup");
}

/// Both policies run a program alone, and beside a program that wants nothing.
#[test]
fn spup_leaves_an_unused_part_idle_and_pup_does_not() {
    for beside in [false, true] {
        let bench = Bench::new();
        let _daemon = bench.place.daemon(&["--policy", "spup"]);
        let program = bench.deep(&["--utilization", "25"]);
        let _other = beside.then(|| bench.requests(&["--utilization", "75"], "1"));
        bench.parts_are("25 % under spup", &[&program], |parts| (parts[0] - 25.0).abs() <= 2.0);
        bench.place.ask(&["policy", "set", "pup"]);
        bench.parts_are("25 % under pup", &[&program], |parts| parts[0] > 95.0);
        end(program);
    }
}

#[test]
fn hhpf_keeps_the_second_device_of_an_urgent_program_free() {
    let beside = |policy: &str| {
        let bench = Bench::with_devices(2);
        let _daemon = bench.place.daemon(&["--policy", policy]);
        let hop = bench.place.compile("programs/sim/hop.c", &["-lsimdev"]);
        let mut urgent = bench.place.run(&["--priority", "high"], &hop, &["500", "40"]);
        urgent.expect("ready");
        let mut command = bench.place.run_command(&["--priority", "low"], &bench.work, &["steady", "200", "8"]);
        command.env("SUITE_DEVICE", "1");
        let mut low = Process::start(command);
        low.expect("ready");
        low.progress_after(0);
        let (mut given, mut possible) = (0, 0.0);
        for _ in 0..5 {
            urgent.tell("go");
            let (from, middle) = urgent.find("the end", |line| {
                let mut times = line.strip_prefix("done ")?.split(' ').map(|text| text.parse::<u64>().ok());
                Some((times.next()??, times.next()??))
            });
            low.progress_after(middle);
            given += given_between(&mut low, (from, middle));
            possible += unhindered(&mut low, middle - from);
        }
        end(low);
        100.0 * given as f64 / possible
    };
    for (policy, wanted) in [("hpf", 50.0..f64::MAX), ("hhpf", 0.0..25.0)] {
        one_of(TRIES, "work on the second device while the urgent program has the first", || {
            is_within(policy, beside(policy), &wanted)
        });
    }
}

#[test]
fn chpf_follows_nice_values_as_they_change() {
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "chpf"]);
    let (first, second) = (bench.deep(&[]), bench.deep(&[]));
    let renice = |program: &Process, nice: i32| {
        let status = std::process::Command::new("renice")
            .args(["-n", &nice.to_string(), "-p", &program.pid().to_string()])
            .output()
            .expect("renice")
            .status;
        assert!(status.success());
    };
    // Both begin with the nice value of the test itself, which need not be 0.
    let own = rustix::process::getpriority_process(None).expect("a nice value");
    renice(&second, own + 4);
    bench.place.assert_ahead(first.pid(), second.pid(), 400);
    bench.parts_are("the second less nice by 4", &[&first, &second], |parts| parts[0] > 95.0);
    renice(&first, own + 8);
    bench.place.assert_ahead(second.pid(), first.pid(), 400);
    bench.parts_are("the first less nice by 4", &[&first, &second], |parts| parts[1] > 95.0);
    end(second);
    end(first);
}

#[test]
fn kedf_serves_requests_with_deadlines_first_and_k_at_a_time() {
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "kedf"]);
    let mut steady = bench.steady(&[]);
    let mut urgent = bench.requests(&["--deadline", "20000"], "20");
    for (k, wanted) in [("k=1", 0.0..25.0), ("k=2", 30.0..f64::MAX)] {
        bench.place.ask(&["policy", "set", "kedf", k]);
        one_of(TRIES, "work beside requests with deadlines", || {
            is_within(k, beside_requests(&mut steady, &mut urgent, 5), &wanted)
        });
    }
    end(urgent);
    end(steady);
}

#[test]
fn lax_lets_a_request_wait_until_its_laxity_is_used_up() {
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "lax"]);
    let steady = bench.steady(&[]);
    let mut lax = bench.requests(&["--laxity", "150000:low:high"], "20");
    let waits = |lax: &Process| {
        bench.place.program(lax.pid()).expect("it is listed")["groups"][0]["waits"]["count"].as_u64().expect("a count")
    };
    let (mut took, mut cut, control) = (Vec::new(), 0, Lateness::begin());
    while took.len() < 3 {
        // A launch of an idle program begins a request.
        bench.place.await_state(lax.pid(), "idle");
        let before = waits(&lax);
        let (from, to) = request(&mut lax);
        bench.place.await_state(lax.pid(), "idle");
        let ms = (to - from) as f64 / 1e6;
        // A request that the machine interrupts in its midst becomes two, and waits twice.
        match waits(&lax) - before {
            1 => took.push(ms),
            n => cut += n,
        }
        assert!(ms >= 150.0 && cut < 20, "{ms} ms, {cut} cut");
    }
    let (longest, allowed) = (took.into_iter().fold(0.0, f64::max), control.allows(Duration::from_millis(300)));
    println!("requests of 10 ms with a laxity of 150 ms take {longest:.1} ms at most");
    assert!(longest < allowed.as_secs_f64() * 1e3, "{longest} ms, allowed {allowed:?}");
    end(lax);
    end(steady);
}

#[test]
fn awf_prefers_the_program_with_the_active_window() {
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "awf"]);
    let (first, second) = (bench.deep(&[]), bench.deep(&["--active", "on"]));
    bench.parts_are("active is the second", &[&first, &second], |parts| parts[1] > 95.0);
    bench.place.ask(&["hint", "--pid", &second.pid().to_string(), "--active", "off"]);
    bench.place.ask(&["hint", "--pid", &first.pid().to_string(), "--active", "on"]);
    bench.parts_are("active is the first", &[&first, &second], |parts| parts[0] > 95.0);
    // The other one has no commands before.
    end(first);
    end(second);
}

#[test]
fn cfs_divides_device_time_by_priority_as_nice_values_do() {
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "cfs"]);
    // Two steps of the nice value, 1.25 each.
    let (first, second) = (bench.deep(&["--priority", "26"]), bench.deep(&["--priority", "0"]));
    bench.divided("two steps of nice apart", &[&first, &second], &[61.0, 39.0]);
    end(second);
    end(first);
}

#[test]
fn mlfq_keeps_short_bursts_before_work_that_never_ends() {
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "mlfq"]);
    let (mut first, second) = (bench.steady(&[]), bench.steady(&[]));
    let mut bursts = bench.requests(&[], "4");
    one_of(TRIES, "work beside bursts of 2 ms", || {
        is_within("mlfq", beside_requests(&mut first, &mut bursts, 5), &(0.0..50.0))
    });
    let both = [&first, &second];
    bench.parts_are("two programs without end", &both, |parts| (parts[0] - parts[1]).abs() < 10.0);
    end(bursts);
    end(second);
    end(first);
}

#[test]
fn hpf_serves_a_program_that_pauses_first_without_any_option_as_with_a_higher_priority() {
    // Commands that the other one launches beside requests, in percent of those that it could launch in that time.
    let beside = |policy: &[&str], options: &[&str], interactive: bool, wanted: std::ops::Range<f64>| {
        let bench = Bench::new();
        let _daemon = bench.place.daemon(&[]);
        bench.place.ask(&[&["policy", "set"], policy].concat());
        let mut steady = bench.steady(&[]);
        let mut requests = bench.requests(options, "20");
        let is_interactive = |program: &Process| bench.place.group(program.pid()).unwrap()["interactive"] == true;
        for _ in 0..8 {
            request(&mut requests);
            // In a pause the other program works for as long.
            unhindered(&mut steady, 1);
        }
        assert!(!is_interactive(&steady), "it never pauses");
        assert_eq!(is_interactive(&requests), interactive, "{policy:?}");
        let what = format!("{policy:?} {options:?}, beside requests of 10 ms");
        one_of(TRIES, &what, || is_within(&what, beside_requests(&mut steady, &mut requests, 8), &wanted));
        end(requests);
        end(steady);
    };
    beside(&["hpf"], &["--priority", "high"], true, 0.0..20.0);
    beside(&["hpf"], &[], true, 0.0..20.0);
    beside(&["hpf", "interactive=off"], &[], false, 30.0..100.0);
}

#[test]
fn fair_divides_device_time_by_user_before_program() {
    if !rustix::process::geteuid().is_root() {
        return xsched_e2e::skipped("fair by user: needs root, to run programs of two users");
    }
    let bench = Bench::new();
    let (config, monitor) = (bench.place.join("metrics.toml"), bench.place.join("m.sock"));
    std::fs::write(&config, format!("[metrics]\nlisten = \"unix:{}\"\n", monitor.display())).unwrap();
    let _daemon = bench.place.daemon(&["--policy", "fair", "--config", config.to_str().unwrap()]);
    let own: Vec<_> = (0..3).map(|_| bench.deep(&[])).collect();
    let command = bench.place.run_command_of(NOBODY, &[], &bench.work, &["steady", "200", "64"]);
    let mut other = Process::start(command);
    other.expect("ready");
    other.progress_after(0);
    let programs: Vec<&Process> = own.iter().chain([&other]).collect();
    bench.parts_are("three programs of one user and one of another", &programs, |parts| {
        (100.0 * parts[3] / parts.iter().sum::<f64>() - 50.0).abs() <= 2.0
    });
    // The sum of what is asked for is one figure, in `ps` and for monitors.
    let asked = |program: &Process| bench.place.group(program.pid()).unwrap()["share_asked_percent"].as_f64().unwrap();
    let each: Vec<f64> = programs.iter().map(|program| (asked(program) * 10.0).round() / 10.0).collect();
    assert_eq!(each, [16.7, 16.7, 16.7, 50.0]);
    let mut stream = UnixStream::connect(&monitor).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let mut by_user: BTreeMap<&str, f64> = BTreeMap::new();
    for sample in page.lines().filter(|line| line.starts_with("xsched_share_ratio{")) {
        let user = sample.split_once("user=\"").and_then(|(_, rest)| rest.split('"').next()).unwrap();
        let ratio: f64 = sample.rsplit(' ').next().and_then(|ratio| ratio.parse().ok()).unwrap();
        *by_user.entry(user).or_default() += ratio;
    }
    let halves = by_user.len() == 2 && by_user.values().all(|ratio| (ratio - 0.5).abs() < 0.001);
    assert!(halves, "{by_user:?}");
    end(other);
    own.into_iter().for_each(end);
}

/// Containers that are no more than a cgroup each, with the records that their engine would have written.
struct Pods {
    cgroups: Vec<PathBuf>,
    records: PathBuf,
}

impl Pods {
    /// Makes a hierarchy of cgroups of version 2, beside this process. An error gives the reason for which there can be none.
    fn new(place: &Place) -> Result<Pods, String> {
        let records = folder(&place.join(""));
        let pods = Pods { cgroups: Vec::new(), records };
        std::fs::create_dir_all(&pods.records).map_err(|e| format!("{}: {e}", pods.records.display()))?;
        Ok(pods)
    }

    /// Adds a container of a namespace, made with a class.
    fn add(&mut self, namespace: &str, class: Class) -> Result<PathBuf, String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|e| e.to_string())?;
        let mut mounts = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let mount = mounts.next().and_then(|line| line.split(' ').nth(1)).ok_or("there are no cgroups of version 2")?;
        let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
        let id = format!("{:064x}", u128::from(std::process::id()) << 8 | self.cgroups.len() as u128);
        let path = PathBuf::from(mount).join(own).join(format!("cri-containerd-{id}.scope"));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        self.cgroups.push(path.clone());
        let (pod, namespace) = (Some(format!("pod-{}", self.cgroups.len())), Some(namespace.to_owned()));
        let record = Record { id, pod, namespace, class: Some(class), ..Record::default() };
        record.write(&self.records).map_err(|e| format!("{}: {e}", self.records.display()))?;
        Ok(path)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for path in &self.cgroups {
            let _ = std::fs::remove_dir(path);
        }
        let _ = std::fs::remove_dir_all(&self.records);
    }
}

impl Bench {
    /// Starts a program in a cgroup.
    fn start_in(&self, cgroup: &Path, args: &[&str]) -> Process {
        let inner = self.place.run_command(&[], &self.work, args);
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(cgroup);
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut program = Process::start(command);
        program.expect("ready");
        program
    }

    /// Starts a program as [`Bench::deep`] does, in a cgroup.
    fn deep_in(&self, cgroup: &Path) -> Process {
        let mut program = self.start_in(cgroup, &["steady", "200", "64"]);
        program.progress_after(0);
        program
    }
}

#[test]
fn a_pod_of_class_high_has_a_full_device_at_once_and_none_is_evicted() {
    const REQUESTS: usize = 100;
    let bench = Bench::new();
    let mut pods = Pods::new(&bench.place).expect("a folder for records");
    let added = pods.add("batch", Class::Low).and_then(|low| Ok((low, pods.add("serving", Class::High)?)));
    let (low, high) = match added {
        Ok(both) => both,
        Err(why) => return xsched_e2e::skipped(&format!("a full device and a pod of class high: {why}")),
    };
    let _daemon = bench.place.daemon(&["--policy", "hpf"]);
    let mut low = bench.deep_in(&low);
    let mut high = bench.start_in(&high, &["requests", "500", "1"]);
    let class = |program: &Process| bench.place.program(program.pid()).expect("attached")["class"].clone();
    assert_eq!([class(&low), class(&high)], ["low", "high"]);
    least_of(TRIES, Duration::from_micros(1_500), "median of a command of 0.5 ms on a full device", || {
        let mut took: Vec<f64> = Vec::new();
        for _ in 0..REQUESTS {
            low.progress_after(now_ns());
            let (from, to) = request(&mut high);
            took.push((to - from) as f64 / 1e9);
        }
        Duration::from_secs_f64(quantile(&took, 0.5))
    });
    low.progress_after(now_ns());
    end(high);
    end(low);
}

#[test]
fn fair_divides_device_time_by_namespace_before_program() {
    let bench = Bench::new();
    let mut pods = Pods::new(&bench.place).expect("a folder for records");
    let namespaces = ["team-a", "team-b", "team-b"];
    let cgroups: Result<Vec<PathBuf>, String> = namespaces.iter().map(|name| pods.add(name, Class::Normal)).collect();
    let cgroups = match cgroups {
        Ok(cgroups) => cgroups,
        Err(why) => return xsched_e2e::skipped(&format!("fair by namespace: {why}")),
    };
    let config = bench.place.join("config.toml");
    std::fs::write(&config, "[namespaces.team-a]\nweight = 300\n[namespaces.team-b]\nweight = 100\n").expect("written");
    let _daemon = bench.place.daemon(&["--config", config.to_str().expect("text")]);
    bench.place.ask(&["policy", "set", "fair", "by=namespace"]);
    let programs: Vec<Process> = cgroups.iter().map(|cgroup| bench.deep_in(cgroup)).collect();
    let namespaces = programs.iter().map(|p| bench.place.program(p.pid()).expect("attached")["namespace"].clone());
    assert_eq!(namespaces.collect::<Vec<_>>(), ["team-a", "team-b", "team-b"]);
    let what = "one program of a namespace of weight 300, two of one of 100";
    bench.divided(what, &programs.iter().collect::<Vec<_>>(), &[75.0, 12.5, 12.5]);
    programs.into_iter().for_each(end);
}

/// The allowance is found within some hundred requests, and bounded by the target: a P99 that was always missed or never approached would
/// show. Where the machine delays requests, the policy rightly allows less, and nothing where they miss the target alone.
#[test]
fn slo_gives_best_effort_work_what_the_target_leaves() {
    const REQUESTS: usize = 200;
    let bench = Bench::new();
    let _daemon = bench.place.daemon(&["--policy", "slo"]);
    let mut low = bench.steady(&[]);
    let mut served = bench.requests(&["--slo", "9ms"], "10");
    let low_id = low.pid().to_string();
    let mut some = || -> (Vec<(u64, u64)>, f64, f64) {
        let one = |_| {
            std::thread::sleep(Duration::from_millis(5)); // the time between requests
            request(&mut served)
        };
        let took: Vec<_> = (0..REQUESTS).map(one).collect();
        let ms: Vec<f64> = took.iter().map(|(from, to)| (to - from) as f64 / 1e6).collect();
        let [p50, p99] = [0.5, 0.99].map(|q| quantile(&ms, q));
        (took, p50, p99)
    };
    some();
    one_of(TRIES, "best-effort work beside requests", || {
        let control = Lateness::begin();
        let (took, p50, p99) = some();
        let beside: u64 = took.iter().map(|span| given_between(&mut low, *span)).sum();
        let possible = unhindered(&mut low, took.iter().map(|(from, to)| to - from).sum());
        let percent = 100.0 * beside as f64 / possible;
        let said = format!(
            "requests of 5 ms, target P99 9 ms: P50 {p50:.2} ms, P99 {p99:.2} ms, {percent:.0} % of what others could do beside"
        );
        println!("{said}");
        let allowed = control.allows(Duration::from_millis(9));
        assert!(p50 <= allowed.as_secs_f64() * 1e3, "{p50} ms, allowed {allowed:?}");
        if percent > 5.0 {
            return Ok(());
        }
        bench.place.ask(&["suspend", "--pid", &low_id]);
        let alone = some().2;
        bench.place.ask(&["resume", "--pid", &low_id]);
        println!("P99 alone {alone:.2} ms");
        if alone > 7.0 { Ok(()) } else { Err(said) }
    });
    end(served);
    end(low);
}

/// Runs load that compares its results with the host's, under one policy after the other. `XSCHED_SWITCH_SECS` is the length.
fn switch_through_all(name: &str) {
    let platform = PLATFORMS.iter().find(|p| p.name == name).expect("a platform");
    let device = match Device::new(platform) {
        Ok(device) => device,
        Err(missing) => return xsched_e2e::skipped(&format!("policies switched under load on {name}: {missing}")),
    };
    let secs = std::env::var("XSCHED_SWITCH_SECS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let place = device.place();
    // All programs get the device at the beginning, the least urgent too.
    let _daemon = place.daemon(&["--policy", "pup"]);
    let options: [&[&str]; 3] = [
        &["--priority", "high", "--utilization", "50", "--slo", "5ms", "--deadline", "3000"],
        &["--priority", "low", "--weight", "30", "--laxity", "4000:low:high"],
        &["--active", "on", "--timeslice", "1000"],
    ];
    let mut programs = options.map(|options| device.run(options, &["steady", "200", "8"]));
    for program in &mut programs {
        program.expect("ready");
        program.progress_after(0);
    }
    let key = place.group(programs[0].pid()).expect("a group")["device"].as_str().expect("a key").to_owned();
    let ends = now_ns() + secs * 1_000_000_000;
    let mut switches = 0_u32;
    while now_ns() < ends {
        let began = now_ns();
        for entry in registry::listed() {
            match switches % 3 {
                0 => place.ask(&["policy", "set", entry.name, "--device", &key]),
                _ => place.ask(&["policy", "set", entry.name]),
            };
            switches += 1;
            std::thread::sleep(Duration::from_millis(100)); // how long each is in force
        }
        // Each program has had the device since the round began, or has it soon.
        for program in &mut programs {
            program.progress_after(began);
        }
    }
    println!("{name}: {switches} switches in {secs} s");
    assert!(switches > 20);
    place.ask(&["policy", "set", "pup"]);
    for mut program in programs {
        program.skip_lines();
        program.tell("end");
        let (code, lines, errors) = program.wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
        // The programs have more hints than pup uses, and get a line about that once.
        assert!(errors.lines().all(|line| line.starts_with("xsched: the policy pup does not look at: ")), "{errors}");
        assert!(errors.lines().count() <= 1, "{errors}");
        device.assert_counts(&lines);
    }
}

#[test]
fn policies_switch_under_load_without_a_wrong_result_on_the_simulated_device() {
    switch_through_all("sim");
}

#[test]
fn policies_switch_under_load_without_a_wrong_result_on_opencl() {
    switch_through_all("opencl");
}
