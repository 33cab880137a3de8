//! `xsched kube startup-taint`: taints the node while daemon, device plugin and injector are not all ready. New pods,
//! which would run without their class, are not placed on it meanwhile.
//!
//! [`parts`] are polled; [`rule`] decides; [`node`] is read and changed through the client of [`crate::api_server`].
//!
//! The kubelet's `--register-with-taints` only works when the node's object is created. After a reboot the object
//! exists already, so the taint is set here: when the system shuts down, if the kubelet reports it, and when this
//! program starts before the other parts are ready.

pub mod node;
pub mod parts;
pub mod rule;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use xsched_proto::Error;

use crate::api_server::{self, Client};
use crate::config;
use crate::log;
use crate::status::{Counter, Status};
use node::{EFFECT, KEY, Node};
use parts::Parts;
use rule::Rule;

/// Number of times that the taint was set.
pub static SET: Counter =
    Counter::new("xsched_startup_taint_set_total", "Times that the node was given the taint, as a part was not ready.");
/// Number of times that the taint was removed.
pub static REMOVED: Counter =
    Counter::new("xsched_startup_taint_removed_total", "Times that the taint was removed, as all parts were ready.");
/// Number of requests that failed.
pub static FAILED: Counter = Counter::new(
    "xsched_startup_taint_api_errors_total",
    "Tries to read or change the node at the API server that failed.",
);
/// Counters of this program's `/metrics`.
pub const COUNTERS: &[&Counter] = &[&SET, &REMOVED, &FAILED];

/// Interval at which the node is read even without a change here: the cluster may create it afresh, with the taint.
const RECHECK: Duration = Duration::from_secs(60);
/// Pause after a failed request to the API server. It doubles with each further failure.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest pause after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(32);
/// Number of attempts at a node that others change at the same time.
const CONFLICTS_MAX: u32 = 5;
/// Number of polls of the node after the program was told to end: the kubelet may report the shutdown of the system a
/// moment later.
const SHUTDOWN_POLLS: u32 = 3;
/// Interval between these polls.
const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of all these polls, well below the pod's `terminationGracePeriodSeconds`.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// The program that keeps a node's taint.
pub struct Keeper {
    /// Parts that must be ready before the taint is removed.
    pub parts: Parts,
    /// Client of the API server.
    pub client: Client,
    /// Name of the node at the API server.
    pub node: String,
    /// Configuration of the startup taint.
    pub config: config::StartupTaint,
    /// State of the program, for probes.
    pub status: Arc<Status>,
}

/// Progress of changing the node at the API server.
struct Progress {
    /// State of the node, as last read or set, and the time of that.
    is: Option<(bool, Instant)>,
    /// Time before which no further request is made.
    not_before: Instant,
    backoff: Duration,
    /// Last failure that was logged.
    told: Option<String>,
}

impl Keeper {
    /// Keeps the node's taint up to date until the program is told to end.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub async fn run(&self) -> Result<(), Error> {
        let failed = |e| Error::environment(format!("cannot wait for signals: {e}"));
        tokio::select! {
            ended = crate::told_to_end() => ended.map_err(failed)?,
            () = self.keep() => {}
        }
        let _ = tokio::time::timeout(SHUTDOWN_PATIENCE, self.end()).await;
        Ok(())
    }

    async fn keep(&self) {
        let mut rule = Rule::new(Duration::from_millis(self.config.set_after_ms));
        let mut progress = Progress { is: None, not_before: Instant::now(), backoff: BACKOFF, told: None };
        let mut ticks = tokio::time::interval(Duration::from_millis(self.config.interval_ms));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let waits_for = self.parts.wait_for().await;
            if let Some(wanted) = rule.wanted(waits_for.is_none(), Instant::now()) {
                self.bring(wanted, waits_for.as_deref(), &mut progress).await;
            }
            self.status.set(match (&waits_for, &progress.told) {
                (Some(why), _) => Some(why.clone()),
                (None, Some(why)) => Some(why.clone()),
                (None, None) => None,
            });
        }
    }

    /// Brings the node into a state, unless it is known to be in it.
    async fn bring(&self, wanted: bool, why: Option<&str>, progress: &mut Progress) {
        let now = Instant::now();
        let is_known = progress.is.is_some_and(|(is, at)| is == wanted && now.duration_since(at) < RECHECK);
        if is_known || now < progress.not_before {
            return;
        }
        match self.change(|_| Some(wanted), why).await {
            Ok(()) => {
                if progress.told.take().is_some() {
                    log(format!("the API server at {} answers again", self.client.authority()));
                }
                (progress.is, progress.backoff) = (Some((wanted, now)), BACKOFF);
            }
            Err(e) => {
                FAILED.add(1);
                let line = format!("node {}: the API server at {}: {e}", self.node, self.client.authority());
                // Logged once for each reason, not for each attempt.
                if progress.told.as_ref() != Some(&line) {
                    log(format!("{line}; trying again"));
                    progress.told = Some(line);
                }
                // Randomised, so that the nodes of a cluster retry at different times.
                let half = progress.backoff / 2;
                progress.not_before = Instant::now() + half + random_part(half);
                (progress.is, progress.backoff) = (None, (progress.backoff * 2).min(BACKOFF_MAX));
            }
        }
    }

    /// Reads the node and brings it into the state that `wanted` returns; `None` leaves it as it is. Tries again if the
    /// node changes meanwhile.
    async fn change(&self, wanted: impl Fn(&Node) -> Option<bool>, why: Option<&str>) -> Result<(), api_server::Error> {
        let path = format!("/api/v1/nodes/{}", self.node);
        for _ in 0..CONFLICTS_MAX {
            let node: Node = self.client.get(&path).await?;
            let Some(wanted) = wanted(&node) else { return Ok(()) };
            let Some(taints) = node.taints_with(wanted) else { return Ok(()) };
            let patch =
                json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
            match self.client.merge_patch::<Node>(&path, &patch).await {
                Ok(_) if wanted => {
                    SET.add(1);
                    log(format!("node {}: has the taint {KEY}:{EFFECT}: {}", self.node, why.unwrap_or_default()));
                    return Ok(());
                }
                Ok(_) => {
                    REMOVED.add(1);
                    let ready = "daemon, device plugin and injector are ready";
                    log(format!("node {}: the taint {KEY} is removed: {ready}", self.node));
                    return Ok(());
                }
                Err(api_server::Error::Conflict) => {}
                Err(e) => return Err(e),
            }
        }
        Err(api_server::Error::Conflict)
    }

    /// Sets the taint if the system is shutting down, so that the node has it when it comes back. If the program ends
    /// for another reason, such as an upgrade or an uninstall, nothing is set, since the taint might stay for good.
    async fn end(&self) {
        for poll in 0..SHUTDOWN_POLLS {
            if poll > 0 {
                tokio::time::sleep(SHUTDOWN_POLL_INTERVAL).await;
            }
            let shuts_down = std::cell::Cell::new(false);
            let wanted = |node: &Node| {
                shuts_down.set(node.shuts_down());
                node.shuts_down().then_some(true)
            };
            match self.change(wanted, Some("its system shuts down")).await {
                Ok(()) if !shuts_down.get() => {}
                Ok(()) => return,
                Err(e) => return log(format!("node {}: not known whether it shuts down: {e}", self.node)),
            }
        }
    }
}

/// A random part of a duration.
fn random_part(of: Duration) -> Duration {
    // Keys of the standard library's hash are random, and different each time.
    let random = RandomState::new().hash_one(());
    of.mul_f64(random as f64 / u64::MAX as f64)
}
