//! Sampler of devices: asks a driver on a thread, so that the loop never waits for the driver. A driver that hangs keeps its thread:
//! another would hang in the same place. The last known state grows old meanwhile.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::devices::{Driver, Look, Open};
use crate::guard::guarded;
use crate::server::clock::now_ns;
use crate::services::worker::{Next, Service, Spec, Worker, readable};
use crate::tuning::{DEVICE_LINGER_MS, DEVICE_LOOK_NS, DEVICE_PAUSE_NS};

/// Devices to ask about from now on.
type Task = BTreeSet<String>;
/// State of a device. Its time decides which of two is newer.
type Outcome = Look;

/// Sampler, as the loop uses it. It has a thread only while devices are wanted, and for a while after.
pub(crate) struct Sampler {
    pub(crate) worker: Worker<Task, Outcome>,
    /// True while the driver is absent. It is tried again once no device was wanted for a moment.
    absent: Arc<AtomicBool>,
    /// True: the driver is to be asked once more, without waiting for its time.
    soon: Arc<AtomicBool>,
    /// True once the driver was asked since it was opened.
    looked: Arc<AtomicBool>,
}

impl Sampler {
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new(name: &'static str, open: Open) -> rustix::io::Result<Sampler> {
        let absent = Arc::new(AtomicBool::new(false));
        let (soon, looked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let its = [&absent, &soon, &looked].map(Arc::clone);
        let worker = Worker::new(Spec::named(name), None, move || -> Box<dyn Service<Task, Outcome>> {
            let (open, [absent, soon, looked]) = (open.clone(), its.clone());
            let wanted = BTreeSet::new();
            Box::new(Sampling { open, absent, soon, looked, driver: None, wanted, next_ns: 0, looked_ns: 0 })
        });
        Ok(Sampler { worker: worker?, absent, soon, looked })
    }

    /// Sets the devices to ask about from now on.
    pub(crate) fn want(&self, wanted: &BTreeSet<String>) {
        if wanted.is_empty() {
            self.absent.store(false, Relaxed);
            if self.worker.has_thread() {
                self.worker.push_beyond(BTreeSet::new());
            }
        } else if !self.absent.load(Relaxed) {
            // Without a thread no state is known, as without a driver.
            self.absent.store(self.worker.start().is_err(), Relaxed);
            self.worker.push_beyond(wanted.clone());
        }
    }

    /// Reports whether the driver is being opened, or asked for the first time.
    pub(crate) fn is_opening(&self) -> bool {
        self.worker.has_thread() && !self.looked.load(Relaxed)
    }

    /// Has the driver asked as soon as may be. Returns false if there is no driver.
    pub(crate) fn look_soon(&self, wanted: &BTreeSet<String>) -> bool {
        if self.absent.load(Relaxed) || !self.worker.has_thread() {
            return false;
        }
        self.soon.store(true, Relaxed);
        self.worker.push_beyond(wanted.clone());
        true
    }

    /// Takes the states that arrived since the last call, the newest of each device.
    pub(crate) fn take(&self) -> Vec<Look> {
        let mut looks: Vec<Look> = Vec::new();
        while let Some(look) = self.worker.take() {
            match looks.iter_mut().find(|known| known.device == look.device) {
                Some(known) if known.at_ns < look.at_ns => *known = look,
                Some(_) => (),
                None => looks.push(look),
            }
        }
        looks
    }
}

/// Work of the thread.
struct Sampling {
    open: Open,
    absent: Arc<AtomicBool>,
    soon: Arc<AtomicBool>,
    looked: Arc<AtomicBool>,
    driver: Option<Box<dyn Driver>>,
    wanted: BTreeSet<String>,
    /// Earliest time at which the driver is asked again, in ns.
    next_ns: u64,
    /// Time at which the driver has answered last, in ns.
    looked_ns: u64,
}

impl Service<Task, Outcome> for Sampling {
    fn perform(&mut self, wanted: Task, _: &mut Vec<Outcome>) {
        if self.wanted.is_empty() {
            self.next_ns = 0;
        }
        self.wanted = wanted;
    }

    fn wait(&mut self, more: BorrowedFd<'_>, looks: &mut Vec<Outcome>) -> Next {
        if self.wanted.is_empty() {
            // The driver stays open for a while, so that programs that come and go do not have it opened each time.
            if self.driver.is_some() && readable(more, Some(DEVICE_LINGER_MS * 1_000_000)) {
                return Next::GoOn;
            }
            self.driver = None;
            self.looked.store(false, Relaxed);
            return Next::Retire;
        }
        let Some(driver) = &mut self.driver else {
            self.driver = (self.open)();
            let is_absent = self.driver.is_none();
            if is_absent {
                self.absent.store(true, Relaxed);
                self.wanted.clear();
            }
            return if is_absent { Next::Retire } else { Next::GoOn };
        };
        let (now_ns, is_soon) = (now_ns(), self.soon.load(Relaxed));
        let at_ns = if is_soon { self.next_ns.min(self.looked_ns + DEVICE_PAUSE_NS) } else { self.next_ns };
        let left_ns = at_ns.saturating_sub(now_ns);
        if left_ns > 0 {
            readable(more, Some(left_ns));
            return Next::GoOn;
        }
        // Before the driver is asked: a question that comes meanwhile wants a newer answer.
        self.soon.store(false, Relaxed);
        match guarded("a driver's answer", || driver.look(&self.wanted)) {
            Ok(answer) => looks.extend(answer),
            Err(fault) => {
                // As one that is absent, until no device is wanted.
                fault.note();
                self.driver = None;
                self.absent.store(true, Relaxed);
                self.wanted.clear();
                return Next::Retire;
            }
        }
        self.looked.store(true, Relaxed);
        self.looked_ns = crate::server::clock::now_ns();
        if self.next_ns <= now_ns {
            self.next_ns = self.looked_ns + DEVICE_LOOK_NS;
        }
        Next::GoOn
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use xsched_testkit::until;

    use xsched_proto::device::{DeviceState, Source};

    use super::*;
    use crate::devices::DeviceLabel;

    static OPEN: AtomicU32 = AtomicU32::new(0);

    struct Echo;

    impl Driver for Echo {
        fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look> {
            let look = |device: &String| Look {
                at_ns: crate::server::clock::now_ns(),
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
        let sampler = Sampler::new("echo", Arc::new(echo)).unwrap();
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
        let sampler = Sampler::new("none", Arc::new(|| None)).unwrap();
        sampler.want(&BTreeSet::from(["pci:0000:41:00.0".to_owned()]));
        until("it was tried", || !sampler.worker.has_thread());
        assert!(sampler.absent.load(Relaxed) && sampler.take().is_empty());
    }

    struct Faulty;

    impl Driver for Faulty {
        fn look(&mut self, _: &BTreeSet<String>) -> Vec<Look> {
            panic!("a fault that this test makes")
        }
    }

    #[test]
    fn a_driver_whose_answer_panics_counts_as_absent_until_no_device_is_wanted() {
        let sampler = Sampler::new("faulty", Arc::new(|| Some(Box::new(Faulty)))).unwrap();
        let wanted = BTreeSet::from(["pci:0000:41:00.0".to_owned()]);
        for _ in 0..2 {
            sampler.want(&wanted);
            until("its thread has left", || !sampler.worker.has_thread());
            assert!(sampler.absent.load(Relaxed) && sampler.take().is_empty());
            let faults = sampler.worker.take_faults();
            assert!(matches!(&faults[..], [one] if one.line().starts_with("a driver's answer: ")), "{faults:?}");
            sampler.want(&BTreeSet::new());
        }
    }
}
