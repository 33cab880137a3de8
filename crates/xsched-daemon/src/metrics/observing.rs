//! Data for monitors on the side of the loop: snapshots, made piece by piece, and observations in between.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use xsched_gatekeeper::ledger::Usage;
use xsched_policy::ProgramId;
use xsched_policy::share::{self, Node};
use xsched_proto::class::Class;
use xsched_proto::transitions::Outcome;

use crate::Program;
use crate::metrics::{Counts, DaemonRow, DeviceRow, Held, Launched, Metrics, Row, Snapshot};
use crate::net::Own;
use crate::server::Server;
use crate::server::clock::now_ns;
use crate::services::warnings::OptionalPart;
use crate::tuning::{METRICS_DECISION_MAX_NS, METRICS_GONE_MAX, METRICS_PIECE};
use xsched_engine::trim;

impl Server {
    /// Listens for monitors, if the configuration has an address. If that fails, it is tried again later.
    pub(crate) fn start_metrics(&mut self) {
        if self.services.metrics.is_some() {
            return;
        }
        let Some(config) = self.config.metrics() else { return self.note_part(OptionalPart::Metrics, None) };
        let started = Metrics::start(&config).and_then(|metrics| {
            self.net.watch_own(&metrics, Own::Metrics)?;
            Ok(metrics)
        });
        match started {
            Ok(metrics) => {
                self.note_part(OptionalPart::Metrics, None);
                self.say(&format!("metrics at {}", metrics.address));
                self.engine.keep_outcomes();
                self.services.metrics = Some(metrics);
            }
            Err(why) => self.note_part(OptionalPart::Metrics, Some(why.line())),
        }
    }

    /// Counts the outcomes of the last input.
    pub(crate) fn count_outcomes(&mut self) {
        let Some(metrics) = &mut self.services.metrics else { return };
        let observations = &mut metrics.observations;
        let mut now = None;
        for (id, outcome) in self.engine.take_outcomes() {
            let Some(group) = self.engine.groups().get(&id) else { continue };
            let class = self.engine.program_of(group).map(|program| program.class());
            let kind = || (class.unwrap_or(Class::Normal), group.device.clone());
            let (user, decided_ns) = (group.user, self.now_ns);
            match outcome {
                // The program says when: one that lies spoils its own figures, and this one by no more than that.
                Outcome::Wanted(at_ns) => {
                    let now_ns = *now.get_or_insert_with(now_ns);
                    observations.decisions.see(now_ns.saturating_sub(at_ns).min(METRICS_DECISION_MAX_NS));
                }
                Outcome::Waited(ns) => observations.wait(user, decided_ns, kind(), ns),
                Outcome::Preempted => observations.preempted(user, decided_ns, kind(), None),
                Outcome::Left(ns) => observations.preempted(user, decided_ns, kind(), Some(ns)),
                Outcome::On(_) | Outcome::Off(_) | Outcome::Burst { .. } => {}
            }
        }
    }

    /// Begins a snapshot: its first piece, the figures that must be of one moment.
    pub(crate) fn begin_metrics_snapshot(&mut self) {
        if self.services.metrics.as_ref().is_none_or(|metrics| !metrics.is_wanted()) {
            return;
        }
        self.measure();
        let mut keys: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        let mut usage: HashMap<(ProgramId, Arc<str>), Usage> = HashMap::new();
        for account in self.engine.gatekeeper().ledger().accounts() {
            let device = keys.entry(account.device).or_insert_with(|| Arc::from(account.device)).clone();
            usage.insert((account.program, device), account.usage);
        }
        let device = |(name, busy): (&str, Usage)| DeviceRow {
            device: keys.get(name).cloned().unwrap_or_else(|| Arc::from(name)),
            label: self.services.devices.outside_names(name).0,
            busy,
            policy: self.engine.arbiter().policy_of(name).entry.name.to_owned(),
        };
        let devices: Vec<DeviceRow> = self.engine.gatekeeper().ledger().devices().map(device).collect();
        let clients: Vec<u64> = self.engine.programs().keys().copied().collect();
        let daemon = DaemonRow {
            programs: clients.len() as u64,
            connections: self.net.conns.len() as u64,
            dropped_clients: self.history.dropped_clients,
            panics: self.history.panics,
            decisions: self.engine.decisions(),
            uptime_s: self.now_ns.saturating_sub(self.history.started_ns) as f64 / 1e9,
        };
        let Some(metrics) = &mut self.services.metrics else { return };
        // Groups that are gone have their last values here, once the ledger has no more of them.
        let mut rows = Vec::from(std::mem::take(&mut metrics.gone));
        for row in &mut rows {
            if let Some(usage) = usage.get(&(ProgramId(row.program), row.device.clone())) {
                row.counts.set_usage(*usage);
            }
        }
        metrics.gone.extend(
            rows.iter().filter(|row| usage.contains_key(&(ProgramId(row.program), row.device.clone()))).cloned(),
        );
        for row in &mut rows {
            row.last = !metrics.gone.iter().any(|kept| kept.program == row.program && kept.device == row.device);
        }
        metrics.observations.expire(self.now_ns);
        let observations = metrics.observations.clone();
        metrics.making = Some((Snapshot { rows, devices, observations, daemon, usage }, clients));
        self.continue_metrics_snapshot();
    }

