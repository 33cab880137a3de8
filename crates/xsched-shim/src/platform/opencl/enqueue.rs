//! Functions that enqueue. All but a few end in a wait list and a place for an event; the others are written out at the
//! end.

use super::path::{Call, Queues, key};
use super::types::*;
use super::{api, others, sig};
use crate::interpose::hooks;
use crate::platform::shared::pipeline;

/// Enqueues a command. `enter` calls the real function with the event pointer that it is given; `describe` describes
/// the call, and is called only if that is needed.
#[inline(always)]
pub(super) fn enqueue(
    queue: cl_command_queue,
    event: *mut cl_event,
    enter: impl Fn(*mut cl_event) -> cl_int + Copy,
    describe: impl Fn() -> Call + Copy,
) -> cl_int {
    pipeline::enqueue::<Queues>(queue, event, describe, enter)
}

/// The real function behind a hook. Returns from the hook, as a driver without the function would, if there is none.
macro_rules! real {
    ($name:ident, $queue:expr, $missing:expr) => {{
        let mut real = $name::real();
        if real.is_null() {
            real = api::stray(&$name::HOOK, $queue);
            if real.is_null() {
                return $missing;
            }
        }
        real
    }};
}

/// Hooks functions of the regular form: queue, own arguments, wait list, event. In brackets: whether the call blocks,
/// and the number of bytes that it moves, as far as the arguments say.
macro_rules! regular {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [blocking $blocking:expr, bytes $bytes:expr];)*
    ) => {
        $(
            unsafe extern "C-unwind" fn $name(
                queue: cl_command_queue,
                $($arg: $ty,)*
                count: cl_uint,
                list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int {
                let real = real!($name, queue, CL_INVALID_OPERATION);
                // SAFETY: the address of the real function of this name.
                let function = unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) };
                // SAFETY: the caller's own arguments.
                let enter = move |event| unsafe { function(queue, $($arg,)* count, list, event) };
                enqueue(queue, event, enter, || Call::new(real, key(real as usize, &[$bytes]), $blocking, (count, list)))
            }
        )*
        hooks! { OPENCL, $list: $class; $($name)* }
    };
}

regular! {
    REGULAR_LAUNCHES: Launch;
    fn clEnqueueNativeKernel(user_func: Option<unsafe extern "C" fn(*mut c_void)>, args: *mut c_void, cb_args: usize, num_mem_objects: cl_uint, mem_list: *const cl_mem, args_mem_loc: *mut *const c_void) [blocking false, bytes 0];
}

