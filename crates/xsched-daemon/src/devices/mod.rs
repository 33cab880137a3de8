//! State of devices, as their drivers report it: memory, activity, heat, processes.
//!
//! Drivers are asked by threads of their own ([`sampler`]), [`nvml`] in a [process](remote) of its own and [`amdgpu`]'s files, about once a
//! second and only while programs are attached. A call that hangs therefore delays no decision: the last state grows old, and after some
//! seconds the state counts as not known.

mod amdgpu;
mod driver;
mod nvml;
mod remote;
mod sampler;
mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use xsched_engine::ProcessMemory;
use xsched_proto::device::{DeviceInfo, DeviceProcess, DeviceState, Source};

pub(crate) use self::driver::{DeviceLabel, Driver, Look, Open};
pub use self::remote::serve;
use self::sampler::Sampler;
use crate::Error;
use crate::guard::Fault;
use crate::tuning::{DEVICE_HISTORY, DEVICE_HOT_NS, DEVICE_LOOK_NS, DEVICE_STALE_NS};

/// Known states of devices, on the side of the loop.
pub(crate) struct Devices {
    samplers: [Sampler; 2],
    wanted: BTreeSet<String>,
    known: BTreeMap<String, Arc<Device>>,
}

/// Known states of one device.
#[derive(Clone)]
pub(crate) struct Device {
    source: Source,
    name: Option<String>,
    label: DeviceLabel,
    processes: Option<Vec<DeviceProcess>>,
    /// Time at which the driver told the processes, in ns.
    processes_ns: u64,
    /// States at the last polls, with the time of each, in ns. Not empty.
    looks: VecDeque<(u64, DeviceState)>,
    /// Time at which it was last slowed down by heat, in ns.
    hot_ns: Option<u64>,
}

