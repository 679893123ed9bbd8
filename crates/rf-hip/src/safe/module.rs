//! Modules: code on the device.

use std::ffi::CString;
use std::sync::Arc;

use super::{Kept, report_drop, wait_before_release};
use crate::result::module as raw;
use crate::sys::{FunctionHandle, ModuleHandle, constants};
use crate::{Context, Error, image};

/// A loaded code object, cubin or PTX text. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: ModuleHandle,
    /// HIP reads the image again when a function is first used.
    _image: Vec<u8>,
}

impl Module {
    /// Loads a code object (AMD), or a cubin or PTX text (NVIDIA), compiling PTX.
    ///
    /// A code object comes from [`Compiler`](crate::Compiler), or from clang with the options
    /// `-x hip --offload-arch=gfx1100 --cuda-device-only --no-gpu-bundle-output -nogpuinc
    /// -nogpulib`, which needs no ROCm. [`DeviceInfo::arch`](crate::DeviceInfo::arch) names the
    /// architecture.
    ///
    /// # Errors
    ///
    /// [`Error::Image`] if the bytes are none of these or truncated; [`Error::Module`] with the
    /// compiler's messages if the runtime rejects them, such as code for another device.
    pub fn load(context: &Context, image: &[u8]) -> Result<Self, Error> {
        image::check(context.info().platform, image)?;
        let mut image = image.to_vec();
        image.push(0); // terminates PTX text
        let api = context.enter()?;
        // SAFETY: all ranges in the headers are within the image, or a zero terminates the text.
        let handle = unsafe { raw::load(api, image.as_ptr().cast()) }?;
        let inner = Inner { context: context.clone(), handle, _image: image };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Finds a kernel by its symbol.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroByte`], or an error of the runtime call if the module has no such kernel
    /// (status 500).
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let c_name = CString::new(name).map_err(|_| Error::ZeroByte { name: name.to_owned() })?;
        let api = self.inner.context.enter()?;
        // SAFETY: the module is alive.
        let handle = unsafe { raw::function(api, self.inner.handle, &c_name) }?;
        Ok(Function { module: self.clone(), handle, name: name.into() })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Unloading code while a kernel runs is invalid, so wait for the device.
        let outcome = self.context.enter().and_then(|api| {
            wait_before_release(api)?;
            // SAFETY: created by this object; no function is left, because functions keep it.
            unsafe { raw::unload(api, self.handle) }
        });
        report_drop("a module", outcome);
    }
}

/// A kernel. It keeps its [`Module`] loaded. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Function {
    module: Module,
    handle: FunctionHandle,
    name: Arc<str>,
}

/// The resources of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// The maximum number of threads in a workgroup of this kernel.
    pub max_threads_per_workgroup: u32,
    /// The number of vector registers per thread.
    pub registers: u32,
    /// The statically declared LDS.
    pub lds_bytes: u32,
    /// Private memory per thread: register spills and arrays.
    pub scratch_bytes: u32,
}

impl Function {
    /// The kernel's symbol.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The resources of the kernel.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn info(&self) -> Result<FunctionInfo, Error> {
        let api = self.context().enter()?;
        let read = |number| {
            // SAFETY: the function is alive with its module.
            let value = unsafe { raw::attribute(api, self.handle, number) }?;
            Ok::<_, Error>(u32::try_from(value).unwrap_or(0))
        };
        Ok(FunctionInfo {
            max_threads_per_workgroup: read(constants::FUNCTION_MAX_THREADS)?,
            registers: read(constants::FUNCTION_REGISTERS)?,
            lds_bytes: read(constants::FUNCTION_STATIC_LDS_BYTES)?,
            scratch_bytes: read(constants::FUNCTION_SCRATCH_BYTES)?,
        })
    }

    /// Allows launches to use up to `bytes` of dynamic LDS, or what was allowed before if that is
    /// more. NVIDIA requires this call above 48 KiB; AMD does not.
    ///
    /// # Errors
    ///
    /// An error of the runtime call if the device has less LDS.
    pub fn set_max_dynamic_lds_bytes(&self, bytes: u32) -> Result<(), Error> {
        let api = self.context().enter()?;
        // SAFETY: the function is alive with its module.
        unsafe { raw::set_max_dynamic_lds_bytes(api, self.handle, bytes as i32) }
    }

    /// The number of workgroups of `threads` threads that one compute unit runs at a time, each
    /// with `lds_bytes` of dynamic LDS.
    ///
    /// # Errors
    ///
    /// An error of the runtime call.
    pub fn max_workgroups_per_compute_unit(
        &self,
        threads: u32,
        lds_bytes: u32,
    ) -> Result<u32, Error> {
        let api = self.context().enter()?;
        // SAFETY: the function is alive with its module.
        let count =
            unsafe { raw::max_workgroups(api, self.handle, threads as i32, lds_bytes as usize) }?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.handle
    }

    pub(crate) fn context(&self) -> &Context {
        &self.module.inner.context
    }

    /// The object to keep alive while the function is in use.
    pub(crate) fn module(&self) -> Kept {
        Arc::clone(&self.module.inner) as Kept
    }
}
