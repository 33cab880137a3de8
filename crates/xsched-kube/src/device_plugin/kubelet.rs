//! The kubelet's folder: the plugin's sockets in it, and registration with the current kubelet. A kubelet that starts
//! empties the folder and creates its own socket afresh, which shows the restart.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::transport::Server;
use xsched_proto::Error;
use xsched_proto::class::Class;

use super::channel::channel;
use super::health::Health;
use super::service::{OPTIONS, Service, Shared};
use crate::api::device_plugin::{RegisterRequest, VERSION};
use crate::api::services::device_plugin::device_plugin_server::DevicePluginServer;
use crate::api::services::registration::registration_client::RegistrationClient;
use crate::authority::incoming;
use crate::config::{OFFERED, resource};
use crate::log;

/// Name of the kubelet's own socket.
const SOCKET: &str = "kubelet.sock";

/// Identity of the kubelet's socket, to tell it from a later one. The inode's number alone may be reused.
pub fn identity(folder: &Path) -> Option<(u64, u64, i64, i64)> {
    let meta = std::fs::symlink_metadata(folder.join(SOCKET)).ok()?;
    Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

/// The folder, watched for changes.
pub struct Folder {
    changes: mpsc::UnboundedReceiver<()>,
    path: PathBuf,
}

impl Folder {
    /// Starts to watch the folder, by a thread that ends with the program or the folder.
    ///
    /// # Errors
    /// If the folder does not exist or cannot be watched.
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
            // The receiver finds out what has changed.
            while rustix::io::read(&fd, &mut buffer).is_ok_and(|read| read > 0) && sender.send(()).is_ok() {}
        });
        Ok(Folder { changes, path: path.to_owned() })
    }

    /// Waits for a change in the folder.
    ///
    /// # Errors
    /// If the folder is gone.
    pub async fn changed(&mut self) -> Result<(), Error> {
        let told = self.changes.recv().await;
        while self.changes.try_recv().is_ok() {}
        if told.is_some() && self.path.is_dir() {
            return Ok(());
        }
        Err(Error::environment(format!("{} is gone", self.path.display())))
    }
}

/// The plugin's sockets, one for each class. They are closed on drop.
pub struct Servers {
    tasks: Vec<JoinHandle<()>>,
    /// Paths of the sockets, each with the inode that was created.
    sockets: Vec<(PathBuf, Option<u64>)>,
}

impl Servers {
    /// Creates the sockets in the kubelet's folder and serves them.
    ///
    /// # Errors
    /// If a socket cannot be created.
    pub fn start(folder: &Path, shared: &Arc<Shared>, health: &watch::Receiver<Health>) -> Result<Servers, Error> {
        let mut servers = Servers { tasks: Vec::new(), sockets: Vec::new() };
        for class in OFFERED {
            let path = folder.join(endpoint(class));
            let failed = |e| Error::environment(format!("cannot listen at {}: {e}", path.display()));
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
                _ => {}
            }
            let incoming = incoming(UnixListener::bind(&path).map_err(failed)?);
            let service = DevicePluginServer::new(Service::new(class, Arc::clone(shared), health.clone()));
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

    /// Reports whether each socket's file is still the one that was created.
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
            // The file may belong to another plugin by now.
            if std::fs::symlink_metadata(path).ok().map(|meta| meta.ino()) == *inode {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Name of a class's socket.
fn endpoint(class: Class) -> String {
    format!("xsched-gpu-{class}.sock")
}

/// Registers each class with the kubelet.
///
/// # Errors
/// Errors of the kubelet.
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
