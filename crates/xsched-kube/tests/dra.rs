//! The plugin for dynamic resource allocation against a fake kubelet, which finds it in its watched folder and speaks
//! gRPC, and a fake API server, which returns claims over HTTP.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use common::escaped::channel;
use common::{Node, Program, block_on, until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use xsched_kube::api::dra::{
    Claim, InfoRequest, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
    PluginInfo, RegistrationStatus,
};
use xsched_kube::api::services::dra::d_r_a_plugin_client::DRAPluginClient;
use xsched_kube::api::services::plugin_registration::registration_client::RegistrationClient;

/// Claims by their paths at the API server.
type Claims = Arc<Mutex<HashMap<String, Value>>>;

/// Starts an API server with these claims, and returns its address.
async fn api_server(claims: Claims) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            answer(stream, &claims).await;
        }
    });
    address
}

async fn answer(mut stream: TcpStream, claims: &Claims) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap();
    let found = claims.lock().unwrap().get(path).map(Value::to_string);
    let (status, body) = found.map_or(("404 Not Found", "{}".to_owned()), |body| ("200 OK", body));
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// A claim as a scheduler leaves it.
fn allocated(uid: &str, device: &str, class: &str) -> Value {
    let parameters = json!({"apiVersion": "xsched.dev/v1alpha1", "kind": "ClassConfig", "class": class});
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "serve", "namespace": "team", "uid": uid},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": format!("{class}.xsched.dev")}}]}},
        "status": {
            "allocation": {"devices": {
                "results": [{"request": "gpu", "driver": "gpu.xsched.dev", "pool": "node-1", "device": device}],
                "config": [{"source": "FromClass", "requests": ["gpu"], "opaque": {"driver": "gpu.xsched.dev", "parameters": parameters}}],
            }},
            "reservedFor": [{"resource": "pods", "name": "serve-0", "uid": "p1"}],
        },
    })
}

const PATH: &str = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/serve";

fn claim(uid: &str) -> Claim {
    Claim { namespace: "team".to_owned(), uid: uid.to_owned(), name: "serve".to_owned() }
}

/// Waits for the plugin in the folder, as the node's kubelet does, and asks it for its information.
async fn found(node: &Node) -> (PluginInfo, RegistrationClient<tonic::transport::Channel>) {
    let socket = node.path("registry/gpu.xsched.dev-reg.sock");
    until("the plugin is in the folder", || socket.exists()).await;
    // The file appears a little before the plugin listens.
    let deadline = std::time::Instant::now() + xsched_testkit::TIMEOUT;
    let channel = loop {
        match channel(&socket).await {
            Ok(channel) => break channel,
            Err(why) => assert!(std::time::Instant::now() < deadline, "{why}"),
        }
    };
    let mut client = RegistrationClient::new(channel);
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    (info, client)
}

fn start(node: &Node, api: &str, options: &[&str]) -> Program {
    std::fs::create_dir_all(node.path("registry")).unwrap();
    let [socket, plugins, registry] = [node.socket(), node.path("plugins"), node.path("registry")];
    let [socket, plugins, registry] = [&socket, &plugins, &registry].map(|path| path.to_str().unwrap());
    let all = ["--socket", socket, "--plugins", plugins, "--registry", registry, "--api", api];
    node.start_bare("dra", &[&all, options].concat())
}

async fn prepare(client: &mut DRAPluginClient<tonic::transport::Channel>, uid: &str) -> NodePrepareResourceResponse {
    let request = NodePrepareResourcesRequest { claims: vec![claim(uid)] };
    let mut answer = client.node_prepare_resources(request).await.unwrap().into_inner();
    assert_eq!(answer.claims.len(), 1);
    answer.claims.remove(uid).unwrap()
}

