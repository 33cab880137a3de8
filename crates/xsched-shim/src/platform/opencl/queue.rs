//! Description of a command queue, read once when the queue is first seen.

use std::ffi::CStr;

use xsched_core::QueueSpec;

use super::api::Api;
use super::sig;
use super::types::*;
use crate::enabled::OPENCL;

/// Describes a queue to the core. `None` if the driver knows no such queue.
pub(super) fn describe(handle: cl_command_queue, api: &'static Api) -> Option<QueueSpec> {
    let Some(queue_info) = api.functions.queue_info else {
        // A platform without queries about queues: all of them share one device key and have host gates only.
        let device = "opencl:unknown".into();
        return Some(QueueSpec { handle: handle.cast(), platform: OPENCL, device, priority_steps: 0, in_order: true });
    };
    let device: cl_device_id = info(|size, at, got| {
        // SAFETY: size and pointers are those of a local variable.
        unsafe { queue_info(handle, CL_QUEUE_DEVICE, size, at, got) }
    })?;
    let properties: cl_command_queue_properties = info(|size, at, got| {
        // SAFETY: as above.
        unsafe { queue_info(handle, CL_QUEUE_PROPERTIES, size, at, got) }
    })?;
    Some(QueueSpec {
        handle: handle.cast(),
        platform: OPENCL,
        device: device_key(device, api.for_object(device))?,
        priority_steps: priority_steps(handle, queue_info),
        // Without reports of completion, only a wait for the whole queue, or a while without commands, shows that
        // commands are complete. In both cases all of them are, in whatever order they ran.
        in_order: !api.reports_completion() || properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0,
    })
}

/// Priority steps of a queue that was created with a priority hint (cl_khr_priority_hints).
fn priority_steps(handle: cl_command_queue, queue_info: sig::clGetCommandQueueInfo) -> i32 {
    // The list of properties that it was created with, as pairs, ended by 0 (OpenCL 3.0; older drivers return an
    // error).
    let mut list = [0 as cl_properties; 16];
    let mut got = 0;
    // SAFETY: size and pointers are those of local variables.
    let rc = unsafe {
        queue_info(handle, CL_QUEUE_PROPERTIES_ARRAY, size_of_val(&list), list.as_mut_ptr().cast(), &mut got)
    };
    if rc != CL_SUCCESS {
        return 0;
    }
    let pairs = list[..(got / size_of::<cl_properties>()).min(list.len())].chunks_exact(2);
    match pairs.take_while(|p| p[0] != 0).find(|p| p[0] == cl_properties::from(CL_QUEUE_PRIORITY_KHR)) {
        Some([_, CL_QUEUE_PRIORITY_HIGH_KHR]) => 1,
        Some([_, CL_QUEUE_PRIORITY_LOW_KHR]) => -1,
        _ => 0,
    }
}

/// Key of a device: `cpu:host`, `pci:<domain>:<bus>:<device>.<function>`, or `opencl:<name>` if the device has no known
/// address. `None` if the driver does not even return the type of the device: under a wrong key it would count as
/// another device than its rivals'.
pub(super) fn device_key(device: cl_device_id, api: &Api) -> Option<String> {
    let Some(device_info) = api.functions.device_info else { return Some("opencl:unknown".into()) };
    let ask = |what: cl_device_info, size: usize, at: *mut c_void, got: *mut usize| {
        // SAFETY: size and pointers are those of a local variable.
        unsafe { device_info(device, what, size, at, got) }
    };
    let kind: cl_device_type = info(|s, a, g| ask(CL_DEVICE_TYPE, s, a, g))?;
    if kind & CL_DEVICE_TYPE_CPU != 0 {
        return Some("cpu:host".into());
    }
    // Extension cl_khr_pci_bus_info: domain, bus, device, function.
    if let Some([domain, bus, slot, function]) =
        info::<[cl_uint; 4]>(|s, a, g| ask(CL_DEVICE_PCI_BUS_INFO_KHR, s, a, g))
    {
        return Some(pci(domain, bus, slot, function));
    }
    // NVIDIA's own query: the slot holds device and function.
    if let (Some(bus), Some(slot)) = (
        info::<cl_uint>(|s, a, g| ask(CL_DEVICE_PCI_BUS_ID_NV, s, a, g)),
        info::<cl_uint>(|s, a, g| ask(CL_DEVICE_PCI_SLOT_ID_NV, s, a, g)),
    ) {
        let domain = info::<cl_uint>(|s, a, g| ask(CL_DEVICE_PCI_DOMAIN_ID_NV, s, a, g)).unwrap_or(0);
        return Some(pci(domain, bus, slot >> 3, slot & 7));
    }
    // AMD's own query (cl_amd_device_attribute_query): type, 17 unused bytes, bus, device, function.
    if let Some(raw) = info::<[u8; 24]>(|s, a, g| ask(CL_DEVICE_TOPOLOGY_AMD, s, a, g)) {
        return Some(pci(0, raw[21].into(), raw[22].into(), raw[23].into()));
    }
    let mut name = [0u8; 256];
    ask(CL_DEVICE_NAME, name.len() - 1, name.as_mut_ptr().cast(), std::ptr::null_mut());
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
    Some(format!("opencl:{}", name.trim()))
}

fn pci(domain: cl_uint, bus: cl_uint, device: cl_uint, function: cl_uint) -> String {
    format!("pci:{domain:04x}:{bus:02x}:{device:02x}.{function}")
}

/// One property of fixed size, if the driver knows it in that size.
pub(super) fn info<T: Copy>(ask: impl FnOnce(usize, *mut c_void, *mut usize) -> cl_int) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut got = 0;
    let rc = ask(size_of::<T>(), value.as_mut_ptr().cast(), &mut got);
    // SAFETY: zeroed, and every T asked for here is plain data; the driver wrote all of it.
    (rc == CL_SUCCESS && got == size_of::<T>()).then(|| unsafe { value.assume_init() })
}
