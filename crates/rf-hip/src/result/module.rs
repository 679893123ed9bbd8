//! Modules, functions and launches.

use std::ffi::{CStr, c_int, c_void};

use super::{Api, text_of};
use crate::sys::{
    AttributedLaunch, FunctionHandle, LaunchAttribute, ModuleHandle, StreamHandle, constants,
};
use crate::{Error, LaunchConfig, Platform};

/// The buffer size for messages of the PTX compiler.
const LOG_BYTES: usize = 16 << 10;

/// Loads a code object (AMD), or a cubin or zero-terminated PTX text (NVIDIA).
///
/// # Safety
///
/// See [`super`]; the headers of the image are valid.
pub(crate) unsafe fn load(api: &Api, image: *const c_void) -> Result<ModuleHandle, Error> {
    let mut module = ModuleHandle::NULL;
    let mut log = Vec::new();
    let outcome = match api.platform {
        Platform::Amd => call!(api, hip_module_load(&raw mut module, image)),
        Platform::Nvidia => {
            log.resize(LOG_BYTES, 0u8);
            let mut options =
                [constants::JIT_ERROR_LOG_BUFFER, constants::JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
            // The driver expects the size as an integer instead of a pointer.
            let mut values =
                [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
            call!(
                api,
                cuda_module_load(
                    &raw mut module,
                    image,
                    options.len() as u32,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                )
            )
        }
    };
    match outcome {
        Ok(()) => Ok(module),
        Err(Error::Status { function, status, name, text: _ }) => {
            Err(Error::Module { function, status, name, log: text_of(&log) })
        }
        Err(error) => Err(error),
    }
}

/// # Safety
///
/// See [`super`]; neither the module nor its functions are used again.
pub(crate) unsafe fn unload(api: &Api, module: ModuleHandle) -> Result<(), Error> {
    call!(api, module_unload(module))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn function(
    api: &Api,
    module: ModuleHandle,
    name: &CStr,
) -> Result<FunctionHandle, Error> {
    let mut function = FunctionHandle::NULL;
    call!(api, module_function(&raw mut function, module, name.as_ptr()))?;
    Ok(function)
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn attribute(
    api: &Api,
    function: FunctionHandle,
    attribute: c_int,
) -> Result<c_int, Error> {
    let mut value = 0;
    call!(api, function_attribute(&raw mut value, attribute, function))?;
    Ok(value)
}

/// Allows launches to use up to this many bytes of dynamic LDS, or what was allowed before if that
/// is more.
///
/// AMD has no such limit below the hardware's. HIP's call of this name requires the address of a
/// host stub, which a function of a module does not have.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn set_max_dynamic_lds_bytes(
    api: &Api,
    function: FunctionHandle,
    bytes: c_int,
) -> Result<(), Error> {
    match api.platform {
        Platform::Amd => Ok(()),
        Platform::Nvidia => {
            let number = constants::FUNCTION_MAX_DYNAMIC_LDS_BYTES;
            // SAFETY: the caller upholds this level's contract.
            if unsafe { attribute(api, function, number) }? >= bytes {
                return Ok(());
            }
            call!(api, cuda_function_set_attribute(function, number, bytes))
        }
    }
}

/// The number of workgroups that one compute unit runs at a time.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn max_workgroups(
    api: &Api,
    function: FunctionHandle,
    block_size: c_int,
    lds_bytes: usize,
) -> Result<c_int, Error> {
    let mut count = 0;
    call!(api, function_max_workgroups(&raw mut count, function, block_size, lds_bytes))?;
    Ok(count)
}

/// The kernel starts after earlier kernels of the stream end. With `early` it may start before,
/// where the runtime supports that.
///
/// # Safety
///
/// See [`super`]; `params` has the type of the function's only parameter, and its addresses are
/// valid for the accesses of the function. With `early` the function waits for earlier kernels
/// before it accesses memory that these write, and before it writes memory that these read.
pub(crate) unsafe fn launch(
    api: &Api,
    function: FunctionHandle,
    config: &LaunchConfig,
    stream: StreamHandle,
    params: *const c_void,
    early: bool,
) -> Result<(), Error> {
    let LaunchConfig { grid, block, lds_bytes } = *config;
    let mut arguments = [params.cast_mut()];
    let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
    if early && api.early_launches {
        let mut value = [0; 16];
        value[0] = 1;
        let mut attribute = LaunchAttribute { id: constants::LAUNCH_EARLY, padding: 0, value };
        let (attributes, num_attributes) = (&raw mut attribute, 1);
        let config =
            AttributedLaunch { grid, block, lds_bytes, stream, attributes, num_attributes };
        return call!(
            api,
            cuda_launch_with_attributes(&raw const config, function, arguments, extra)
        );
    }
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    call!(api, launch(function, gx, gy, gz, bx, by, bz, lds_bytes, stream, arguments, extra))
}