    /// Makes another piece of the snapshot, and gives it away after the last one.
    pub(crate) fn continue_metrics_snapshot(&mut self) {
        let making = self.services.metrics.as_mut().and_then(|metrics| metrics.making.take());
        let Some((mut snapshot, mut clients)) = making else { return };
        let piece = clients.split_off(clients.len().saturating_sub(METRICS_PIECE));
        for program in piece.iter().filter_map(|id| self.engine.programs().get(id)) {
            let usage = |device: &Arc<str>| snapshot.usage.get(&(program.id, device.clone())).copied();
            let rows = self.rows_of(program, usage);
            snapshot.rows.extend(rows);
        }
        let last = clients.is_empty();
        if last {
            share_out(&mut snapshot.rows);
        }
        let Some(metrics) = &mut self.services.metrics else { return };
        if last {
            metrics.deliver(snapshot);
        } else {
            metrics.making = Some((snapshot, clients));
        }
    }

    /// Reports whether a snapshot is being made.
    pub(crate) fn makes_metrics_snapshot(&self) -> bool {
        self.services.metrics.as_ref().is_some_and(|metrics| metrics.making.is_some())
    }

    fn rows_of(&self, program: &Program, usage: impl Fn(&Arc<str>) -> Option<Usage>) -> Vec<Row> {
        let Some(identity) = self.history.accounting.identity(program.id) else { return Vec::new() };
        let mut rows: Vec<Row> = Vec::new();
        let memory = self.engine.memory_of(program.id.0);
        let new = |device: Arc<str>| {
            let (_, by_driver) = self.services.devices.outside_names(&device);
            let account = memory.iter().find(|memory| *memory.device == *device);
            let mut counts = Counts::of(usage(&device).unwrap_or_default());
            account.iter().for_each(|account| counts.set_memory(&account.held));
            Row {
                program: program.id.0,
                identity: identity.clone(),
                class: program.class(),
                counts,
                held: account.map(Held::of),
                device,
                launched: Launched::Count(program.memory.0.clone(), Vec::new()),
                weight: program.hints.weight(),
                ways: Vec::new(),
                share: 0.0,
                memory_bytes: by_driver.iter().find(|(pid, _)| *pid == program.pid).map(|(_, bytes)| *bytes),
                gone: false,
                last: false,
            }
        };
        for (id, group) in self.engine.groups_of(program) {
            let at = rows.iter().position(|row| *row.device == *group.device).unwrap_or_else(|| {
                rows.push(new(group.device.clone()));
                rows.len() - 1
            });
            let (row, words) = (&mut rows[at], &group.words);
            row.ways.extend(self.engine.arbiter().way(id));
            row.counts.add_group(words, self.engine.arbiter().status(self.now_us(), id).as_ref());
            if let Launched::Count(_, slots) = &mut row.launched {
                slots.push(group.slot);
            }
        }
        // A program may hold memory of a device before its first launch there.
        for (_, holder) in self.engine.memory().of(program.id.0) {
            if !rows.iter().any(|row| row.device == *holder.device()) {
                rows.push(new(holder.device().clone()));
            }
        }
        rows
    }

    /// Keeps the last figures of a program that is about to be forgotten, for the next snapshot.
    pub(crate) fn keep_last_metrics(&mut self, id: u64) {
        if self.services.metrics.is_none() {
            return;
        }
        let Some(program) = self.engine.programs().get(&id) else { return };
        let ledger = self.engine.gatekeeper().ledger();
        let mut rows = self.rows_of(program, |device| ledger.account(device, program.id).map(|account| account.usage));
        // Summed once, however many devices there are.
        let launches = (!rows.is_empty()).then(|| program.memory.0.group_launches());
        for row in &mut rows {
            if let (Launched::Count(_, slots), Some(launches)) = (&row.launched, &launches) {
                row.launched = Launched::Known(launches.of(slots));
            }
            (row.gone, row.weight, row.memory_bytes, row.held) = (true, 0, None, None);
            row.ways.clear();
        }
        let Some(metrics) = &mut self.services.metrics else { return };
        metrics.gone.extend(rows);
        // No monitor has asked for long, so the oldest rows are dropped.
        trim(&mut metrics.gone, METRICS_GONE_MAX, |row| row.identity.user.clone());
    }

    /// Keeps the usage of a program that is gone when the ledger closes its account.
    pub(crate) fn keep_last_usage(&mut self, program: ProgramId, device: &str, usage: Usage) {
        let rows = self.services.metrics.iter_mut().flat_map(|metrics| &mut metrics.gone);
        for row in rows.filter(|row| row.program == program.0 && &*row.device == device) {
            row.counts.set_usage(usage);
        }
    }
}

/// Computes the part of its device that each row asks for: of programs that live, by the same sum as `ps`.
fn share_out(rows: &mut [Row]) {
    let mut devices: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        devices.entry(row.device.clone()).or_default().push(at);
    }
    for places in devices.values() {
        let ways = places.iter().flat_map(|at| rows[*at].ways.iter().map(move |way| (*at, way.clone())));
        let ways: Vec<(usize, Vec<Node>)> = ways.collect();
        let asked = share::asked(ways.iter().map(|(_, way)| way.as_slice()));
        let mut counted = HashSet::new();
        for ((at, _), asked) in ways.iter().zip(asked) {
            if counted.insert(asked.party) {
                rows[*at].share += asked.part;
            }
        }
    }
}
