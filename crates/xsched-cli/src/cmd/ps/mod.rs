//! `xsched ps`: programs, their groups and queues.

mod devices;
mod memory;
mod past;
mod table;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use xsched_proto::class::Class;
use xsched_proto::device::DeviceInfo;
use xsched_proto::paths::{self, Origin};
use xsched_proto::text::escaped;
use xsched_proto::units;
use xsched_proto::wire::{DaemonInfo, DaemonMsg, GroupInfo, ProgramInfo, QueueDomain, RefusedProgram, Request};

use crate::failure::{Result, print, print_json};
use crate::history::History;
use crate::out_of_sight::{self, Other};
use crate::why::{Known, Times};
use crate::width::{self, Width};
use crate::{candidates, client, users, values};

pub(crate) use self::memory::details as memory_of;

/// List the programs under the scheduler, one line for each device they use
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Only these processes, and why each is as slow as it is
    #[arg(value_name = "PID", value_parser = values::pid, add = candidates::pids())]
    pids: Vec<u32>,

    /// Also list programs that ended within the last hour
    #[arg(long, short = 'a')]
    all: bool,

    /// Show all columns, and cut nothing
    #[arg(long, short = 'w')]
    wide: bool,

    /// Column to sort by; numbers with the largest first
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Sort::Pid, hide_default_value = true)]
    sort: Sort,

    /// Only programs of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = users::user, add = candidates::users())]
    user: Option<u32>,

    /// Only programs of this job
    #[arg(long, value_name = "NAME", value_parser = values::job, add = candidates::jobs())]
    job: Option<String>,

    /// Only programs of this class
    #[arg(long, value_name = "CLASS", value_parser = values::ClassParser)]
    class: Option<Class>,

    /// Only programs on this device, by its key or the end of it
    #[arg(long, value_name = "DEVICE", add = candidates::devices())]
    device: Option<String>,

    /// Print all values as JSON
    #[arg(long)]
    json: bool,

    /// One line for each XQueue instead, by the name that `xsched hint --queue` takes
    #[arg(long, conflicts_with = "json")]
    queues: bool,

    /// Print the JSON Schema of `--json`
    #[arg(long, exclusive = true)]
    schema: bool,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
PROGRAM   the script that an interpreter runs, else the file name of the
          executable; with --wide the command line
BY        source of the class: a rule, an option (or the environment), a hint,
          nothing (default); `+` = asked for more
HOW       sharing of an NVIDIA GPU: by time, in the pool of its user, or
          spatially under MPS
LEVEL     the preemption level in force
STATE     idle, ready (waits for the device, with how long), running, suspended
          (by `xsched suspend`, or priority -256), detached (opened its own
          gate), ended (with how long ago)
SHARE     its part of the device time of the last 10 s, such as 68 %; where the
          policy goes by shares, in percent what it asks for / what it got
GPU TIME  device time charged
MEM       memory that it holds on the device; with --wide beside its limit
P99WAIT   time that 99 % of its waits at the closed gate did not exceed
WAITED    all its waits there
UNSCHED   launches that reached the device without a decision: before the
          daemon's answer, by an operator's rule, or after an internal error

The table fits the terminal, or $COLUMNS: columns are left out, and long names
end in an ellipsis. Output to a pipe or a file is not cut. Below, the
programs that go before others of their priority because they pause, a line for
each device whose driver tells how it is (NVIDIA's by NVML, AMD's by amdgpu),
and the processes that use it without being attached";

/// Columns that `--sort` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Pid,
    User,
    Job,
    Container,
    Class,
    Device,
    State,
    Share,
    GpuTime,
    Mem,
    P99wait,
    Waited,
    Launches,
    Program,
}

/// Answer in the form of `--json`.
#[derive(Serialize)]
struct Answer {
    version: u32,
    daemon: Option<DaemonInfo>,
    devices: Vec<DeviceInfo>,
    programs: Vec<ProgramInfo>,
    /// Programs that the daemon has refused, because of a limit.
    refused: Vec<RefusedProgram>,
    /// Daemons whose programs this daemon does not schedule.
    other_daemons: Vec<Other>,
}

/// Published schema of the answer.
const SCHEMA: &str = include_str!("../../../../../docs/reference/ps.schema.json");

