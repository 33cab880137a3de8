//! Measurement of device time that was not followed launch by launch, from drivers' figures.

use crate::server::Server;
use crate::tuning::DEVICE_STALE_NS;

impl Server {
    /// Has device time measured that was not followed.
    pub(crate) fn measure(&mut self) {
        let now_ns = self.now_ns;
        self.engine.gatekeeper_mut().ledger_mut().settle(now_ns);
        let devices: Vec<String> = self.engine.gatekeeper().ledger().unmeasured().map(str::to_owned).collect();
        self.history.accounting.measured.retain(|device, _| devices.contains(device));
        for device in &devices {
            let active = self.services.devices.state(device, now_ns).map(|state| state.active_percent);
            let before_ns = *self.history.accounting.measured.entry(device.clone()).or_insert(now_ns);
            // A driver that is still being opened reports later.
            if active.is_none() && self.services.devices.may_tell(device) && now_ns < before_ns + DEVICE_STALE_NS {
                continue;
            }
            self.history.accounting.measured.insert(device.clone(), now_ns);
            self.engine.gatekeeper_mut().ledger_mut().measured(now_ns, device, active.flatten());
        }
    }
}
