//! Health of the devices: no device is healthy without the daemon, a board with a fault takes no further container, and
//! a GPU that another plugin offers too is not given away a second time.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::others::Others;

/// State of the node, as far as it affects devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Set if the daemon answers.
    pub daemon: bool,
    /// Boards that had a fault, by UUID.
    pub broken: BTreeSet<String>,
    /// GPUs that another plugin offers too, each with the other resource.
    pub others: Others,
}

/// Reports whether a daemon accepts connections at this socket, which is one of packets.
pub async fn answers(socket: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let Ok(address) = SocketAddrUnix::new(socket) else { return false };
    let connects = move || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // A full queue is a daemon's too.
        match connect(&socket, &address) {
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            other => other,
        }
    };
    tokio::time::timeout(Duration::from_secs(1), async { connects().is_ok() }).await.unwrap_or(false)
}
