//! Model: turns the daemon's repeated answers into rows. Pure, without a clock.

use std::collections::{BTreeMap, HashMap, VecDeque};

use xsched_proto::class::Class;
use xsched_proto::device::DeviceInfo;
use xsched_proto::text::escaped;
use xsched_proto::trace::Record;
use xsched_proto::wire::{DaemonInfo, GroupInfo, GroupState, ProgramInfo, TracedGroup};

use crate::history::{Groups, Span, Told, quantile};
use crate::users::Names;
use crate::why::{Answer, Known, Times};

/// Window over which waits and lost devices are shown, in µs.
pub(super) const WINDOW_US: u64 = 60_000_000;
/// Number of parts of the window that a sparkline shows.
pub(super) const BUCKETS: usize = 12;
/// Largest number of recorded waits of one group. Within the window, later ones replace earlier ones.
const WAITS_MAX: usize = 20_000;

/// Answers of the daemon at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// True if earlier answers must not be continued: the daemon may be another one.
    pub(super) fresh: bool,
    /// Time of the snapshot on the daemon's CLOCK_MONOTONIC, in µs.
    pub(super) at_us: u64,
    pub(super) daemon: Option<DaemonInfo>,
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) programs: Vec<ProgramInfo>,
    pub(super) groups: Vec<TracedGroup>,
    /// Records since the last snapshot; for the first one, those of the window.
    pub(super) records: Vec<Record>,
    /// Time since which no record is missing, in µs.
    pub(super) whole_since_us: u64,
}

/// Program on a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) device: String,
    /// Number of the group, `g<N>`; none = the program uses no device yet.
    pub(super) group: Option<u64>,
    pub(super) pid: u32,
    /// Name of the user, or the number if there is no name.
    pub(super) user: String,
    /// Name of the program, without control characters.
    pub(super) name: String,
    pub(super) class: Class,
    pub(super) priority: i32,
    pub(super) weight: u32,
    pub(super) level: u8,
    pub(super) state: Option<GroupState>,
    /// Part of the time for which the device was charged to the program, in percent; none = there is no earlier snapshot.
    pub(super) gpu_percent: Option<f64>,
    pub(super) launches_per_s: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_limit_bytes: Option<u64>,
    /// Number of allocations that were refused.
    pub(super) refused: u64,
    /// Waits for the device within the window, in µs.
    pub(super) wait_p50_us: Option<u64>,
    pub(super) wait_p99_us: Option<u64>,
    /// Longest wait in each part of the window, the oldest first; none = there was no wait.
    pub(super) waits: [Option<u64>; BUCKETS],
    /// Number of times that the program lost the device within the window while it wanted it.
    pub(super) lost: usize,
    /// Names of the programs that have the device that it waits for.
    pub(super) held_by: Vec<String>,
}

/// Device and the programs on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Device {
    pub(super) key: String,
    pub(super) policy: String,
    /// State of the device from its driver.
    pub(super) info: Option<DeviceInfo>,
    /// Names of the programs that use the device now.
    pub(super) running: Vec<String>,
    /// Number of programs that wait for the device.
    pub(super) waiting: usize,
}

/// Counters of a group at one time.
#[derive(Clone, Copy)]
struct Counted {
    at_us: u64,
    device_us: u64,
    launches: u64,
}

/// Events of a group within the window.
#[derive(Default)]
struct Seen {
    /// End of each wait, and its length, in µs.
    waits: VecDeque<(u64, u64)>,
    lost: VecDeque<u64>,
    spans: VecDeque<Span>,
    /// Time of each leaving of the device after losing it, and how long it took, in µs.
    left: VecDeque<(u64, u64)>,
}

impl Seen {
    fn forget(&mut self, before_us: u64) {
        while self.waits.front().is_some_and(|(at, _)| *at < before_us) || self.waits.len() > WAITS_MAX {
            self.waits.pop_front();
        }
        while self.lost.front().is_some_and(|at| *at < before_us) {
            self.lost.pop_front();
        }
        while self.spans.front().is_some_and(|span| span.to_us < before_us) || self.spans.len() > WAITS_MAX {
            self.spans.pop_front();
        }
        while self.left.front().is_some_and(|(at, _)| *at < before_us) || self.left.len() > WAITS_MAX {
            self.left.pop_front();
        }
    }
}

