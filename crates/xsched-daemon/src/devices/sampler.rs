//! A thread that asks a driver, so that the loop never waits for one.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xsched_proto::device::{DeviceProcess, DeviceState, Source};

use crate::tuning::{DEVICE_LINGER_MS, DEVICE_LOOK_NS};

/// What a driver told of one device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Look {
    /// When it was asked, ns.
    pub(super) at_ns: u64,
    pub(super) device: String,
    pub(super) source: Source,
    pub(super) name: Option<String>,
    pub(super) label: DeviceLabel,
    pub(super) state: DeviceState,
    pub(super) processes: Option<Vec<DeviceProcess>>,
}

/// How other monitors call a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceLabel {
    /// UUID of the GPU, or of that which it is a part of.
    pub(crate) uuid: Option<String>,
    /// Number of the GPU instance, where it is a part.
    pub(crate) instance: Option<u32>,
}

/// Something that knows how devices are. Lives on the thread that asks it.
pub(super) trait Driver {
    /// How those of these devices are that it knows. May take as long as it likes.
    fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look>;
}

/// Makes a driver; none = it is not on this machine.
pub(super) type Open = Arc<dyn Fn() -> Option<Box<dyn Driver>> + Send + Sync>;

/// The thread and what it shares with the loop. There is one only while devices are wanted, and for a while after.
pub(super) struct Sampler {
    name: &'static str,
    open: Open,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    wanted: BTreeSet<String>,
    /// The newest of each device, as far as it was not taken.
    looks: Vec<Look>,
    running: bool,
    /// The driver is not there. It is tried again once no device was wanted for a moment.
    absent: bool,
}

impl Sampler {
    pub(super) fn new(name: &'static str, open: Open) -> Sampler {
        Sampler { name, open, shared: Arc::default() }
    }

    /// Has these devices looked at from now on.
    pub(super) fn want(&self, wanted: &BTreeSet<String>) {
        let mut orders = self.shared.lock();
        orders.wanted.clone_from(wanted);
        orders.absent &= !wanted.is_empty();
        if !wanted.is_empty() && !orders.running && !orders.absent {
            let (shared, open) = (self.shared.clone(), self.open.clone());
            let thread = std::thread::Builder::new().name(self.name.into()).spawn(move || shared.run(&open));
            // Without a thread nothing is known, as without a driver.
            (orders.running, orders.absent) = (thread.is_ok(), thread.is_err());
        }
        drop(orders);
        self.shared.changed.notify_all();
    }

    /// What was found since the last time.
    pub(super) fn take(&self) -> Vec<Look> {
        std::mem::take(&mut self.shared.lock().looks)
    }
}

impl Drop for Sampler {
    /// The thread ends by itself, after what it asks now.
    fn drop(&mut self) {
        self.want(&BTreeSet::new());
    }
}

impl Shared {
    /// Held for some instructions only, and never while a driver is asked.
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, open: &Open) {
        loop {
            let driver = open();
            let absent = driver.is_none();
            if let Some(mut driver) = driver {
                self.serve(&mut *driver);
            }
            let mut orders = self.lock();
            if absent || orders.wanted.is_empty() {
                (orders.running, orders.absent) = (false, absent && !orders.wanted.is_empty());
                return;
            }
        }
    }

    /// Asks until no device was wanted for a while: programs that come and go have the driver opened once.
    fn serve(&self, driver: &mut dyn Driver) {
        let linger = Duration::from_millis(DEVICE_LINGER_MS);
        loop {
            let orders = self.changed.wait_timeout_while(self.lock(), linger, |orders| orders.wanted.is_empty());
            let wanted = orders.unwrap_or_else(PoisonError::into_inner).0.wanted.clone();
            if wanted.is_empty() {
                return;
            }
            let looks = driver.look(&wanted);
            let mut orders = self.lock();
            orders.looks.retain(|old| !looks.iter().any(|new| new.device == old.device));
            orders.looks.extend(looks);
            let period = Duration::from_nanos(DEVICE_LOOK_NS);
            drop(self.changed.wait_timeout_while(orders, period, |orders| !orders.wanted.is_empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use xsched_testkit::until;

    use super::*;

    static OPEN: AtomicU32 = AtomicU32::new(0);

    struct Echo;

    impl Driver for Echo {
        fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look> {
            let look = |device: &String| Look {
                at_ns: crate::clock::now_ns(),
                device: device.clone(),
                source: Source::Nvml,
                name: None,
                label: DeviceLabel::default(),
                state: DeviceState::default(),
                processes: None,
            };
            wanted.iter().map(look).collect()
        }
    }

    impl Drop for Echo {
        fn drop(&mut self) {
            OPEN.fetch_sub(1, SeqCst);
        }
    }

    fn echo() -> Option<Box<dyn Driver>> {
        OPEN.fetch_add(1, SeqCst);
        Some(Box::new(Echo))
    }

    #[test]
    fn a_driver_is_open_only_while_devices_are_wanted() {
        let sampler = Sampler::new("echo", Arc::new(echo));
        let key = || BTreeSet::from(["pci:0000:41:00.0".to_owned()]);
        assert!(sampler.take().is_empty() && OPEN.load(SeqCst) == 0);
        let looked = |sampler: &Sampler| sampler.take().iter().any(|look| look.device == "pci:0000:41:00.0");
        sampler.want(&key());
        until("it is looked at", || looked(&sampler));
        assert_eq!(OPEN.load(SeqCst), 1);
        sampler.want(&BTreeSet::new());
        until("it is closed", || OPEN.load(SeqCst) == 0);
        sampler.want(&key());
        until("it is looked at again", || looked(&sampler));
        drop(sampler);
        until("it is closed with the daemon", || OPEN.load(SeqCst) == 0);
    }

    #[test]
    fn what_is_not_there_has_no_thread() {
        let sampler = Sampler::new("none", Arc::new(|| None));
        sampler.want(&BTreeSet::from(["pci:0000:41:00.0".to_owned()]));
        until("it was tried", || !sampler.shared.lock().running);
        assert!(sampler.shared.lock().absent && sampler.take().is_empty());
    }
}