impl Devices {
    /// `host` = what [`remote`] starts.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new(host: Option<PathBuf>) -> rustix::io::Result<Devices> {
        let nvml: Open = Arc::new(move || remote::open(host.as_deref()?));
        let amdgpu = Sampler::new("xsched-amdgpu", Arc::new(amdgpu::open))?;
        let samplers = [Sampler::new("xsched-nvml", nvml)?, amdgpu];
        Ok(Devices { samplers, wanted: BTreeSet::new(), known: BTreeMap::new() })
    }

    /// Keys of the devices whose state is known.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Sets the devices that programs use. The keys come from programs: drivers are asked only about devices that they know.
    pub(crate) fn want<'a>(&mut self, keys: impl Iterator<Item = &'a str>) {
        let real = |key: &&str| key.starts_with("pci:") || key.starts_with("mig:");
        let wanted: BTreeSet<&str> = keys.filter(real).collect();
        if !wanted.iter().eq(self.wanted.iter()) {
            self.wanted = wanted.into_iter().map(str::to_owned).collect();
            self.samplers.iter().for_each(|sampler| sampler.want(&self.wanted));
        }
    }

    /// Reports whether a driver is asked about a device, so that it may report something.
    pub(crate) fn may_tell(&self, key: &str) -> bool {
        self.wanted.contains(key)
    }

    /// Has the driver of a device asked as soon as may be. Returns false if no driver tells of it.
    pub(crate) fn look_soon(&self, key: &str) -> bool {
        let is_known = self.known.contains_key(key);
        let may_look = |sampler: &&Sampler| is_known || sampler.is_opening();
        let asked = self.samplers.iter().filter(may_look).filter(|sampler| sampler.look_soon(&self.wanted)).count();
        self.may_tell(key) && asked > 0
    }

    /// Takes the faults of the threads that ask drivers.
    pub(crate) fn take_faults(&self) -> Vec<Fault> {
        self.samplers.iter().flat_map(|sampler| sampler.worker.take_faults()).collect()
    }

    /// Calls `watch` with the descriptor of each sampler, which is readable once there are states to take.
    pub(crate) fn watch(&self, watch: impl Fn(BorrowedFd<'_>) -> Result<(), Error>) -> Result<(), Error> {
        self.samplers.iter().try_for_each(|sampler| watch(sampler.worker.as_fd()))
    }

    /// Reports whether some device has to be polled.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Devices that programs use and whose driver has told of them and tells no more.
    pub(crate) fn silent(&self, now_ns: u64) -> Vec<String> {
        let silent = self.known.iter().filter(|(key, device)| self.wanted.contains(*key) && device.is_stale(now_ns));
        silent.map(|(key, _)| key.clone()).collect()
    }

    /// Devices that programs use and whose state is or was known.
    pub(crate) fn in_use(&self) -> Vec<String> {
        self.wanted.iter().filter(|key| self.known.contains_key(*key)).cloned().collect()
    }

    /// All known devices and their keys, in the order of the keys.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Device>)> {
        self.known.iter().map(|(key, device)| (key.clone(), device.clone())).collect()
    }

    /// Takes the states that arrived since the last call. Returns a line for each device that heat has begun to slow down.
    pub(crate) fn take(&mut self, now_ns: u64, is_attached: impl Fn(u32) -> bool) -> Vec<String> {
        let mut hot = Vec::new();
        let looks: Vec<Look> = self.samplers.iter().flat_map(Sampler::take).collect();
        for look in looks {
            hot.extend(self.note(look, &is_attached));
        }
        let until = |device: &Device| device.at_ns().saturating_add(DEVICE_HISTORY as u64 * 1_000_000_000);
        self.known.retain(|key, device| self.wanted.contains(key) || now_ns < until(device));
        hot
    }

    fn note(&mut self, look: Look, is_attached: impl Fn(u32) -> bool) -> Option<String> {
        // Skips a state that is late or a repetition.
        if self.known.get(&look.device).is_some_and(|known| known.processes_ns >= look.at_ns) {
            return None;
        }
        let Look { at_ns, device: key, source, name, label, mut state, processes } = look;
        let processes = processes.map(|processes| {
            let with = |p: DeviceProcess| DeviceProcess { outside: is_outside(&p) && !is_attached(p.pid), ..p };
            processes.into_iter().map(with).collect::<Vec<_>>()
        });
        state.outside = processes.as_ref().map(|all| all.iter().filter(|p| p.outside).count() as u32);
        let line = format!(
            "{key} is slowed down by heat: {} °C (its limit is {} °C), {} MHz",
            told(state.temperature_c),
            told(state.temperature_limit_c),
            told(state.sm_clock_mhz)
        );
        let hot = state.is_hot();
        let fresh = || Device {
            source,
            name: None,
            label: DeviceLabel::default(),
            processes: None,
            processes_ns: 0,
            looks: VecDeque::with_capacity(DEVICE_HISTORY),
            hot_ns: None,
        };
        // A device that is being reported to a command is copied here.
        let device = Arc::make_mut(self.known.entry(key).or_insert_with(|| Arc::new(fresh())));
        (device.processes, device.processes_ns) = (processes, at_ns);
        // A look on behalf of a program comes between those of the history.
        if at_ns.saturating_sub(device.at_ns()) < DEVICE_LOOK_NS * 3 / 4 {
            return None;
        }
        if device.looks.len() == DEVICE_HISTORY {
            device.looks.pop_front();
        }
        device.looks.push_back((at_ns, state));
        (device.source, device.name, device.label) = (source, name, label);
        let before_ns = if hot { device.hot_ns.replace(at_ns) } else { device.hot_ns };
        // Reported again only after a time without heat.
        (hot && before_ns.is_none_or(|before| at_ns.saturating_sub(before) >= DEVICE_HOT_NS)).then_some(line)
    }

    /// Present state of a device; none = it is not known, or no longer.
    pub(crate) fn state(&self, key: &str, now_ns: u64) -> Option<DeviceState> {
        self.known.get(key).filter(|device| !device.is_stale(now_ns)).and_then(|device| device.latest(now_ns))
    }

    /// Memory of the processes on a device, by process id, and the time at which the driver told it, in ns; none = it does not tell.
    pub(crate) fn processes(&self, key: &str) -> Option<(u64, Vec<ProcessMemory>)> {
        let device = self.known.get(key)?;
        let processes = device.processes.as_ref()?;
        Some((device.processes_ns, processes.iter().map(|p| (p.pid, p.memory_bytes)).collect()))
    }

    /// Label of a device at other monitors, and the memory of its processes in bytes, by process id, as far as these are known.
    pub(crate) fn outside_names(&self, key: &str) -> (DeviceLabel, Vec<(u32, u64)>) {
        let Some(device) = self.known.get(key) else { return Default::default() };
        let processes = device.processes.iter().flatten();
        let memory = processes.filter_map(|p| Some((p.pid, p.memory_bytes?))).collect();
        (device.label.clone(), memory)
    }

    /// Memory that processes other than this one use on a device, and total memory, in bytes; none = not known.
    pub(crate) fn memory_of_others(&self, key: &str, pid: u32, now_ns: u64) -> Option<(u64, u64)> {
        let state = self.state(key, now_ns)?;
        let processes = self.known.get(key)?.processes.as_ref()?;
        let own = processes.iter().filter(|p| p.pid == pid).filter_map(|p| p.memory_bytes).sum();
        Some((state.memory_used_bytes?.saturating_sub(own), state.memory_total_bytes?))
    }
}

