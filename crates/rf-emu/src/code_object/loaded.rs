//! A code object in the memory of a device.

use std::ops::Range;
use std::sync::Arc;

use super::elf::Image;
use super::kernel::Kernel;
use super::lines::SourceLines;
use crate::Error;
use crate::isa::Arch;
use crate::memory::{Memory, Segment};

/// A code object in memory. [`LoadedCode::unload`] frees it; dropping it does not, because it does
/// not own the memory.
#[derive(Debug)]
pub struct LoadedCode {
    arch: Arch,
    base: u64,
    image: Vec<u8>,
    segments: Vec<Range<u64>>,
    executable: Vec<Range<u64>>,
    lines: Arc<SourceLines>,
}

impl LoadedCode {
    pub(super) fn new(
        arch: Arch,
        image: &Image,
        lines: &Arc<SourceLines>,
        memory: &Memory,
    ) -> Result<Self, Error> {
        let extents = || image.segments.iter().filter(|extent| extent.bytes > 0);
        let end = extents().map(|extent| extent.offset + extent.bytes).max().unwrap_or(0);
        let base = memory.reserve_image(end);
        // As in the image, the holes between segments are never touched.
        let mut bytes = vec![0; image.bytes.len()];
        for extent in extents() {
            let place = extent.contents();
            bytes[place.clone()].copy_from_slice(&image.bytes[place]);
        }
        for relocation in &image.relocations {
            let address = base.wrapping_add(relocation.target);
            // The place was checked when the file was read.
            let place = &mut bytes[relocation.offset as usize..][..8];
            place.copy_from_slice(&address.to_le_bytes());
        }
        let segments: Vec<_> = extents()
            .map(|extent| Segment {
                offset: extent.offset,
                bytes: extent.bytes,
                writable: extent.writable,
                contents: &bytes[extent.contents()],
            })
            .collect();
        memory.allocate_image(base, &segments)?;
        let ranges = |executable_only: bool| {
            extents()
                .filter(|extent| extent.executable || !executable_only)
                .map(|extent| extent.offset..extent.offset + extent.bytes)
                .collect()
        };
        Ok(Self {
            arch,
            base,
            segments: ranges(false),
            executable: ranges(true),
            image: bytes,
            lines: Arc::clone(lines),
        })
    }

    /// The architecture of the instructions.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The address of the start of the image.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The contents of the file's segments at their offsets, relocated. Bytes between segments are
    /// zero.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// The parts of the image that hold instructions.
    pub fn executable(&self) -> &[Range<u64>] {
        &self.executable
    }

    /// The lines of the source, if the code object has them.
    pub fn source_lines(&self) -> &Arc<SourceLines> {
        &self.lines
    }

    /// The address of the first instruction of a kernel of this code object.
    pub fn address_of(&self, kernel: &Kernel) -> u64 {
        self.base + kernel.entry
    }

    /// Frees the memory. Launches that run keep what they need.
    ///
    /// # Errors
    ///
    /// [`Error::NotAllocated`] if the code was not loaded into this memory.
    pub fn unload(&self, memory: &Memory) -> Result<(), Error> {
        for segment in &self.segments {
            memory.free(self.base + segment.start)?;
        }
        Ok(())
    }
}
