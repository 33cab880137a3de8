//! `xsched kube device-plugin`: offers each class as a resource, with a number of devices for each GPU.
//!
//! [`kubelet`] keeps the plugin registered; [`service`] answers the kubelet; [`allocation`] decides; [`health`] is the
//! health of devices; [`others`] finds GPUs that other plugins offer too; [`deliveries`] finds containers that their
//! class did not reach.

pub mod allocation;
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

use crate::config::{Config, OFFERED, OfferedTwice};
use crate::delivery::Outside;
use crate::gpus::Gpu;
use crate::gpus::nvml::Faults;
use crate::log;
use crate::status::{Counter, Status};
use deliveries::Deliveries;
use health::Health;

/// The plugin of a node.
pub struct Plugin {
    /// Configuration of the node.
    pub config: Config,
    /// Paths on the node.
    pub outside: Outside,
    /// Folder of the kubelet's socket for device plugins.
    pub kubelet: PathBuf,
    /// The kubelet's socket for pod resources.
    pub pod_resources: PathBuf,
    /// GPUs that are offered.
    pub gpus: Vec<Gpu>,
    /// State of the program, for probes.
    pub status: Arc<Status>,
    /// Containers that are about to be created.
    pub deliveries: Deliveries,
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
        let plugin = Arc::new(self);
        let mut folder = kubelet::Folder::open(&plugin.kubelet)?;
        plugin.greet();
        let mut others = plugin.watch_others().await;
        let mut health = Health {
            daemon: health::answers(&plugin.outside.socket).await,
            broken: BTreeSet::new(),
            others: others.borrow_and_update().clone(),
        };
        let mut ticks = tokio::time::interval(plugin.interval());
        let end = crate::told_to_end();
        tokio::pin!(end);
        loop {
            // Streams of an earlier registration end with their sender.
            let (sender, receiver) = watch::channel(health.clone());
            let servers = kubelet::Servers::start(&plugin, &receiver)?;
            let mut registered = None;
            let mut retry = Box::pin(tokio::time::sleep(Duration::ZERO));
            loop {
                plugin.status.set(match (&registered, health.daemon) {
                    (None, _) => Some(format!("it is not registered with the kubelet in {}", plugin.kubelet.display())),
                    (_, false) => Some(format!("the daemon at {} does not answer", plugin.outside.socket.display())),
                    (Some(_), true) => None,
                });
                tokio::select! {
                    ended = &mut end => {
                        return ended.map_err(|e| Error::environment(format!("cannot wait for signals: {e}")));
                    }
                    () = &mut retry, if registered.is_none() => match kubelet::identity(&plugin.kubelet) {
                        // The watched folder shows when a kubelet starts.
                        None => retry = Box::pin(tokio::time::sleep(RETRY * 60)),
                        Some(now) => match kubelet::register(&plugin.kubelet).await {
                            Ok(()) => registered = Some(now),
                            Err(e) => {
                                log(format!("the kubelet does not take the plugin: {e}"));
                                retry = Box::pin(tokio::time::sleep(RETRY));
                            }
                        },
                    },
                    changed = folder.changed() => {
                        changed?;
                        if registered.is_some() && registered != kubelet::identity(&plugin.kubelet) || !servers.are_there() {
                            log("the kubelet has restarted: registering again");
                            break;
                        }
                        if registered.is_none() {
                            retry = Box::pin(tokio::time::sleep(Duration::ZERO));
                        }
                    }
                    _ = ticks.tick() => {
                        plugin.deliveries.look().into_iter().for_each(log);
                        let daemon = health::answers(&plugin.outside.socket).await;
                        if daemon != health.daemon {
                            let word = if daemon { "answers" } else { "does not answer: no device is healthy" };
                            log(format!("the daemon at {} {word}", plugin.outside.socket.display()));
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

    fn interval(&self) -> Duration {
        Duration::from_millis(self.config.device_plugin.health_interval_ms)
    }

    fn may_be_twice(&self) -> bool {
        self.config.device_plugin.offered_twice == OfferedTwice::Allowed
    }

    /// Watches for other plugins' offers in a task of its own: a kubelet may be slow to answer.
    async fn watch_others(self: &Arc<Self>) -> watch::Receiver<others::Others> {
        let (mut watch, receiver) = others::Watch::new();
        watch.look(&self.pod_resources, &self.gpus).await;
        let plugin = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(plugin.interval()).await;
                watch.look(&plugin.pod_resources, &plugin.gpus).await;
            }
        });
        receiver
    }

    /// Logs the resources that are offered.
    fn greet(&self) {
        for class in OFFERED {
            let ids = self.gpus.iter().map(|gpu| self.count(gpu, class) as usize).sum::<usize>();
            log(format!("{}: {ids} on {} GPUs", allocation::resource(class), self.gpus.len()));
        }
    }

    fn count(&self, gpu: &Gpu, class: xsched_proto::class::Class) -> u32 {
        let plugin = &self.config.device_plugin;
        plugin.gpus.get(&gpu.uuid).unwrap_or(&plugin.counts).of(class)
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
