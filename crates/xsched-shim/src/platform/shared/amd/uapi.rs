//! Requests and layouts of `linux/kfd_ioctl.h`, as far as they are used here. A test compiles that header and compares.
//!
//! The kernel goes by the number of a request alone. It copies as many bytes as the caller's size says, and fills its
//! own structure up with zeros. So a request is recognised by its number, and its size must only not be too small.

use std::ffi::c_ulong;

/// Number of AMDKFD_IOC_GET_VERSION.
pub const GET_VERSION: u8 = 0x01;
/// Number of AMDKFD_IOC_CREATE_QUEUE.
pub const CREATE_QUEUE: u8 = 0x02;
/// Number of AMDKFD_IOC_DESTROY_QUEUE.
pub const DESTROY_QUEUE: u8 = 0x03;
/// Number of AMDKFD_IOC_UPDATE_QUEUE.
pub const UPDATE_QUEUE: u8 = 0x07;

/// AMDKFD_IOC_GET_VERSION whole: `_IOR('K', 0x01, struct kfd_ioctl_get_version_args)`.
pub const GET_VERSION_REQUEST: c_ulong = 0x8008_4b01;
/// AMDKFD_IOC_UPDATE_QUEUE whole, as we issue it: `_IOW('K', 0x07, struct kfd_ioctl_update_queue_args)`.
pub const UPDATE_QUEUE_REQUEST: c_ulong = 0x4018_4b07;

/// KFD_IOC_QUEUE_TYPE_COMPUTE.
pub const TYPE_COMPUTE: u32 = 0;
/// KFD_IOC_QUEUE_TYPE_COMPUTE_AQL.
pub const TYPE_COMPUTE_AQL: u32 = 2;

/// Bits of a percentage that hold the queue's share of the device; 0 = suspended. On newer kernels, the bits above
/// select a part of the device.
pub const PERCENT: u32 = 0xff;

/// struct kfd_ioctl_get_version_args.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GetVersion {
    /// Major version of the interface, set by the kernel.
    pub major_version: u32,
    /// Minor version of the interface, set by the kernel.
    pub minor_version: u32,
}

/// struct kfd_ioctl_create_queue_args, as it was until ABI 1.16; later ones are longer by eight bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateQueue {
    /// Address of the ring of packets.
    pub ring_base_address: u64,
    /// Address of the write index.
    pub write_pointer_address: u64,
    /// Address of the read index.
    pub read_pointer_address: u64,
    /// Offset of the doorbell, set by the kernel.
    pub doorbell_offset: u64,
    /// Size of the ring, in bytes.
    pub ring_size: u32,
    /// The kernel's number of the device.
    pub gpu_id: u32,
    /// Type of the queue: [`TYPE_COMPUTE`], [`TYPE_COMPUTE_AQL`], or a copy engine's.
    pub queue_type: u32,
    /// Share of the device, 0 to 100; see [`PERCENT`].
    pub queue_percentage: u32,
    /// Priority, 0 (lowest) to 15.
    pub queue_priority: u32,
    /// Number of the queue, set by the kernel.
    pub queue_id: u32,
    /// Address of the end-of-pipe buffer.
    pub eop_buffer_address: u64,
    /// Size of that buffer, in bytes.
    pub eop_buffer_size: u64,
    /// Address of the memory for the state of interrupted work.
    pub ctx_save_restore_address: u64,
    /// Size of that memory, in bytes.
    pub ctx_save_restore_size: u32,
    /// Size of the control stack in that memory, in bytes.
    pub ctl_stack_size: u32,
}

/// struct kfd_ioctl_destroy_queue_args.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DestroyQueue {
    /// Number of the queue.
    pub queue_id: u32,
    /// Padding without a meaning.
    pub pad: u32,
}

/// struct kfd_ioctl_update_queue_args.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateQueue {
    /// Address of the ring of packets, as at creation: newer kernels refuse another.
    pub ring_base_address: u64,
    /// Number of the queue.
    pub queue_id: u32,
    /// Size of the ring in bytes, as at creation.
    pub ring_size: u32,
    /// Share of the device, 0 to 100; see [`PERCENT`].
    pub queue_percentage: u32,
    /// Priority, 0 (lowest) to 15.
    pub queue_priority: u32,
}

const _: () = assert!(
    size_of::<CreateQueue>() == 88 && size_of::<UpdateQueue>() == 24 && size_of::<DestroyQueue>() == 8,
    "as the kernel has them"
);