/// Asks the daemon and prints the answer.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let Some(mut answer) = ask(args.socket.as_deref(), args.all)? else { return past::show(&args) };
    let all = answer.programs.len();
    let everything = answer.programs.clone();
    args.select(&mut answer);
    match (args.json, args.queues) {
        (true, _) => print_json(&answer),
        (false, true) => print(&queues(&answer)),
        (false, false) => {
            let width = if args.wide { Width::Unlimited } else { width::of_output() };
            let left_out = all - answer.programs.len();
            let reasons =
                if args.pids.is_empty() { String::new() } else { reasons(&everything, &answer, &args, width) };
            print(&(table(&answer, args.wide, args.sort, width, left_out) + &reasons))
        }
    }
}

impl Args {
    /// Removes programs that were not asked for.
    fn select(&self, answer: &mut Answer) {
        let is_here = |key: &str| self.device.as_deref().is_none_or(|asked| key == asked || key.ends_with(asked));
        answer.programs.retain_mut(|p| {
            if self.device.is_some() {
                p.groups.retain(|group| is_here(&group.device));
            }
            (self.pids.is_empty() || self.pids.contains(&p.pid))
                && self.user.is_none_or(|uid| p.uid == uid)
                && self.job.as_deref().is_none_or(|job| p.job.as_deref() == Some(job))
                && self.class.is_none_or(|class| p.class == class)
                && (self.device.is_none() || !p.groups.is_empty())
        });
        answer.devices.retain(|device| is_here(&device.device));
        answer.refused.retain(|refused| {
            (self.pids.is_empty() || self.pids.contains(&refused.pid))
                && self.user.is_none_or(|uid| refused.uid == uid)
                && self.job.is_none()
                && self.class.is_none()
                && self.device.is_none()
        });
    }
}

/// Answer of the daemon; none where none listens.
fn ask(socket: Option<&Path>, all: bool) -> Result<Option<Answer>> {
    let mut answer = Answer {
        version: 2,
        daemon: None,
        devices: Vec::new(),
        programs: Vec::new(),
        refused: Vec::new(),
        other_daemons: Vec::new(),
    };
    let request = if all { Request::PsAll } else { Request::Ps };
    let Some(parts) = client::ask_if_there(socket, request)? else { return Ok(None) };
    for part in parts {
        match part {
            DaemonMsg::Daemon(info) => answer.daemon = Some(info),
            DaemonMsg::Device(info) => answer.devices.push(*info),
            DaemonMsg::Program(info) => answer.programs.push(*info),
            DaemonMsg::RefusedProgram(refused) => answer.refused.push(refused),
            _ => {}
        }
    }
    let (path, origin) = paths::socket_path(socket.map(Path::to_owned));
    if origin != Origin::Explicit {
        answer.other_daemons = out_of_sight::others(client::server(&path));
    }
    Ok(Some(answer))
}

/// Time that the reasons of the programs that were asked for go by, in µs.
const REASON_US: u64 = 60_000_000;

/// Reason for which each program that was asked for is as slow as it is, in a line for each device. Without the daemon's records there is
/// none.
fn reasons(everything: &[ProgramInfo], answer: &Answer, args: &Args, width: Width) -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
    let request = Request::Trace { from: 0, since_us: now_us.saturating_sub(REASON_US) };
    let (mut head, mut groups, mut records) = (None, Vec::new(), Vec::new());
    for part in client::ask(args.socket.as_deref(), request).unwrap_or_default() {
        match part {
            DaemonMsg::TraceHead(told) => head = Some(told),
            DaemonMsg::TraceGroups(told) => groups.extend(told),
            DaemonMsg::TraceRecords(told) => records.extend(told),
            _ => {}
        }
    }
    let Some(head) = head else { return String::new() };
    let from_us = head.now_us.saturating_sub(REASON_US).max(head.whole_since_us);
    let times = Times::of_history(&History::new(&groups, &records, from_us, head.now_us));
    let known = Known { programs: everything, groups: &groups, times: &times };
    lines_of_reasons(&known, answer, width)
}

fn lines_of_reasons(known: &Known<'_>, answer: &Answer, width: Width) -> String {
    let policy = |device: &str| {
        let daemon = answer.daemon.as_ref();
        daemon.map_or("", |daemon| daemon.device_policies.get(device).unwrap_or(&daemon.policy))
    };
    let mut out = String::new();
    for program in answer.programs.iter().filter(|program| program.ended_s.is_none()) {
        let named = format!("{:>8} {}", program.pid, escaped(&program.name));
        let mut add = |named: &str, why: crate::why::Answer| {
            out.push_str(&width.fill(&format!("{named}: {}", why.line()), 9));
        };
        match program.groups.as_slice() {
            [] => add(&named, known.why(program, None, "")),
            [one] => add(&named, known.why(program, Some(one), policy(&one.device))),
            several => several.iter().for_each(|group| {
                let named = format!("{named} on {}", escaped(&group.device));
                add(&named, known.why(program, Some(group), policy(&group.device)));
            }),
        }
        memory::lines(program).for_each(|line| out.push_str(&width.fill(&line, 9)));
    }
    out
}

