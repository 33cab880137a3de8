//! `xsched ps`: programs, their groups and queues.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use xsched_proto::device::DeviceInfo;
use xsched_proto::text::escaped;
use xsched_proto::wire::{DaemonInfo, DaemonMsg, GroupInfo, ProgramInfo, QueueDomain, Request, Share};

use crate::failure::{Result, print, print_json};
use crate::{client, values};

/// List the programs under the scheduler, one line for each device they use
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Everything there is to know, as JSON
    #[arg(long)]
    json: bool,

    /// One line for each XQueue instead, by the name that `xsched hint --queue` takes
    #[arg(long, conflicts_with = "json")]
    queues: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
BY        what chose the class: a rule, an option (or the environment), a hint, nothing (default); `+` = asked for more
SHARE     how it shares an NVIDIA GPU: by time, in the pool of its user, or spatially under MPS; - on other devices
STATE     idle, ready (waits for the device), running, suspended (by `xsched suspend`, or priority -256), detached (opened
          its own gate)
UNSCHED   launches that reached the device without a decision: before the daemon's answer, by an operator's rule, or
          after an internal error
GPU TIME  device time charged; WAITED: time its threads stood at the closed gate

Below, a line for each device whose driver tells how it is (NVIDIA's by NVML, AMD's by amdgpu), and the processes that use it
without being attached";

/// The answer, as `--json` prints it.
#[derive(Serialize)]
struct Answer {
    version: u32,
    daemon: Option<DaemonInfo>,
    devices: Vec<DeviceInfo>,
    programs: Vec<ProgramInfo>,
}

/// Asks and prints.
pub(crate) fn main(args: Args) -> Result {
    let answer = ask(args.socket.as_deref())?;
    match (args.json, args.queues) {
        (true, _) => print_json(&answer),
        (false, true) => print(&queues(&answer)),
        (false, false) => print(&table(&answer)),
    }
}

/// The programs, as a table.
pub(crate) fn picture(socket: Option<&Path>) -> Result<String> {
    ask(socket).map(|answer| table(&answer))
}

fn ask(socket: Option<&Path>) -> Result<Answer> {
    let mut answer = Answer { version: 2, daemon: None, devices: Vec::new(), programs: Vec::new() };
    for part in client::ask(socket, Request::Ps)? {
        match part {
            DaemonMsg::Daemon(info) => answer.daemon = Some(info),
            DaemonMsg::Device(info) => answer.devices.push(*info),
            DaemonMsg::Program(info) => answer.programs.push(*info),
            _ => {}
        }
    }
    Ok(answer)
}

fn table(answer: &Answer) -> String {
    let mut out = String::new();
    if let Some(daemon) = &answer.daemon {
        // Writing to a String cannot fail.
        let of_devices: String = daemon
            .device_policies
            .iter()
            .map(|(device, policy)| format!(", {policy} on {}", escaped(device)))
            .collect();
        let _ = writeln!(out, "policy {}{of_devices}, daemon {} up {} s", daemon.policy, daemon.pid, daemon.uptime_s);
    }
    let hidden = hidden(answer);
    if answer.programs.is_empty() {
        let whose = if hidden.is_empty() { "" } else { " of yours" };
        out.push_str(&format!("no program{whose} is attached; start one with `xsched run -- COMMAND`\n{hidden}"));
        return out;
    }
    let _ = writeln!(
        out,
        "{:>8} {:<9} {:<8} {:>5} {:>6}  {:<7} {:<18} {:>5} {:<9} {:>10} {:>7} {:>10} {:>10}  PROGRAM",
        "PID",
        "CLASS",
        "BY",
        "PRIO",
        "WEIGHT",
        "SHARE",
        "DEVICE",
        "LEVEL",
        "STATE",
        "LAUNCHES",
        "UNSCHED",
        "GPU TIME",
        "WAITED"
    );
    for program in &answer.programs {
        let head = |priority: i32| {
            let share = match program.share {
                Some(Share::Time) => "time",
                Some(Share::Pool) => "pool",
                Some(Share::Spatial) => "spatial",
                None => "-",
            };
            let (class, by) = (program.class.name(), by(program));
            format!("{:>8} {class:<9} {by:<8} {priority:>5} {:>6}  {share:<7}", program.pid, program.weight)
        };
        if program.groups.is_empty() {
            let _ = writeln!(out, "{} {:<18} {:>56}  {}", head(program.priority), "-", "", name(&program.exe));
        }
        for group in &program.groups {
            let _ = writeln!(out, "{} {}  {}", head(group.priority), columns(group), name(&program.exe));
        }
    }
    answer.programs.iter().for_each(|program| out.push_str(&domains(program)));
    answer.devices.iter().for_each(|device| out.push_str(&device_lines(device)));
    out.push_str(&hidden);
    out
}

