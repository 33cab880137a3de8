//! A fake kubelet: gRPC over the sockets of its folders, as a kubelet does it. It accepts registrations, connects to
//! the plugin under the name that it was given, keeps the stream of devices open, and sends requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::escaped::channel;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use xsched_kube::api::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, ContainerPreferredAllocationRequest, Empty,
    PreStartContainerRequest, PreferredAllocationRequest, RegisterRequest,
};
use xsched_kube::api::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources,
    ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use xsched_kube::api::services::device_plugin::device_plugin_client::DevicePluginClient;
use xsched_kube::api::services::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use xsched_kube::api::services::registration::registration_server::{Registration, RegistrationServer};

/// State of a resource: its devices with their health.
type Devices = BTreeMap<String, String>;

#[derive(Default)]
struct State {
    registered: Vec<RegisterRequest>,
    devices: BTreeMap<String, Devices>,
    clients: BTreeMap<String, Channel>,
    refuses: bool,
    given: ListPodResourcesResponse,
    /// Devices that other plugins offer.
    others: Vec<ContainerDevices>,
}

#[derive(Clone)]
pub struct Kubelet {
    state: Arc<Mutex<State>>,
    folder: PathBuf,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Kubelet {
    /// Starts a kubelet, which empties its folder first as a real one does.
    pub fn start(folder: &Path, pod_resources: &Path) -> Kubelet {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            // The plugin may have removed the file already: it replaces its sockets.
            let _ = std::fs::remove_file(entry.path());
        }
        let _ = std::fs::remove_file(pod_resources);
        let kubelet = Kubelet { state: Arc::default(), folder: folder.to_owned(), tasks: Arc::default() };
        let own = UnixListenerStream::new(UnixListener::bind(folder.join("kubelet.sock")).unwrap());
        let resources = UnixListenerStream::new(UnixListener::bind(pod_resources).unwrap());
        let service = RegistrationServer::new(kubelet.clone());
        let lister = PodResourcesListerServer::new(kubelet.clone());
        kubelet.spawn(async move { Server::builder().serve_with_incoming(service, own).await.unwrap() });
        kubelet.spawn(async move { Server::builder().serve_with_incoming(lister, resources).await.unwrap() });
        kubelet
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap().push(tokio::spawn(task));
    }

    /// Ends the kubelet. Its sockets stay, as after a crash.
    pub fn end(self) {
        for task in self.tasks.lock().unwrap().drain(..) {
            task.abort();
        }
    }

    pub fn refuse(&self, so: bool) {
        self.state.lock().unwrap().refuses = so;
    }

    pub fn registered(&self) -> Vec<RegisterRequest> {
        self.state.lock().unwrap().registered.clone()
    }

    /// Devices of a resource with this health.
    pub fn devices(&self, resource: &str, health: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let all = state.devices.get(resource).into_iter().flatten();
        all.filter(|(_, its)| *its == health).map(|(id, _)| id.clone()).collect()
    }

    /// Adds a container that was given these devices.
    pub fn give(&self, name: &str, devices: &[(&str, &str)]) {
        let devices = devices.iter().map(|(resource, id)| ContainerDevices {
            resource_name: (*resource).to_owned(),
            device_ids: vec![(*id).to_owned()],
        });
        let container = ContainerResources { name: name.to_owned(), devices: devices.collect(), ..Default::default() };
        self.state.lock().unwrap().given.pod_resources.push(PodResources {
            name: "pod".to_owned(),
            namespace: "team".to_owned(),
            containers: vec![container],
        });
    }

    /// Sets the devices of a resource of another plugin.
    pub fn offer(&self, resource: &str, ids: &[&str]) {
        let others = &mut self.state.lock().unwrap().others;
        others.retain(|devices| devices.resource_name != resource);
        // An entry for each device, as a kubelet does.
        others.extend(
            ids.iter()
                .map(|id| ContainerDevices { resource_name: resource.to_owned(), device_ids: vec![(*id).to_owned()] }),
        );
    }

    fn client(&self, resource: &str) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(self.state.lock().unwrap().clients[resource].clone())
    }

    pub async fn allocate(&self, resource: &str, ids: &[&str]) -> Result<ContainerAllocateResponse, Status> {
        let devices_ids = ids.iter().map(ToString::to_string).collect();
        let request = AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] };
        let mut answer = self.client(resource).allocate(request).await?.into_inner();
        assert_eq!(answer.container_responses.len(), 1);
        Ok(answer.container_responses.remove(0))
    }

    pub async fn preferred(&self, resource: &str, available: &[String], size: i32) -> Vec<String> {
        let wanted = ContainerPreferredAllocationRequest {
            available_device_ids: available.to_vec(),
            must_include_device_ids: Vec::new(),
            allocation_size: size,
        };
        let request = PreferredAllocationRequest { container_requests: vec![wanted] };
        let answer = self.client(resource).get_preferred_allocation(request).await.unwrap().into_inner();
        answer.container_responses[0].device_ids.clone()
    }

    pub async fn before_start(&self, resource: &str, id: &str) -> Result<(), Status> {
        let request = PreStartContainerRequest { devices_ids: vec![id.to_owned()] };
        self.client(resource).pre_start_container(request).await.map(|_| ())
    }
}

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        if self.state.lock().unwrap().refuses {
            return Err(Status::unavailable("not yet"));
        }
        let (kubelet, resource) = (self.clone(), request.resource_name.clone());
        let socket = self.folder.join(&request.endpoint);
        self.state.lock().unwrap().registered.push(request);
        self.spawn(async move {
            let channel = channel(&socket).await.expect("the plugin answers where it said");
            let mut client = DevicePluginClient::new(channel.clone());
            let options = client.get_device_plugin_options(Empty {}).await.unwrap().into_inner();
            assert!(options.pre_start_required && options.get_preferred_allocation_available);
            let mut stream = client.list_and_watch(Empty {}).await.unwrap().into_inner();
            kubelet.state.lock().unwrap().clients.insert(resource.clone(), channel);
            while let Ok(Some(list)) = stream.message().await {
                let devices = list.devices.into_iter().map(|device| (device.id, device.health)).collect();
                kubelet.state.lock().unwrap().devices.insert(resource.clone(), devices);
            }
            // As a kubelet does when the stream ends: the devices stay, and all are unhealthy.
            for health in kubelet.state.lock().unwrap().devices.entry(resource).or_default().values_mut() {
                *health = "Unhealthy".to_owned();
            }
        });
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        Ok(Response::new(self.state.lock().unwrap().given.clone()))
    }

    /// Lists the healthy devices of all plugins.
    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let state = self.state.lock().unwrap();
        let healthy = |(resource, devices): (&String, &Devices)| {
            let ids = devices.iter().filter(|(_, health)| *health == "Healthy").map(|(id, _)| id.clone());
            ContainerDevices { resource_name: resource.clone(), device_ids: ids.collect() }
        };
        let devices = state.devices.iter().map(healthy).chain(state.others.clone()).collect();
        Ok(Response::new(AllocatableResourcesResponse { devices }))
    }
}
