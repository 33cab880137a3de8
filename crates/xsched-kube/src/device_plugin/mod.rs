//! `xsched kube device-plugin`: offers each class as a resource, with a number of devices for each GPU.
//!
//! [`kubelet`] keeps the plugin registered; [`service`] answers the kubelet; [`allocation`] decides; [`health`] is the
//! health of devices; [`others`] finds GPUs that other plugins offer too; [`deliveries`] finds containers that their
//! class did not reach.

pub mod allocation;
mod channel;
pub mod deliveries;
pub mod health;
pub mod kubelet;
pub mod others;
pub mod pod_resources;
pub mod service;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use xsched_proto::Error;

use self::allocation::Offer;
use self::health::Health;
use self::service::Shared;
use crate::config::{self, OFFERED};
use crate::gpus::nvml::Faults;
use crate::log;
use crate::status::{Counter, Status};

/// The plugin of a node.
pub struct Plugin {
    /// State that the kubelet is answered from.
    pub shared: Arc<Shared>,
    /// Folder of the kubelet's socket for device plugins.
    pub kubelet: PathBuf,
    /// State of the program, for probes.
    pub status: Arc<Status>,
}

/// Counters of this program's `/metrics`.
pub const COUNTERS: &[&Counter] = &[&deliveries::UNDELIVERED];

/// Time between a failure and the next request to the kubelet.
const RETRY: Duration = Duration::from_secs(1);

impl Plugin {
    /// Serves the kubelet until the program is told to end. `faults` delivers boards that fail.
    ///
    /// # Errors
    /// If the kubelet's folder cannot be used.
    pub async fn run(self, mut faults: Option<Faults>) -> Result<(), Error> {
        let Plugin { shared, kubelet: own_folder, status } = self;
        let daemon_socket = &shared.offer.outside.socket;
        let mut folder = kubelet::Folder::open(&own_folder)?;
        greet(&shared.offer);
        let mut others = watch_others(&shared).await;
        let mut health = Health {
            daemon: health::answers(daemon_socket).await,
            broken: BTreeSet::new(),
            others: others.borrow_and_update().clone(),
        };
        let mut ticks = tokio::time::interval(interval(&shared.offer));
        let end = crate::told_to_end();
        tokio::pin!(end);
        loop {
            // Streams of an earlier registration end with their sender.
            let (sender, receiver) = watch::channel(health.clone());
            let servers = kubelet::Servers::start(&own_folder, &shared, &receiver)?;
            let mut registered = None;
            let mut retry = Box::pin(tokio::time::sleep(Duration::ZERO));
            loop {
                status.set(match (&registered, health.daemon) {
                    (None, _) => Some(format!("it is not registered with the kubelet in {}", own_folder.display())),
                    (_, false) => Some(format!("the daemon at {} does not answer", daemon_socket.display())),
                    (Some(_), true) => None,
                });
                tokio::select! {
                    ended = &mut end => {
                        return ended.map_err(|e| Error::environment(format!("cannot wait for signals: {e}")));
                    }
                    () = &mut retry, if registered.is_none() => match kubelet::identity(&own_folder) {
                        // The watched folder shows when a kubelet starts.
                        None => retry = Box::pin(tokio::time::sleep(RETRY * 60)),
                        // A kubelet that starts has emptied the folder before, also of sockets that were created there meanwhile.
                        Some(_) if !servers.are_there() => break,
                        Some(now) => match kubelet::register(&own_folder).await {
                            Ok(()) => registered = Some(now),
                            Err(e) => {
                                log(format!("the kubelet does not take the plugin: {e}"));
                                retry = Box::pin(tokio::time::sleep(RETRY));
                            }
                        },
                    },
                    changed = folder.changed() => {
                        changed?;
                        if registered.is_some() && registered != kubelet::identity(&own_folder) || !servers.are_there() {
                            log("the kubelet has restarted: registering again");
                            break;
                        }
                        if registered.is_none() {
                            retry = Box::pin(tokio::time::sleep(Duration::ZERO));
                        }
                    }
                    _ = ticks.tick() => {
                        shared.deliveries.look().into_iter().for_each(log);
                        let daemon = health::answers(daemon_socket).await;
                        if daemon != health.daemon {
                            let word = if daemon { "answers" } else { "does not answer: no device is healthy" };
                            log(format!("the daemon at {} {word}", daemon_socket.display()));
                            health.daemon = daemon;
                            let _ = sender.send(health.clone());
                        }
                    }
                    Ok(()) = others.changed() => {
                        health.others = others.borrow_and_update().clone();
                        let _ = sender.send(health.clone());
                    }
                    Some(board) = next(&mut faults) => {
                        health.broken.insert(board);
                        let _ = sender.send(health.clone());
                    }
                }
            }
        }
    }
}

fn interval(offer: &Offer) -> Duration {
    Duration::from_millis(offer.config.device_plugin.health_interval_ms)
}

/// Watches for other plugins' offers in a task of its own: a kubelet may be slow to answer.
async fn watch_others(shared: &Arc<Shared>) -> watch::Receiver<others::Others> {
    let (mut watch, receiver) = others::Watch::new();
    watch.look(&shared.pod_resources, &shared.offer.gpus).await;
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(interval(&shared.offer)).await;
            watch.look(&shared.pod_resources, &shared.offer.gpus).await;
        }
    });
    receiver
}

/// Logs the resources that are offered.
fn greet(offer: &Offer) {
    for class in OFFERED {
        let ids = offer.gpus.iter().map(|gpu| offer.count(gpu, class) as usize).sum::<usize>();
        log(format!("{}: {ids} on {} GPUs", config::resource(class), offer.gpus.len()));
    }
}

async fn next(faults: &mut Option<Faults>) -> Option<String> {
    match faults {
        Some(faults) => match faults.recv().await {
            Some(board) => Some(board),
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
