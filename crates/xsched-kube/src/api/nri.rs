//! The Node Resource Interface, `nri.pkg.api.v1alpha1`: the part that an injector needs. Members that are not read are
//! left out.
#![allow(missing_docs)]

use std::collections::HashMap;

/// Names of the runtime's service and of a plugin's.
pub const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";
pub const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
/// Number of an event. Its bit in [`ConfigureResponse::events`] is one less.
pub const CREATE_CONTAINER: i32 = 4;
/// [`Container::state`] of a container that has ended.
pub const STOPPED: i32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegisterPluginRequest {
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    #[prost(string, tag = "2")]
    pub plugin_idx: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfigureRequest {
    #[prost(string, tag = "1")]
    pub config: String,
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ConfigureResponse {
    #[prost(int32, tag = "2")]
    pub events: i32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SynchronizeRequest {
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<PodSandbox>,
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    /// Set if a further request follows with the rest of the pods and containers.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SynchronizeResponse {
    /// Set if several requests are understood.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateContainerRequest {
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateContainerResponse {
    #[prost(message, optional, tag = "1")]
    pub adjust: Option<ContainerAdjustment>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandbox {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
    #[prost(string, tag = "4")]
    pub namespace: String,
    #[prost(map = "string, string", tag = "5")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "6")]
    pub annotations: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(int32, tag = "4")]
    pub state: i32,
    #[prost(string, repeated, tag = "8")]
    pub env: Vec<String>,
    #[prost(message, repeated, tag = "9")]
    pub mounts: Vec<Mount>,
    #[prost(uint32, tag = "12")]
    pub pid: u32,
    #[prost(message, repeated, tag = "20")]
    pub cdi_devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAdjustment {
    #[prost(message, repeated, tag = "3")]
    pub mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "4")]
    pub env: Vec<KeyValue>,
    #[prost(message, optional, tag = "5")]
    pub hooks: Option<Hooks>,
    #[prost(message, repeated, tag = "8")]
    pub cdi_devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    #[prost(string, tag = "1")]
    pub destination: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub source: String,
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hooks {
    #[prost(message, repeated, tag = "3")]
    pub create_container: Vec<Hook>,
    #[prost(message, repeated, tag = "6")]
    pub poststop: Vec<Hook>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hook {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(string, repeated, tag = "2")]
    pub args: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CdiDevice {
    #[prost(string, tag = "1")]
    pub name: String,
}
