//! Generates clients and servers of the kubelet's gRPC services from their names and methods; the messages are in
//! `src/api`. Also sets up linking.

use tonic_build::manual::{Builder, Method, Service};

fn method(name: &str, messages: &str, input: &str, output: &str) -> Method {
    let of = |kind: &str| format!("crate::api::{messages}::{kind}");
    let method = Method::builder().name(snake(name)).route_name(name).input_type(of(input)).output_type(of(output));
    let method = method.codec_path("tonic_prost::ProstCodec");
    if name == "ListAndWatch" { method.server_streaming().build() } else { method.build() }
}

/// Turns a method's name into that of a function: `ListAndWatch` into `list_and_watch`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn service(name: &str, package: &str, methods: Vec<Method>) -> Service {
    methods.into_iter().fold(Service::builder().name(name).package(package), |all, one| all.method(one)).build()
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    xsched_floor::link();
    let plugin = |name, input, output| method(name, "device_plugin", input, output);
    let resources = |name, input, output| method(name, "pod_resources", input, output);
    let dra = |name, input, output| method(name, "dra", input, output);
    Builder::new().compile(&[
        service("Registration", "v1beta1", vec![plugin("Register", "RegisterRequest", "Empty")]),
        service(
            "DevicePlugin",
            "v1beta1",
            vec![
                plugin("GetDevicePluginOptions", "Empty", "DevicePluginOptions"),
                plugin("ListAndWatch", "Empty", "ListAndWatchResponse"),
                plugin("GetPreferredAllocation", "PreferredAllocationRequest", "PreferredAllocationResponse"),
                plugin("Allocate", "AllocateRequest", "AllocateResponse"),
                plugin("PreStartContainer", "PreStartContainerRequest", "PreStartContainerResponse"),
            ],
        ),
        service(
            "Registration",
            "pluginregistration",
            vec![
                dra("GetInfo", "InfoRequest", "PluginInfo"),
                dra("NotifyRegistrationStatus", "RegistrationStatus", "RegistrationStatusResponse"),
            ],
        ),
        service(
            "DRAPlugin",
            "k8s.io.kubelet.pkg.apis.dra.v1",
            vec![
                dra("NodePrepareResources", "NodePrepareResourcesRequest", "NodePrepareResourcesResponse"),
                dra("NodeUnprepareResources", "NodeUnprepareResourcesRequest", "NodeUnprepareResourcesResponse"),
            ],
        ),
        service(
            "PodResourcesLister",
            "v1",
            vec![
                resources("List", "ListPodResourcesRequest", "ListPodResourcesResponse"),
                resources("GetAllocatableResources", "AllocatableResourcesRequest", "AllocatableResourcesResponse"),
            ],
        ),
    ]);
}
