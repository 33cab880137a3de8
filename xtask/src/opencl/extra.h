/*
 * OpenCL functions that drivers hand out through clGetExtensionFunctionAddressForPlatform but that the Khronos headers of
 * the version we generate from do not declare. Read by `cargo xtask generate` after the Khronos headers.
 * Signatures follow the extension texts of the vendors. Declared here and in a later Khronos header: the header wins.
 */

/* VA-API types that cl_va_api_media_sharing_intel.h needs; only ever passed through by address or value. */
typedef void *VADisplay;

/* ocl-icd's own query */
typedef cl_uint cl_icdl_info;
extern CL_API_ENTRY cl_int CL_API_CALL clGetICDLoaderInfoOCLICD(
    cl_icdl_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret);

/* PoCL: cl_pocl_content_size */
extern CL_API_ENTRY cl_int CL_API_CALL clSetContentSizeBufferPoCL(cl_mem buffer, cl_mem content_size_buffer);

/* NVIDIA: cl_nv_create_buffer, cl_nv_device_attribute_query */
typedef cl_bitfield cl_mem_flags_NV;
extern CL_API_ENTRY cl_mem CL_API_CALL clCreateBufferNV(
    cl_context context, cl_mem_flags flags, cl_mem_flags_NV flags_NV, size_t size, void *host_ptr, cl_int *errcode_ret);
#define CL_DEVICE_PCI_BUS_ID_NV 0x4008
#define CL_DEVICE_PCI_SLOT_ID_NV 0x4009
#define CL_DEVICE_PCI_DOMAIN_ID_NV 0x400A

/* AMD: cl_amd_bus_addressable_memory, cl_amd_copy_buffer_p2p, thread traces, platform unloading */
typedef struct _cl_bus_address_amd {
    cl_ulong surface_bus_address;
    cl_ulong marker_bus_address;
} cl_bus_address_amd;
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueWaitSignalAMD(
    cl_command_queue command_queue, cl_mem mem_object, cl_uint value,
    cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteSignalAMD(
    cl_command_queue command_queue, cl_mem mem_object, cl_uint value, cl_ulong offset,
    cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueMakeBuffersResidentAMD(
    cl_command_queue command_queue, cl_uint num_mem_objs, cl_mem *mem_objects, cl_bool blocking_make_resident,
    cl_bus_address_amd *bus_addresses, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBufferP2PAMD(
    cl_command_queue command_queue, cl_mem src_buffer, cl_mem dst_buffer, size_t src_offset, size_t dst_offset,
    size_t cb, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
typedef struct _cl_threadtrace_amd *cl_threadtrace_amd;
typedef cl_uint cl_thread_trace_param;
typedef cl_uint cl_threadtrace_info;
typedef cl_uint cl_threadtrace_command_name_amd;
extern CL_API_ENTRY cl_threadtrace_amd CL_API_CALL clCreateThreadTraceAMD(cl_device_id device_id, cl_int *errcode_ret);
extern CL_API_ENTRY cl_int CL_API_CALL clReleaseThreadTraceAMD(cl_threadtrace_amd threadTrace);
extern CL_API_ENTRY cl_int CL_API_CALL clRetainThreadTraceAMD(cl_threadtrace_amd threadTrace);
extern CL_API_ENTRY cl_int CL_API_CALL clGetThreadTraceInfoAMD(
    cl_threadtrace_amd threadTrace, cl_threadtrace_info param_name, size_t param_value_size, void *param_value,
    size_t *param_value_size_ret);
extern CL_API_ENTRY cl_int CL_API_CALL clSetThreadTraceParamAMD(
    cl_threadtrace_amd threadTrace, cl_thread_trace_param config_param, cl_uint param_value);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueThreadTraceCommandAMD(
    cl_command_queue command_queue, cl_threadtrace_amd threadTrace, cl_threadtrace_command_name_amd command_name,
    cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueBindThreadTraceBufferAMD(
    cl_command_queue command_queue, cl_threadtrace_amd threadTrace, cl_mem *mem_objects, cl_uint mem_objects_num,
    cl_uint buffer_size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clUnloadPlatformAMD(cl_platform_id id);

/* Intel: concurrent work-groups, host pipes, global variables, device pointers */
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDCountKernelINTEL(
    cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim, const size_t *global_work_offset,
    const size_t *workgroup_count, const size_t *local_work_size,
    cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clGetKernelMaxConcurrentWorkGroupCountINTEL(
    cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim, const size_t *global_work_offset,
    const size_t *local_work_size, size_t *max_work_group_count);
extern CL_API_ENTRY cl_int CL_API_CALL clGetKernelSuggestedLocalWorkSizeINTEL(
    cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim, const size_t *global_work_offset,
    const size_t *global_work_size, size_t *suggested_local_work_size);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadHostPipeINTEL(
    cl_command_queue command_queue, cl_program program, const char *pipe_symbol, cl_bool blocking_read, void *ptr,
    size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteHostPipeINTEL(
    cl_command_queue command_queue, cl_program program, const char *pipe_symbol, cl_bool blocking_write,
    const void *ptr, size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadGlobalVariableINTEL(
    cl_command_queue command_queue, cl_program program, const char *name, cl_bool blocking_read, size_t size,
    size_t offset, void *ptr, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteGlobalVariableINTEL(
    cl_command_queue command_queue, cl_program program, const char *name, cl_bool blocking_write, size_t size,
    size_t offset, const void *ptr, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event);
extern CL_API_ENTRY cl_int CL_API_CALL clGetDeviceGlobalVariablePointerINTEL(
    cl_device_id device, cl_program program, const char *global_variable_name, size_t *global_variable_size_ret,
    void **global_variable_pointer_ret);
extern CL_API_ENTRY cl_int CL_API_CALL clGetDeviceFunctionPointerINTEL(
    cl_device_id device, cl_program program, const char *function_name, cl_ulong *function_pointer_ret);

/* Khronos and others, newer than the headers: cl_ext_buffer_device_address, cl_khr_external_semaphore_sync_fd, cl_img_cancel_command */
typedef cl_ulong cl_mem_device_address_ext;
typedef cl_properties cl_semaphore_reimport_properties_khr;
extern CL_API_ENTRY cl_int CL_API_CALL clSetKernelArgDevicePointerEXT(
    cl_kernel kernel, cl_uint arg_index, cl_mem_device_address_ext arg_value);
extern CL_API_ENTRY cl_int CL_API_CALL clReImportSemaphoreSyncFdKHR(
    cl_semaphore_khr sema_object, cl_semaphore_reimport_properties_khr *reimport_props, int fd);
extern CL_API_ENTRY cl_int CL_API_CALL clCancelCommandsIMG(const cl_event *event_list, size_t num_events_in_list);
