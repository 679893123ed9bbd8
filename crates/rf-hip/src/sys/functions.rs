//! The foreign functions: one row per function, with its symbol on AMD and on NVIDIA.
//!
//! HIP's API mirrors CUDA's, so most rows have one signature for both platforms. Two conventions
//! make this possible:
//!
//! - A device address is `u64` in every row. HIP declares `void *` and CUDA a 64-bit integer; every
//!   64-bit C ABI passes both the same way, and [`super::table`] does not compile for other
//!   targets.
//! - Enumerations are `c_int` or `c_uint`: all values of both APIs fit C's `int`.
//!
//! An empty symbol (`[]`) does not exist on that platform. The rows are the argument of a macro
//! whose name is a parameter, so that `abi-check` compares the same text with the published
//! bindings.

/// Calls `$then!` with the name of the table and all rows.
macro_rules! functions {
    ($then:ident) => {
        $then! {
            Functions;

            // ---- start, versions, errors
            init(flags: c_uint) -> Status [hipInit] [cuInit];
            runtime_version(version: *mut c_int) -> Status [hipRuntimeGetVersion] [];
            driver_version(version: *mut c_int) -> Status [hipDriverGetVersion] [cuDriverGetVersion];
            hip_error_name(status: Status) -> *const c_char [hipGetErrorName] [];
            hip_error_text(status: Status) -> *const c_char [hipGetErrorString] [];
            cuda_error_name(status: Status, text: *mut *const c_char) -> Status [] [cuGetErrorName];
            cuda_error_text(status: Status, text: *mut *const c_char) -> Status [] [cuGetErrorString];

            // ---- devices
            device_count(count: *mut c_int) -> Status [hipGetDeviceCount] [cuDeviceGetCount];
            device(device: *mut c_int, ordinal: c_int) -> Status [hipDeviceGet] [cuDeviceGet];
            device_name(name: *mut c_char, len: c_int, device: c_int) -> Status
                [hipDeviceGetName] [cuDeviceGetName];
            device_total_memory(bytes: *mut usize, device: c_int) -> Status
                [hipDeviceTotalMem] [cuDeviceTotalMem_v2];
            device_attribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status
                [hipDeviceGetAttribute] [cuDeviceGetAttribute];
            device_pci_bus_id(text: *mut c_char, len: c_int, device: c_int) -> Status
                [hipDeviceGetPCIBusId] [cuDeviceGetPCIBusId];
            hip_properties_r0600(properties: *mut c_void, device: c_int) -> Status
                [hipGetDevicePropertiesR0600] [];
            hip_properties_r0000(properties: *mut c_void, device: c_int) -> Status
                [hipGetDeviceProperties] [];
            device_can_access_peer(can: *mut c_int, device: c_int, peer: c_int) -> Status
                [hipDeviceCanAccessPeer] [cuDeviceCanAccessPeer];

            // ---- contexts
            hip_set_device(device: c_int) -> Status [hipSetDevice] [];
            hip_set_device_flags(flags: c_uint) -> Status [hipSetDeviceFlags] [];
            cuda_primary_context_set_flags(device: c_int, flags: c_uint) -> Status
                [] [cuDevicePrimaryCtxSetFlags_v2];
            cuda_primary_context_retain(context: *mut ContextHandle, device: c_int) -> Status
                [] [cuDevicePrimaryCtxRetain];
            cuda_primary_context_release(device: c_int) -> Status
                [] [cuDevicePrimaryCtxRelease_v2];
            cuda_context_set_current(context: ContextHandle) -> Status [] [cuCtxSetCurrent];
            context_synchronize() -> Status [hipDeviceSynchronize] [cuCtxSynchronize];
            memory_info(free: *mut usize, total: *mut usize) -> Status
                [hipMemGetInfo] [cuMemGetInfo_v2];
            hip_enable_peer_access(peer: c_int, flags: c_uint) -> Status
                [hipDeviceEnablePeerAccess] [];
            cuda_enable_peer_access(peer: ContextHandle, flags: c_uint) -> Status
                [] [cuCtxEnablePeerAccess];

            // ---- memory
            allocate(address: *mut u64, bytes: usize) -> Status [hipMalloc] [cuMemAlloc_v2];
            free(address: u64) -> Status [hipFree] [cuMemFree_v2];
            allocate_host(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status
                [hipHostMalloc] [cuMemHostAlloc];
            free_host(pointer: *mut c_void) -> Status [hipHostFree] [cuMemFreeHost];
            host_device_address(address: *mut u64, pointer: *mut c_void, flags: c_uint) -> Status
                [hipHostGetDevicePointer] [cuMemHostGetDevicePointer_v2];
            copy_to_device(to: u64, from: *const c_void, bytes: usize, stream: StreamHandle) -> Status
                [hipMemcpyHtoDAsync] [cuMemcpyHtoDAsync_v2];
            copy_to_host(to: *mut c_void, from: u64, bytes: usize, stream: StreamHandle) -> Status
                [hipMemcpyDtoHAsync] [cuMemcpyDtoHAsync_v2];
            copy_on_device(to: u64, from: u64, bytes: usize, stream: StreamHandle) -> Status
                [hipMemcpyDtoDAsync] [cuMemcpyDtoDAsync_v2];
            hip_copy_peer(
                to: u64, to_device: c_int, from: u64, from_device: c_int,
                bytes: usize, stream: StreamHandle
            ) -> Status [hipMemcpyPeerAsync] [];
            cuda_copy_peer(
                to: u64, to_context: ContextHandle, from: u64, from_context: ContextHandle,
                bytes: usize, stream: StreamHandle
            ) -> Status [] [cuMemcpyPeerAsync];
            fill_bytes(address: u64, value: c_uchar, count: usize, stream: StreamHandle) -> Status
                [hipMemsetD8Async] [cuMemsetD8Async];
            fill_words(address: u64, value: c_uint, count: usize, stream: StreamHandle) -> Status
                [hipMemsetD32Async] [cuMemsetD32Async];

            // ---- stream-ordered memory
            allocate_on_stream(address: *mut u64, bytes: usize, stream: StreamHandle) -> Status
                [hipMallocAsync] [cuMemAllocAsync];
            free_on_stream(address: u64, stream: StreamHandle) -> Status
                [hipFreeAsync] [cuMemFreeAsync];
            default_pool(pool: *mut PoolHandle, device: c_int) -> Status
                [hipDeviceGetDefaultMemPool] [cuDeviceGetDefaultMemPool];
            pool_set_attribute(pool: PoolHandle, attribute: c_int, value: *mut c_void) -> Status
                [hipMemPoolSetAttribute] [cuMemPoolSetAttribute];
            pool_trim(pool: PoolHandle, keep_bytes: usize) -> Status
                [hipMemPoolTrimTo] [cuMemPoolTrimTo];

            // ---- streams
            stream_create(stream: *mut StreamHandle, flags: c_uint, priority: c_int) -> Status
                [hipStreamCreateWithPriority] [cuStreamCreateWithPriority];
            stream_destroy(stream: StreamHandle) -> Status [hipStreamDestroy] [cuStreamDestroy_v2];
            stream_synchronize(stream: StreamHandle) -> Status
                [hipStreamSynchronize] [cuStreamSynchronize];
            stream_query(stream: StreamHandle) -> Status [hipStreamQuery] [cuStreamQuery];
            stream_wait_event(stream: StreamHandle, event: EventHandle, flags: c_uint) -> Status
                [hipStreamWaitEvent] [cuStreamWaitEvent];

            // ---- events
            event_create(event: *mut EventHandle, flags: c_uint) -> Status
                [hipEventCreateWithFlags] [cuEventCreate];
            event_destroy(event: EventHandle) -> Status [hipEventDestroy] [cuEventDestroy_v2];
            event_record(event: EventHandle, stream: StreamHandle) -> Status
                [hipEventRecord] [cuEventRecord];
            event_synchronize(event: EventHandle) -> Status
                [hipEventSynchronize] [cuEventSynchronize];
            event_query(event: EventHandle) -> Status [hipEventQuery] [cuEventQuery];
            event_elapsed_ms(ms: *mut f32, start: EventHandle, end: EventHandle) -> Status
                [hipEventElapsedTime] [cuEventElapsedTime];

            // ---- modules and launches
            hip_module_load(module: *mut ModuleHandle, image: *const c_void) -> Status
                [hipModuleLoadData] [];
            cuda_module_load(
                module: *mut ModuleHandle, image: *const c_void,
                num_options: c_uint, options: *mut c_int, values: *mut *mut c_void
            ) -> Status [] [cuModuleLoadDataEx];
            module_unload(module: ModuleHandle) -> Status [hipModuleUnload] [cuModuleUnload];
            module_function(function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char)
                -> Status [hipModuleGetFunction] [cuModuleGetFunction];
            function_attribute(value: *mut c_int, attribute: c_int, function: FunctionHandle) -> Status
                [hipFuncGetAttribute] [cuFuncGetAttribute];
            cuda_function_set_attribute(function: FunctionHandle, attribute: c_int, value: c_int)
                -> Status [] [cuFuncSetAttribute];
            function_max_workgroups(
                count: *mut c_int, function: FunctionHandle, block_size: c_int, lds_bytes: usize
            ) -> Status
                [hipModuleOccupancyMaxActiveBlocksPerMultiprocessor]
                [cuOccupancyMaxActiveBlocksPerMultiprocessor];
            launch(
                function: FunctionHandle,
                grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
                block_x: c_uint, block_y: c_uint, block_z: c_uint,
                lds_bytes: c_uint, stream: StreamHandle,
                params: *mut *mut c_void, extra: *mut *mut c_void
            ) -> Status [hipModuleLaunchKernel] [cuLaunchKernel];
            cuda_launch_with_attributes(
                config: *const AttributedLaunch, function: FunctionHandle,
                params: *mut *mut c_void, extra: *mut *mut c_void
            ) -> Status [] [cuLaunchKernelEx];

            // ---- graphs
            capture_begin(stream: StreamHandle, mode: c_int) -> Status
                [hipStreamBeginCapture] [cuStreamBeginCapture_v2];
            capture_end(stream: StreamHandle, graph: *mut GraphHandle) -> Status
                [hipStreamEndCapture] [cuStreamEndCapture];
            capture_status(stream: StreamHandle, status: *mut c_int) -> Status
                [hipStreamIsCapturing] [cuStreamIsCapturing];
            graph_destroy(graph: GraphHandle) -> Status [hipGraphDestroy] [cuGraphDestroy];
            graph_nodes(graph: GraphHandle, nodes: *mut NodeHandle, count: *mut usize) -> Status
                [hipGraphGetNodes] [cuGraphGetNodes];
            graph_instantiate(exec: *mut GraphExecHandle, graph: GraphHandle, flags: c_ulonglong)
                -> Status [hipGraphInstantiateWithFlags] [cuGraphInstantiateWithFlags];
            hip_graph_instantiate(
                exec: *mut GraphExecHandle, graph: GraphHandle,
                failed: *mut NodeHandle, log: *mut c_char, log_len: usize
            ) -> Status [hipGraphInstantiate] [];
            graph_exec_destroy(exec: GraphExecHandle) -> Status
                [hipGraphExecDestroy] [cuGraphExecDestroy];
            graph_launch(exec: GraphExecHandle, stream: StreamHandle) -> Status
                [hipGraphLaunch] [cuGraphLaunch];
            hip_graph_update(
                exec: GraphExecHandle, graph: GraphHandle,
                failed: *mut NodeHandle, result: *mut c_int
            ) -> Status [hipGraphExecUpdate] [];
            cuda_graph_update(exec: GraphExecHandle, graph: GraphHandle, info: *mut GraphUpdateInfo)
                -> Status [] [cuGraphExecUpdate_v2];
        }
    };
}

/// Lists the functions of libhiprtc, the run-time compiler of HIP.
macro_rules! compiler_functions {
    ($then:ident) => {
        $then! {
            CompilerFunctions;

            version(major: *mut c_int, minor: *mut c_int) -> Status [hiprtcVersion] [];
            error_text(status: Status) -> *const c_char [hiprtcGetErrorString] [];
            create(
                program: *mut ProgramHandle, text: *const c_char, name: *const c_char,
                num_headers: c_int, headers: *const *const c_char,
                header_names: *const *const c_char
            ) -> Status [hiprtcCreateProgram] [];
            destroy(program: *mut ProgramHandle) -> Status [hiprtcDestroyProgram] [];
            compile(program: ProgramHandle, num_options: c_int, options: *const *const c_char)
                -> Status [hiprtcCompileProgram] [];
            log_size(program: ProgramHandle, bytes: *mut usize) -> Status
                [hiprtcGetProgramLogSize] [];
            log(program: ProgramHandle, log: *mut c_char) -> Status [hiprtcGetProgramLog] [];
            code_size(program: ProgramHandle, bytes: *mut usize) -> Status
                [hiprtcGetCodeSize] [];
            code(program: ProgramHandle, code: *mut c_char) -> Status [hiprtcGetCode] [];
        }
    };
}