/// Whole output. `left_out` = number of programs that were not asked for.
fn table(answer: &Answer, wide: bool, sort: Sort, width: Width, left_out: usize) -> String {
    let mut out = String::new();
    if let Some(daemon) = &answer.daemon {
        let of_devices: String = daemon
            .device_policies
            .iter()
            .map(|(device, policy)| format!(", {policy} on {}", escaped(device)))
            .collect();
        let head =
            format!("policy {}{of_devices}, daemon {} up {}", daemon.policy, daemon.pid, units::of_s(daemon.uptime_s));
        out.push_str(&width.fold(&head));
        let troubles = [&daemon.scheduler_failure, &daemon.configuration_fault];
        troubles.into_iter().flatten().for_each(|line| out.push_str(&width.fill(&escaped(line), 2)));
    }
    let hidden = hidden(answer);
    let refused: String = answer.refused.iter().map(|program| width.fill(&refusal(program), 9)).collect();
    let others: String = answer.other_daemons.iter().map(|other| format!("{}\n", other.line())).collect();
    if answer.programs.is_empty() {
        let line = match (left_out, hidden.is_empty()) {
            (0, true) => "no program is attached: one is from its first use of a device; start one with `xsched run -- COMMAND`\n".to_owned(),
            (0, false) => "no program of yours is attached; start one with `xsched run -- COMMAND`\n".to_owned(),
            (1, _) => "1 program is attached, none as asked for\n".to_owned(),
            (n, _) => format!("{n} programs are attached, none as asked for\n"),
        };
        return format!("{out}{line}{refused}{hidden}{others}");
    }
    out.push_str(&table::table(&answer.programs, wide, sort, width));
    out.push_str(&refused);
    if let Some(line) = interactive(&answer.programs) {
        out.push_str(&width.fill(&line, 2));
    }
    answer.programs.iter().for_each(|program| out.push_str(&domains(program)));
    answer.devices.iter().for_each(|device| out.push_str(&devices::lines(device, width)));
    out.push_str(&hidden);
    out.push_str(&others);
    out
}

/// Line on a program that was refused.
fn refusal(refused: &RefusedProgram) -> String {
    let RefusedProgram { pid, uid, name, why, since_s } = refused;
    let name = if name.is_empty() { String::new() } else { format!(" {}", escaped(name)) };
    // The advice is for the program's own output.
    let why = why.strip_suffix(": see xsched ps").unwrap_or(why);
    format!("{pid:>8}{name} of user {uid}: refused, runs unscheduled for {since_s} s: {}", escaped(why))
}

/// Line on the programs that only root sees; empty if there are none.
fn hidden(answer: &Answer) -> String {
    match answer.daemon.as_ref().map_or(0, |daemon| daemon.hidden_programs) {
        0 => String::new(),
        1 => "1 program of another user is not shown\n".into(),
        n => format!("{n} programs of other users are not shown\n"),
    }
}

/// Line for each XQueue, with the values of its group.
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
                    escaped(&program.name)
                );
            }
        }
    }
    out
}

/// Line on programs that come before others of their priority because they pause; none where there are no such others.
fn interactive(programs: &[ProgramInfo]) -> Option<String> {
    let living = || programs.iter().filter(|program| program.ended_s.is_none());
    let is_equal = |group: &GroupInfo, other: &GroupInfo| {
        !other.interactive && other.device == group.device && other.priority == group.priority
    };
    let goes_first = |program: &&ProgramInfo| {
        program.groups.iter().filter(|group| group.interactive).any(|group| {
            living().any(|other| other.pid != program.pid && other.groups.iter().any(|other| is_equal(group, other)))
        })
    };
    let named = |program: &ProgramInfo| format!("{} ({})", escaped(&program.name), program.pid);
    let names: Vec<String> = living().filter(goes_first).map(named).collect();
    (!names.is_empty()).then(|| format!("interactive, before equals that never pause: {}", names.join(", ")))
}

/// Facts about domains, in one line each; nothing where domains are not reported.
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

#[cfg(test)]
mod tests;
