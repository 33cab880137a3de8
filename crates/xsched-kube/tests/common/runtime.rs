//! A fake container runtime with the Node Resource Interface: it listens at a socket, accepts the plugin's
//! registration, and then sends requests over the same socket. Its frames are written here, by the interface's
//! description, and not by the code under test.

use std::collections::HashMap;
use std::path::Path;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use xsched_kube::api::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, CreateContainerRequest,
    CreateContainerResponse, PodSandbox, RegisterPluginRequest, SynchronizeRequest, SynchronizeResponse,
};
use xsched_kube::nri::ttrpc::{Request, Response};

pub struct Runtime {
    socket: UnixStream,
    /// Bytes received on the connection for the runtime's requests, and on the other.
    come: [Vec<u8>; 2],
    calls: u32,
}

impl Runtime {
    /// Waits for a plugin at a new socket, and accepts its registration.
    pub async fn accept(path: &Path) -> (Runtime, RegisterPluginRequest) {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let mut runtime = Runtime { socket, come: Default::default(), calls: 0 };
        let (stream, kind, data) = runtime.frame(2).await;
        assert_eq!((stream % 2, kind), (1, 1), "a request on an odd stream");
        let request = Request::decode(data.as_slice()).unwrap();
        assert_eq!(request.service, "nri.pkg.api.v1alpha1.Runtime");
        assert_eq!(request.method, "RegisterPlugin");
        let answer = Response::default().encode_to_vec();
        runtime.write(2, stream, 2, &answer, usize::MAX).await;
        (runtime, RegisterPluginRequest::decode(request.payload.as_slice()).unwrap())
    }

    async fn write(&mut self, connection: u32, stream: u32, kind: u8, data: &[u8], piece: usize) {
        let mut frame = (data.len() as u32).to_be_bytes().to_vec();
        frame.extend(stream.to_be_bytes());
        frame.extend([kind, 0]);
        frame.extend(data);
        for piece in frame.chunks(piece.min(frame.len())) {
            let mut out = connection.to_be_bytes().to_vec();
            out.extend((piece.len() as u32).to_be_bytes());
            out.extend(piece);
            self.socket.write_all(&out).await.unwrap();
        }
    }

    /// Receives the next frame of a connection: stream, kind, data.
    async fn frame(&mut self, connection: usize) -> (u32, u8, Vec<u8>) {
        loop {
            let come = &mut self.come[connection - 1];
            if come.len() >= 10 {
                let length = u32::from_be_bytes(come[0..4].try_into().unwrap()) as usize;
                if come.len() >= 10 + length {
                    let frame: Vec<u8> = come.drain(..10 + length).collect();
                    return (u32::from_be_bytes(frame[4..8].try_into().unwrap()), frame[8], frame[10..].to_vec());
                }
            }
            let connection = self.socket.read_u32().await.unwrap() as usize;
            let length = self.socket.read_u32().await.unwrap() as usize;
            assert!(length <= 4096, "what a receiver in Go has room for");
            let mut piece = vec![0; length];
            self.socket.read_exact(&mut piece).await.unwrap();
            self.come[connection - 1].extend(piece);
        }
    }

    /// Sends a request to the plugin in pieces of this many bytes, and returns the response.
    pub async fn ask_in_pieces(&mut self, method: &str, message: &impl Message, piece: usize) -> Response {
        let request = Request::new("nri.pkg.api.v1alpha1.Plugin", method, message).encode_to_vec();
        let stream = 2 * self.calls + 1;
        self.calls += 1;
        self.write(1, stream, 1, &request, piece).await;
        let (answered, kind, data) = self.frame(1).await;
        assert_eq!((answered, kind), (stream, 2));
        Response::decode(data.as_slice()).unwrap()
    }

    async fn ask<M: Message + Default>(&mut self, method: &str, message: &impl Message) -> M {
        let response = self.ask_in_pieces(method, message, usize::MAX).await;
        assert_eq!(response.status, None);
        M::decode(response.payload.as_slice()).unwrap()
    }

    /// Configures the plugin, and returns the events that it subscribes to.
    pub async fn configure(&mut self, name: &str, version: &str) -> i32 {
        let request = ConfigureRequest {
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            ..Default::default()
        };
        self.ask::<ConfigureResponse>("Configure", &request).await.events
    }

    pub async fn synchronize(&mut self, pods: &[PodSandbox], containers: &[Container], more: bool) -> bool {
        let request = SynchronizeRequest { pods: pods.to_vec(), containers: containers.to_vec(), more };
        self.ask::<SynchronizeResponse>("Synchronize", &request).await.more
    }

    /// Has the plugin refuse a container, and returns its reason.
    pub async fn refused(&mut self, pod: &PodSandbox, container: &Container) -> String {
        let request = CreateContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        let response = self.ask_in_pieces("CreateContainer", &request, usize::MAX).await;
        let status = response.status.expect("the container is refused");
        assert_eq!((status.code, response.payload.len()), (9, 0));
        status.message
    }

    pub async fn create(&mut self, pod: &PodSandbox, container: &Container) -> Option<ContainerAdjustment> {
        let request = CreateContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
        self.ask::<CreateContainerResponse>("CreateContainer", &request).await.adjust
    }
}

/// A pod of a namespace, annotated with the class if there is one.
pub fn pod(namespace: &str, name: &str, class: Option<&str>) -> PodSandbox {
    let annotations = class.map(|class| ("xsched.dev/class".to_owned(), class.to_owned()));
    PodSandbox {
        id: format!("sandbox-{name}"),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        namespace: namespace.to_owned(),
        annotations: HashMap::from_iter(annotations),
        ..Default::default()
    }
}

/// A container of a pod.
pub fn container(pod: &PodSandbox, name: &str) -> Container {
    Container { id: format!("id-{name}"), pod_sandbox_id: pod.id.clone(), name: name.to_owned(), ..Default::default() }
}
