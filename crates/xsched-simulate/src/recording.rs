//! Recordings: programs as the daemon saw them become a scenario.
//!
//! A burst, from a group's first launch to its last completion, becomes a request. Device time, commands and distances of bursts become
//! distributions, or a file with each of them. What the daemon does not see is not in it: which commands a burst has, and what the host does
//! before the first one.

use std::collections::BTreeMap;

use xsched_proto::trace::Burst;

use crate::scenario::{
    Arrival, Arrivals, Daemon, Detail, Device, Kernels, Placement, Preemption, Program, Scenario, Time, Times, Traced,
};

/// Programs and devices as they were seen for some time.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Question of the scenario.
    pub question: String,
    /// Begin, by the clock of the bursts, in µs.
    pub from_us: u64,
    /// Length, in µs.
    pub us: u64,
    /// Policy in force, with its parameters.
    pub policy: String,
    /// Devices, in the order of their numbers.
    pub devices: Vec<Device>,
    /// Programs, each on one device.
    pub programs: Vec<Recorded>,
}

/// A program on a device.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Name, class, hints, memory, device, and what else a scenario says of it; times and kernels are not looked at.
    pub program: Program,
    /// Its bursts, in the order of their ends.
    pub bursts: Vec<Burst>,
    /// Commands that it completed in all.
    pub commands: u64,
    /// Time for which it was on its device in all, in µs.
    pub ran_us: u64,
    /// Longest command, as the program estimates it, in µs; 0 = not known.
    pub longest_us: u64,
}

/// A scenario of a recording.
#[derive(Clone, Debug)]
pub struct Written {
    /// The scenario.
    pub scenario: Scenario,
    /// Files of requests, by the name in the scenario.
    pub files: BTreeMap<String, String>,
    /// Programs that launched nothing and are left out.
    pub silent: Vec<String>,
}

/// Bursts that say enough of how they are distributed.
const BURSTS_ENOUGH: usize = 3;
/// Bursts without company that are preferred to those of all.
const ALONE_ENOUGH: usize = 30;
/// Length of the pieces into which work without requests is cut, in µs.
const PIECE_US: f64 = 20_000.0;
/// Median length of bursts from which on they are work without requests, in µs.
const ENDLESS_US: u64 = 200_000;
/// Time of the host for a launch where nothing tells it, in ns.
const LAUNCH_NS: u64 = 5_000;
/// Part by which bursts beside others are longer than their device time, from which on the host is their bottleneck.
const HOST_BOUND: f64 = 1.3;
/// Part of the bursts of which device time must be known, so that it counts as known: one in so many.
const KNOWN_OF: usize = 10;
/// Most quantiles of a distribution.
const POINTS: usize = 101;
/// Most commands of a request.
const COMMANDS_MAX: u64 = 1_000_000;

impl Recording {
    /// A scenario of it: of distributions, or with each burst in files whose names begin with `each`.
    pub fn scenario(&self, each: Option<&str>) -> Written {
        let mut written = Written {
            scenario: Scenario {
                question: self.question.clone(),
                time: Time(self.us.max(1).saturating_mul(1_000)),
                policy: self.policy.clone(),
                compare: Vec::new(),
                seed: 1,
                detail: Detail::Kernels,
                interval: None,
                daemon: Daemon::default(),
                devices: self.devices.clone(),
                programs: Vec::new(),
                events: Vec::new(),
                placement: Placement::default(),
            },
            files: BTreeMap::new(),
            silent: Vec::new(),
        };
        for recorded in &self.programs {
            let mut program = recorded.program.clone();
            (program.arrivals, program.host) = (Arrivals::default(), Times::Fixed(0));
            (program.requests, program.kernels, program.traced) = (None, Vec::new(), Vec::new());
            let seen = Seen::new(recorded, self.delay_ns(&program));
            let is_endless = seen.bursts.len() < BURSTS_ENOUGH || seen.median_us() >= ENDLESS_US;
            if is_endless {
                let Some((kernels, pause)) = recorded.pieces() else {
                    written.silent.push(program.name);
                    continue;
                };
                (program.kernels, program.arrivals.pause) = (kernels, pause);
            } else if let Some(prefix) = each {
                let file = format!("{prefix}.{}.requests", written.files.len() + 1);
                program.traced = seen.requests(self.from_us.saturating_add(program.start.0 / 1_000));
                written.files.insert(file.clone(), text_of(&program.name, &program.traced));
                program.requests = Some(file);
            } else {
                program.arrivals = seen.arrivals();
                program.kernels = seen.kernels(recorded.longest_us);
            }
            written.scenario.programs.push(program);
        }
        written
    }
}