/// How a device is, in one line, and in another which processes use it without being attached.
fn device_lines(device: &DeviceInfo) -> String {
    let state = &device.latest;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = state.memory_used_bytes.zip(state.memory_total_bytes);
    let with_limit = |value: Option<i64>, limit: Option<i64>, unit: &str| {
        let limit = limit.map_or_else(String::new, |limit| format!(" of {limit} {unit}"));
        value.map(|value| format!("{value} {unit}{limit}"))
    };
    let reasons = state.throttle.iter().flatten().map(|reason| reason.text()).collect::<BTreeSet<_>>();
    let slowed = (!reasons.is_empty()).then(|| reasons.into_iter().collect::<Vec<_>>().join(", "));
    let parts = [
        device.stale.then(|| format!("as of {} s ago, its driver does not answer", state.age_ms / 1_000)),
        memory.map(|(used, total)| format!("memory {:.1} of {:.1} GiB", gib(used), gib(total))),
        state.active_percent.map(|percent| format!("active {percent} %")),
        with_limit(state.temperature_c.map(i64::from), state.temperature_limit_c.map(i64::from), "°C"),
        with_limit(state.power_w.map(i64::from), state.power_limit_w.map(i64::from), "W"),
        state.sm_clock_mhz.map(|mhz| format!("{mhz} MHz")),
        slowed.map(|reasons| format!("slowed down ({reasons})")),
    ];
    let mut out =
        format!("{}: {}\n", escaped(&device.device), parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
    let outside = device.processes.iter().flatten().filter(|p| p.outside).map(|p| {
        let memory = p.memory_bytes.map_or_else(String::new, |bytes| format!(", {:.1} GiB", gib(bytes)));
        format!("{} ({}{memory})", name(p.name.as_deref().unwrap_or_default()), p.pid)
    });
    let outside: Vec<String> = outside.collect();
    if !outside.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}: used by processes that are not attached: {}",
            escaped(&device.device),
            outside.join(", ")
        );
    }
    out
}

/// A line on the programs that only root sees; nothing if there are none.
fn hidden(answer: &Answer) -> String {
    match answer.daemon.as_ref().map_or(0, |daemon| daemon.hidden_programs) {
        0 => String::new(),
        1 => "1 program of another user is not shown\n".into(),
        n => format!("{n} programs of other users are not shown\n"),
    }
}

/// A line for each XQueue, with what its group has.
fn queues(answer: &Answer) -> String {
    let mut out = format!(
        "{:>8} {:>8} {:>5} {:<18} {:>5} {:>9} {:>7} {:<9} {:>10}  PROGRAM\n",
        "QUEUE", "PID", "PRIO", "DEVICE", "LEVEL", "THRESHOLD", "BATCH", "STATE", "LAUNCHES"
    );
    let or_auto = |n: u32| if n == 0 { "auto".to_owned() } else { n.to_string() };
    for program in &answer.programs {
        for group in &program.groups {
            let state = format!("{:?}", group.state).to_lowercase();
            let (threshold, batch) = (or_auto(group.threshold), or_auto(group.batch));
            for queue in &group.queues {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    out,
                    "{:>8} {:>8} {:>5} {:<18} {:>5} {threshold:>9} {batch:>7} {state:<9} {:>10}  {}",
                    queue.id,
                    program.pid,
                    group.priority,
                    escaped(&group.device),
                    group.level,
                    queue.launches,
                    name(&program.exe)
                );
            }
        }
    }
    out
}