regular! {
    REGULAR_COPIES: Copy;
    fn clEnqueueCopyBuffer(src_buffer: cl_mem, dst_buffer: cl_mem, src_offset: usize, dst_offset: usize, size: usize) [blocking false, bytes size];
    fn clEnqueueCopyBufferP2PAMD(src_buffer: cl_mem, dst_buffer: cl_mem, src_offset: usize, dst_offset: usize, cb: usize) [blocking false, bytes cb];
    fn clEnqueueCopyBufferRect(src_buffer: cl_mem, dst_buffer: cl_mem, src_origin: *const usize, dst_origin: *const usize, region: *const usize, src_row_pitch: usize, src_slice_pitch: usize, dst_row_pitch: usize, dst_slice_pitch: usize) [blocking false, bytes 0];
    fn clEnqueueCopyBufferToImage(src_buffer: cl_mem, dst_image: cl_mem, src_offset: usize, dst_origin: *const usize, region: *const usize) [blocking false, bytes 0];
    fn clEnqueueCopyImage(src_image: cl_mem, dst_image: cl_mem, src_origin: *const usize, dst_origin: *const usize, region: *const usize) [blocking false, bytes 0];
    fn clEnqueueCopyImageToBuffer(src_image: cl_mem, dst_buffer: cl_mem, src_origin: *const usize, region: *const usize, dst_offset: usize) [blocking false, bytes 0];
    fn clEnqueueFillBuffer(buffer: cl_mem, pattern: *const c_void, pattern_size: usize, offset: usize, size: usize) [blocking false, bytes size];
    fn clEnqueueFillImage(image: cl_mem, fill_color: *const c_void, origin: *const usize, region: *const usize) [blocking false, bytes 0];
    fn clEnqueueGenerateMipmapIMG(src_image: cl_mem, dst_image: cl_mem, mipmap_filter_mode: cl_mipmap_filter_mode_img, array_region: *const usize, mip_region: *const usize) [blocking false, bytes 0];
    fn clEnqueueMakeBuffersResidentAMD(num_mem_objs: cl_uint, mem_objects: *mut cl_mem, blocking_make_resident: cl_bool, bus_addresses: *mut cl_bus_address_amd) [blocking blocking_make_resident != 0, bytes 0];
    fn clEnqueueMemAdviseINTEL(ptr: *const c_void, size: usize, advice: cl_mem_advice_intel) [blocking false, bytes size];
    fn clEnqueueMemFillINTEL(dst_ptr: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize) [blocking false, bytes size];
    fn clEnqueueMemcpyINTEL(blocking: cl_bool, dst_ptr: *mut c_void, src_ptr: *const c_void, size: usize) [blocking blocking != 0, bytes size];
    fn clEnqueueMemsetINTEL(dst_ptr: *mut c_void, value: cl_int, size: usize) [blocking false, bytes size];
    fn clEnqueueMigrateMemINTEL(ptr: *const c_void, size: usize, flags: cl_mem_migration_flags) [blocking false, bytes size];
    fn clEnqueueMigrateMemObjectEXT(num_mem_objects: cl_uint, mem_objects: *const cl_mem, flags: cl_mem_migration_flags_ext) [blocking false, bytes 0];
    fn clEnqueueMigrateMemObjects(num_mem_objects: cl_uint, mem_objects: *const cl_mem, flags: cl_mem_migration_flags) [blocking false, bytes 0];
    fn clEnqueueReadBuffer(buffer: cl_mem, blocking_read: cl_bool, offset: usize, size: usize, ptr: *mut c_void) [blocking blocking_read != 0, bytes size];
    fn clEnqueueReadBufferRect(buffer: cl_mem, blocking_read: cl_bool, buffer_origin: *const usize, host_origin: *const usize, region: *const usize, buffer_row_pitch: usize, buffer_slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize, ptr: *mut c_void) [blocking blocking_read != 0, bytes 0];
    fn clEnqueueReadGlobalVariableINTEL(program: cl_program, name: *const c_char, blocking_read: cl_bool, size: usize, offset: usize, ptr: *mut c_void) [blocking blocking_read != 0, bytes size];
    fn clEnqueueReadHostPipeINTEL(program: cl_program, pipe_symbol: *const c_char, blocking_read: cl_bool, ptr: *mut c_void, size: usize) [blocking blocking_read != 0, bytes size];
    fn clEnqueueReadImage(image: cl_mem, blocking_read: cl_bool, origin: *const usize, region: *const usize, row_pitch: usize, slice_pitch: usize, ptr: *mut c_void) [blocking blocking_read != 0, bytes 0];
    fn clEnqueueSVMFree(num_svm_pointers: cl_uint, svm_pointers: *mut *mut c_void, pfn_free_func: Option<unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void)>, user_data: *mut c_void) [blocking false, bytes 0];
    fn clEnqueueSVMFreeARM(num_svm_pointers: cl_uint, svm_pointers: *mut *mut c_void, pfn_free_func: Option<unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void)>, user_data: *mut c_void) [blocking false, bytes 0];
    fn clEnqueueSVMMap(blocking_map: cl_bool, flags: cl_map_flags, svm_ptr: *mut c_void, size: usize) [blocking blocking_map != 0, bytes size];
    fn clEnqueueSVMMapARM(blocking_map: cl_bool, flags: cl_map_flags, svm_ptr: *mut c_void, size: usize) [blocking blocking_map != 0, bytes size];
    fn clEnqueueSVMMemFill(svm_ptr: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize) [blocking false, bytes size];
    fn clEnqueueSVMMemFillARM(svm_ptr: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize) [blocking false, bytes size];
    fn clEnqueueSVMMemcpy(blocking_copy: cl_bool, dst_ptr: *mut c_void, src_ptr: *const c_void, size: usize) [blocking blocking_copy != 0, bytes size];
    fn clEnqueueSVMMemcpyARM(blocking_copy: cl_bool, dst_ptr: *mut c_void, src_ptr: *const c_void, size: usize) [blocking blocking_copy != 0, bytes size];
    fn clEnqueueSVMMigrateMem(num_svm_pointers: cl_uint, svm_pointers: *mut *const c_void, sizes: *const usize, flags: cl_mem_migration_flags) [blocking false, bytes 0];
    fn clEnqueueSVMUnmap(svm_ptr: *mut c_void) [blocking false, bytes 0];
    fn clEnqueueSVMUnmapARM(svm_ptr: *mut c_void) [blocking false, bytes 0];
    fn clEnqueueUnmapMemObject(memobj: cl_mem, mapped_ptr: *mut c_void) [blocking false, bytes 0];
    fn clEnqueueWriteBuffer(buffer: cl_mem, blocking_write: cl_bool, offset: usize, size: usize, ptr: *const c_void) [blocking blocking_write != 0, bytes size];
    fn clEnqueueWriteBufferRect(buffer: cl_mem, blocking_write: cl_bool, buffer_origin: *const usize, host_origin: *const usize, region: *const usize, buffer_row_pitch: usize, buffer_slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize, ptr: *const c_void) [blocking blocking_write != 0, bytes 0];
    fn clEnqueueWriteGlobalVariableINTEL(program: cl_program, name: *const c_char, blocking_write: cl_bool, size: usize, offset: usize, ptr: *const c_void) [blocking blocking_write != 0, bytes size];
    fn clEnqueueWriteHostPipeINTEL(program: cl_program, pipe_symbol: *const c_char, blocking_write: cl_bool, ptr: *const c_void, size: usize) [blocking blocking_write != 0, bytes size];
    fn clEnqueueWriteImage(image: cl_mem, blocking_write: cl_bool, origin: *const usize, region: *const usize, input_row_pitch: usize, input_slice_pitch: usize, ptr: *const c_void) [blocking blocking_write != 0, bytes 0];
}