impl Recording {
    /// Longest time for which commands of others that are on its device already delay a program's whose gate is open, in ns; none = they
    /// delay it for as long as they run.
    fn delay_ns(&self, program: &Program) -> Option<u64> {
        let device = program.device.first().and_then(|device| self.devices.get(*device as usize))?;
        match device.preemption {
            _ if device.pool || device.inside => None,
            Preemption::Interrupt => Some(device.switch.0),
            Preemption::Slices => Some(device.timeslice.0 + device.switch.0 + device.save.0),
            Preemption::Host | Preemption::Gates => None,
        }
    }
}

impl Recorded {
    /// Work without requests, cut into pieces, with the pause between them. None: it launched nothing.
    fn pieces(&self) -> Option<(Vec<Kernels>, Option<Times>)> {
        let rests = distances(&self.bursts).map(|(_, pause_us, _)| pause_us);
        let rests_us: u64 = rests.sum();
        let (us, commands) = (self.ran_us, self.commands);
        if commands == 0 || us == 0 {
            return None;
        }
        let each_us = us as f64 / commands as f64;
        let count = (PIECE_US / each_us).round().clamp(1.0, COMMANDS_MAX as f64);
        let piece_ns = (each_us * count * 1_000.0) as u64;
        let pieces = self.commands as f64 / count;
        let pause_ns = (rests_us as f64 * 1_000.0 / pieces.max(1.0)) as u64;
        // A tenth of a percent is what the edges of the recording leave.
        let pause = (pause_ns > piece_ns / 1_000).then_some(Times::Fixed(pause_ns));
        Some((kernels(count as u32, Times::Fixed(piece_ns), self.longest_us, Times::Fixed(LAUNCH_NS)), pause))
    }
}

/// Bursts of a program of which all is known.
struct Seen {
    /// All complete ones but the first, of which the begin may be missing; one that has the commands of several requests is cut into these.
    bursts: Vec<Burst>,
    /// Bursts from which times are taken.
    measured: Vec<Burst>,
    /// Part of the requests that began before the one before was complete, 0 to 1.
    merged: f64,
    /// Device time of a command, in ns; none = it is known of too few bursts. A few may have met commands that were not known yet, and of
    /// a program that keeps its device commands are measured now and then only.
    command_ns: Option<u64>,
    /// Longest delay by commands of others, see [`Recording::delay_ns`].
    delay_ns: Option<u64>,
    /// The device does not rest in bursts without company: it is their bottleneck.
    is_filled: bool,
    /// Part by which bursts in company are longer than their device time, of those that are hindered least.
    stretch: f64,
}

/// Longest gap between launches that does not end a burst, in µs: the longest grace time.
const GRACE_US: u64 = 2_000;

/// Number of commands of a request, where nearly all bursts have a multiple of it.
fn commands_of_a_request(bursts: &[Burst]) -> Option<u64> {
    let mut of_each: BTreeMap<u64, usize> = BTreeMap::new();
    bursts.iter().for_each(|burst| *of_each.entry(burst.commands).or_default() += 1);
    let (usual, n) = of_each.into_iter().max_by_key(|(_, n)| *n)?;
    let is_multiple = |burst: &&Burst| {
        let times = burst.commands as f64 / usual as f64;
        times > 0.5 && (times - times.round()).abs() <= 0.02
    };
    let multiples = bursts.iter().filter(is_multiple).count();
    (usual > 1 && 2 * n >= bursts.len() && 20 * multiples >= 19 * bursts.len()).then_some(usual)
}

/// Cuts bursts that have the commands of several requests. Each of these came some time while the one before was served. They take as long as
/// most do; the first one takes what is left of a longer burst, in which the program, or the thread that would have found it idle, stood still.
fn cut(bursts: &[Burst], usual: u64) -> Vec<Burst> {
    let single = bursts.iter().filter(|burst| burst.commands == usual).map(|burst| burst.us);
    let usual_us = quantiles(single, 3).get(1).copied().unwrap_or(0);
    let mut all = Vec::with_capacity(bursts.len());
    let mut part = 0.5_f64;
    for burst in bursts {
        let times = ((burst.commands as f64 / usual as f64).round() as u64).max(1);
        let each_us = usual_us.min(burst.us / times);
        let first_us = burst.us - each_us * (times - 1);
        let (mut began_us, mut ends_us) = (burst.began_us, burst.began_us);
        for at in 0..times {
            let us = if at == 0 { first_us } else { each_us };
            all.push(Burst {
                began_us,
                us,
                waited_us: burst.waited_us * us / burst.us.max(1),
                device_us: burst.device_us / times,
                commands: burst.commands / times,
                missed: if at == 0 { burst.missed } else { 0 },
                ..*burst
            });
            // Evenly spread, and the same each time.
            part = (part + 0.618_034).fract();
            ends_us += us;
            began_us += (ends_us.saturating_sub(began_us) as f64 * part) as u64;
        }
    }
    all
}

