//! Search for GPUs that other device plugins offer too, in the kubelet's lists. The kubelet knows devices by each
//! plugin's own names, and counts a GPU with two names twice.

use crate::config::RESOURCES;
use std::collections::BTreeMap;
use std::path::Path;

use tokio::sync::watch;

use super::channel::channel;
use crate::api::pod_resources::{AllocatableResourcesRequest, ContainerDevices};
use crate::api::services::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::gpus::Gpu;
use crate::log;

/// UUIDs of GPUs that are offered twice, each with the other resource.
pub type Others = BTreeMap<String, String>;

/// Reports whether the ID of another plugin's device is a UUID, or one of several IDs for it: `GPU-…`, `GPU-…::3`.
fn names(id: &str, uuid: &str) -> bool {
    id.strip_prefix(uuid).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// GPUs of `gpus` that are among `offered`, the devices of all plugins. A MIG part also counts as offered twice if its
/// board is.
pub fn found(gpus: &[Gpu], offered: &[ContainerDevices]) -> Others {
    let others: Vec<_> = offered.iter().filter(|devices| !devices.resource_name.starts_with(RESOURCES)).collect();
    let other_of = |gpu: &Gpu| {
        let is_it = |id: &String| names(id, &gpu.uuid) || names(id, &gpu.board);
        let other = others.iter().find(|devices| devices.device_ids.iter().any(is_it))?;
        Some((gpu.uuid.clone(), other.resource_name.clone()))
    };
    gpus.iter().filter_map(other_of).collect()
}

/// Asks the kubelet at its socket for pod resources. It does not list devices that are unhealthy, or whose plugin is
/// gone.
async fn ask(socket: &Path) -> Result<Vec<ContainerDevices>, String> {
    let channel = channel(socket).await?;
    let answer = PodResourcesListerClient::new(channel).get_allocatable_resources(AllocatableResourcesRequest {}).await;
    Ok(answer.map_err(|status| status.message().to_owned())?.into_inner().devices)
}

/// Result of repeated queries for other plugins.
pub struct Watch {
    known: watch::Sender<Others>,
    /// Last reason for a missing answer, as it was logged.
    why: Option<String>,
}

impl Watch {
    /// Starts without a result.
    pub fn new() -> (Watch, watch::Receiver<Others>) {
        let (known, receiver) = watch::channel(Others::new());
        (Watch { known, why: None }, receiver)
    }

    /// Queries once, and logs changes. While the kubelet does not answer, the last result stays valid.
    pub async fn look(&mut self, socket: &Path, gpus: &[Gpu]) {
        let offered = match ask(socket).await {
            Ok(offered) => offered,
            Err(why) => {
                if self.why.as_ref() != Some(&why) {
                    log(format!("the kubelet does not tell what other plugins offer: {why}"));
                }
                self.why = Some(why);
                return;
            }
        };
        self.why = None;
        let now = found(gpus, &offered);
        let before = self.known.borrow().clone();
        for (uuid, resource) in now.iter().filter(|(uuid, _)| !before.contains_key(*uuid)) {
            log(format!(
                "{uuid}: {resource} offers it too, and would give it away twice: keep that plugin off this node (docs/guide/kubernetes.md)"
            ));
        }
        for uuid in before.keys().filter(|uuid| !now.contains_key(*uuid)) {
            log(format!("{uuid}: no other plugin offers it any more"));
        }
        if now != before {
            self.known.send_replace(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(uuid: &str, board: &str) -> Gpu {
        Gpu { uuid: uuid.to_owned(), board: board.to_owned(), minor: None, numa: None, is_simulated: false }
    }

    #[test]
    fn a_gpu_is_offered_twice_if_a_device_of_another_resource_is_it_or_its_board() {
        let gpus = [gpu("GPU-1", "GPU-1"), gpu("GPU-10", "GPU-10"), gpu("MIG-a", "GPU-2"), gpu("MIG-b", "GPU-3")];
        for (resource, id, expected) in [
            ("nvidia.com/gpu", "GPU-1", &["GPU-1"][..]),
            ("nvidia.com/gpu.shared", "GPU-10::3", &["GPU-10"]),
            ("example.com/vgpu", "GPU-1-0", &["GPU-1"]),
            ("nvidia.com/mig-1g.5gb", "MIG-a", &["MIG-a"]),
            ("nvidia.com/gpu", "GPU-2", &["MIG-a"]),
            ("nvidia.com/gpu", "GPU-4", &[]),
            ("xsched.dev/gpu-low", "GPU-1::0", &[]),
        ] {
            let devices = ContainerDevices { resource_name: resource.to_owned(), device_ids: vec![id.to_owned()] };
            let found = found(&gpus, &[devices]);
            assert_eq!(found.keys().collect::<Vec<_>>(), expected, "{resource} {id}");
            assert!(found.values().all(|other| other == resource));
        }
    }
}
