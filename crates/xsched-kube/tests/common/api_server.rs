//! A fake API server: HTTPS with a certificate of its own authority, and one node, read by GET and changed by JSON
//! merge patches. The caller is identified by a bearer token. Each version of the node has a number, and a patch of
//! another version is a conflict.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::fd::OwnedFd;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

pub const NODE: &str = "node-1";
pub const TOKEN: &str = "first";

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// TLS of a server with this name.
    fn tls(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let chain = vec![CertificateDer::from(certificate)];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()))
    }
}

struct State {
    node: Value,
    version: u64,
    token: String,
    /// Number of times that the node gets another taint between a client's GET and its patch.
    changes_before_patch: u32,
    /// Status and message with which all requests are refused.
    refusal: Option<(StatusCode, String)>,
    /// Method and path of each request, whatever its outcome.
    requests: Vec<String>,
}

/// The server. It answers from a thread of its own until it is dropped or stopped; before it is started it refuses
/// connections.
pub struct ApiServer {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    /// Bound socket, which keeps the address whether the server listens or not.
    socket: OwnedFd,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    credentials: PathBuf,
}

/// Binds a socket to an address, at which connections are refused until it listens. Another socket with the same
/// address stays bound.
fn bound(address: SocketAddr) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &address).unwrap();
    socket
}

/// Applies a JSON merge patch, by RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(key)),
            value => merge(&mut target[key], value),
        }
    }
}

impl ApiServer {
    /// Binds an address, and refuses connections there for now. The folder gets the contents of a pod's service
    /// account.
    pub fn new(credentials: &Path, authority: &Authority, taints: Value) -> ApiServer {
        let free = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = rustix::net::getsockname(&free).unwrap().try_into().unwrap();
        let socket = bound(address);
        std::fs::create_dir_all(credentials).unwrap();
        let node = json!({
            "kind": "Node",
            "metadata": {"name": NODE, "labels": {"xsched.dev/gpu": "true"}},
            "spec": {"providerID": "test://1", "taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting ready status"}]},
        });
        let state = State {
            node,
            version: 1,
            token: TOKEN.to_owned(),
            changes_before_patch: 0,
            refusal: None,
            requests: Vec::new(),
        };
        let server = ApiServer {
            state: Arc::new(Mutex::new(state)),
            address,
            socket,
            running: None,
            credentials: credentials.to_owned(),
        };
        server.write("ca.crt", &authority.0.pem());
        server.write("token", &format!("{TOKEN}\n"));
        server
    }

    /// Answers from now on, with a certificate for a name.
    pub fn start_as(&mut self, authority: &Authority, name: &str) {
        rustix::net::listen(&self.socket, 64).unwrap();
        let listener = TcpListener::from(self.socket.try_clone().unwrap());
        listener.set_nonblocking(true).unwrap();
        let (tls, state) = (authority.tls(name), Arc::clone(&self.state));
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, state) = (tls.clone(), Arc::clone(&state));
                tokio::spawn(async move {
                    // The handshake fails if the client rejects the certificate.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = hyper::service::service_fn(|request| answer(&state, request));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        };
        let serve = async move {
            tokio::select! {
                () = serve => {}
                _ = stopped => {}
            }
        };
        self.running = Some((stop, std::thread::spawn(move || super::block_on(serve))));
    }

    pub fn start(&mut self, authority: &Authority) {
        self.start_as(authority, "127.0.0.1");
    }

    /// Refuses connections again, at the same address.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            thread.join().unwrap();
            rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).unwrap();
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Replaces one of the credential files, in one step as the kubelet does.
    pub fn write(&self, name: &str, text: &str) {
        let new = self.credentials.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.credentials.join(name)).unwrap();
    }

    pub fn write_authority(&self, authority: &Authority) {
        self.write("ca.crt", &authority.0.pem());
    }

    pub fn set_token(&self, token: &str) {
        self.state.lock().unwrap().token = token.to_owned();
    }

    pub fn refuse(&self, refusal: Option<(StatusCode, &str)>) {
        self.state.lock().unwrap().refusal = refusal.map(|(status, message)| (status, message.to_owned()));
    }

    /// Gives the node another taint between a client's GET and its patch, this number of times.
    pub fn change_before_patch(&self, times: u32) {
        self.state.lock().unwrap().changes_before_patch = times;
    }

    /// Changes the node, as the cluster does.
    pub fn change(&self, patch: &Value) {
        let mut state = self.state.lock().unwrap();
        merge(&mut state.node, patch);
        state.version += 1;
    }

    /// Sets the node's condition, as the kubelet reports it.
    pub fn set_ready(&self, is_ready: bool, message: &str) {
        let status = if is_ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": status, "message": message});
        self.change(&json!({"status": {"conditions": [condition]}}));
    }

    pub fn node(&self) -> Value {
        self.state.lock().unwrap().node.clone()
    }

    /// Taints of the node with this key.
    pub fn taints(&self, key: &str) -> Vec<Value> {
        let node = self.node();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.into_iter().filter(|taint| taint["key"] == key).collect()
    }

    /// Number of requests with a method.
    pub fn asked(&self, method: &str) -> usize {
        let wanted = format!("{method} /api/v1/nodes/{NODE}");
        self.state.lock().unwrap().requests.iter().filter(|request| **request == wanted).count()
    }

    /// Number of all requests.
    pub fn all_asked(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn refused(status: StatusCode, message: &str) -> (StatusCode, Value) {
    (status, json!({"kind": "Status", "status": "Failure", "message": message, "code": status.as_u16()}))
}

async fn answer(state: &Mutex<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut state = state.lock().unwrap();
    state.requests.push(format!("{} {}", head.method, head.uri.path()));
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_known = header("authorization") == format!("Bearer {}", state.token);
    let refusal = state.refusal.clone();
    let (status, answer) = match (refusal, is_known, head.method) {
        (_, false, _) => refused(StatusCode::UNAUTHORIZED, "Unauthorized"),
        (Some((status, message)), ..) => refused(status, &message),
        _ if head.uri.path() != format!("/api/v1/nodes/{NODE}") => refused(StatusCode::NOT_FOUND, "not found"),
        (None, true, Method::GET) => (StatusCode::OK, state.now()),
        (None, true, Method::PATCH) if header("content-type") == "application/merge-patch+json" => {
            state.patch(&serde_json::from_slice(&body).unwrap())
        }
        (None, true, Method::PATCH) => refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported"),
        _ => refused(StatusCode::METHOD_NOT_ALLOWED, "not allowed"),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    *response.status_mut() = status;
    Ok(response)
}

impl State {
    fn now(&self) -> Value {
        let mut node = self.node.clone();
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        // The API leaves out an empty list.
        if node["spec"]["taints"].as_array().is_some_and(Vec::is_empty) {
            node["spec"].as_object_mut().unwrap().remove("taints");
        }
        node
    }

    fn patch(&mut self, patch: &Value) -> (StatusCode, Value) {
        if self.changes_before_patch > 0 {
            self.changes_before_patch -= 1;
            self.version += 1;
            let taint = json!({"key": format!("example.com/{}", self.version), "effect": "NoSchedule"});
            self.node["spec"]["taints"].as_array_mut().unwrap().push(taint);
        }
        let named = patch["metadata"]["resourceVersion"].as_str();
        if named.is_some_and(|named| named != self.version.to_string()) {
            return refused(StatusCode::CONFLICT, "the object has been modified");
        }
        merge(&mut self.node, patch);
        self.node["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        self.version += 1;
        (StatusCode::OK, self.now())
    }
}
