//! Devices of a class: which exist, which are preferred, and what a container gets with them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use xsched_proto::class::Class;

use super::health::Health;
use crate::api::device_plugin::{
    CdiDevice, ContainerAllocateResponse, ContainerPreferredAllocationRequest, Device, DeviceSpec, HEALTHY, Mount,
    NumaNode, TopologyInfo, UNHEALTHY,
};
use crate::api::pod_resources::ListPodResourcesResponse;
use crate::config::{Config, Delivery, OfferedTwice, RESOURCES, resource};
use crate::delivery::{Outside, class_device};
use crate::gpus::Gpu;

/// Text between a GPU's UUID and the number of a device on it.
const SEPARATOR: &str = "::";
/// Device nodes that every NVIDIA GPU needs, if they exist.
const COMMON_NODES: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

/// UUID of a device's GPU.
fn gpu_of(id: &str) -> &str {
    id.rsplit_once(SEPARATOR).map_or(id, |(uuid, _)| uuid)
}

/// Devices that a node offers: of each class a number on each GPU.
pub struct Offer {
    /// Configuration of the node.
    pub config: Config,
    /// Paths on the node.
    pub outside: Outside,
    /// GPUs that are offered.
    pub gpus: Vec<Gpu>,
}

impl Offer {
    /// Number of devices of a class on a GPU.
    pub fn count(&self, gpu: &Gpu, class: Class) -> u32 {
        let plugin = &self.config.device_plugin;
        plugin.gpus.get(&gpu.uuid).unwrap_or(&plugin.counts).of(class)
    }

    fn may_be_twice(&self) -> bool {
        self.config.device_plugin.offered_twice == OfferedTwice::Allowed
    }

    /// Devices of a class, with their health.
    pub fn devices(&self, class: Class, health: &Health) -> Vec<Device> {
        let of_gpu = |gpu: &Gpu| {
            let is_twice = !self.may_be_twice() && health.others.contains_key(&gpu.uuid);
            let is_well = health.daemon && !health.broken.contains(&gpu.board) && !is_twice;
            let state = if is_well { HEALTHY } else { UNHEALTHY };
            let topology = gpu.numa.map(|id| TopologyInfo { nodes: vec![NumaNode { id }] });
            let uuid = gpu.uuid.clone();
            (0..self.count(gpu, class)).map(move |n| Device {
                id: format!("{uuid}{SEPARATOR}{n}"),
                health: state.to_owned(),
                topology: topology.clone(),
            })
        };
        self.gpus.iter().flat_map(of_gpu).collect()
    }

    /// Changes to a container that is given these devices.
    ///
    /// # Errors
    /// If a device is not offered.
    pub fn allocate(&self, class: Class, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        let uuids: BTreeSet<&str> = ids.iter().map(|id| gpu_of(id)).collect();
        let known = |uuid: &&str| {
            let gpu = self.gpus.iter().find(|gpu| gpu.uuid == **uuid);
            gpu.ok_or_else(|| format!("there is no GPU {uuid} on this node"))
        };
        let gpus: Vec<&Gpu> = uuids.iter().map(known).collect::<Result<_, _>>()?;
        let real = || gpus.iter().filter(|gpu| !gpu.is_simulated);
        let mut answer = ContainerAllocateResponse::default();
        match self.config.delivery {
            Delivery::Cdi => {
                let names = real().map(|gpu| format!("nvidia.com/gpu={}", gpu.uuid));
                answer.cdi_devices =
                    [class_device(class)].into_iter().chain(names).map(|name| CdiDevice { name }).collect();
            }
            Delivery::Environment => {
                let variables = self.outside.variables(class);
                answer.envs = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                let mount = |(host, inside): (&Path, &str)| Mount {
                    container_path: inside.to_owned(),
                    host_path: host.display().to_string(),
                    read_only: true,
                };
                answer.mounts = self.outside.mounts().into_iter().map(mount).collect();
                let all: Vec<&str> = real().map(|gpu| gpu.uuid.as_str()).collect();
                if !all.is_empty() {
                    answer.envs.insert("NVIDIA_VISIBLE_DEVICES".to_owned(), all.join(","));
                    let own = real().filter_map(|gpu| gpu.minor).map(|minor| format!("/dev/nvidia{minor}"));
                    let nodes: BTreeSet<String> = own.chain(COMMON_NODES.map(str::to_owned)).collect();
                    let there = nodes.into_iter().filter(|node| Path::new(node).exists());
                    answer.devices = there.map(node).collect();
                }
            }
        }
        Ok(answer)
    }
}

fn node(path: String) -> DeviceSpec {
    DeviceSpec { container_path: path.clone(), host_path: path, permissions: "rw".to_owned() }
}

/// Containers on a GPU, as one more of a class meets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Company {
    /// Containers of its own kind, urgent or best-effort: these it slows down most, and they it.
    alike: usize,
    /// All containers.
    all: usize,
}

/// Containers on each GPU, as one more of a class meets them. Those of other classes count as well: the free devices of its own class tell
/// nothing of them.
fn company(class: Class, given: &ListPodResourcesResponse) -> BTreeMap<&str, Company> {
    let mut on: BTreeMap<&str, Company> = BTreeMap::new();
    for (_, container) in given.containers() {
        let Some(other) = container.class() else { continue };
        let of_classes = container.devices.iter().filter(|devices| devices.resource_name.starts_with(RESOURCES));
        let gpus: BTreeSet<&str> = of_classes.flat_map(|devices| &devices.device_ids).map(|id| gpu_of(id)).collect();
        for gpu in gpus {
            let company = on.entry(gpu).or_default();
            company.all += 1;
            company.alike += usize::from(other.is_best_effort() == class.is_best_effort());
        }
    }
    on
}

