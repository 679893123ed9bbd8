//! Code on the device.

use std::{ffi::CString, sync::Arc};

use super::{report_drop, stream::Kept};
use crate::{
    Context, Error, image,
    result::{context, module as raw},
    sys::{FunctionHandle, ModuleHandle, constants},
};

/// A loaded code object, cubin or PTX text.
#[derive(Debug, Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: ModuleHandle,
    /// HIP goes on reading the image it was given, for functions that are first used later.
    _image: Vec<u8>,
}

impl Module {
    /// Loads a code object (AMD), or a cubin or PTX text (NVIDIA; text is compiled now).
    ///
    /// # Errors
    ///
    /// [`Error::Image`] for bytes that are none of these or break off; [`Error::Module`] with the
    /// compiler's messages where the runtime refuses them, above all code for another device.
    pub fn load(context: &Context, image: &[u8]) -> Result<Self, Error> {
        image::check(context.info().platform, image)?;
        let mut image = image.to_vec();
        image.push(0); // the end of a PTX text
        let api = context.enter()?;
        // SAFETY: all parts that the headers name are within the image, or a zero ends the text.
        let handle = unsafe { raw::load(api, image.as_ptr().cast()) }?;
        let inner = Inner { context: context.clone(), handle, _image: image };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Finds a kernel by its symbol.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroByte`], or what the runtime's call returns where there is none (status 500).
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
        // A kernel of the module may still run; its code must not go from under it.
        let outcome = self.context.enter().and_then(|api| {
            context::synchronize(api)?;
            // SAFETY: made by this object; functions hold it, so none is left.
            unsafe { raw::unload(api, self.handle) }
        });
        report_drop("a module", outcome);
    }
}

/// A kernel of a [`Module`], which it keeps loaded; cloning is cheap.
#[derive(Debug, Clone)]
pub struct Function {
    module: Module,
    handle: FunctionHandle,
    name: Arc<str>,
}

/// What a kernel takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// Largest workgroup it can be launched with, in threads.
    pub max_threads_per_workgroup: u32,
    /// Vector registers per thread.
    pub registers: u32,
    /// LDS it declares, before what a launch adds.
    pub lds_bytes: u32,
    /// Private memory per thread: spills and arrays.
    pub scratch_bytes: u32,
}

impl Function {
    /// The kernel's symbol.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel takes up.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
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

    /// Lets launches add up to `bytes` of LDS. Needed on NVIDIA beyond 48 KiB; AMD needs no leave.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns where the device has less.
    pub fn set_max_dynamic_lds_bytes(&self, bytes: u32) -> Result<(), Error> {
        let api = self.context().enter()?;
        // SAFETY: the function is alive with its module.
        unsafe { raw::set_max_dynamic_lds_bytes(api, self.handle, bytes as i32) }
    }

    /// How many workgroups of `threads` threads fit on one compute unit at a time, each with
    /// `lds_bytes` of added LDS.
    ///
    /// # Errors
    ///
    /// What the runtime's call returns.
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

    /// What has to live as long as this function is used.
    pub(crate) fn module(&self) -> Kept {
        Arc::clone(&self.module.inner) as Kept
    }
}
