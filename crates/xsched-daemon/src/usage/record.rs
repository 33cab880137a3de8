//! A record: the time that one program had on one device within a period. A line of JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xsched_proto::class::Class;

/// Identity of a program. Texts from the program are cut to lengths that keep a record short.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// Clock ticks from the boot to its start.
    pub(crate) start: u64,
    /// User in the text form of [`crate::identity::User`].
    pub(crate) user: String,
    /// The job that was given a name.
    pub(crate) job: Option<String>,
    /// Name of the program.
    pub(crate) program: String,
    /// The innermost container.
    pub(crate) container: Option<String>,
    /// Uid of its Kubernetes pod.
    pub(crate) pod: Option<String>,
    /// Name of the container at its engine.
    #[serde(default)]
    pub(crate) container_name: Option<String>,
    #[serde(default)]
    pub(crate) pod_name: Option<String>,
    /// The pod's namespace.
    #[serde(default)]
    pub(crate) namespace: Option<String>,
}

/// Record of usage. Times are in ms since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    #[serde(flatten, with = "shared")]
    pub(crate) identity: Arc<Identity>,
    /// Its class at the end of the period.
    pub(crate) class: Class,
    pub(crate) device: String,
    pub(crate) gpu_ns: u64,
    pub(crate) by_driver_ns: u64,
    pub(crate) at_most_ns: u64,
    pub(crate) resident_ns: u64,
    /// Memory held times the time for which it was, in KiB·s.
    #[serde(default)]
    pub(crate) memory_kib_s: u64,
    /// Memory that has left the device for the host, times the time for which it had, in KiB·s.
    #[serde(default)]
    pub(crate) host_kib_s: u64,
}

impl Record {
    /// Takes another one in, of the same program on the same device.
    pub(super) fn merge(&mut self, other: &Record) {
        self.from_ms = self.from_ms.min(other.from_ms);
        self.to_ms = self.to_ms.max(other.to_ms);
        self.gpu_ns = self.gpu_ns.saturating_add(other.gpu_ns);
        self.by_driver_ns = self.by_driver_ns.saturating_add(other.by_driver_ns);
        self.at_most_ns = self.at_most_ns.saturating_add(other.at_most_ns);
        self.resident_ns = self.resident_ns.saturating_add(other.resident_ns);
        self.memory_kib_s = self.memory_kib_s.saturating_add(other.memory_kib_s);
        self.host_kib_s = self.host_kib_s.saturating_add(other.host_kib_s);
    }
}

/// Serialisation of an identity that many records share: it is written with each of them.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Identity;

    pub(super) fn serialize<S: Serializer>(identity: &Arc<Identity>, s: S) -> Result<S::Ok, S::Error> {
        identity.as_ref().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<Identity>, D::Error> {
        Identity::deserialize(d).map(Arc::new)
    }
}
