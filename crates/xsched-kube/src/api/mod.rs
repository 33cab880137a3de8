//! What is said on the sockets of a node: messages with the numbers and names of the published interfaces.

pub mod device_plugin;
pub mod nri;
pub mod pod_resources;

/// The services of [`device_plugin`] and [`pod_resources`], clients and servers, as `build.rs` makes them.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod services {
    /// A plugin tells the kubelet that it is there.
    pub mod registration {
        include!(concat!(env!("OUT_DIR"), "/v1beta1.Registration.rs"));
    }
    /// The kubelet asks a plugin.
    pub mod device_plugin {
        include!(concat!(env!("OUT_DIR"), "/v1beta1.DevicePlugin.rs"));
    }
    /// Who has which devices, as the kubelet tells it.
    pub mod pod_resources {
        include!(concat!(env!("OUT_DIR"), "/v1.PodResourcesLister.rs"));
    }
}