impl Device {
    /// Full report on the device, whose key is `key`. `may_see` decides whether a process is included.
    pub(crate) fn info(&self, key: &str, now_ns: u64, may_see: impl Fn(u32) -> bool) -> Option<DeviceInfo> {
        let processes = self.processes.as_ref();
        Some(DeviceInfo {
            device: key.to_owned(),
            name: self.name.clone(),
            source: self.source,
            stale: self.is_stale(now_ns),
            latest: self.latest(now_ns)?,
            processes: processes.map(|all| all.iter().filter(|p| may_see(p.pid)).cloned().collect()),
            history: self.looks.iter().map(|look| aged(look, now_ns)).collect(),
        })
    }

    fn at_ns(&self) -> u64 {
        self.looks.back().map_or(0, |(at_ns, _)| *at_ns)
    }

    fn is_stale(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.at_ns()) >= DEVICE_STALE_NS
    }

    fn latest(&self, now_ns: u64) -> Option<DeviceState> {
        self.looks.back().map(|look| aged(look, now_ns))
    }
}

fn aged((at_ns, state): &(u64, DeviceState), now_ns: u64) -> DeviceState {
    DeviceState { age_ms: now_ns.saturating_sub(*at_ns) / 1_000_000, ..state.clone() }
}

/// Reports whether a process is a program that could be attached. A process that cannot be seen from here may be known by another number,
/// and an MPS server represents its clients.
fn is_outside(process: &DeviceProcess) -> bool {
    process.name.as_ref().is_some_and(|name| !name.starts_with("nvidia-cuda-mps"))
}

