//! What the kubelet asks of a plugin for dynamic resource allocation: `k8s.io.kubelet.pkg.apis.dra.v1`, and before that
//! `pluginregistration`, by which it learns of it.
#![allow(missing_docs)]

use std::collections::HashMap;

/// The type of the plugin, and the version of the service, as registration has them.
pub const TYPE: &str = "DRAPlugin";
pub const VERSION: &str = "v1.DRAPlugin";

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InfoRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub error: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatusResponse {}

/// A `ResourceClaim`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claim {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePrepareResourcesRequest {
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePrepareResourcesResponse {
    /// By uid.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, NodePrepareResourceResponse>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePrepareResourceResponse {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    #[prost(string, tag = "2")]
    pub error: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub pool_name: String,
    #[prost(string, tag = "3")]
    pub device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnprepareResourcesRequest {
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnprepareResourcesResponse {
    /// By uid, of each claim that was asked for.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, NodeUnprepareResourceResponse>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnprepareResourceResponse {
    #[prost(string, tag = "1")]
    pub error: String,
}
