//! Modules and their kernels.

use std::sync::Arc;

use rf_emu::{CodeObject, Error, Kernel, LoadedCode, Program, select_bundle};

use super::Runtime;
use crate::Status;
use crate::journal::print;

/// A loaded code object.
#[derive(Debug)]
pub(super) struct LoadedModule {
    device: usize,
    object: CodeObject,
    code: Arc<LoadedCode>,
    functions: Vec<u64>,
}

/// A kernel of a module.
#[derive(Debug)]
pub(super) struct ModuleFunction {
    pub(super) device: usize,
    pub(super) kernel: Kernel,
    code: Arc<LoadedCode>,
    /// The decoded code, after the first launch.
    program: Option<Program>,
}

impl ModuleFunction {
    /// The decoded code.
    pub(super) fn program(&mut self) -> Result<&Program, Status> {
        let program = match self.program.take() {
            Some(program) => program,
            None => Program::new(&self.code, &self.kernel).map_err(|fault| {
                print(&fault.to_string());
                Status::LAUNCH_FAILURE
            })?,
        };
        Ok(self.program.insert(program))
    }
}

impl Runtime {
    /// Loads a code object, or the one for the device from a bundle.
    pub(crate) fn load_module(&mut self, device: usize, file: &[u8]) -> Result<u64, Status> {
        let arch = self.devices.get(device).ok_or(Status::INVALID_DEVICE)?.properties.arch;
        let load = || {
            let object = CodeObject::parse(select_bundle(file, arch)?)?;
            if !object.arch().runs_on(arch) {
                let available = vec![object.arch().name().to_owned()];
                return Err(Error::NoCodeForDevice { device: arch, available });
            }
            let code = object.load(&self.devices[device].memory)?;
            Ok((object, code))
        };
        let (object, code) = load().map_err(|error| {
            print(&format!("a module is refused: {error}"));
            match error {
                Error::NoCodeForDevice { .. } | Error::UnsupportedGpu { .. } => {
                    Status::NO_BINARY_FOR_GPU
                }
                Error::OutOfMemory { .. } => Status::OUT_OF_MEMORY,
                _ => Status::INVALID_IMAGE,
            }
        })?;
        let handle = self.new_handle();
        let module = LoadedModule { device, object, code: Arc::new(code), functions: Vec::new() };
        self.modules.insert(handle, module);
        Ok(handle)
    }

    pub(crate) fn unload_module(&mut self, module: u64) -> Result<(), Status> {
        let module = self.modules.remove(&module).ok_or(Status::INVALID_HANDLE)?;
        for function in &module.functions {
            self.functions.remove(function);
        }
        let memory = self.memory(module.device)?;
        module.code.unload(memory).map_err(|_| Status::INVALID_HANDLE)
    }

    pub(crate) fn find_function(&mut self, module: u64, name: &str) -> Result<u64, Status> {
        let handle = self.new_handle();
        let module = self.modules.get_mut(&module).ok_or(Status::INVALID_HANDLE)?;
        let kernel = module.object.kernel(name).map_err(|_| Status::NOT_FOUND)?;
        let function = ModuleFunction {
            device: module.device,
            kernel: kernel.clone(),
            code: Arc::clone(&module.code),
            program: None,
        };
        module.functions.push(handle);
        self.functions.insert(handle, function);
        Ok(handle)
    }

    /// The address and size of a variable.
    pub(crate) fn find_variable(&self, module: u64, name: &str) -> Result<(u64, u64), Status> {
        let module = self.modules.get(&module).ok_or(Status::INVALID_HANDLE)?;
        let (offset, bytes) = module.object.symbol(name).ok_or(Status::NOT_FOUND)?;
        Ok((module.code.base() + offset, bytes))
    }

    pub(super) fn function(&self, function: u64) -> Result<&ModuleFunction, Status> {
        self.functions.get(&function).ok_or(Status::INVALID_HANDLE)
    }

    /// `hipFunction_attribute` by number; zero for those without a meaning here.
    pub(crate) fn function_attribute(&self, function: u64, number: i32) -> Result<i32, Status> {
        let kernel = &self.function(function)?.kernel;
        let value = match number {
            0 => kernel.max_workgroup_size,
            1 => kernel.lds_bytes,
            3 => kernel.scratch_bytes,
            4 => kernel.vgprs,
            8 => crate::device::LDS_BYTES.saturating_sub(kernel.lds_bytes),
            _ => 0,
        };
        Ok(value as i32)
    }

    /// The workgroups of a kernel that a multiprocessor runs at a time.
    pub(crate) fn occupancy(
        &self,
        function: u64,
        threads: u32,
        lds_bytes: u64,
    ) -> Result<i32, Status> {
        let function = self.function(function)?;
        let properties = &self.devices[function.device].properties;
        let lds_bytes = lds_bytes.saturating_add(function.kernel.lds_bytes.into());
        Ok(properties.resident_workgroups(threads, function.kernel.vgprs, lds_bytes))
    }

    /// The explicit arguments of a kernel: offset and size of each, and their total size.
    pub(crate) fn argument_layout(
        &self,
        function: u64,
    ) -> Result<(Vec<(usize, usize)>, usize), Status> {
        let kernel = &self.function(function)?.kernel;
        let explicit = kernel
            .arguments
            .iter()
            .filter(|argument| !matches!(argument.kind, rf_emu::ArgumentKind::Hidden(_)));
        let places =
            explicit.map(|argument| (argument.offset as usize, argument.bytes as usize)).collect();
        Ok((places, kernel.explicit_bytes() as usize))
    }
}