/// State of all programs.
#[derive(Default)]
pub(super) struct Model {
    pub(super) at_us: u64,
    pub(super) daemon: Option<DaemonInfo>,
    pub(super) devices: Vec<Device>,
    pub(super) rows: Vec<Row>,
    groups: Option<Groups>,
    counted: HashMap<u64, Counted>,
    seen: HashMap<u64, Seen>,
    names: HashMap<u64, String>,
    users: Names,
    /// Last answers of the daemon, for [`Model::why`].
    programs: Vec<ProgramInfo>,
    traced: Vec<TracedGroup>,
    /// Time since which spans are known, in µs.
    spans_since_us: u64,
}

impl Model {
    /// Takes the next snapshot.
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        if snapshot.fresh {
            *self = Model::default();
        }
        self.follow(&snapshot);
        let Snapshot { at_us, daemon, devices, programs, groups, .. } = snapshot;
        self.at_us = at_us;
        let memory: HashMap<(&str, u32), u64> = devices
            .iter()
            .flat_map(|device| device.processes.iter().flatten().map(|process| (device.device.as_str(), process)))
            .filter_map(|(device, process)| Some(((device, process.pid), process.memory_bytes?)))
            .collect();
        let before = std::mem::take(&mut self.counted);
        let mut rows = Vec::new();
        for program in &programs {
            self.users.of(program.uid);
            if program.groups.is_empty() {
                rows.push(self.row(program, None, None));
            }
            for group in &program.groups {
                let Some(id) = number(group) else { continue };
                let now = Counted { at_us, device_us: group.device_us, launches: group.launches };
                self.counted.insert(id, now);
                let row = self.row(program, Some((id, group)), before.get(&id).map(|before| (*before, now)));
                let counted = program.memory.iter().find(|memory| memory.device == group.device);
                let by_driver = memory.get(&(group.device.as_str(), program.pid)).copied();
                let memory_bytes = by_driver.or(counted.map(|memory| memory.held.used_bytes));
                let memory_limit_bytes = counted.and_then(|memory| memory.limit_bytes);
                let refused = counted.map_or(0, |memory| memory.held.refused);
                rows.push(Row { memory_bytes, memory_limit_bytes, refused, ..row });
            }
        }
        self.rows = rows;
        self.devices = self.all_devices(daemon.as_ref(), devices);
        self.daemon = daemon;
        self.programs = programs;
        self.traced = groups;
    }

    /// Reason for which the program of a row is as slow as it is.
    pub(super) fn why(&self, row: &Row) -> Option<Answer> {
        let program = self.programs.iter().find(|program| program.pid == row.pid)?;
        let group = program.groups.iter().find(|group| row.group.is_some() && number(group) == row.group);
        let here = self.traced.iter().filter(|traced| traced.device == row.device);
        let times = here.map(|traced| (traced.id, self.times(traced.id))).collect();
        let policy = self.devices.iter().find(|device| device.key == row.device).map_or("", |device| &device.policy);
        Some(Known { programs: &self.programs, groups: &self.traced, times: &times }.why(program, group, policy))
    }

    /// Times of a group within the window.
    fn times(&self, id: u64) -> Times {
        let seen = self.seen.get(&id);
        let is_cut = seen.is_some_and(|seen| seen.spans.len() == WAITS_MAX);
        let first = seen.filter(|_| is_cut).and_then(|seen| seen.spans.front()).map_or(0, |span| span.from_us);
        let from_us = self.at_us.saturating_sub(WINDOW_US).max(self.spans_since_us).max(first);
        let now = self.groups.as_ref().and_then(|groups| groups.span(id));
        let now = now.map(|span| Span { to_us: self.at_us, ..span.clone() });
        let spans = seen.into_iter().flat_map(|seen| &seen.spans).chain(&now);
        let left = seen.map_or_else(Vec::new, |seen| seen.left.iter().map(|(_, us)| *us).collect());
        Times::of(spans, left, from_us, self.at_us)
    }

    /// Updates the waits from the records.
    fn follow(&mut self, snapshot: &Snapshot) {
        let Snapshot { at_us, groups, records, whole_since_us, .. } = snapshot;
        let states = match &mut self.groups {
            Some(states) => {
                states.update(*at_us, groups);
                states
            }
            first => {
                self.spans_since_us = *whole_since_us;
                first.insert(Groups::new(groups, records, *whole_since_us))
            }
        };
        let mut told = Vec::new();
        for record in records {
            states.take(record, &mut told);
            for told in told.drain(..) {
                match told {
                    Told::Wait(id, us) => self.seen.entry(id).or_default().waits.push_back((record.at_us, us)),
                    Told::Preempted(id) => self.seen.entry(id).or_default().lost.push_back(record.at_us),
                    Told::Span(id, span) => self.seen.entry(id).or_default().spans.push_back(span),
                    Told::Left(id, us) => self.seen.entry(id).or_default().left.push_back((record.at_us, us)),
                    Told::Late(..) => {}
                }
            }
        }
        self.names = groups.iter().map(|group| (group.id, name_of(group))).collect();
        self.seen.retain(|id, _| self.names.contains_key(id));
        self.seen.values_mut().for_each(|seen| seen.forget(at_us.saturating_sub(WINDOW_US)));
    }

    fn row(&self, program: &ProgramInfo, group: Option<(u64, &GroupInfo)>, counted: Option<(Counted, Counted)>) -> Row {
        let per_us = counted.map(|(before, now)| {
            let passed = now.at_us.saturating_sub(before.at_us).max(1) as f64;
            let device = now.device_us.saturating_sub(before.device_us) as f64 / passed;
            (device, now.launches.saturating_sub(before.launches) as f64 / passed)
        });
        let mut row = Row {
            device: String::new(),
            group: None,
            pid: program.pid,
            user: self.users.known(program.uid),
            name: match program.container().filter(|_| program.container_name.is_some() || program.pod.is_some()) {
                Some(container) => escaped(&format!("{} in {container}", program.name)).into_owned(),
                None => escaped(&program.name).into_owned(),
            },
            class: program.class,
            priority: program.priority,
            weight: program.weight,
            level: 0,
            state: None,
            gpu_percent: per_us.map(|(device, _)| (device * 100.0).min(100.0)),
            launches_per_s: per_us.map(|(_, launches)| launches * 1e6),
            memory_bytes: None,
            memory_limit_bytes: None,
            refused: 0,
            wait_p50_us: None,
            wait_p99_us: None,
            waits: [None; BUCKETS],
            lost: 0,
            held_by: Vec::new(),
        };
        if let Some((id, group)) = group {
            row.device = group.device.clone();
            row.group = Some(id);
            (row.priority, row.level, row.state) = (group.priority, group.level, Some(group.state));
            self.add_waits(id, &mut row);
            if group.state == GroupState::Ready {
                let holders = self.groups.iter().flat_map(|groups| groups.holders(id));
                row.held_by = holders.map(|id| self.name(id)).collect();
            }
        }
        row
    }

    fn add_waits(&self, id: u64, row: &mut Row) {
        // A burst that goes on counts so far.
        let since = self.groups.as_ref().and_then(|groups| groups.waits_since(id));
        let now = since.map(|since| (self.at_us, self.at_us.saturating_sub(since)));
        let seen = self.seen.get(&id);
        let all = || seen.into_iter().flat_map(|seen| seen.waits.iter().copied()).chain(now);
        let mut values: Vec<u64> = all().map(|(_, us)| us).collect();
        (row.wait_p50_us, row.wait_p99_us) = (quantile(&mut values, 0.5), quantile(&mut values, 0.99));
        for (at, us) in all() {
            let ago = self.at_us.saturating_sub(at) / (WINDOW_US / BUCKETS as u64);
            let bucket = &mut row.waits[BUCKETS - 1 - (ago as usize).min(BUCKETS - 1)];
            *bucket = (*bucket).max(Some(us));
        }
        row.lost = seen.map_or(0, |seen| seen.lost.len());
    }

    fn name(&self, group: u64) -> String {
        self.names.get(&group).cloned().unwrap_or_else(|| format!("g{group}"))
    }

    fn all_devices(&self, daemon: Option<&DaemonInfo>, infos: Vec<DeviceInfo>) -> Vec<Device> {
        let mut all: BTreeMap<String, Device> = BTreeMap::new();
        let device = |key: &str| {
            let own = daemon.and_then(|d| d.device_policies.get(key).or(Some(&d.policy)));
            let policy = own.cloned().unwrap_or_default();
            Device { key: key.to_owned(), policy, info: None, running: Vec::new(), waiting: 0 }
        };
        for row in self.rows.iter().filter(|row| row.group.is_some()) {
            let of = all.entry(row.device.clone()).or_insert_with(|| device(&row.device));
            match row.state {
                Some(GroupState::Running) => of.running.push(row.name.clone()),
                Some(GroupState::Ready) => of.waiting += 1,
                _ => {}
            }
        }
        for info in infos {
            let of = all.entry(info.device.clone()).or_insert_with(|| device(&info.device));
            of.info = Some(info);
        }
        all.into_values().collect()
    }
}

