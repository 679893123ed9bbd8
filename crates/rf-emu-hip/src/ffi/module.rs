//! Modules, functions and launches.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::{fs, ptr, slice};

use rf_emu::Grid;

use super::handles::{FunctionHandle, ModuleHandle, StreamHandle};
use super::{call, current_device, image, load_text, store, store_optional};
use crate::Status;
use crate::runtime::Use::{Query, Release, Work};
use crate::runtime::{KernelLaunch, Runtime, StreamId};

unsafe fn load(function: &'static str, module: *mut ModuleHandle, file: *const c_void) -> c_int {
    call(function, Work, |runtime| {
        // SAFETY: the caller's image.
        let file = unsafe { image::bytes(file) }?;
        let handle = runtime.load_module(current_device(), file)?;
        // SAFETY: the caller's place.
        unsafe { store(module, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleLoadData(module: *mut ModuleHandle, file: *const c_void) -> c_int {
    // SAFETY: forwarded.
    unsafe { load("hipModuleLoadData", module, file) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleLoadDataEx(
    module: *mut ModuleHandle,
    file: *const c_void,
    _num_options: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    // SAFETY: forwarded.
    unsafe { load("hipModuleLoadDataEx", module, file) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleLoad(module: *mut ModuleHandle, path: *const c_char) -> c_int {
    call("hipModuleLoad", Work, |runtime| {
        // SAFETY: the caller's text.
        let path = unsafe { load_text(path) }?;
        let file = fs::read(path).map_err(|_| Status::FILE_NOT_FOUND)?;
        let handle = runtime.load_module(current_device(), &file)?;
        // SAFETY: the caller's place.
        unsafe { store(module, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleUnload(module: ModuleHandle) -> c_int {
    call("hipModuleUnload", Release, |runtime| runtime.unload_module(module))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleGetFunction(
    function: *mut FunctionHandle,
    module: ModuleHandle,
    name: *const c_char,
) -> c_int {
    call("hipModuleGetFunction", Work, |runtime| {
        // SAFETY: the caller's text.
        let name = unsafe { load_text(name) }?;
        let handle = runtime.find_function(module, &name)?;
        // SAFETY: the caller's place.
        unsafe { store(function, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleGetGlobal(
    address: *mut u64,
    bytes: *mut usize,
    module: ModuleHandle,
    name: *const c_char,
) -> c_int {
    call("hipModuleGetGlobal", Work, |runtime| {
        // SAFETY: the caller's text.
        let name = unsafe { load_text(name) }?;
        let (start, size) = runtime.find_variable(module, &name)?;
        // SAFETY: the caller's place.
        unsafe { store_optional(address, start) };
        // SAFETY: the caller's place.
        unsafe { store_optional(bytes, size as usize) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    function: FunctionHandle,
) -> c_int {
    call("hipFuncGetAttribute", Query, |runtime| {
        let number = runtime.function_attribute(function, attribute)?;
        // SAFETY: the caller's place.
        unsafe { store(value, number) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
    count: *mut c_int,
    function: FunctionHandle,
    threads: c_int,
    lds_bytes: usize,
) -> c_int {
    call("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", Query, |runtime| {
        let threads = u32::try_from(threads).map_err(|_| Status::INVALID_VALUE)?;
        let most = runtime.occupancy(function, threads, lds_bytes as u64)?;
        // SAFETY: the caller's place.
        unsafe { store(count, most) }
    })
}

/// The arguments as `hipModuleLaunchKernel` passes them.
struct Arguments {
    /// A pointer per argument, or null.
    each: *mut *mut c_void,
    /// A list of markers and values that names a buffer, or null.
    extra: *mut *mut c_void,
}

impl Arguments {
    /// The explicit arguments in one buffer.
    ///
    /// # Safety
    ///
    /// The pointers are null or valid for the arguments of the function.
    unsafe fn load(&self, runtime: &Runtime, function: FunctionHandle) -> Result<Vec<u8>, Status> {
        let (places, bytes) = runtime.argument_layout(function)?;
        let mut buffer = vec![0u8; bytes];
        if !self.each.is_null() {
            for (index, (offset, bytes)) in places.into_iter().enumerate() {
                // SAFETY: the array has a pointer per argument.
                let argument = unsafe { self.each.add(index) };
                // SAFETY: as above.
                let argument = unsafe { argument.read() };
                if argument.is_null() {
                    return Err(Status::INVALID_VALUE);
                }
                let place = &mut buffer[offset..offset + bytes];
                // SAFETY: the pointer is valid for the size of the argument.
                place.copy_from_slice(unsafe { slice::from_raw_parts(argument.cast(), bytes) });
            }
            return Ok(buffer);
        }
        if bytes == 0 {
            return Ok(buffer);
        }
        // SAFETY: forwarded.
        let passed = unsafe { self.passed_buffer() }?;
        buffer.copy_from_slice(passed.get(..bytes).ok_or(Status::INVALID_VALUE)?);
        Ok(buffer)
    }

    /// The buffer that the list of markers names.
    ///
    /// # Safety
    ///
    /// The list is null or ends with its end marker.
    unsafe fn passed_buffer(&self) -> Result<&[u8], Status> {
        const BUFFER: usize = 1;
        const SIZE: usize = 2;
        const END: usize = 3;

        let (mut start, mut size) = (ptr::null::<u8>(), 0);
        let mut at = self.extra;
        while !at.is_null() {
            // SAFETY: before the end marker.
            let marker = unsafe { at.read() }.addr();
            if !(marker == BUFFER || marker == SIZE) {
                if marker != END {
                    return Err(Status::INVALID_VALUE);
                }
                break;
            }
            // SAFETY: a marker has a value.
            let value = unsafe { at.add(1) };
            // SAFETY: as above.
            let value = unsafe { value.read() };
            if marker == BUFFER {
                start = value.cast();
            } else if !value.is_null() {
                // SAFETY: the value points to the size.
                size = unsafe { value.cast::<usize>().read() };
            }
            // SAFETY: the next marker.
            at = unsafe { at.add(2) };
        }
        if start.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the buffer of the caller has this size.
        Ok(unsafe { slice::from_raw_parts(start, size) })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleLaunchKernel(
    function: FunctionHandle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    lds_bytes: c_uint,
    stream: StreamHandle,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    call("hipModuleLaunchKernel", Work, |runtime| {
        let grid = Grid {
            workgroups: [grid_x, grid_y, grid_z],
            workgroup_size: [block_x, block_y, block_z],
            dynamic_lds_bytes: lds_bytes,
        };
        // SAFETY: the caller's arguments.
        let arguments = unsafe { Arguments { each, extra }.load(runtime, function) }?;
        let launch = KernelLaunch { function, grid, arguments };
        runtime.check_launch(&launch)?;
        runtime.queue_launch(StreamId::from_handle(stream), launch)
    })
}