fn columns(group: &GroupInfo) -> String {
    let state = format!("{:?}", group.state).to_lowercase();
    let past = group.unscheduled.attach + group.unscheduled.passthrough + group.unscheduled.error;
    format!(
        "{:<18} {:>5} {:<9} {:>10} {:>7} {:>10} {:>10}",
        escaped(&group.device),
        group.level,
        state,
        group.launches,
        past,
        duration(group.device_us),
        duration(group.wait_us)
    )
}

/// Who chose the class, and whether more was asked for.
fn by(program: &ProgramInfo) -> String {
    format!("{}{}", program.class_from.text(), if program.limited { "+" } else { "" })
}

/// What is known of domains, in one line each; nothing where domains are not reported.
fn domains(program: &ProgramInfo) -> String {
    let mut out = String::new();
    for group in &program.groups {
        let domain = if group.domain == QueueDomain::System { ", its streams of the system domain" } else { "" };
        if let Some(system) = group.system_launches {
            let own = group.launches.saturating_sub(system);
            let exempt = match group.exempt_launches {
                0 => String::new(),
                n => format!(" ({n} past a closed gate)"),
            };
            let _ = writeln!(
                out,
                "{:>8} {}{domain}: {system} launches of vendor libraries{exempt}, {own} of its own",
                program.pid,
                escaped(&group.device)
            );
        }
    }
    out
}

/// Microseconds for people.
fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// The file name of a path, which the program chooses.
fn name(exe: &str) -> Cow<'_, str> {
    escaped(exe.rsplit('/').next().unwrap_or(exe))
}

#[cfg(test)]
mod tests {
    use xsched_proto::wire::ClassFrom;

    use super::*;
    use xsched_proto::class::Class;
    use xsched_proto::device::{DeviceProcess, DeviceState, Source, Throttle};
    use xsched_proto::wire::{GroupState, Platform, QueueInfo, Unscheduled};

    fn answer() -> Answer {
        let group = GroupInfo {
            id: "g1".into(),
            device: "sim:0".into(),
            platform: Platform::Sim,
            domain: QueueDomain::Application,
            system_launches: None,
            exempt_launches: 0,
            priority: 128,
            level: 1,
            threshold: 16,
            batch: 0,
            state: GroupState::Running,
            queues: vec![QueueInfo { id: "q1".into(), launches: 7 }],
            launches: 7,
            unscheduled: Unscheduled { attach: 1, passthrough: 0, error: 1 },
            liveness_overrides: 0,
            signal_overrides: 0,
            suspensions: 2,
            device_us: 1_500,
            share_asked_percent: None,
            share_got_percent: None,
            waits: Default::default(),
            wait_us: 12,
            longest_us: 0,
            short: None,
            timeslice_us: None,
            completed: 6,
            alone_us: None,
        };
        let program = ProgramInfo {
            pid: 42,
            uid: 1000,
            exe: "/bin/a\x1b[31mpp".into(),
            name: "a\x1b[31mpp".into(),
            command: Vec::new(),
            job: None,
            container: None,
            attached_s: 1,
            ended_s: None,
            class: Class::High,
            class_from: ClassFrom::Option,
            limited: false,
            priority: 128,
            weight: 100,
            hints: Default::default(),
            share: None,
            domains: Default::default(),
            groups: vec![group],
        };
        Answer { version: 2, daemon: None, devices: Vec::new(), programs: vec![program] }
    }

