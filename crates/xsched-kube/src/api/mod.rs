//! What is said on the sockets of a node: messages with the numbers and names of the published interfaces.

pub mod device_plugin;
pub mod dra;
pub mod nri;
pub mod pod_resources;

/// The services of [`device_plugin`], [`dra`] and [`pod_resources`], clients and servers, as `build.rs` makes them.
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
    /// The kubelet learns of a plugin in a folder that it watches.
    pub mod plugin_registration {
        include!(concat!(env!("OUT_DIR"), "/pluginregistration.Registration.rs"));
    }
    /// The kubelet asks a plugin for dynamic resource allocation.
    pub mod dra {
        include!(concat!(env!("OUT_DIR"), "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin.rs"));
    }
    /// Who has which devices, as the kubelet tells it.
    pub mod pod_resources {
        include!(concat!(env!("OUT_DIR"), "/v1.PodResourcesLister.rs"));
    }
}
