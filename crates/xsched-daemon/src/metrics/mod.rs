//! OpenMetrics, for monitors. [`http`] answers them on threads of its own; each answer is made there, of a [`Snapshot`] that the
//! loop gives piece by piece ([`Exchange`]); [`statistics`] is the table of counters; [`series`] keeps what is told of programs beyond their end; [`page`] is the text.

mod exchange;
mod histogram;
mod http;
mod labels;
mod observing;
mod page;
mod series;
mod snapshot;
mod statistics;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::Error;
use crate::config::MetricsConfig;
use crate::guard::Fault;

use exchange::Exchange;

pub use self::page::{Metric, all_metrics};
pub(crate) use self::snapshot::{DaemonRow, DeviceRow, Held, Launched, Observations, Row, Snapshot};
pub(crate) use self::statistics::Counts;

/// The loop's end.
pub(crate) struct Metrics {
    exchange: Arc<Exchange>,
    /// Address at which it listens, for the log.
    pub(crate) address: String,
    pub(crate) observations: Observations,
    /// Rows of programs that are gone and that no snapshot has had since, the oldest first.
    pub(crate) gone: VecDeque<Row>,
    /// Snapshot that is being made, and the clients that are still to be collected.
    pub(crate) making: Option<(Snapshot, Vec<u64>)>,
}

impl Metrics {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// Fails if the address cannot be listened at.
    pub(crate) fn start(config: &MetricsConfig) -> Result<Metrics, Error> {
        let fail = |e| Error::environment(format!("cannot make an event descriptor: {e}"));
        let exchange = Arc::new(Exchange::new().map_err(fail)?);
        let address = http::start(config, &exchange)?;
        Ok(Metrics { exchange, address, observations: Observations::default(), gone: VecDeque::new(), making: None })
    }

    /// Returns true if a snapshot is wanted that is not made yet.
    pub(crate) fn is_wanted(&self) -> bool {
        self.exchange.is_wanted() && self.making.is_none()
    }

    /// Takes the faults of the threads that answer.
    pub(crate) fn take_faults(&self) -> Vec<Fault> {
        self.exchange.take_faults()
    }

    /// Gives a snapshot to the threads that wait for one.
    pub(crate) fn deliver(&self, snapshot: Snapshot) {
        self.exchange.put(snapshot);
    }
}

impl AsFd for Metrics {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exchange.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xsched_testkit::until;

    use super::*;

    fn metrics() -> Metrics {
        let exchange = Arc::new(Exchange::new().expect("an event"));
        let (observations, gone) = (Observations::default(), VecDeque::new());
        Metrics { exchange, address: String::new(), observations, gone, making: None }
    }

    fn numbered(dropped_clients: u64) -> Snapshot {
        Snapshot { daemon: DaemonRow { dropped_clients, ..DaemonRow::default() }, ..Snapshot::default() }
    }

    #[test]
    fn a_wish_for_a_snapshot_that_comes_twice_or_not_at_all_costs_none_and_no_answer_is_older_than_its_request() {
        let mut metrics = metrics();
        let wake =
            |metrics: &Metrics| rustix::io::write(&metrics.exchange.event, &1u64.to_ne_bytes()).expect("counted");
        wake(&metrics);
        assert!(!metrics.is_wanted(), "nothing is wanted");
        let ask = |metrics: &Metrics| {
            let exchange = metrics.exchange.clone();
            std::thread::spawn(move || {
                exchange.snapshot(Duration::from_secs(60)).expect("an answer").1.daemon.dropped_clients
            })
        };
        let first = ask(&metrics);
        until("it is wanted", || metrics.is_wanted());
        assert!(metrics.is_wanted(), "though the event was taken");
        metrics.making = Some((numbered(1), Vec::new()));
        // The snapshot that is being made was begun before this request.
        let second = ask(&metrics);
        until("it is wanted again", || rustix::io::read(&metrics.exchange.event, &mut [0u8; 8]).is_ok());
        let (snapshot, _) = metrics.making.take().expect("being made");
        metrics.deliver(snapshot);
        assert_eq!(first.join().expect("answered"), 1);
        until("another is wanted", || metrics.is_wanted());
        metrics.deliver(numbered(2));
        assert_eq!(second.join().expect("answered"), 2);
        wake(&metrics);
        wake(&metrics);
        assert!(!metrics.is_wanted(), "told twice, too late");
        assert!(
            metrics.exchange.snapshot(Duration::from_millis(1)).is_none(),
            "no old one where the loop does not answer"
        );
        assert!(metrics.is_wanted());
    }
}