    #[test]
    fn a_device_has_a_line_and_what_uses_it_unattached_another() {
        let process = |pid, name: &str, outside| DeviceProcess {
            pid,
            name: Some(name.into()),
            memory_bytes: Some(3 << 29),
            outside,
        };
        let device = DeviceInfo {
            device: "pci:0000:41:00.0".into(),
            name: None,
            source: Source::Nvml,
            stale: false,
            latest: DeviceState {
                memory_used_bytes: Some(61 << 30),
                memory_total_bytes: Some(80 << 30),
                active_percent: Some(97),
                temperature_c: Some(64),
                temperature_limit_c: Some(93),
                power_w: Some(310),
                throttle: Some(vec![Throttle::SwThermal, Throttle::HwThermal, Throttle::PowerCap]),
                ..DeviceState::default()
            },
            processes: Some(vec![process(42, "app", false), process(43, "b\x1b[31m", true)]),
            history: Vec::new(),
        };
        let lines = "pci:0000:41:00.0: memory 61.0 of 80.0 GiB, active 97 %, 64 °C of 93 °C, 310 W, slowed down (heat, power limit)\n\
                     pci:0000:41:00.0: used by processes that are not attached: b\\u{1b}[31m (43, 1.5 GiB)\n";
        let shown = Answer { devices: vec![device.clone()], ..answer() };
        assert!(table(&shown).ends_with(lines), "{}", table(&shown));
        let old = DeviceInfo {
            stale: true,
            latest: DeviceState { age_ms: 12_345, ..DeviceState::default() },
            processes: None,
            ..device
        };
        assert_eq!(device_lines(&old), "pci:0000:41:00.0: as of 12 s ago, its driver does not answer\n");
    }

    #[test]
    fn json_has_the_published_shape() {
        let v = serde_json::to_value(answer()).unwrap();
        assert_eq!(v["version"], 2);
        let p = &v["programs"][0];
        assert_eq!(
            (p["class"].as_str(), p["priority"].as_i64(), p["pid"].as_u64()),
            (Some("high"), Some(128), Some(42))
        );
        let g = &p["groups"][0];
        assert_eq!(
            (g["state"].as_str(), g["platform"].as_str(), g["level"].as_u64()),
            (Some("running"), Some("sim"), Some(1))
        );
        assert_eq!(g["unscheduled"], serde_json::json!({"attach": 1, "passthrough": 0, "error": 1}));
        assert_eq!(g["queues"][0], serde_json::json!({"id": "q1", "launches": 7}));
    }

    #[test]
    fn programs_of_others_are_counted() {
        let mut answer = answer();
        let daemon = |hidden_programs| DaemonInfo {
            pid: 1,
            version: "0".into(),
            policy: "hpf".into(),
            device_policies: Default::default(),
            uptime_s: 1,
            dropped_clients: 0,
            hidden_programs,
        };
        answer.daemon = Some(daemon(0));
        assert!(!table(&answer).contains("not shown"));
        answer.daemon = Some(daemon(3));
        assert!(table(&answer).ends_with("\n3 programs of other users are not shown\n"));
        answer.programs.clear();
        answer.daemon = Some(daemon(1));
        let text = table(&answer);
        assert!(text.contains("\nno program of yours is attached;"), "{text}");
        assert!(text.ends_with("\n1 program of another user is not shown\n"), "{text}");
    }

    #[test]
    fn the_table_lines_up_and_holds_no_control_characters() {
        let mut answer = answer();
        let idle = ProgramInfo { groups: Vec::new(), share: Some(Share::Spatial), ..answer.programs[0].clone() };
        answer.programs.push(idle);
        let text = table(&answer);
        let lines: Vec<_> = text.lines().collect();
        let at = lines[0].find("PROGRAM").unwrap();
        for line in &lines[1..] {
            assert_eq!(line.chars().skip(at).collect::<String>(), "a\\u{1b}[31mpp");
        }
        let at = lines[0].find("SHARE").unwrap();
        assert!(lines[1][at..].starts_with("- ") && lines[2][at..].starts_with("spatial "));
        assert!(!text.contains('\x1b'));
        let text = queues(&answer);
        assert_eq!(text.lines().count(), 2, "{text}");
        for word in ["q1", " 42 ", " 128 ", "sim:0", " 16 ", " auto ", "running", " 7 ", "a\\u{1b}[31mpp"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(lines[1].contains("1.5 ms") && lines[1].contains("12 µs"));
    }
}
