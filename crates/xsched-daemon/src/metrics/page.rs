//! The text: names and units by the conventions of OpenMetrics.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::histogram::Histogram;
use super::labels::Labels;
use super::series::{One, Series, Shown, device_labels};
use super::snapshot::{Held, Snapshot};
use super::statistics::COUNTERS;
use crate::Error;

#[derive(Debug)]
enum Value {
    Count(u64),
    Seconds(f64),
    Gauge(f64),
    Times(Histogram),
}

type Samples = Vec<(Labels, Value)>;

/// A metric with its samples.
#[derive(Debug)]
struct Family {
    /// Name without unit and suffix.
    name: &'static str,
    help: Cow<'static, str>,
    unit: Option<Unit>,
    kind: MetricType,
    samples: Samples,
}

impl Family {
    fn new(kind: MetricType, name: &'static str, help: &'static str, samples: Samples) -> Family {
        Family { name, help: help.into(), unit: None, kind, samples }
    }

    fn gauge(name: &'static str, help: &'static str, samples: Samples) -> Family {
        Family::new(MetricType::Gauge, name, help, samples)
    }

    fn counter(name: &'static str, help: &'static str, samples: Samples) -> Family {
        Family::new(MetricType::Counter, name, help, samples)
    }

    /// Times, in seconds.
    fn histogram(name: &'static str, help: &'static str, samples: Samples) -> Family {
        Family::new(MetricType::Histogram, name, help, samples).unit(Unit::Seconds)
    }

    fn unit(self, unit: Unit) -> Family {
        Family { unit: Some(unit), ..self }
    }

    fn described(&self) -> Metric {
        let mut name = self.name.to_owned();
        if let Some(unit) = &self.unit {
            name = format!("{name}_{}", unit.as_str());
        }
        let kind = match self.kind {
            MetricType::Counter => "counter",
            MetricType::Histogram => "histogram",
            _ => "gauge",
        };
        if kind == "counter" {
            name.push_str("_total");
        }
        Metric { name, kind, help: self.help.clone().into_owned() }
    }
}

/// Description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name as monitors read it, with unit and suffix.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Description of the metric, as its HELP line has it.
    pub help: String,
}

/// All metrics, for the reference.
pub fn all_metrics() -> Vec<Metric> {
    let series = Series::new(Shown { names: false, pids: false, most: 0 });
    families(&Snapshot::default(), &series, 0).iter().map(Family::described).collect()
}

#[derive(Debug)]
struct Page(Vec<Family>);

/// The text of a snapshot and the series it was taken into.
///
/// # Errors
/// The encoder's.
pub(super) fn text(snapshot: &Snapshot, series: &Series, left_out: u64) -> Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(families(snapshot, series, left_out))));
    let mut out = String::new();
    text::encode(&mut out, &registry).map_err(|e| Error::environment(format!("metrics cannot be written: {e}")))?;
    Ok(out)
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, samples } in self.0.iter().filter(|family| !family.samples.is_empty()) {
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for (labels, value) in samples {
                let mut sample = metric.encode_family(labels)?;
                match value {
                    Value::Count(count) => ConstCounter::new(*count).encode(sample)?,
                    Value::Seconds(seconds) => ConstCounter::new(*seconds).encode(sample)?,
                    Value::Gauge(value) => ConstGauge::new(*value).encode(sample)?,
                    Value::Times(times) => {
                        sample.encode_histogram::<NoLabelSet>(times.sum_s(), times.count(), &times.classes(), None)?
                    }
                }
            }
        }
        Ok(())
    }
}

fn seconds(ns: u64) -> Value {
    Value::Seconds(ns as f64 / 1e9)
}

/// A family for each name in the table of counters.
fn counters(series: &Series) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut at = 0;
    for counters in COUNTERS.chunk_by(|one, other| one.name == other.name) {
        let first = &counters[0];
        let value = |count: u64| if first.unit().is_some() { seconds(count) } else { Value::Count(count) };
        let samples = series.iter().flat_map(|(labels, one)| {
            let of_each = counters.iter().enumerate().map(move |(n, counter)| {
                let labels = counter.label.map_or_else(|| labels.clone(), |(name, value)| labels.with(name, value));
                (labels, value(one.total.get(at + n)))
            });
            of_each.collect::<Vec<_>>()
        });
        let (unit, kind, samples) = (first.unit(), MetricType::Counter, samples.collect());
        families.push(Family { name: first.name, help: first.help(), unit, kind, samples });
        at += counters.len();
    }
    families
}

