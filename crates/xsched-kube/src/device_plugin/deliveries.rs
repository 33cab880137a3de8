//! Deliveries of devices that were allocated by names of CDI devices. A runtime that does not resolve these leaves them
//! out without a message, and the container runs without a class. So the hook in this project's specification leaves a
//! record of each container that has a class; a container without a record in good time is logged.

use crate::config::resource;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use xsched_proto::class::Class;

use crate::api::pod_resources::ListPodResourcesResponse;
use crate::delivery::CDI_SETTING;
use crate::status::Counter;

/// Number of containers that were logged here.
pub static UNDELIVERED: Counter = Counter::new(
    "xsched_device_plugin_undelivered_total",
    "Containers that were given a class's device and had no class in time: their runtime leaves out CDI devices.",
);
/// Size limit of a record, in bytes.
const RECORD_MAX_BYTES: u64 = 16 << 10;

/// The part of a record that identifies its container.
#[derive(Deserialize)]
struct Record {
    name: Option<String>,
    pod: Option<String>,
    namespace: Option<String>,
}

/// Name of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    namespace: String,
    pod: String,
    container: String,
}

struct Expected {
    class: Class,
    since: Instant,
    /// Records that existed before the container was created.
    before: BTreeSet<OsString>,
}

/// Containers that are about to be created and have no record yet.
pub struct Deliveries {
    /// Folder of the records; `None` if delivery is not by CDI, which leaves no records.
    records: Option<PathBuf>,
    patience: Duration,
    expected: Mutex<BTreeMap<Name, Expected>>,
}

/// Folder of records, beside that of the daemon's socket.
pub fn records_beside(socket: &Path) -> PathBuf {
    let folder = socket.parent().unwrap_or(Path::new("/run/xsched"));
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push("-containers");
    folder.with_file_name(name)
}

impl Deliveries {
    /// Makes a list without containers, from the folder of records and the time that a container may take to have one.
    pub fn new(records: Option<PathBuf>, patience: Duration) -> Deliveries {
        Deliveries { records, patience, expected: Mutex::default() }
    }

    /// Records that the container with these devices is about to be created.
    pub fn expect(&self, class: Class, ids: &[String], given: &ListPodResourcesResponse) {
        let Some(folder) = &self.records else { return };
        let own = resource(class);
        let has = |devices: &crate::api::pod_resources::ContainerDevices| {
            devices.resource_name == own && devices.device_ids.iter().any(|id| ids.contains(id))
        };
        let Some((pod, container)) = given.containers().find(|(_, c)| c.devices.iter().any(has)) else { return };
        let name = Name { namespace: pod.namespace.clone(), pod: pod.name.clone(), container: container.name.clone() };
        let before = files(folder).into_iter().map(|path| path.file_name().unwrap_or_default().to_owned()).collect();
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.insert(name, Expected { class, since: Instant::now(), before });
    }

    /// Drops containers that have a record now, and those without one in time. Returns a line for each of the latter.
    pub fn look(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(folder) = &self.records else { return lines };
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if expected.is_empty() {
            return lines;
        }
        let known: Vec<(OsString, Record)> =
            files(folder).into_iter().filter_map(|path| Some((path.file_name()?.to_owned(), read(&path)?))).collect();
        expected.retain(|name, expected| {
            let is_its = |record: &Record| match (&record.namespace, &record.pod, &record.name) {
                (Some(namespace), Some(pod), Some(container)) => {
                    *namespace == name.namespace && *pod == name.pod && *container == name.container
                }
                // The engine does not name the pod in its records: it may be this one.
                _ => true,
            };
            let is_late = expected.since.elapsed() >= self.patience;
            if known.iter().any(|(file, record)| !expected.before.contains(file) && is_its(record)) {
                return false;
            }
            if is_late {
                UNDELIVERED.add(1);
                lines.push(format!(
                    "pod {}/{}, container {}: was given {}, and no class has reached it in {} s (no record in {}): if it runs, it runs UNSCHEDULED. Its runtime leaves out CDI devices: {CDI_SETTING}; or delivery = \"environment\" for this plugin (docs/guide/kubernetes.md)",
                    name.namespace,
                    name.pod,
                    name.container,
                    resource(expected.class),
                    self.patience.as_secs_f64(),
                    folder.display()
                ));
            }
            !is_late
        });
        lines
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect()
}

fn read(path: &Path) -> Option<Record> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(RECORD_MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pod_resources::{ContainerDevices, ContainerResources, PodResources};

    fn given(name: &str) -> ListPodResourcesResponse {
        let devices = vec![ContainerDevices {
            resource_name: "xsched.dev/gpu-low".to_owned(),
            device_ids: vec!["G::0".to_owned()],
        }];
        let containers = vec![ContainerResources { name: name.to_owned(), devices, ..Default::default() }];
        let pod = PodResources { name: "p".to_owned(), namespace: "n".to_owned(), containers };
        ListPodResourcesResponse { pod_resources: vec![pod] }
    }

    #[test]
    fn a_record_of_the_container_that_was_not_there_before_is_its_class() {
        let work = tempfile::tempdir().unwrap();
        let deliveries = Deliveries::new(Some(work.path().to_owned()), Duration::ZERO);
        let write = |id: &str, text: &str| std::fs::write(work.path().join(id), text).unwrap();
        let own = r#"{"id": "1", "name": "main", "pod": "p", "namespace": "n", "class": "low"}"#;
        let expect = |device: &str| deliveries.expect(Class::Low, &[device.to_owned()], &given("main"));
        for (n, (text, is_delivered)) in [
            (own, true),
            // The old record is still there.
            (&own.replace("main", "side")[..], false),
            (&own.replace(r#""p""#, r#""q""#), false),
            (r#"{"id": "1", "name": null, "pod": null, "namespace": null}"#, true),
            ("{", false),
        ]
        .into_iter()
        .enumerate()
        {
            expect("G::0");
            write(&format!("{n}.json"), text);
            let lines = deliveries.look();
            assert_eq!(lines.is_empty(), is_delivered, "{text}: {lines:?}");
            assert_eq!(deliveries.look(), [""; 0], "once");
        }
        // Of a container that the kubelet does not know.
        expect("G::1");
        assert_eq!(deliveries.look(), [""; 0]);
        let patient = Deliveries::new(Some(work.path().to_owned()), Duration::MAX);
        patient.expect(Class::Low, &["G::0".to_owned()], &given("main"));
        assert_eq!(patient.look(), [""; 0]);
        assert_eq!(patient.expected.lock().unwrap().len(), 1, "it is waited for");
    }

    #[test]
    fn records_lie_beside_the_sockets_folder() {
        assert_eq!(records_beside(Path::new("/run/xsched/xsched.sock")), Path::new("/run/xsched-containers"));
    }
}
