//! State of a device, in the form that an operator's own scheduler reads.

use xsched_proto::device::{DeviceState, Throttle};

/// XSchedDeviceState of include/xsched/scheduler.h.
#[repr(C)]
#[derive(Debug, PartialEq)]
pub(super) struct CDeviceState {
    size: usize,
    age_ms: u64,
    memory_used_bytes: u64,
    memory_total_bytes: u64,
    active_percent: i32,
    memory_active_percent: i32,
    temperature_c: i32,
    temperature_limit_c: i32,
    power_w: i32,
    power_limit_w: i32,
    sm_clock_mhz: i32,
    throttle: i32,
    outside: i32,
}

pub(super) fn c_device_state(state: &DeviceState) -> CDeviceState {
    let or_unknown = |value: Option<u32>| value.and_then(|value| i32::try_from(value).ok()).unwrap_or(-1);
    let bit = |reason: &Throttle| Throttle::ALL.iter().position(|known| known == reason).map_or(0, |at| 1 << at);
    // Memory in use means nothing where the total is not known.
    let memory = state.memory_used_bytes.zip(state.memory_total_bytes).unwrap_or((0, 0));
    CDeviceState {
        size: size_of::<CDeviceState>(),
        age_ms: state.age_ms,
        memory_used_bytes: memory.0,
        memory_total_bytes: memory.1,
        active_percent: or_unknown(state.active_percent),
        memory_active_percent: or_unknown(state.memory_active_percent),
        temperature_c: state.temperature_c.unwrap_or(-1),
        temperature_limit_c: state.temperature_limit_c.unwrap_or(-1),
        power_w: or_unknown(state.power_w),
        power_limit_w: or_unknown(state.power_limit_w),
        sm_clock_mhz: or_unknown(state.sm_clock_mhz),
        throttle: state.throttle.as_ref().map_or(-1, |reasons| reasons.iter().fold(0, |bits, r| bits | bit(r))),
        outside: or_unknown(state.outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_minus_one_and_reasons_are_bits_as_in_the_header() {
        let none = c_device_state(&DeviceState::default());
        assert_eq!((none.memory_total_bytes, none.active_percent, none.throttle, none.outside), (0, -1, -1, -1));
        let all = DeviceState { throttle: Some(Throttle::ALL.to_vec()), power_w: Some(310), ..DeviceState::default() };
        let all = c_device_state(&all);
        assert_eq!((all.throttle, all.power_w, all.size), (31, 310, 72));
        let header = include_str!("../../../../../include/xsched/scheduler.h");
        for (at, name) in ["POWER_CAP", "SW_THERMAL", "HW_THERMAL", "POWER_BRAKE", "HW_SLOWDOWN"].iter().enumerate() {
            assert!(header.contains(&format!("#define XSCHED_THROTTLE_{name} {} ", 1 << at)), "{name}");
        }
    }
}
