//! State of a node's program, over HTTP if an address is given: `/ready` for the kubelet's probe, `/metrics` for
//! monitors.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use xsched_proto::Error;

use crate::log;

/// Upper limit of connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A number that only grows.
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    help: &'static str,
    value: AtomicU64,
}

impl Counter {
    /// Makes a counter that starts at 0.
    pub const fn new(name: &'static str, help: &'static str) -> Counter {
        Counter { name, help, value: AtomicU64::new(0) }
    }

    /// Adds to the counter.
    pub fn add(&self, more: u64) {
        self.value.fetch_add(more, Ordering::Relaxed);
    }
}

/// The state of a program.
#[derive(Debug)]
pub struct Status {
    /// Reason why the program does not do its work; `None` if it does.
    waits_for: Mutex<Option<String>>,
    counters: &'static [&'static Counter],
}

impl Status {
    /// Makes the state of a program that is not ready yet.
    pub fn new(counters: &'static [&'static Counter]) -> Arc<Status> {
        Arc::new(Status { waits_for: Mutex::new(Some("it starts".to_owned())), counters })
    }

    /// Sets the reason that keeps the program from its work; `None` = there is none.
    pub fn set(&self, waits_for: Option<String>) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = waits_for;
    }

    fn answer(&self, path: &str) -> (StatusCode, String) {
        let waits_for = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match path {
            "/ready" => match waits_for {
                None => (StatusCode::OK, "ready\n".to_owned()),
                Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
            },
            "/metrics" => {
                let mut text = String::new();
                for Counter { name, help, value } in self.counters {
                    let value = value.load(Ordering::Relaxed);
                    // Writing to a string cannot fail.
                    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n");
                }
                (StatusCode::OK, text)
            }
            _ => (StatusCode::NOT_FOUND, "there are /ready and /metrics\n".to_owned()),
        }
    }

    /// Answers at an address, in a task of its own. Must be called within a runtime.
    ///
    /// # Errors
    /// If the address is in use, or not one of this machine.
    pub async fn serve(self: &Arc<Status>, address: Option<SocketAddr>) -> Result<(), Error> {
        let Some(address) = address else { return Ok(()) };
        let failed = |e| Error::environment(format!("cannot listen at {address}: {e}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        // With port 0, the port is known only now.
        if let Ok(bound) = listener.local_addr() {
            log(format!("answers /ready and /metrics at {bound}"));
        }
        let (status, slots) = (Arc::clone(self), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        tokio::spawn(async move {
            loop {
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
                let Ok((stream, _)) = listener.accept().await else {
                    // Probably out of descriptors: a later attempt may succeed.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let status = Arc::clone(&status);
                tokio::spawn(async move {
                    let answer = hyper::service::service_fn(|request: Request<Incoming>| {
                        let (code, text) = status.answer(request.uri().path());
                        let mut response = Response::new(Full::new(Bytes::from(text)));
                        *response.status_mut() = code;
                        let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
                        response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
                        std::future::ready(Ok::<_, Infallible>(response))
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), answer);
                    // A client that is slow or malformed harms only itself.
                    let _ = tokio::time::timeout(PATIENCE, connection).await;
                    drop(slot);
                });
            }
        });
        Ok(())
    }
}