fn families(snapshot: &Snapshot, series: &Series, left_out: u64) -> Vec<Family> {
    let living = |value: fn(&One) -> f64| -> Samples {
        let there = series.iter().filter(|(_, one)| one.programs > 0);
        there.map(|(labels, one)| (labels.clone(), Value::Gauge(value(one)))).collect()
    };
    let memory = series
        .iter()
        .filter_map(|(labels, one)| Some((labels.clone(), Value::Gauge(one.memory_bytes? as f64))))
        .collect();
    let held = |value: fn(&Held) -> Option<u64>| -> Samples {
        let told = series.iter().filter_map(|(labels, one)| Some((labels, value(one.held.as_ref()?)?)));
        told.map(|(labels, bytes)| (labels.clone(), Value::Gauge(bytes as f64))).collect()
    };
    let mut families = counters(series);
    families.extend([
        Family::gauge("xsched_programs", "Programs attached that use a device", living(|one| one.programs as f64)),
        Family::gauge("xsched_weight", "Weight of programs, added up", living(|one| one.weight as f64)),
        Family::gauge("xsched_share", "Part of the weights of all programs on the device", living(|one| one.share))
            .unit(Unit::Other("ratio".into())),
        Family::gauge("xsched_memory", "Device memory of programs, as the driver tells", memory).unit(Unit::Bytes),
        Family::gauge(
            "xsched_memory_held",
            "Device memory of programs, as they count it",
            held(|held| Some(held.used)),
        )
        .unit(Unit::Bytes),
        Family::gauge(
            "xsched_memory_overhead",
            "Part of the memory held that contexts and modules take",
            held(|held| Some(held.overhead)),
        )
        .unit(Unit::Bytes),
        Family::gauge(
            "xsched_memory_exported",
            "Part of the memory held that other processes may use",
            held(|held| Some(held.exported)),
        )
        .unit(Unit::Bytes),
        Family::gauge("xsched_memory_away", "Memory of programs on the host for now", held(|held| Some(held.away)))
            .unit(Unit::Bytes),
        Family::gauge("xsched_memory_limit", "Smallest limit of memory that applies", held(|held| held.limit))
            .unit(Unit::Bytes),
    ]);
    families.extend(of_devices(snapshot));
    families.extend(of_daemon(snapshot, left_out));
    families
}

fn of_devices(snapshot: &Snapshot) -> Vec<Family> {
    let devices = || snapshot.devices.iter();
    let named = |device: &str| {
        let known = devices().find(|row| &*row.device == device);
        known.map_or_else(|| vec![("device", device.to_owned())], device_labels)
    };
    let kind = |class: xsched_proto::class::Class, device: &str| {
        let mut labels = named(device);
        labels.push(("class", class.name().to_owned()));
        Labels::new(labels)
    };
    let observed = &snapshot.observations;
    let waits =
        observed.waits.iter().map(|((class, device), times)| (kind(*class, device), Value::Times(times.clone())));
    let left = observed.preemptions.iter();
    let left = left.map(|((class, device), (_, times))| (kind(*class, device), Value::Times(times.clone())));
    let preempted = observed.preemptions.iter();
    let preempted = preempted.map(|((class, device), (count, _))| (kind(*class, device), Value::Count(*count)));
    let busy = devices().map(|row| (Labels::new(device_labels(row)), seconds(row.busy.gpu_ns)));
    let policy = devices().map(|row| (Labels::new(device_labels(row)).with("policy", &row.policy), Value::Gauge(1.0)));
    vec![
        Family::counter(
            "xsched_device_busy",
            "Time that any program was on the device: the sum of xsched_gpu_seconds",
            busy.collect(),
        )
        .unit(Unit::Seconds),
        Family::gauge("xsched_device_policy", "Policy in force on a device", policy.collect()),
        Family::histogram(
            "xsched_wait",
            "Time from wanting a device to having it, or running beside those that have it; 0 with an open gate",
            waits.collect(),
        ),
        Family::histogram(
            "xsched_preemption",
            "Time from a preemption to the report that the group is off its device; at levels 2 and 3 not all report",
            left.collect(),
        ),
        Family::counter(
            "xsched_preemptions",
            "Times that a group lost its device while it wanted it, suspensions by operators aside",
            preempted.collect(),
        ),
    ]
}

fn of_daemon(snapshot: &Snapshot, left_out: u64) -> Vec<Family> {
    let one = |value| vec![(Labels::default(), value)];
    let daemon = &snapshot.daemon;
    let version = Labels::new(vec![("version", env!("CARGO_PKG_VERSION").to_owned())]);
    vec![
        Family::gauge("xsched_attached_programs", "Programs attached", one(Value::Gauge(daemon.programs as f64))),
        Family::gauge("xsched_connections", "Connections to the daemon", one(Value::Gauge(daemon.connections as f64))),
        Family::counter(
            "xsched_dropped_clients",
            "Connections ended for malformed or hostile messages",
            one(Value::Count(daemon.dropped_clients)),
        ),
        Family::counter(
            "xsched_panics",
            "Faults of the daemon that were caught; each cost a message, or a part of a task",
            one(Value::Count(daemon.panics)),
        ),
        Family::counter("xsched_decisions", "Decisions about gates", one(Value::Count(daemon.decisions))),
        Family::histogram(
            "xsched_decision",
            "Time from a program's announcement that it wants a device to the decision",
            one(Value::Times(snapshot.observations.decisions.clone())),
        ),
        Family::gauge("xsched_uptime", "Time since the daemon's start", one(Value::Gauge(daemon.uptime_s)))
            .unit(Unit::Seconds),
        Family::gauge(
            "xsched_series_left_out",
            "Programs left out for want of series",
            one(Value::Gauge(left_out as f64)),
        ),
        Family::gauge("xsched_build_info", "Version of the daemon", vec![(version, Value::Gauge(1.0))]),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::series::tests::row;
    use super::*;

    /// Of 14 samples each. A debug build takes about ten times as long as is promised.
    #[test]
    fn a_thousand_series_are_written_in_time() {
        let within = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 50 });
        let rows = (0..1_000).map(|n| row(n, &format!("program-{n}"), n)).collect();
        let snapshot = Snapshot { rows, ..Snapshot::default() };
        let mut series = Series::new(Shown { names: true, pids: false, most: 1_000 });
        let left_out = series.take(1, &snapshot);
        xsched_testkit::least_of(5, within, "a thousand series", || {
            let begin = xsched_testkit::own_time();
            let text = text(&snapshot, &series, left_out).unwrap();
            assert_eq!(text.matches("program=\"program-").count(), 14_000);
            xsched_testkit::own_time() - begin
        });
    }
}
