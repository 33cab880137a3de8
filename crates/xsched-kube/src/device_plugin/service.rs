//! The service through which the kubelet uses one class.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use xsched_proto::class::Class;

use super::allocation::{self, Offer};
use super::deliveries::Deliveries;
use super::health::Health;
use crate::api::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use crate::api::services::device_plugin::device_plugin_server::DevicePlugin;
use crate::log;

/// Options of the plugin: it is called before a container starts, and asked which devices it prefers.
pub const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

/// Longest time for the kubelet's list of containers while it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// State that the services of all classes share.
pub struct Shared {
    /// Devices of the node.
    pub offer: Offer,
    /// The kubelet's socket for pod resources.
    pub pod_resources: PathBuf,
    /// Containers that are about to be created.
    pub deliveries: Deliveries,
}

/// A class offered as a resource.
pub struct Service {
    class: Class,
    shared: Arc<Shared>,
    health: watch::Receiver<Health>,
}

impl Service {
    /// Makes the service of a class. It works as long as the sender of the plugin's health lives.
    pub fn new(class: Class, shared: Arc<Shared>, health: watch::Receiver<Health>) -> Service {
        Service { class, shared, health }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (class, shared) = (self.class, Arc::clone(&self.shared));
        let list = move |health: Health| Ok(ListAndWatchResponse { devices: shared.offer.devices(class, &health) });
        Ok(Response::new(Box::pin(WatchStream::new(self.health.clone()).map(list))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        // A kubelet that does not tell of other containers gets an answer without them.
        let given = super::pod_resources::list(&self.shared.pod_resources);
        let given = tokio::time::timeout(PATIENCE, given).await.unwrap_or_else(|_| Err(String::new()));
        let given = given.unwrap_or_default();
        let answer = |wanted: &_| ContainerPreferredAllocationResponse {
            device_ids: allocation::preferred(self.class, wanted, &given),
        };
        let container_responses = request.get_ref().container_requests.iter().map(answer).collect();
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let containers = &request.get_ref().container_requests;
        let answers = containers.iter().map(|wanted| self.shared.offer.allocate(self.class, &wanted.devices_ids));
        let container_responses = answers.collect::<Result<_, _>>().map_err(Status::invalid_argument)?;
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    /// Checks that a container has one class only. An allocation does not name its container; at this point the kubelet
    /// lists all devices that the container has.
    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        match super::pod_resources::list(&self.shared.pod_resources).await {
            Ok(given) => {
                let ids = &request.get_ref().devices_ids;
                allocation::one_class(self.class, ids, &given).map_err(|why| {
                    log(&why);
                    Status::failed_precondition(why)
                })?;
                self.shared.deliveries.expect(self.class, ids, &given);
            }
            Err(e) => {
                log(format!("the kubelet does not tell which classes a container has ({e}): it starts unchecked"))
            }
        }
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