impl Seen {
    fn new(recorded: &Recorded, delay_ns: Option<u64>) -> Seen {
        let is_whole = |burst: &&Burst| burst.commands > 0 && !burst.cut;
        let bursts: Vec<Burst> = recorded.bursts.iter().skip(1).filter(is_whole).copied().collect();
        let n = bursts.len();
        let bursts = match commands_of_a_request(&bursts) {
            Some(usual) => cut(&bursts, usual),
            None => bursts,
        };
        let merged = (bursts.len() - n) as f64 / bursts.len().max(1) as f64;
        let alone: Vec<Burst> = bursts.iter().filter(|burst| burst.alone).copied().collect();
        let measured = if alone.len() >= ALONE_ENOUGH { alone } else { bursts.clone() };
        let known: Vec<&Burst> = measured.iter().filter(|burst| burst.device_us > 0).collect();
        let of_commands = quantiles(known.iter().map(|burst| burst.device_us * 1_000 / burst.commands), 3);
        let command_ns = of_commands.get(1).copied().filter(|_| KNOWN_OF * known.len() > measured.len());
        let (device_us, us) = known
            .iter()
            .fold((0, 0), |(device_us, us), burst| (device_us + burst.device_us, us + length_ns(burst) / 1_000));
        let is_filled = device_us * 10 > us * 8;
        let percent = known.iter().map(|burst| length_ns(burst) / 10 / burst.device_us);
        let stretch = quantiles(percent, 11).get(1).map_or(1.0, |percent| *percent as f64 / 100.0);
        Seen { bursts, measured, merged, command_ns, delay_ns, is_filled, stretch }
    }

    fn median_us(&self) -> u64 {
        quantiles(self.bursts.iter().map(|burst| burst.us), 3).get(1).copied().unwrap_or(0)
    }

    fn distances(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        distances(&self.bursts)
    }

    /// True if a request comes some time after the end of the one before, and not at a time of its own.
    fn is_closed(&self) -> bool {
        let all: Vec<(f64, f64)> = self.distances().map(|(gap, _, us)| (us as f64, gap as f64)).collect();
        let short = self.distances().filter(|(_, pause, _)| (1..GRACE_US).contains(pause)).count();
        let n = all.len().max(1) as f64;
        // Requests that overlap have times of their own, unless pauses are so short that bursts merge all the same.
        if self.merged > 0.03 && self.merged > 2.0 * short as f64 / n {
            return false;
        }
        let (us, gap) = (all.iter().map(|one| one.0).sum::<f64>() / n, all.iter().map(|one| one.1).sum::<f64>() / n);
        let covariance: f64 = all.iter().map(|one| (one.0 - us) * (one.1 - gap)).sum();
        let variance: f64 = all.iter().map(|one| (one.0 - us).powi(2)).sum();
        let of_gaps: f64 = all.iter().map(|one| (one.1 - gap).powi(2)).sum();
        // A longer request makes the next one later. Requests that are much alike, at distances that are not, do not tell.
        let tells = of_gaps < variance * n / 16.0;
        if tells { covariance > 0.5 * variance } else { us > 0.5 * gap }
    }

    /// Device time of a burst, in ns: its length where the device had nothing else to do and did not rest, else as expected of its commands,
    /// which is the same for bursts of the same commands.
    fn device_ns(&self, burst: &Burst) -> u64 {
        let length_ns = length_ns(burst);
        let Some(command_ns) = self.command_ns.filter(|_| !(burst.alone && self.is_filled)) else { return length_ns };
        let device_ns = match burst.device_us {
            0 => command_ns.saturating_mul(burst.commands),
            us => us.saturating_mul(1_000),
        };
        device_ns.min(length_ns)
    }

    /// Time by which a burst beside others is longer than device and host need and than the others can delay it, in ns: a late host.
    fn late_ns(&self, burst: &Burst) -> u64 {
        let Some(delay_ns) = self.delay_ns.filter(|_| !burst.alone && self.command_ns.is_some()) else { return 0 };
        length_ns(burst).saturating_sub(self.device_ns(burst).max(self.host_ns(burst)).saturating_add(delay_ns))
    }

