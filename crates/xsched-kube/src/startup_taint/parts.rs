//! The parts of the node that must be ready: the daemon, checked by its socket; the device plugin and the injector, by
//! their `/ready`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;

use crate::device_plugin::health;
use crate::plain_http;

/// Longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size limit of an answer, in bytes. Answers are one line.
const ANSWER_MAX_BYTES: usize = 4 << 10;

/// Addresses of the parts.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The daemon's socket.
    pub daemon: PathBuf,
    /// Address at which the device plugin answers probes (its `--listen`).
    pub device_plugin: SocketAddr,
    /// Address at which the injector answers probes.
    pub injector: SocketAddr,
}

impl Parts {
    /// Reason why one of the parts is not ready; `None` if all are.
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
        let request = Request::get(format!("http://{at}/ready")).body(Empty::new()).map_err(|e| e.to_string())?;
        let answer = plain_http::send(request, ANSWER_MAX_BYTES).await;
        let (status, body) = answer.map_err(|_| "does not answer".to_owned())?;
        if status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&body).trim().to_owned()) }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("does not answer in time".to_owned()))
}