fn told(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

/// Sources of the state of this machine's devices, one line each; empty where no driver reports any. Loads NVIDIA's library, which may
/// hang: to be called in a process that can be ended.
pub fn sources() -> Vec<String> {
    let amd = amdgpu::addresses();
    let amd = (!amd.is_empty()).then(|| format!("amdgpu's files in /sys ({})", amd.join(", ")));
    nvml::version().into_iter().map(|version| format!("NVML, driver {version}")).chain(amd).collect()
}

#[cfg(test)]
impl Devices {
    /// Takes a state of a device, as if its driver had told it.
    pub(crate) fn pretend(&mut self, key: &str, at_ns: u64) {
        let (label, state) = (DeviceLabel::default(), DeviceState::default());
        let look =
            Look { at_ns, device: key.to_owned(), source: Source::Nvml, name: None, label, state, processes: None };
        self.note(look, |_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xsched_proto::device::Throttle;

    const S: u64 = 1_000_000_000;

    fn look(at_ns: u64, throttle: &[Throttle]) -> Look {
        let process = |pid, name: Option<&str>, bytes| DeviceProcess {
            pid,
            name: name.map(str::to_owned),
            memory_bytes: Some(bytes),
            outside: false,
        };
        Look {
            at_ns,
            device: "pci:0000:41:00.0".into(),
            source: Source::Nvml,
            name: None,
            label: DeviceLabel::default(),
            state: DeviceState {
                memory_used_bytes: Some(90),
                memory_total_bytes: Some(100),
                throttle: Some(throttle.to_vec()),
                ..DeviceState::default()
            },
            processes: Some(vec![
                process(1, Some("python3"), 50),
                process(2, Some("python3"), 30),
                process(3, None, 5),
                process(4, Some("nvidia-cuda-mps"), 5),
            ]),
        }
    }

    #[test]
    fn processes_that_are_not_attached_are_outside_where_they_are_seen_and_stand_for_themselves() {
        let mut devices = Devices::new(None).unwrap();
        devices.note(look(S, &[]), |pid| pid == 1);
        let info = devices.known["pci:0000:41:00.0"].info("pci:0000:41:00.0", S, |pid| pid != 1).unwrap();
        assert_eq!(info.latest.outside, Some(1));
        let outside = |p: &DeviceProcess| (p.pid, p.outside);
        assert_eq!(
            info.processes.unwrap().iter().map(outside).collect::<Vec<_>>(),
            [(2, true), (3, false), (4, false)]
        );
        assert_eq!(devices.memory_of_others("pci:0000:41:00.0", 1, S), Some((40, 100)));
        assert_eq!(devices.memory_of_others("pci:0000:41:00.0", 9, S), Some((90, 100)));
        assert_eq!(devices.memory_of_others("pci:0000:42:00.0", 1, S), None);
    }

    #[test]
    fn the_history_is_bounded_and_what_is_old_is_no_state() {
        let mut devices = Devices::new(None).unwrap();
        for n in 1..=DEVICE_HISTORY as u64 + 30 {
            devices.note(look(n * S, &[]), |_| true);
        }
        let now = (DEVICE_HISTORY as u64 + 30) * S;
        let info = devices.known["pci:0000:41:00.0"].info("pci:0000:41:00.0", now + S, |_| true).unwrap();
        let ages: Vec<u64> = info.history.iter().map(|state| state.age_ms).collect();
        assert_eq!(
            (ages.len(), ages[0], *ages.last().unwrap()),
            (DEVICE_HISTORY, DEVICE_HISTORY as u64 * 1_000, 1_000)
        );
        assert!(!info.stale && devices.state("pci:0000:41:00.0", now + 4 * S).is_some());
        let info = devices.known["pci:0000:41:00.0"].info("pci:0000:41:00.0", now + 6 * S, |_| true).unwrap();
        assert!(info.stale && info.latest.age_ms == 6_000);
        assert_eq!(devices.state("pci:0000:41:00.0", now + 6 * S), None);
        // A device that is no longer wanted is forgotten when all of its states are old.
        devices.take(now + (DEVICE_HISTORY as u64 - 1) * S, |_| true);
        assert_eq!(devices.all().len(), 1);
        devices.take(now + (DEVICE_HISTORY as u64 + 1) * S, |_| true);
        assert_eq!(devices.all().len(), 0);
    }

    #[test]
    fn a_look_that_comes_late_or_twice_changes_nothing_and_one_that_is_lost_is_missing() {
        let mut devices = Devices::new(None).unwrap();
        let mut history = |looks: &[u64]| {
            devices.samplers[0].worker.release(|outcomes| outcomes.extend(looks.iter().map(|at| look(at * S, &[]))));
            devices.take(9 * S, |_| true);
            let info = devices.known["pci:0000:41:00.0"].info("pci:0000:41:00.0", 9 * S, |_| true).unwrap();
            info.history.iter().map(|state| 9 - state.age_ms / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(history(&[2, 1, 2]), [2], "the newest");
        assert_eq!(history(&[2]), [2]);
        assert_eq!(history(&[1]), [2]);
        assert_eq!(history(&[5, 5]), [2, 5]);
        assert_eq!(history(&[3, 4]), [2, 5]);
        assert_eq!(history(&[7, 6]), [2, 5, 7]);
    }

    #[test]
    fn heat_is_told_when_it_begins_and_not_each_second() {
        let mut devices = Devices::new(None).unwrap();
        let mut told = |at_ns, throttle: &[Throttle]| devices.note(look(at_ns, throttle), |_| true).is_some();
        assert!(!told(S, &[Throttle::PowerCap]));
        assert!(told(2 * S, &[Throttle::HwThermal]));
        assert!(!told(3 * S, &[Throttle::HwThermal]) && !told(4 * S, &[]) && !told(5 * S, &[Throttle::SwThermal]));
        assert!(told(5 * S + DEVICE_HOT_NS, &[Throttle::SwThermal]));
    }
}