    /// Time in which the host launches the commands of a burst, in ns: a late host launches late, and has its device meanwhile.
    fn all_host_ns(&self, burst: &Burst) -> u64 {
        let (host_ns, device_ns, late_ns) = (self.host_ns(burst), self.device_ns(burst), self.late_ns(burst));
        if late_ns == 0 || burst.commands < 2 {
            return host_ns;
        }
        // The last launch is followed by a time of the host as well, and the device works on its command meanwhile.
        let before_last_ns = host_ns.max(device_ns - device_ns / burst.commands).saturating_add(late_ns);
        before_last_ns / (burst.commands - 1) * burst.commands
    }

    /// Time of the host in a burst if the host is not late, in ns: nearly all of the burst where the device rests meanwhile.
    fn host_ns(&self, burst: &Burst) -> u64 {
        let (length_ns, device_ns) = (length_ns(burst), self.device_ns(burst));
        let each_ns = device_ns / burst.commands.max(1);
        if burst.alone && length_ns > device_ns + device_ns / 20 && burst.commands > 1 {
            return length_ns.saturating_sub(each_ns);
        }
        if !burst.alone && self.command_ns.is_some() && self.stretch > HOST_BOUND && burst.commands > 1 {
            return ((device_ns as f64 * self.stretch) as u64).saturating_sub(each_ns);
        }
        LAUNCH_NS.min(each_ns / 2).saturating_mul(burst.commands)
    }

    fn arrivals(&self) -> Arrivals {
        let of = |ns: Vec<u64>| Some(times(ns));
        match self.is_closed() {
            true => Arrivals {
                pause: of(self.distances().map(|(_, pause, _)| pause * 1_000).collect()),
                ..Arrivals::default()
            },
            false => Arrivals {
                gaps: of(self.distances().map(|(gap, ..)| (gap * 1_000).max(1)).collect()),
                ..Arrivals::default()
            },
        }
    }

    fn kernels(&self, longest_us: u64) -> Vec<Kernels> {
        // The mean, so that all commands are there where bursts have more or less of them.
        let commands: u64 = self.measured.iter().map(|burst| burst.commands).sum();
        let count =
            (commands as f64 / self.measured.len().max(1) as f64).round().clamp(1.0, COMMANDS_MAX as f64) as u64;
        let total = times(self.measured.iter().map(|burst| self.device_ns(burst)).collect());
        let launches: Vec<u64> = self.measured.iter().map(|burst| self.all_host_ns(burst) / count).collect();
        let launch = match self.measured.iter().any(|burst| self.late_ns(burst) > 0) {
            true => times(launches),
            false => Times::Fixed(quantiles(launches.into_iter(), 3).get(1).copied().unwrap_or(LAUNCH_NS)),
        };
        kernels(count as u32, total, longest_us, launch)
    }

    /// All bursts. Missed ones came at equal distances, each like the next one.
    fn with_missed(&self) -> Vec<Burst> {
        let mut all: Vec<Burst> = Vec::with_capacity(self.bursts.len());
        for burst in &self.bursts {
            if let Some(before) = all.last().copied() {
                let gap_us = burst.began_us.saturating_sub(before.began_us);
                let missed = burst.missed.min(gap_us / (burst.us + 1));
                let each_us = gap_us / (missed + 1);
                all.extend((1..=missed).map(|n| Burst {
                    began_us: before.began_us + n * each_us,
                    missed: 0,
                    ..*burst
                }));
            }
            all.push(*burst);
        }
        all
    }

    /// Each burst as a request. Times are from `from_us` on.
    fn requests(&self, from_us: u64) -> Vec<Traced> {
        let is_closed = self.is_closed();
        let mut before: Option<&Burst> = None;
        let mut all = Vec::new();
        let bursts = self.with_missed();
        for burst in &bursts {
            let pause_us = before.map_or(0, |before| burst.began_us.saturating_sub(before.began_us + before.us));
            let arrival = match is_closed {
                true => Arrival::After(pause_us * 1_000),
                false => Arrival::At(burst.began_us.saturating_sub(from_us) * 1_000),
            };
            before = Some(burst);
            let commands = burst.commands.clamp(1, COMMANDS_MAX) as u32;
            all.push(Traced { arrival, commands, device_ns: self.device_ns(burst), host_ns: self.all_host_ns(burst) });
        }
        all.sort_by_key(|one| if let Arrival::At(at_ns) = one.arrival { at_ns } else { 0 });
        all
    }
}

