//! Series of programs, by their labels. Programs with the same labels are one series. The figures of programs that are gone stay in it
//! while another program has these labels, and for some time after, so that no counter falls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::labels::Labels;
use super::snapshot::{DeviceRow, Held, Row, Snapshot};
use super::statistics::Counts;
use crate::tuning::METRICS_KEPT_NS;
use crate::usage::Identity;

/// Choice of the labels of programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// Names of users, programs, jobs.
    pub(super) names: bool,
    /// Process ids.
    pub(super) pids: bool,
    /// Largest number of series of programs.
    pub(super) most: usize,
}

/// The series of programs.
#[derive(Debug)]
pub(super) struct Series {
    shown: Shown,
    all: BTreeMap<Labels, One>,
    /// Of each program on a device: what it had told when it was looked at last.
    seen: HashMap<(u64, Arc<str>), Counts>,
}

/// Values of a series.
#[derive(Clone, Debug, Default)]
pub(super) struct One {
    pub(super) total: Counts,
    pub(super) programs: u64,
    pub(super) weight: u64,
    pub(super) share: f64,
    pub(super) memory_bytes: Option<u64>,
    pub(super) held: Option<Held>,
    /// When a program had it last, ns.
    at_ns: u64,
}

impl Series {
    pub(super) fn new(shown: Shown) -> Series {
        Series { shown, all: BTreeMap::new(), seen: HashMap::new() }
    }

    /// Takes a snapshot in, each once and in their order. Returns how many programs had no room.
    pub(super) fn take(&mut self, now_ns: u64, snapshot: &Snapshot) -> u64 {
        for one in self.all.values_mut() {
            (one.programs, one.weight, one.share, one.memory_bytes, one.held) = (0, 0, 0.0, None, None);
        }
        self.all.retain(|_, one| one.at_ns + METRICS_KEPT_NS > now_ns);
        let (mut left_out, mut there) = (0, HashSet::new());
        let devices: HashMap<&str, Vec<(&'static str, String)>> =
            snapshot.devices.iter().map(|device| (&*device.device, device_labels(device))).collect();
        for row in &snapshot.rows {
            let counts = row.counts.with_launches(row.launched.count());
            let key = (row.program, row.device.clone());
            let labels = self.labels(row, devices.get(&*row.device));
            if !self.all.contains_key(&labels) && self.all.len() >= self.shown.most {
                left_out += 1;
                continue;
            }
            let before = self.seen.get(&key).copied().unwrap_or_default();
            let one = self.all.entry(labels).or_default();
            one.at_ns = now_ns;
            one.total.add(counts.since(before));
            if row.last {
                continue;
            }
            self.seen.insert(key.clone(), counts);
            there.insert(key);
            if row.gone {
                continue;
            }
            one.programs += 1;
            one.weight += u64::from(row.weight);
            one.share += row.share;
            one.memory_bytes =
                row.memory_bytes.map_or(one.memory_bytes, |bytes| Some(bytes + one.memory_bytes.unwrap_or(0)));
            one.held = row.held.map(|held| held.and(one.held.unwrap_or_default())).or(one.held);
        }
        self.seen.retain(|key, _| there.contains(key));
        left_out
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Labels, &One)> {
        self.all.iter()
    }

    fn labels(&self, row: &Row, device: Option<&Vec<(&'static str, String)>>) -> Labels {
        let mut labels = device.cloned().unwrap_or_else(|| vec![("device", row.device.to_string())]);
        labels.push(("class", row.class.name().to_owned()));
        let Identity { pid, user, job, program, container, pod, container_name, pod_name, namespace, .. } =
            &*row.identity;
        let mut push = |name, value: Option<&String>| labels.extend(value.map(|value| (name, value.clone())));
        push("container_id", container.as_ref());
        push("pod_uid", pod.as_ref());
        push("container", container_name.as_ref());
        push("pod", pod_name.as_ref());
        push("namespace", namespace.as_ref());
        if self.shown.names {
            push("user", Some(user));
            push("program", Some(program));
            push("job", job.as_ref());
        }
        if self.shown.pids {
            labels.push(("pid", pid.to_string()));
        }
        Labels::new(labels)
    }
}

/// Names of a device: its key, and the names that DCGM uses.
pub(super) fn device_labels(device: &DeviceRow) -> Vec<(&'static str, String)> {
    let mut labels = vec![("device", device.device.to_string())];
    labels.extend(device.label.uuid.clone().map(|uuid| ("UUID", uuid)));
    labels.extend(device.label.instance.map(|instance| ("GPU_I_ID", instance.to_string())));
    labels
}

#[cfg(test)]
pub(super) mod tests {
    use xsched_gatekeeper::ledger::Usage;
    use xsched_proto::class::Class;

    use super::super::snapshot::Launched;
    use super::*;

    pub(in super::super) fn row(program: u64, name: &str, gpu_ns: u64) -> Row {
        let identity = Identity {
            pid: program as u32,
            start: 1,
            user: "1000".into(),
            job: None,
            program: name.into(),
            container: None,
            pod: None,
            container_name: None,
            pod_name: None,
            namespace: None,
        };
        Row {
            program,
            identity: Arc::new(identity),
            class: Class::Low,
            device: "sim:0".into(),
            counts: Counts::of(Usage { gpu_ns, ..Usage::default() }),
            launched: Launched::Known(gpu_ns / 10),
            weight: 100,
            ways: Vec::new(),
            share: 0.5,
            memory_bytes: None,
            held: None,
            gone: false,
            last: false,
        }
    }

    fn snapshot(rows: Vec<Row>) -> Snapshot {
        Snapshot { rows, ..Snapshot::default() }
    }

    fn told(series: &Series) -> Vec<(u64, u64, u64)> {
        let of = |one: &One, name| one.total.named(name);
        let told = |one: &One| (one.programs, of(one, "xsched_gpu"), of(one, "xsched_launches"));
        series.iter().map(|(_, one)| told(one)).collect()
    }

    const SHOWN: Shown = Shown { names: false, pids: false, most: 2 };

    #[test]
    fn programs_with_the_same_labels_are_one_series_that_never_falls() {
        let mut series = Series::new(SHOWN);
        series.take(1, &snapshot(vec![row(1, "a", 100), row(2, "b", 50)]));
        assert_eq!(told(&series), [(2, 150, 15)]);
        series.take(2, &snapshot(vec![Row { gone: true, last: true, ..row(1, "a", 130) }, row(2, "b", 50)]));
        assert_eq!(told(&series), [(1, 180, 18)]);
        series.take(3, &snapshot(vec![row(2, "b", 60), row(3, "c", 7)]));
        assert_eq!(told(&series), [(2, 197, 19)]);
    }

    #[test]
    fn names_are_told_where_that_is_asked_and_series_are_bounded_and_expire() {
        let mut series = Series::new(Shown { names: true, ..SHOWN });
        let left_out = series.take(1, &snapshot(vec![row(1, "a", 1), row(2, "b", 2), row(3, "c", 3)]));
        assert_eq!((left_out, told(&series).len()), (1, 2));
        series.take(2, &snapshot(vec![row(1, "a", 4)]));
        assert_eq!(told(&series), [(1, 4, 0), (0, 2, 0)]);
        series.take(1 + METRICS_KEPT_NS, &snapshot(vec![row(1, "a", 4), row(3, "c", 3)]));
        assert_eq!(told(&series), [(1, 4, 0), (1, 3, 0)], "b is forgotten, c has room");
    }
}
