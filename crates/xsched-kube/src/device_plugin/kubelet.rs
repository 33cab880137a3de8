//! The kubelet's folder: the plugin's sockets in it, and registration with the kubelet of the moment. A kubelet that starts empties the
//! folder and makes its own socket anew, which is how its restart is seen.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Endpoint, Server};
use xsched_proto::Error;
use xsched_proto::class::Class;

use super::Plugin;
use super::allocation::resource;
use super::health::Health;
use super::service::Service;
use crate::api::device_plugin::{DevicePluginOptions, RegisterRequest, VERSION};
use crate::api::services::device_plugin::device_plugin_server::DevicePluginServer;
use crate::api::services::registration::registration_client::RegistrationClient;
use crate::authority::incoming;
use crate::config::OFFERED;
use crate::log;

/// The kubelet's own socket.
const SOCKET: &str = "kubelet.sock";
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The plugin is called before a container starts, and asked which devices it prefers.
pub const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

/// Which socket the kubelet has, as far as two can be told apart: an inode's number is used again.
pub fn identity(folder: &Path) -> Option<(u64, u64, i64, i64)> {
    let meta = std::fs::symlink_metadata(folder.join(SOCKET)).ok()?;
    Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

/// The folder, watched.
pub struct Folder {
    changes: mpsc::UnboundedReceiver<()>,
    path: PathBuf,
}

impl Folder {
    /// Watches it, by a thread that ends with the program or the folder.
    ///
    /// # Errors
    /// If it is not there or cannot be watched.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let failed = |e| {
            let e = std::io::Error::from(e);
            Error::environment(format!("cannot watch {}: {e}; is this a node with a kubelet?", path.display()))
        };
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC).map_err(failed)?;
        let what = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::DELETE_SELF
            | inotify::WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, path, what).map_err(failed)?;
        let (sender, changes) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 4096];
            // What has changed is looked at by the receiver.
            while rustix::io::read(&fd, &mut buffer).is_ok_and(|read| read > 0) && sender.send(()).is_ok() {}
        });
        Ok(Folder { changes, path: path.to_owned() })
    }

    /// Waits for a change of what is in it.
    ///
    /// # Errors
    /// If it is gone.
    pub async fn changed(&mut self) -> Result<(), Error> {
        let told = self.changes.recv().await;
        while self.changes.try_recv().is_ok() {}
        if told.is_some() && self.path.is_dir() {
            return Ok(());
        }
        Err(Error::environment(format!("{} is gone", self.path.display())))
    }
}

/// The plugin's sockets, one for each class. They end with this.
pub struct Servers {
    tasks: Vec<JoinHandle<()>>,
    /// With the inode that was made.
    sockets: Vec<(PathBuf, Option<u64>)>,
}

impl Servers {
    /// Makes them.
    ///
    /// # Errors
    /// If a socket cannot be made.
    pub fn start(plugin: &Arc<Plugin>, health: &watch::Receiver<Health>) -> Result<Servers, Error> {
        let mut servers = Servers { tasks: Vec::new(), sockets: Vec::new() };
        for class in OFFERED {
            let path = plugin.kubelet.join(endpoint(class));
            let failed = |e| Error::environment(format!("cannot listen at {}: {e}", path.display()));
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
                _ => {}
            }
            let incoming = incoming(UnixListener::bind(&path).map_err(failed)?);
            let service = DevicePluginServer::new(Service::new(class, Arc::clone(plugin), health.clone()));
            servers.tasks.push(tokio::spawn(async move {
                if let Err(e) = Server::builder().serve_with_incoming(service, incoming).await {
                    log(format!("the socket of {} has ended: {e}", resource(class)));
                }
            }));
            let inode = std::fs::symlink_metadata(&path).ok().map(|meta| meta.ino());
            servers.sockets.push((path, inode));
        }
        Ok(servers)
    }

    /// Whether each socket is still where it was made.
    pub fn are_there(&self) -> bool {
        let is_there = |(path, inode): &(PathBuf, Option<u64>)| {
            std::fs::symlink_metadata(path).ok().map(|meta| meta.ino()).is_some_and(|now| Some(now) == *inode)
        };
        self.sockets.iter().all(is_there)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for (path, inode) in &self.sockets {
            // Another plugin's is left alone.
            if std::fs::symlink_metadata(path).ok().map(|meta| meta.ino()) == *inode {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The name of a class's socket.
fn endpoint(class: Class) -> String {
    format!("xsched-gpu-{class}.sock")
}

/// Tells the kubelet of each class.
///
/// # Errors
/// The kubelet's.
pub async fn register(folder: &Path) -> Result<(), String> {
    let channel = channel(&folder.join(SOCKET)).await?;
    for class in OFFERED {
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: endpoint(class),
            resource_name: resource(class),
            options: Some(OPTIONS),
        };
        let answer = RegistrationClient::new(channel.clone()).register(request).await;
        answer.map_err(|status| format!("{}: {}", resource(class), status.message()))?;
    }
    log(format!("registered with the kubelet in {}", folder.display()));
    Ok(())
}

/// A connection to a socket of gRPC.
///
/// # Errors
/// If it does not answer.
pub async fn channel(socket: &Path) -> Result<tonic::transport::Channel, String> {
    let failed = |e: tonic::transport::Error| format!("{}: {e}", socket.display());
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(failed)?;
    endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect().await.map_err(failed)
}