/// Devices that a container should get: all of one GPU if possible, of those the one with the least company, and then the one with most
/// free devices. Devices that must be included come first, and their GPU before others.
pub fn preferred(
    class: Class,
    wanted: &ContainerPreferredAllocationRequest,
    given: &ListPodResourcesResponse,
) -> Vec<String> {
    let company = company(class, given);
    let size = usize::try_from(wanted.allocation_size).unwrap_or(0);
    let mut chosen = wanted.must_include_device_ids.clone();
    chosen.truncate(size);
    let held: BTreeSet<&str> = wanted.must_include_device_ids.iter().map(|id| gpu_of(id)).collect();
    let mut free: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for id in wanted.available_device_ids.iter().filter(|id| !chosen.contains(id)) {
        free.entry(gpu_of(id)).or_default().push(id);
    }
    while chosen.len() < size {
        let missing = size - chosen.len();
        let best = free.iter().max_by_key(|(uuid, ids)| {
            let beside = company.get(*uuid).copied().unwrap_or_default();
            (held.contains(*uuid), ids.len() >= missing, Reverse(beside), ids.len(), Reverse(**uuid))
        });
        let Some(uuid) = best.map(|(uuid, _)| *uuid) else { break };
        let ids = free.remove(uuid).unwrap_or_default();
        chosen.extend(ids.into_iter().take(missing).cloned());
    }
    chosen
}

/// Checks that the container with these devices of a class has no other class.
///
/// # Errors
/// One line that names the container.
pub fn one_class(class: Class, ids: &[String], given: &ListPodResourcesResponse) -> Result<(), String> {
    let own = resource(class);
    for pod in &given.pod_resources {
        for container in &pod.containers {
            let has =
                |id: &String| container.devices.iter().any(|d| d.resource_name == own && d.device_ids.contains(id));
            if !ids.iter().any(has) {
                continue;
            }
            let others = container.devices.iter().map(|d| d.resource_name.as_str());
            if let Some(other) = others.into_iter().find(|name| name.starts_with(RESOURCES) && *name != own) {
                return Err(format!(
                    "container {} of pod {}/{} asks for {own} and {other}: use one class for a container",
                    container.name, pod.namespace, pod.name
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pod_resources::{ContainerDevices, ContainerResources, PodResources};

    fn ids(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_gpu_is_preferred_and_of_these_the_one_with_most_free() {
        let all = ["a::0", "b::0", "b::1", "c::1", "c::2", "c::3"];
        for (must, size, expected) in [
            (&[][..], 1, &["c::1"][..]),
            (&[], 3, &["c::1", "c::2", "c::3"]),
            (&["b::0"], 2, &["b::0", "b::1"]),
            (&["a::0"], 2, &["a::0", "c::1"]),
            (&[], 5, &["c::1", "c::2", "c::3", "b::0", "b::1"]),
            (&[], 9, &["c::1", "c::2", "c::3", "b::0", "b::1", "a::0"]),
            (&[], 0, &[]),
        ] {
            let wanted = ContainerPreferredAllocationRequest {
                available_device_ids: ids(&all),
                must_include_device_ids: ids(must),
                allocation_size: size,
            };
            let none = ListPodResourcesResponse::default();
            assert_eq!(preferred(Class::Low, &wanted, &none), ids(expected), "{must:?} {size}");
        }
    }

    #[test]
    fn the_gpu_with_the_least_company_of_its_kind_is_preferred_and_then_the_one_with_the_least() {
        let container = |class: Class, given: &[&str]| ContainerResources {
            name: String::new(),
            devices: vec![ContainerDevices { resource_name: resource(class), device_ids: ids(given) }],
            ..Default::default()
        };
        let other = ContainerDevices { resource_name: "nvidia.com/gpu".to_owned(), device_ids: ids(&["c::0"]) };
        let containers = vec![
            container(Class::Low, &["a::0", "a::1"]),
            container(Class::Normal, &["b::0"]),
            container(Class::High, &["b::1"]),
            container(Class::High, &["d::0"]),
            ContainerResources { devices: vec![other], ..Default::default() },
        ];
        let pod = PodResources { name: String::new(), namespace: String::new(), containers };
        let given = ListPodResourcesResponse { pod_resources: vec![pod] };
        for (class, available, expected) in [
            (Class::Low, &["a::2", "b::2", "c::0", "d::1"][..], "c::0"),
            (Class::Normal, &["a::2", "b::2", "d::1"], "d::1"),
            (Class::Normal, &["b::2", "a::2"], "a::2"),
            (Class::High, &["a::0", "b::2", "d::1"], "a::0"),
            (Class::Realtime, &["b::2", "d::1"], "d::1"),
        ] {
            let wanted = ContainerPreferredAllocationRequest {
                available_device_ids: ids(available),
                must_include_device_ids: Vec::new(),
                allocation_size: 1,
            };
            assert_eq!(preferred(class, &wanted, &given), ids(&[expected]), "{class} {available:?}");
        }
    }
}
