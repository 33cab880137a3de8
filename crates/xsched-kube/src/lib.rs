//! `xsched kube`: the parts that a node of Kubernetes needs beside the daemon. A separate program, `xsched-kube`, so
//! that tokio and tonic are neither in the daemon nor in the library that is loaded into other programs.
//!
//! - [`device_plugin`]: offers classes as resources to the kubelet.
//! - [`dra`]: prepares classes and GPUs of claims for the kubelet.
//! - [`nri`]: applies classes from annotations through the container runtime.
//! - [`startup_taint`]: taints the node at the API server while one of them is not ready.
//! - [`status`]: reports to probes and monitors whether each of them works.
//! - [`api`]: the messages; [`api_server`]: a client of the cluster's API server; [`authority`]: clients that name a path
//!   as their host; [`cdi`]: the node's specification; [`config`]: the node's configuration; [`delivery`]: the contents
//!   that a container gets; [`gpus`]: the GPUs of the node; [`plain_http`]: requests without TLS;
//!   [`device_plugin::pod_resources`]: the devices of containers.

pub mod api;
pub mod api_server;
pub mod authority;
pub mod cdi;
pub mod config;
pub mod delivery;
pub mod device_plugin;
pub mod dra;
pub mod gpus;
pub mod nri;
pub mod plain_http;
pub mod startup_taint;
pub mod status;

/// Logs one line on stderr.
pub fn log(line: impl std::fmt::Display) {
    use std::io::Write;
    let line = line.to_string().replace(char::is_control, " ");
    // If stderr is gone, there is nothing to be done.
    let _ = writeln!(std::io::stderr().lock(), "xsched-kube: {line}");
}

/// Waits until the program is told to end by a signal.
///
/// # Errors
/// If the kernel does not allow a signal to be caught.
pub async fn told_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