#[test]
fn the_kubelet_finds_the_plugin_and_gets_class_and_gpu_of_a_claim() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        node.compile_nvml();
        let claims = Claims::default();
        let api = api_server(claims.clone()).await;
        let mut plugin = start(&node, &api, &[]);
        let (info, mut registration) = found(&node).await;
        assert_eq!((info.kind.as_str(), info.name.as_str()), ("DRAPlugin", "gpu.xsched.dev"));
        assert_eq!(info.supported_versions, ["v1.DRAPlugin"]);
        let endpoint = PathBuf::from(&info.endpoint);
        assert_eq!(endpoint, node.path("plugins/gpu.xsched.dev/dra.sock"));
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        registration.notify_registration_status(status).await.unwrap();
        let mut client = DRAPluginClient::new(channel(&endpoint).await.unwrap());

        let absent = prepare(&mut client, "u1").await;
        assert!(absent.devices.is_empty() && absent.error.contains("it answers 404 Not Found"), "{}", absent.error);
        let gpu = "GPU-00000000-0000-0000-0000-000000000000";
        claims.lock().unwrap().insert(PATH.to_owned(), allocated("u1", &gpu.to_lowercase(), "high"));
        // Twice, as the kubelet asks again after a restart.
        for _ in 0..2 {
            let prepared = prepare(&mut client, "u1").await;
            assert_eq!(prepared.error, "");
            let device = &prepared.devices[0];
            assert_eq!((prepared.devices.len(), device.request_names.as_slice()), (1, &["gpu".to_owned()][..]));
            assert_eq!((device.pool_name.as_str(), &device.device_name), ("node-1", &gpu.to_lowercase()));
            assert_eq!(device.cdi_device_ids, ["xsched.dev/class=high".to_owned(), format!("nvidia.com/gpu={gpu}")]);
        }
        assert!(prepare(&mut client, "u2").await.error.contains("is another one now, u1"));
        let request = NodeUnprepareResourcesRequest { claims: vec![claim("u1"), claim("gone")] };
        let done = client.node_unprepare_resources(request).await.unwrap().into_inner();
        assert!(done.claims.len() == 2 && done.claims.values().all(|one| one.error.is_empty()));

        // A board that fails is not prepared for a further claim.
        node.nvml("xid", 79);
        until("the fault is told", || plugin.log().contains("Xid 79")).await;
        let broken = until_error(&mut client, "u1").await;
        assert!(broken.contains("there is no device gpu-"), "{broken}");
        plugin.end();
        let left = [node.path("registry/gpu.xsched.dev-reg.sock"), endpoint].map(|path| path.exists());
        assert_eq!(left, [false, false], "its sockets go with it");
        assert!(plugin.log().contains("registered with the kubelet"), "{}", plugin.log());
    });
}

/// Waits until preparing fails, and returns the error.
async fn until_error(client: &mut DRAPluginClient<tonic::transport::Channel>, uid: &str) -> String {
    let deadline = std::time::Instant::now() + xsched_testkit::TIMEOUT;
    loop {
        let answer = prepare(client, uid).await;
        if !answer.error.is_empty() {
            return answer.error;
        }
        assert!(std::time::Instant::now() < deadline, "it is still prepared");
    }
}

#[test]
fn nothing_is_prepared_without_a_daemon_or_an_api_server() {
    block_on(async {
        let node = Node::new();
        let claims = Claims::default();
        claims.lock().unwrap().insert(PATH.to_owned(), allocated("u1", "sim-1", "low"));
        let api = api_server(claims.clone()).await;
        let mut plugin = start(&node, &api, &["--simulated", "2"]);
        let (info, mut registration) = found(&node).await;
        let refused = RegistrationStatus { plugin_registered: false, error: "no handler".to_owned() };
        registration.notify_registration_status(refused).await.unwrap();
        assert!(plugin.log().contains("the kubelet does not take the plugin: no handler"), "{}", plugin.log());
        let mut client = DRAPluginClient::new(channel(info.endpoint.as_ref()).await.unwrap());
        assert!(prepare(&mut client, "u1").await.error.contains("the daemon at "));
        let _daemon = node.daemon();
        let prepared = prepare(&mut client, "u1").await;
        assert_eq!(prepared.devices[0].cdi_device_ids, ["xsched.dev/class=low"]);
        plugin.end();

        // A port at which nothing listens.
        let nothing = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let _plugin = start(&node, &format!("http://{nothing}"), &["--simulated", "2"]);
        let (info, _) = found(&node).await;
        let mut client = DRAPluginClient::new(channel(info.endpoint.as_ref()).await.unwrap());
        let error = prepare(&mut client, "u1").await.error;
        assert!(
            error.starts_with(&format!("the API server at http://{nothing} does not tell of the claim: ")),
            "{error}"
        );
    });
}

#[test]
fn an_address_with_tls_is_refused_in_one_line() {
    let node = Node::new();
    let mut plugin = start(&node, "https://10.0.0.1", &["--simulated", "1"]);
    assert_eq!(plugin.wait(), 2);
    let log = plugin.log();
    assert!(log.contains("'https://10.0.0.1' is no address of HTTP without TLS") && log.lines().count() == 1, "{log}");
}
