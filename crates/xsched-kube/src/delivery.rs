//! Changes to a container by which its programs are scheduled.

use std::path::{Path, PathBuf};

use xsched_proto::class::Class;

/// Path of the library in a container.
pub const LIBRARY: &str = "/usr/lib/xsched/libxsched.so";
/// Folder of the daemon's socket in a container.
pub const SOCKET_FOLDER: &str = "/run/xsched";

/// Setting without which a runtime leaves out the kubelet's CDI devices, for messages.
pub const CDI_SETTING: &str = "set enable_cdi = true in containerd's configuration, under [plugins.\"io.containerd.grpc.v1.cri\"] (1.7) or [plugins.\"io.containerd.cri.v1.runtime\"] (2)";

/// Kind of the CDI devices that stand for classes.
pub const KIND: &str = "xsched.dev/class";

/// Paths on the node, as the container runtime finds them.
#[derive(Clone, Debug)]
pub struct Outside {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The preload library.
    pub library: PathBuf,
}

/// Name of a class as a CDI device.
pub fn class_device(class: Class) -> String {
    format!("{KIND}={class}")
}

impl Outside {
    /// Read-only mounts: path on the node and path in the container.
    pub fn mounts(&self) -> [(&Path, &'static str); 2] {
        let folder = self.socket.parent().unwrap_or(Path::new("/"));
        [(&self.library, LIBRARY), (folder, SOCKET_FOLDER)]
    }

    /// Environment variables of a class.
    pub fn variables(&self, class: Class) -> [(&'static str, String); 3] {
        let socket = self.socket.file_name().unwrap_or_default().to_string_lossy();
        [
            ("XSCHED_PRIORITY", class.to_string()),
            ("XSCHED_SOCKET", format!("{SOCKET_FOLDER}/{socket}")),
            ("LD_PRELOAD", LIBRARY.to_owned()),
        ]
    }
}
