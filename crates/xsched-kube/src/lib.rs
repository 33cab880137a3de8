//! `xsched kube`: what a node of Kubernetes needs beside the daemon. A program of its own, `xsched-kube`, so that tokio and tonic are
//! neither in the daemon nor in the library that is loaded into others.
//!
//! - [`device_plugin`]: classes as resources, to the kubelet.
//! - [`dra`]: classes and GPUs of claims, to the kubelet.
//! - [`nri`]: classes from annotations, to the container runtime.
//! - [`startup_taint`]: the node's taint while one of them is not ready, at the API server.
//! - [`status`]: whether each does its work, to probes and monitors.
//! - [`api`]: the messages; [`api_server`]: a client of the cluster's; [`authority`]: clients that name a path as their host; [`cdi`]: the node's specification; [`config`]: the node's configuration; [`delivery`]: what a container gets; [`gpus`]: which GPUs there are;
//!   [`plain_http`]: requests without TLS; [`device_plugin::pod_resources`]: which container has which.

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

/// One line for the log, on stderr.
pub fn log(line: impl std::fmt::Display) {
    use std::io::Write;
    let line = line.to_string().replace(char::is_control, " ");
    // A stderr that is gone leaves nothing to do.
    let _ = writeln!(std::io::stderr().lock(), "xsched-kube: {line}");
}

/// Waits until the program is told to end.
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
