//! A recording of what was gathered: devices and programs, as a scenario describes them.

use std::collections::{BTreeMap, BTreeSet};

use xsched_proto::class::Class;
use xsched_proto::info::{GroupInfo, ProgramInfo};
use xsched_proto::platform::Platform;
use xsched_proto::trace::Burst;
use xsched_proto::units;
use xsched_simulate::{Device, Preemption, Program, Recorded, Recording, Time};

use super::gather::{Gathered, Sighting};

const GIB: f64 = (1_u64 << 30) as f64;
/// Time from a program's last completion to its end in the scenario, in ns.
const AFTER_LAST_NS: u64 = 1_000_000;

/// A recording of all programs that had a group on a device.
pub(super) fn recording(gathered: &Gathered) -> Recording {
    let groups = |sighting: &Sighting| sighting.last.groups.clone();
    let all: Vec<(&Sighting, GroupInfo)> =
        gathered.programs.values().flat_map(|seen| groups(seen).into_iter().map(move |group| (seen, group))).collect();
    let keys: BTreeSet<&str> = all.iter().map(|(_, group)| group.device.as_str()).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let devices = keys.iter().map(|key| device(key, &all)).collect();
    let users: BTreeSet<u32> = gathered.programs.values().map(|seen| seen.last.uid).collect();
    let mut of_group: BTreeMap<u64, Vec<Burst>> = BTreeMap::new();
    gathered.bursts.iter().for_each(|burst| of_group.entry(burst.group).or_default().push(*burst));
    let mut names = BTreeSet::new();
    let programs = all.iter().map(|(seen, group)| {
        let at = keys.iter().position(|key| *key == group.device).unwrap_or(0);
        let bursts = group.id.strip_prefix('g').and_then(|id| of_group.remove(&id.parse().ok()?)).unwrap_or_default();
        let mut program = program(&seen.last, group, at as u32, users.len() > 1);
        program.name = free_name(&seen.last.name, &mut names);
        let from_us = |us: u64| us.saturating_sub(gathered.from_us).saturating_mul(1_000);
        if !seen.from_begin {
            program.start = Time(bursts.first().map_or(0, |burst| from_us(burst.began_us)));
        }
        if !seen.to_end
            && let Some(last) = bursts.last()
        {
            program.end = Some(Time(from_us(last.began_us + last.us).max(program.start.0) + AFTER_LAST_NS));
        }
        let before = seen.first.groups.iter().find(|one| seen.from_begin && one.id == group.id);
        let since = |now: u64, of: fn(&GroupInfo) -> u64| now.saturating_sub(before.map_or(0, of));
        Recorded {
            program,
            commands: since(group.launches, |group| group.launches),
            ran_us: since(group.gpu_us, |group| group.gpu_us),
            longest_us: group.longest_us,
            bursts,
        }
    });
    let programs: Vec<Recorded> = programs.collect();
    let listed: Vec<&str> = programs.iter().map(|recorded| recorded.program.name.as_str()).collect();
    let us = gathered.to_us.saturating_sub(gathered.from_us);
    Recording {
        question: format!("{} of {}: what would happen?", units::of_us(us), listed.join(", ")),
        from_us: gathered.from_us,
        us,
        policy: policy(&gathered.daemon.policy),
        devices,
        programs,
    }
}

/// A policy that a simulation has; the usual one in place of an operator's own scheduler.
fn policy(named: &str) -> String {
    if named.starts_with("external") { "hpf".to_owned() } else { named.to_owned() }
}

fn device(key: &str, all: &[(&Sighting, GroupInfo)]) -> Device {
    let here = || all.iter().filter(|(_, group)| group.device == key);
    let level = here().map(|(_, group)| group.level).max().unwrap_or(1);
    let is_cuda = here().any(|(_, group)| group.platform == Platform::Cuda);
    let preemption = match level {
        0 | 1 => Preemption::Host,
        2 => Preemption::Gates,
        _ if is_cuda => Preemption::Slices,
        _ => Preemption::Interrupt,
    };
    let memory = |(seen, _): &(&Sighting, GroupInfo)| {
        let info = seen.last.memory.iter().find(|memory| memory.device == key)?;
        Some(info.capacity_bytes)
    };
    let memory = here().filter_map(memory).max().unwrap_or(0) as f64 / GIB;
    let pool = here().any(|(seen, _)| seen.last.pool.is_some());
    Device::recorded(preemption, memory, pool)
}

fn program(info: &ProgramInfo, group: &GroupInfo, device: u32, has_users: bool) -> Program {
    let hint = |name: &str| info.hints.get(name).cloned();
    let held = info.memory.iter().find(|memory| memory.device == group.device);
    let nominal = info.class.nominal() == info.priority;
    let is_usual = nominal && info.class == Class::Normal;
    Program {
        class: (!is_usual).then(|| if nominal { info.class.name().to_owned() } else { info.priority.to_string() }),
        weight: Some(info.weight).filter(|weight| *weight != 100),
        timeslice: hint("timeslice"),
        utilization: hint("utilization").and_then(|text| text.trim_end_matches('%').trim().parse().ok()),
        deadline: hint("deadline"),
        slo: hint("slo"),
        user: has_users.then_some(info.uid),
        namespace: info.namespace.clone(),
        device: vec![device],
        memory: held.map_or(0.0, |memory| (memory.held.peak_bytes as f64 / GIB * 1_000.0).round() / 1_000.0),
        ..Program::named("")
    }
}

/// A name that no other program has.
fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let name = if name.is_empty() { "program" } else { name };
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or_default();
    taken.insert(free.clone());
    free
}
