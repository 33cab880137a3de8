//! What a container gets, so that its programs are scheduled: the same from the device plugin and from the injector.

use std::path::{Path, PathBuf};

use xsched_proto::class::Class;

/// Where the library lies in a container.
pub const LIBRARY: &str = "/usr/lib/xsched/libxsched.so";
/// The folder of the daemon's socket in a container.
pub const SOCKET_FOLDER: &str = "/run/xsched";

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
    format!("xsched.dev/class={class}")
}

impl Outside {
    /// What is mounted where, read-only.
    pub fn mounts(&self) -> [(&Path, &'static str); 2] {
        let folder = self.socket.parent().unwrap_or(Path::new("/"));
        [(&self.library, LIBRARY), (folder, SOCKET_FOLDER)]
    }

    /// The variables of a class. `preloads` is what the container preloads of its own.
    pub fn variables(&self, class: Class, preloads: Option<&str>) -> [(&'static str, String); 3] {
        let socket = self.socket.file_name().unwrap_or_default().to_string_lossy();
        let own = preloads.filter(|own| !own.is_empty());
        [
            ("XSCHED_PRIORITY", class.to_string()),
            ("XSCHED_SOCKET", format!("{SOCKET_FOLDER}/{socket}")),
            ("LD_PRELOAD", own.map_or_else(|| LIBRARY.to_owned(), |own| format!("{LIBRARY}:{own}"))),
        ]
    }
}
