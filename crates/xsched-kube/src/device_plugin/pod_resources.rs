//! Containers that were given devices of ours, from the kubelet's socket for pod resources. It lists containers and
//! sidecars, but no other init containers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use xsched_proto::class::Class;

use super::channel::channel;
use crate::api::pod_resources::{ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources};
use crate::api::services::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::config::{OFFERED, resource};
use crate::log;

/// Longest time for the kubelet's answer while a runtime waits, which by default gives a plugin 2 s.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a failed request to the kubelet.
const PAUSE: Duration = Duration::from_secs(5);

/// Asks the kubelet for all containers.
///
/// # Errors
/// Reason in one line.
pub async fn list(socket: &Path) -> Result<ListPodResourcesResponse, String> {
    let channel = channel(socket).await?;
    let answer = PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await;
    answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
}

impl ListPodResourcesResponse {
    /// All containers, each with its pod.
    pub fn containers(&self) -> impl Iterator<Item = (&PodResources, &ContainerResources)> {
        self.pod_resources.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
    }

    /// Class of a container's resource.
    pub fn class_of(&self, namespace: &str, pod: &str, container: &str) -> Option<Class> {
        let is_it = |(p, c): &(&PodResources, &ContainerResources)| {
            p.namespace == namespace && p.name == pod && c.name == container
        };
        self.containers().find(is_it).and_then(|(_, found)| found.class())
    }

    /// Reports whether a container of a pod has a class, or may have one by a claim.
    pub fn may_have_class(&self, namespace: &str, pod: &str) -> bool {
        let of_pod = self.containers().filter(|(p, _)| p.namespace == namespace && p.name == pod);
        of_pod.into_iter().any(|(_, container)| container.class().is_some() || !container.dynamic_resources.is_empty())
    }
}

impl ContainerResources {
    /// Class of the container's resource; of several, the least urgent, as CDI's hook decides.
    pub fn class(&self) -> Option<Class> {
        let has = |class: &Class| self.devices.iter().any(|devices| devices.resource_name == resource(*class));
        OFFERED.into_iter().filter(has).min()
    }
}

/// The kubelet, asked for each container that is created. If it does not answer, no container waits for long.
pub struct Asked {
    socket: PathBuf,
    /// Last failure: time and reason.
    failed: Mutex<Option<(Instant, String)>>,
}

impl Asked {
    /// Makes one for the kubelet's socket.
    pub fn new(socket: PathBuf) -> Asked {
        Asked { socket, failed: Mutex::default() }
    }

    /// Asks for all containers. `None` while the kubelet does not answer, which is logged once for each reason.
    pub async fn list(&self) -> Option<ListPodResourcesResponse> {
        let before = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before.as_ref().is_some_and(|(when, _)| when.elapsed() < PAUSE) {
            return None;
        }
        let answer = tokio::time::timeout(PATIENCE, list(&self.socket)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("it took more than {} s", PATIENCE.as_secs())));
        let failed = answer.as_ref().err().map(|why| (Instant::now(), why.clone()));
        if let Some((_, why)) = &failed
            && before.is_none_or(|(_, said)| said != *why)
        {
            log(format!(
                "the kubelet does not tell which containers have a class from a resource: {why}; if the runtime leaves out their CDI devices, the injector does not see it"
            ));
        }
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        answer.ok()
    }
}
