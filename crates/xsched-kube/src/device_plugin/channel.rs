//! Connections to the kubelet's sockets.

use std::path::Path;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Error};

/// Longest time for the kubelet's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to a gRPC socket.
///
/// # Errors
/// If the socket does not answer.
pub(super) async fn channel(socket: &Path) -> Result<Channel, String> {
    let failed = |e: Error| format!("{}: {e}", socket.display());
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(failed)?;
    endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect().await.map_err(failed)
}