/// Distances of bursts from begin to begin, and from end to begin, in µs, with the length of the first of the two.
fn distances(bursts: &[Burst]) -> impl Iterator<Item = (u64, u64, u64)> {
    let pairs = bursts.windows(2).filter(|pair| pair[1].missed == 0 && pair[1].group == pair[0].group);
    pairs.map(|pair| {
        let gap = pair[1].began_us.saturating_sub(pair[0].began_us);
        (gap, gap.saturating_sub(pair[0].us), pair[0].us)
    })
}

/// Length of a burst without its waits, in ns.
fn length_ns(burst: &Burst) -> u64 {
    burst.us.saturating_sub(burst.waited_us).max(1).saturating_mul(1_000)
}

/// Commands of a request, of which one is the longest if it is far longer than the others.
fn kernels(count: u32, total: Times, longest_us: u64, launch: Times) -> Vec<Kernels> {
    let (mean_ns, longest_ns) = (total.mean_ns(), longest_us.saturating_mul(1_000));
    // A host that is late is so for all of a request.
    let steady = !matches!(launch, Times::Fixed(_));
    let all = Kernels {
        count,
        time: None,
        total: Some(total.clone()),
        copy: None,
        launch: launch.clone(),
        steady,
        wait: false,
        each: false,
    };
    let is_apart = count > 1 && longest_ns > 3 * mean_ns / u64::from(count) && longest_ns <= mean_ns / 2;
    if !is_apart {
        return vec![all];
    }
    let less = |ns: u64| ns.saturating_sub(longest_ns).max(u64::from(count));
    let rest = match total {
        Times::Quantiles(all) => Times::Quantiles(all.into_iter().map(less).collect()),
        other => Times::Fixed(less(other.mean_ns())),
    };
    let long = Kernels {
        count: 1,
        time: Some(Times::Fixed(longest_ns)),
        total: None,
        copy: None,
        launch,
        steady,
        wait: false,
        each: false,
    };
    vec![Kernels { count: count - 1, total: Some(rest), ..all }, long]
}

/// A distribution of measured times. With fewer quantiles than times, one rare long time would stretch all between the last two.
fn times(ns: Vec<u64>) -> Times {
    let points = ns.len().clamp(2, POINTS);
    let all = quantiles(ns.into_iter(), points);
    match (all.first(), all.last()) {
        (Some(first), Some(last)) if first == last => Times::Fixed(*first),
        (Some(_), _) => Times::Quantiles(all),
        _ => Times::Fixed(0),
    }
}

/// Quantiles at equal distances, the least and the greatest included.
fn quantiles(values: impl Iterator<Item = u64>, points: usize) -> Vec<u64> {
    let mut all: Vec<u64> = values.collect();
    all.sort_unstable();
    if all.is_empty() {
        return all;
    }
    let at = |point: usize| {
        let place = point as f64 / (points - 1) as f64 * (all.len() - 1) as f64;
        let (low, part) = (place as usize, place.fract());
        let next = all[(low + 1).min(all.len() - 1)];
        all[low] + ((next - all[low]) as f64 * part) as u64
    };
    (0..points).map(at).collect()
}

/// Requests as a scenario reads them.
fn text_of(name: &str, requests: &[Traced]) -> String {
    let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
    let mut text =
        format!("# {name}: arrival ms (+ = after the end of the one before), commands, device ms, host ms\n");
    for Traced { arrival, commands, device_ns, host_ns } in requests {
        let arrival = match arrival {
            Arrival::At(at_ns) => ms(*at_ns),
            Arrival::After(pause_ns) => format!("+{}", ms(*pause_ns)),
        };
        text += &format!("{arrival} {commands} {} {}\n", ms(*device_ns), ms(*host_ns));
    }
    text
}

impl Device {
    /// A device of a recording.
    pub fn recorded(preemption: Preemption, memory: f64, pool: bool) -> Device {
        let memory = if memory > 0.0 { memory } else { Device::default().memory };
        Device { preemption, memory, pool, ..Device::default() }
    }
}

impl Program {
    /// A program with nothing but a name.
    pub fn named(name: &str) -> Program {
        Program {
            name: name.to_owned(),
            count: 1,
            class: None,
            weight: None,
            timeslice: None,
            utilization: None,
            deadline: None,
            slo: None,
            level: None,
            user: None,
            namespace: None,
            device: Vec::new(),
            devices: 1,
            memory: 0.0,
            outside: false,
            width: 100,
            start: Time(0),
            end: None,
            arrivals: Arrivals::default(),
            host: Times::Fixed(0),
            wake: Times::Fixed(0),
            kernels: Vec::new(),
            requests: None,
            traced: Vec::new(),
        }
    }
}
