//! `xsched kube dra`: the kubelet's side of dynamic resource allocation. A claim's device class determines the class,
//! its allocation the GPU.
//!
//! [`claims`] reads and prepares claims; this module has the sockets and the kubelet's requests.

pub mod claims;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UnixListener;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use xsched_proto::Error;

use crate::api::dra::{
    Claim, Device, InfoRequest, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse, PluginInfo,
    RegistrationStatus, RegistrationStatusResponse, TYPE, VERSION,
};
use crate::api::services::dra::d_r_a_plugin_server::{DRAPlugin, DRAPluginServer};
use crate::api::services::plugin_registration::registration_server::{Registration, RegistrationServer};
use crate::authority::incoming;
use crate::device_plugin::health;
use crate::gpus::Gpu;
use crate::gpus::nvml::Faults;
use crate::log;

/// Name of the driver.
pub const DRIVER: &str = "gpu.xsched.dev";

/// The plugin of a node.
pub struct Plugin {
    /// Socket of the daemon.
    pub socket: PathBuf,
    /// HTTP address of the API server.
    pub api: String,
    /// The kubelet's folder for plugins.
    pub plugins: PathBuf,
    /// The kubelet's folder for the registration of new plugins.
    pub registry: PathBuf,
    /// GPUs that may be prepared.
    pub gpus: Vec<Gpu>,
    /// Boards that had a fault, by UUID.
    pub broken: Mutex<BTreeSet<String>>,
}

/// A listening socket; its file is removed on drop.
struct Socket {
    path: PathBuf,
    inode: Option<u64>,
}

impl Socket {
    fn listen(path: PathBuf) -> Result<(Socket, UnixListener), Error> {
        let failed = |e| Error::environment(format!("cannot listen at {}: {e}", path.display()));
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let inode = inode(&path);
        Ok((Socket { path, inode }, listener))
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|meta| meta.ino())
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The file may belong to another plugin by now.
        if inode(&self.path) == self.inode {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Plugin {
    /// Serves the kubelet until the program is told to end. `faults` delivers boards that fail.
    ///
    /// # Errors
    /// If the kubelet's folders cannot be used.
    pub async fn run(self, faults: Option<Faults>) -> Result<(), Error> {
        let plugin = Arc::new(self);
        let own = plugin.plugins.join(DRIVER);
        let failed =
            |e| Error::environment(format!("cannot make {}: {e}; is this a node with a kubelet?", own.display()));
        std::fs::create_dir_all(&own).map_err(failed)?;
        let endpoint = own.join("dra.sock");
        let (_asked, asked) = Socket::listen(endpoint.clone())?;
        // Created last: the kubelet connects as soon as it appears.
        let (_registered, registered) = Socket::listen(plugin.registry.join(format!("{DRIVER}-reg.sock")))?;
        let names: Vec<_> = plugin.gpus.iter().map(|gpu| claims::device_name(&gpu.uuid)).collect();
        log(format!("{DRIVER}: {}", names.join(", ")));
        let service =
            Server::builder().serve_with_incoming(DRAPluginServer::from_arc(Arc::clone(&plugin)), incoming(asked));
        let registration = RegistrationServer::new(Registrar { endpoint: endpoint.display().to_string() });
        let registration = Server::builder().serve_with_incoming(registration, incoming(registered));
        let ended =
            |e: tonic::transport::Error| Error::environment(format!("a socket of the kubelet's has ended: {e}"));
        tokio::select! {
            told = crate::told_to_end() => told.map_err(|e| Error::environment(format!("cannot wait for signals: {e}"))),
            done = service => done.map_err(ended),
            done = registration => done.map_err(ended),
            () = plugin.note(faults) => Ok(()),
        }
    }

    /// Records boards that fail; never returns.
    async fn note(&self, faults: Option<Faults>) {
        if let Some(mut faults) = faults {
            while let Some(board) = faults.recv().await {
                self.broken.lock().unwrap_or_else(PoisonError::into_inner).insert(board);
            }
        }
        std::future::pending().await
    }

    async fn prepare_one(&self, claim: &Claim) -> Result<Vec<Device>, String> {
        if !health::answers(&self.socket).await {
            return Err(format!("the daemon at {} does not answer", self.socket.display()));
        }
        let read = claims::read(&self.api, claim).await?;
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let well: Vec<Gpu> = self.gpus.iter().filter(|gpu| !broken.contains(&gpu.board)).cloned().collect();
        read.prepare(&claim.uid, &well)
    }
}

#[tonic::async_trait]
impl DRAPlugin for Plugin {
    /// Prepares claims. The answer depends on the claim only, so it is the same each time.
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut answer = NodePrepareResourcesResponse::default();
        for claim in &request.get_ref().claims {
            let prepared = self.prepare_one(claim).await;
            if let Err(why) = &prepared {
                log(format!("claim {}/{}: not prepared: {why}", claim.namespace, claim.name));
            }
            let (devices, error) = prepared.map_or_else(|why| (Vec::new(), why), |devices| (devices, String::new()));
            answer.claims.insert(claim.uid.clone(), NodePrepareResourceResponse { devices, error });
        }
        Ok(Response::new(answer))
    }

    /// Releases claims. Preparing has left nothing on the node.
    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let done = |claim: Claim| (claim.uid, NodeUnprepareResourceResponse::default());
        let claims = request.into_inner().claims.into_iter().map(done).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

/// The service at the registration socket.
struct Registrar {
    endpoint: String,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            kind: TYPE.to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        match status.plugin_registered {
            true => log("registered with the kubelet"),
            false => log(format!("the kubelet does not take the plugin: {}", status.error)),
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
