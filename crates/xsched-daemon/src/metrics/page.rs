//! The text: names and units by the conventions of OpenMetrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::histogram::Histogram;
use super::labels::Labels;
use super::series::{One, Series, device_labels};
use super::snapshot::Snapshot;
use crate::Error;

#[derive(Debug)]
enum Value {
    Count(u64),
    Seconds(f64),
    Gauge(f64),
    Times(Histogram),
}

/// A metric: name without unit and suffix, what it is, unit, samples.
type Family = (&'static str, &'static str, Option<Unit>, Vec<(Labels, Value)>);

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
        for (name, help, unit, samples) in &self.0 {
            let Some((_, first)) = samples.first() else { continue };
            let kind = match first {
                Value::Count(_) | Value::Seconds(_) => MetricType::Counter,
                Value::Gauge(_) => MetricType::Gauge,
                Value::Times(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
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

fn families(snapshot: &Snapshot, series: &Series, left_out: u64) -> Vec<Family> {
    let of_programs = |value: fn(&One) -> Option<Value>| -> Vec<(Labels, Value)> {
        series.iter().filter_map(|(labels, one)| Some((labels.clone(), value(one)?))).collect()
    };
    let living = |value: fn(&One) -> Value| -> Vec<(Labels, Value)> {
        let there = series.iter().filter(|(_, one)| one.programs > 0);
        there.map(|(labels, one)| (labels.clone(), value(one))).collect()
    };
    let unscheduled = series.iter().flat_map(|(labels, one)| {
        let reasons = ["attach", "passthrough", "error"].into_iter().zip(one.total.unscheduled);
        reasons.map(|(reason, count)| (labels.with("reason", reason), Value::Count(count)))
    });
    let mut families = vec![
        (
            "xsched_gpu",
            "Device time of programs; time that several have together is divided among them",
            Some(Unit::Seconds),
            of_programs(|one| Some(seconds(one.total.usage.gpu_ns))),
        ),
        (
            "xsched_gpu_by_driver",
            "The part of the device time that rests on the driver's own figure of how active the device was",
            Some(Unit::Seconds),
            of_programs(|one| Some(seconds(one.total.usage.by_driver_ns))),
        ),
        (
            "xsched_gpu_at_most",
            "The part of the device time that nothing has measured, so that it may be too much",
            Some(Unit::Seconds),
            of_programs(|one| Some(seconds(one.total.usage.at_most_ns))),
        ),
        (
            "xsched_resident",
            "Time that programs were on a device, whatever else was there",
            Some(Unit::Seconds),
            of_programs(|one| Some(seconds(one.total.usage.resident_ns))),
        ),
        (
            "xsched_gate_wait",
            "Time that threads of programs have stood at the closed gate",
            Some(Unit::Seconds),
            of_programs(|one| Some(seconds(one.total.wait_ns))),
        ),
        (
            "xsched_launches",
            "Commands given to devices",
            None,
            of_programs(|one| Some(Value::Count(one.total.launches))),
        ),
        ("xsched_unscheduled_launches", "Launches without a decision, by reason", None, unscheduled.collect()),
        (
            "xsched_suspensions",
            "Times that the gate of a group was closed",
            None,
            of_programs(|one| Some(Value::Count(one.total.suspensions))),
        ),
        (
            "xsched_programs",
            "Programs attached that use a device",
            None,
            living(|one| Value::Gauge(one.programs as f64)),
        ),
        ("xsched_weight", "Weight of programs, added up", None, living(|one| Value::Gauge(one.weight as f64))),
        (
            "xsched_share",
            "Part of the device that programs ask for by their weights, under the policy fair by those of their users first",
            Some(Unit::Other("ratio".into())),
            living(|one| Value::Gauge(one.share)),
        ),
        (
            "xsched_memory",
            "Device memory of programs, as the driver tells",
            Some(Unit::Bytes),
            of_programs(|one| one.memory_bytes.map(|bytes| Value::Gauge(bytes as f64))),
        ),
    ];
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
        (
            "xsched_device_busy",
            "Time that some program was on a device: the sum of xsched_gpu_seconds",
            Some(Unit::Seconds),
            busy.collect(),
        ),
        ("xsched_device_policy", "The policy in force on a device", None, policy.collect()),
        ("xsched_wait", "From wanting a device to having it, each time", Some(Unit::Seconds), waits.collect()),
        (
            "xsched_preemption",
            "From closing the gate of a group that was on its device to hearing that it is off",
            Some(Unit::Seconds),
            left.collect(),
        ),
        ("xsched_preemptions", "Times that a group was taken off its device", None, preempted.collect()),
    ]
}

fn of_daemon(snapshot: &Snapshot, left_out: u64) -> Vec<Family> {
    let one = |value| vec![(Labels::default(), value)];
    let daemon = &snapshot.daemon;
    let version = Labels::new(vec![("version", env!("CARGO_PKG_VERSION").to_owned())]);
    vec![
        ("xsched_attached_programs", "Programs attached", None, one(Value::Gauge(daemon.programs as f64))),
        ("xsched_connections", "Connections to the daemon", None, one(Value::Gauge(daemon.connections as f64))),
        (
            "xsched_dropped_clients",
            "Connections ended for malformed or hostile messages",
            None,
            one(Value::Count(daemon.dropped_clients)),
        ),
        ("xsched_decisions", "Times that gates were decided", None, one(Value::Count(daemon.decisions))),
        (
            "xsched_decision",
            "From a program's announcement that it wants a device to the daemon's having decided",
            Some(Unit::Seconds),
            one(Value::Times(snapshot.observations.decisions.clone())),
        ),
        ("xsched_uptime", "Time since the daemon's start", Some(Unit::Seconds), one(Value::Gauge(daemon.uptime_s))),
        ("xsched_series_left_out", "Programs without room among the series", None, one(Value::Gauge(left_out as f64))),
        ("xsched_build_info", "The daemon's version", None, vec![(version, Value::Gauge(1.0))]),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::series::Shown;
    use super::super::series::tests::row;
    use super::*;

    /// Of 13 samples each. A debug build takes about ten times as long as is promised.
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
            assert_eq!(text.matches("program=\"program-").count(), 13_000);
            xsched_testkit::own_time() - begin
        });
    }
}
