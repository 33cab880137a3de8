//! The parts of the node that must be ready: the daemon, by its socket; device plugin and injector, by their `/ready`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::device_plugin::health;

/// Time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer, in bytes: one line.
const ANSWER_MAX_BYTES: usize = 4 << 10;

/// Where the parts answer.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The daemon's socket.
    pub daemon: PathBuf,
    /// The device plugin's `--listen`.
    pub device_plugin: SocketAddr,
    /// The injector's.
    pub injector: SocketAddr,
}

impl Parts {
    /// Reason why one of them is not ready; none: all are.
    pub async fn wait_for(&self) -> Option<String> {
        if !health::answers(&self.daemon).await {
            return Some(format!("the daemon at {} does not answer", self.daemon.display()));
        }
        for (name, at) in [("device plugin", self.device_plugin), ("injector", self.injector)] {
            if let Err(why) = ready(at).await {
                return Some(format!("the {name} at {at}: {why}"));
            }
        }
        None
    }
}

async fn ready(at: SocketAddr) -> Result<(), String> {
    let asked = async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let uri = format!("http://{at}/ready").parse().map_err(|e| format!("no address: {e}"))?;
        let answer = client.get(uri).await.map_err(|_| "does not answer".to_owned())?;
        if answer.status().is_success() {
            return Ok(());
        }
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
        let body = body.map_err(|_| format!("answers {status}"))?.to_bytes();
        Err(String::from_utf8_lossy(&body).trim().to_owned())
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("does not answer in time".to_owned()))
}