fn number(group: &GroupInfo) -> Option<u64> {
    group.id.strip_prefix('g')?.parse().ok()
}

fn name_of(group: &TracedGroup) -> String {
    group.program.as_ref().map_or_else(|| "another program".into(), |program| escaped(&program.name).into_owned())
}

/// Order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Most device time first.
    Gpu,
    /// Longest wait first.
    Wait,
    /// Most urgent first.
    Priority,
    /// Most launches first.
    Launches,
    /// Most memory first.
    Memory,
    Pid,
    Name,
}

impl Sort {
    pub(super) const ALL: [Sort; 7] =
        [Sort::Gpu, Sort::Wait, Sort::Priority, Sort::Launches, Sort::Memory, Sort::Pid, Sort::Name];

    /// Name on the command line and the screen.
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Gpu => "gpu",
            Sort::Wait => "wait",
            Sort::Priority => "priority",
            Sort::Launches => "launches",
            Sort::Memory => "memory",
            Sort::Pid => "pid",
            Sort::Name => "name",
        }
    }

    /// Next order, with the first one after the last.
    pub(super) fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }
}

/// Selection and order of rows.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    /// Part of a name, a class, a state, a device or a process id, in any case.
    pub(super) filter: String,
}

impl View {
    /// Visible rows: by device, then in the chosen order, then by process and group.
    pub(super) fn rows<'a>(&self, model: &'a Model) -> Vec<&'a Row> {
        let mut rows: Vec<&Row> = model.rows.iter().filter(|row| self.shows(row)).collect();
        let milli = |value: Option<f64>| value.map(|value| (value * 1e3) as u64);
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Sort::Gpu => milli(b.gpu_percent).cmp(&milli(a.gpu_percent)),
                Sort::Wait => b.wait_p99_us.cmp(&a.wait_p99_us),
                Sort::Priority => b.priority.cmp(&a.priority),
                Sort::Launches => milli(b.launches_per_s).cmp(&milli(a.launches_per_s)),
                Sort::Memory => b.memory_bytes.cmp(&a.memory_bytes),
                Sort::Pid => a.pid.cmp(&b.pid),
                Sort::Name => a.name.to_lowercase().cmp(&b.name.to_lowercase()),
            };
            let order = if self.reverse { order.reverse() } else { order };
            a.device.cmp(&b.device).then(order).then(a.pid.cmp(&b.pid)).then(a.group.cmp(&b.group))
        });
        rows
    }

    fn shows(&self, row: &Row) -> bool {
        let wanted = self.filter.to_lowercase();
        let state = state_name(row.state);
        let texts = [row.name.as_str(), row.class.name(), state, row.device.as_str(), &row.pid.to_string()];
        wanted.split_whitespace().all(|word| texts.iter().any(|text| text.to_lowercase().contains(word)))
    }
}

/// Name of a state.
pub(super) fn state_name(state: Option<GroupState>) -> &'static str {
    match state {
        None => "-",
        Some(GroupState::Idle) => "idle",
        Some(GroupState::Ready) => "ready",
        Some(GroupState::Running) => "running",
        Some(GroupState::Suspended) => "suspended",
        Some(GroupState::Detached) => "detached",
    }
}
