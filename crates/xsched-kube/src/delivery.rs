//! What a container gets from the device plugin, so that its programs are scheduled.

use std::path::{Path, PathBuf};

use xsched_proto::class::Class;

/// Where the library lies in a container.
pub const LIBRARY: &str = "/usr/lib/xsched/libxsched.so";
/// The folder of the daemon's socket in a container.
pub const SOCKET_FOLDER: &str = "/run/xsched";

/// The setting without which a runtime leaves out the CDI devices of the kubelet's, for messages.
pub const CDI_SETTING: &str = "set enable_cdi = true in containerd's configuration, under [plugins.\"io.containerd.grpc.v1.cri\"] (1.7) or [plugins.\"io.containerd.cri.v1.runtime\"] (2)";

/// What kind of CDI device a class is.
pub const KIND: &str = "xsched.dev/class";

/// Where things lie on the node, as the container runtime finds them.
#[derive(Clone, Debug)]
pub struct Outside {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The preload library.
    pub library: PathBuf,
}

/// The name of a class as a CDI device.
pub fn class_device(class: Class) -> String {
    format!("{KIND}={class}")
}

impl Outside {
    /// What is mounted where, read-only.
    pub fn mounts(&self) -> [(&Path, &'static str); 2] {
        let folder = self.socket.parent().unwrap_or(Path::new("/"));
        [(&self.library, LIBRARY), (folder, SOCKET_FOLDER)]
    }

    /// The variables of a class.
    pub fn variables(&self, class: Class) -> [(&'static str, String); 3] {
        let socket = self.socket.file_name().unwrap_or_default().to_string_lossy();
        [
            ("XSCHED_PRIORITY", class.to_string()),
            ("XSCHED_SOCKET", format!("{SOCKET_FOLDER}/{socket}")),
            ("LD_PRELOAD", LIBRARY.to_owned()),
        ]
    }
}
