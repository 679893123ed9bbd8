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

pub use self::bundle::select_bundle;
pub use self::kernarg::Grid;
pub use self::kernel::{Argument, ArgumentKind, Hidden, Kernel, UserSgpr};
pub use self::lines::SourceLines;
pub use self::loaded::LoadedCode;
pub use self::metadata::{ArgumentMetadata, KernelMetadata, kernel_metadata};
use std::sync::Arc;

use self::elf::Image;
use self::metadata::Metadata;
use crate::Error;
use crate::isa::{Arch, Instruction, decode};
use crate::memory::Memory;

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

    /// Disassembles a kernel of this code object: its instructions in the order of the code, each
    /// with its offset from the first one.
    ///
    /// # Errors
    ///
    /// The code object does not say where the kernel ends, or an instruction is not supported.
    ///
    /// ```
    /// let file = include_bytes!("../tests/fixtures/two_kernels.gfx1100.co");
    /// let code = rf_emu::CodeObject::parse(file)?;
    /// let instructions = code.disassemble(code.kernel("scale")?)?;
    /// assert!(instructions.iter().any(|(_, instruction)| instruction.name == "s_endpgm"));
    /// # Ok::<(), rf_emu::Error>(())
    /// ```
    pub fn disassemble(&self, kernel: &Kernel) -> Result<Vec<(u64, Instruction)>, Error> {
        let name = &kernel.name;
        let damaged = |reason| Error::Damaged { reason: format!("kernel '{name}' {reason}") };
        let bytes = match self.symbol(name) {
            Some((entry, bytes)) if entry == kernel.entry => bytes,
            _ => return Err(damaged("has no symbol")),
        };
        let code = self.image.bytes.get(kernel.entry as usize..);
        let code = code.and_then(|code| code.get(..usize::try_from(bytes).ok()?));
        let code = code.ok_or_else(|| damaged("ends outside the segments"))?;
        let (words, _) = code.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let mut instructions = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let offset = 4 * at as u64;
            let instruction = decode(self.arch, &words[at..]).map_err(|error| {
                let reason = format!("kernel '{name}' at offset {offset:#x}: {error}");
                Error::Unsupported { reason }
            })?;
            at += usize::from(instruction.bytes / 4);
            instructions.push((offset, instruction));
        }
        Ok(instructions)
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