regular! {
    REGULAR_ORDERS: Order;
    fn clEnqueueAcquireEGLObjectsKHR(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueAcquireExternalMemObjectsKHR(num_mem_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueAcquireGLObjects(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueAcquireGrallocObjectsIMG(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueAcquireVA_APIMediaSurfacesINTEL(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueBarrierWithWaitList() [blocking false, bytes 0];
    fn clEnqueueBindThreadTraceBufferAMD(trace: cl_threadtrace_amd, mem_objects: *mut cl_mem, mem_objects_num: cl_uint, buffer_size: cl_uint) [blocking false, bytes 0];
    fn clEnqueueMarkerWithWaitList() [blocking false, bytes 0];
    fn clEnqueueReleaseEGLObjectsKHR(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueReleaseExternalMemObjectsKHR(num_mem_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueReleaseGLObjects(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueReleaseGrallocObjectsIMG(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueReleaseVA_APIMediaSurfacesINTEL(num_objects: cl_uint, mem_objects: *const cl_mem) [blocking false, bytes 0];
    fn clEnqueueSignalSemaphoresKHR(num_sema_objects: cl_uint, sema_objects: *const cl_semaphore_khr, sema_payload_list: *const cl_semaphore_payload_khr) [blocking false, bytes 0];
    fn clEnqueueThreadTraceCommandAMD(trace: cl_threadtrace_amd, command_name: cl_threadtrace_command_name_amd) [blocking false, bytes 0];
    fn clEnqueueWaitSemaphoresKHR(num_sema_objects: cl_uint, sema_objects: *const cl_semaphore_khr, sema_payload_list: *const cl_semaphore_payload_khr) [blocking false, bytes 0];
    fn clEnqueueWaitSignalAMD(mem_object: cl_mem, value: cl_uint) [blocking false, bytes 0];
    fn clEnqueueWriteSignalAMD(mem_object: cl_mem, value: cl_uint, offset: cl_ulong) [blocking false, bytes 0];
}

/// Hooks functions that run a kernel over `work_dim` sizes.
macro_rules! kernels {
    ($list:ident: $class:ident; $($name:ident)*) => {
        $(
            unsafe extern "C-unwind" fn $name(
                queue: cl_command_queue,
                kernel: cl_kernel,
                work_dim: cl_uint,
                offset: *const usize,
                size: *const usize,
                local: *const usize,
                count: cl_uint,
                list: *const cl_event,
                event: *mut cl_event,
            ) -> cl_int {
                let real = real!($name, queue, CL_INVALID_OPERATION);
                // SAFETY: the address of the real function of this name.
                let function = unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) };
                let enter = move |event| {
                    // SAFETY: the caller's own arguments.
                    unsafe { function(queue, kernel, work_dim, offset, size, local, count, list, event) }
                };
                enqueue(queue, event, enter, || {
                    let extent: &[usize] = if size.is_null() || work_dim > 3 {
                        &[]
                    } else {
                        // SAFETY: `work_dim` sizes, which the driver reads too.
                        unsafe { std::slice::from_raw_parts(size, work_dim as usize) }
                    };
                    Call::new(real, key(kernel as usize, extent), false, (count, list))
                })
            }
        )*
        hooks! { OPENCL, $list: $class; $($name)* }
    };
}
kernels! { KERNELS: Launch; clEnqueueNDRangeKernel clEnqueueNDCountKernelINTEL }

unsafe extern "C-unwind" fn clEnqueueTask(
    queue: cl_command_queue,
    kernel: cl_kernel,
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    let real = real!(clEnqueueTask, queue, CL_INVALID_OPERATION);
    // SAFETY: the address of the real function of this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, sig::clEnqueueTask>(real) };
    // SAFETY: the caller's own arguments.
    let enter = move |event| unsafe { function(queue, kernel, count, list, event) };
    enqueue(queue, event, enter, || {
        let key = key(kernel as usize, &[1]);
        Call::new(real, key, false, (count, list))
    })
}

/// Hooks functions that map memory and return a pointer; the place for their error is the last argument.
macro_rules! maps {
    ($list:ident: $class:ident; $(fn $name:ident($blocking:ident, $($arg:ident: $ty:ty),*);)*) => {
        $(
            unsafe extern "C-unwind" fn $name(
                queue: cl_command_queue,
                memory: cl_mem,
                $blocking: cl_bool,
                $($arg: $ty,)*
                count: cl_uint,
                list: *const cl_event,
                event: *mut cl_event,
                error: *mut cl_int,
            ) -> *mut c_void {
                let real = real!($name, queue, {
                    if !error.is_null() {
                        // SAFETY: the caller's own place for an error.
                        unsafe { *error = CL_INVALID_OPERATION };
                    }
                    std::ptr::null_mut()
                });
                // SAFETY: the address of the real function of this name.
                let function = unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) };
                let mapped = std::cell::Cell::new(std::ptr::null_mut());
                let place = &mapped;
                let enter = move |event| {
                    let mut rc = CL_SUCCESS;
                    // SAFETY: the caller's own arguments, but for the place of the error.
                    place.set(unsafe {
                        function(queue, memory, $blocking, $($arg,)* count, list, event, &mut rc)
                    });
                    rc
                };
                let rc = enqueue(queue, event, enter, || Call::new(real, key(real as usize, &[]), $blocking != 0, (count, list)));
                if !error.is_null() {
                    // SAFETY: the caller's own place for an error.
                    unsafe { *error = rc };
                }
                mapped.get()
            }
        )*
        hooks! { OPENCL, $list: $class; $($name)* }
    };
}
maps! {
    MAPS: Copy;
    fn clEnqueueMapBuffer(blocking, flags: cl_map_flags, offset: usize, size: usize);
    fn clEnqueueMapImage(blocking, flags: cl_map_flags, origin: *const usize, region: *const usize, row: *mut usize, slice: *mut usize);
}

unsafe extern "C-unwind" fn clEnqueueMarker(queue: cl_command_queue, event: *mut cl_event) -> cl_int {
    let real = real!(clEnqueueMarker, queue, CL_INVALID_OPERATION);
    // SAFETY: the address of the real function of this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, sig::clEnqueueMarker>(real) };
    // SAFETY: the caller's own arguments.
    let enter = move |event| unsafe { function(queue, event) };
    enqueue(queue, event, enter, || ordering(real, (0, std::ptr::null())))
}

unsafe extern "C-unwind" fn clEnqueueBarrier(queue: cl_command_queue) -> cl_int {
    let real = real!(clEnqueueBarrier, queue, CL_INVALID_OPERATION);
    // SAFETY: the address of the real function of this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, sig::clEnqueueBarrier>(real) };
    // SAFETY: the caller's own argument.
    let enter = move |_| unsafe { function(queue) };
    let none = std::ptr::null_mut();
    enqueue(queue, none, enter, || ordering(real, (0, std::ptr::null())).without_event())
}

unsafe extern "C-unwind" fn clEnqueueWaitForEvents(
    queue: cl_command_queue,
    count: cl_uint,
    list: *const cl_event,
) -> cl_int {
    let real = real!(clEnqueueWaitForEvents, queue, CL_INVALID_OPERATION);
    // SAFETY: the address of the real function of this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, sig::clEnqueueWaitForEvents>(real) };
    // SAFETY: the caller's own arguments.
    let enter = move |_| unsafe { function(queue, count, list) };
    let none = std::ptr::null_mut();
    enqueue(queue, none, enter, || ordering(real, (count, list)).without_event())
}

hooks! { OPENCL, ORDERS: Order; clEnqueueMarker clEnqueueBarrier clEnqueueWaitForEvents }

unsafe extern "C-unwind" fn clEnqueueCommandBufferKHR(
    queue_count: cl_uint,
    queues: *mut cl_command_queue,
    buffer: cl_command_buffer_khr,
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    let real = real!(clEnqueueCommandBufferKHR, std::ptr::null_mut(), CL_INVALID_OPERATION);
    // SAFETY: the address of the real function of this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, sig::clEnqueueCommandBufferKHR>(real) };
    let queue = if queue_count > 0 && !queues.is_null() {
        // SAFETY: at least one queue, which the driver reads too.
        unsafe { *queues }
    } else {
        others::queue_of_command_buffer(buffer)
    };
    // SAFETY: the caller's own arguments.
    let enter = move |event| unsafe { function(queue_count, queues, buffer, count, list, event) };
    enqueue(queue, event, enter, || {
        let key = key(buffer as usize, &[]);
        Call::new(real, key, false, (count, list))
    })
}

hooks! { OPENCL, LAUNCHES: Launch; clEnqueueTask clEnqueueCommandBufferKHR }

fn ordering(real: *mut c_void, waits: (cl_uint, *const cl_event)) -> Call {
    Call::new(real, key(real as usize, &[]), false, waits)
}
