//! Code objects: ELF files with instructions, kernel descriptors and metadata.
//!
//! The format is described under "Code Object" in LLVM's user guide for the AMDGPU backend;
//! versions 4 to 6 are read.

mod bundle;
mod descriptor;
mod elf;
mod kernarg;
mod kernel;
mod lines;
mod loaded;
mod metadata;

pub use self::{
    bundle::select_bundle,
    kernarg::Grid,
    kernel::{Argument, ArgumentKind, Hidden, Kernel, UserSgpr},
    lines::SourceLines,
    loaded::LoadedCode,
};
use std::sync::Arc;

use self::{elf::Image, metadata::Metadata};
use crate::{Error, isa::Arch, memory::Memory};

/// A code object: kernels of one architecture.
#[derive(Debug)]
pub struct CodeObject {
    arch: Arch,
    image: Image,
    kernels: Vec<Kernel>,
    lines: Arc<SourceLines>,
}

impl CodeObject {
    /// Reads an ELF file.
    ///
    /// # Errors
    ///
    /// The file is no code object, is damaged, or uses a feature that is not supported.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let elf::Contents { arch, image, note, lines } = elf::read(file)?;
        let metadata = Metadata::decode(&note)?;
        let kernels = metadata
            .kernels
            .into_iter()
            .map(|metadata| Kernel::new(metadata, arch, &image))
            .collect::<Result<_, _>>()?;
        Ok(Self { arch, image, kernels, lines: Arc::new(lines) })
    }

    /// The architecture of the instructions.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The kernels in the order of the metadata.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel with this name.
    ///
    /// # Errors
    ///
    /// [`Error::KernelNotFound`] with the names of the kernels.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, Error> {
        self.kernels.iter().find(|kernel| kernel.name == name).ok_or_else(|| {
            let available = self.kernels.iter().map(|kernel| kernel.name.clone()).collect();
            Error::KernelNotFound { name: name.to_owned(), available }
        })
    }

    /// The place of a variable or function: its offset in the image and its size in bytes.
    pub fn symbol(&self, name: &str) -> Option<(u64, u64)> {
        self.image.symbol(name)
    }

    /// The lines of the source, if the code object has them.
    pub fn source_lines(&self) -> &SourceLines {
        &self.lines
    }

    /// Copies the code object into the memory of a device.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn load(&self, memory: &Memory) -> Result<LoadedCode, Error> {
        LoadedCode::new(self.arch, &self.image, &self.lines, memory)
    }
}
