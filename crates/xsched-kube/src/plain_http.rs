//! Requests over HTTP without TLS, to other programs of the pod and to `kubectl proxy`.

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Sends a request. Returns the status and the body of the answer, which may be at most `max_bytes` long.
///
/// # Errors
/// Reason in one line.
pub async fn send(request: Request<Empty<Bytes>>, max_bytes: usize) -> Result<(StatusCode, Bytes), String> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.map_err(|e| e.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), max_bytes).collect().await.map_err(|e| e.to_string())?;
    Ok((status, body.to_bytes()))
}
