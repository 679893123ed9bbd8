//! Kernel metadata of AMD code objects, from the metadata note of the ELF file.
//!
//! The note is a `MessagePack` map, described under "Code Object V3 and above Metadata" in LLVM's
//! AMDGPU usage guide.

use anyhow::{Context, Result, ensure};
use object::{
    Endianness,
    elf::FileHeader64,
    read::elf::{FileHeader as _, SectionHeader as _},
};
use serde::Deserialize;

/// The type of the metadata note: `NT_AMDGPU_METADATA`.
const NOTE_TYPE: u32 = 32;

/// The metadata of a kernel that the report uses.
#[derive(Debug, Deserialize)]
pub(super) struct Kernel {
    #[serde(rename = ".name")]
    pub(super) name: String,
    #[serde(rename = ".args", default)]
    pub(super) arguments: Vec<Argument>,
    #[serde(rename = ".vgpr_count")]
    pub(super) vgprs: u32,
    #[serde(rename = ".sgpr_count")]
    pub(super) sgprs: u32,
    #[serde(rename = ".vgpr_spill_count", default)]
    pub(super) vgpr_spills: u32,
    #[serde(rename = ".sgpr_spill_count", default)]
    pub(super) sgpr_spills: u32,
    #[serde(rename = ".group_segment_fixed_size")]
    pub(super) lds_bytes: u32,
    /// Scratch memory per lane, for spills and for arrays that registers cannot index.
    #[serde(rename = ".private_segment_fixed_size")]
    pub(super) private_bytes: u32,
    #[serde(rename = ".kernarg_segment_size")]
    pub(super) kernarg_bytes: u32,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(super) workgroup: u32,
    #[serde(rename = ".wavefront_size")]
    pub(super) wave: u32,
    /// True if a workgroup uses both compute units of a workgroup processor and their LDS (gfx10
    /// and newer).
    #[serde(rename = ".workgroup_processor_mode", default)]
    pub(super) wgp_mode: u32,
}

/// One kernel argument.
#[derive(Debug, Deserialize)]
pub(super) struct Argument {
    #[serde(rename = ".size")]
    pub(super) bytes: u32,
    #[serde(rename = ".value_kind")]
    pub(super) kind: String,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels", default)]
    kernels: Vec<Kernel>,
}

/// The kernels of a code object, sorted by name.
///
/// # Errors
///
/// The code is not an ELF file with a valid note.
pub(super) fn kernels(code: &[u8]) -> Result<Vec<Kernel>> {
    let header = FileHeader64::<Endianness>::parse(code)?;
    let endian = header.endian()?;
    for section in header.sections(endian, code)?.iter() {
        let Some(mut notes) = section.notes(endian, code)? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() == b"AMDGPU" && note.n_type(endian) == NOTE_TYPE {
                let metadata: Metadata =
                    rmp_serde::from_slice(note.desc()).context("metadata note")?;
                let mut kernels = metadata.kernels;
                kernels.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(kernels);
            }
        }
    }
    anyhow::bail!("no metadata note")
}

impl Kernel {
    /// The size of the struct that the kernel takes by value.
    ///
    /// # Errors
    ///
    /// The kernel has other arguments, or the compiler added hidden ones.
    pub(super) fn params_bytes(&self) -> Result<u32> {
        let kinds: Vec<_> = self.arguments.iter().map(|argument| &*argument.kind).collect();
        ensure!(kinds == ["by_value"], "takes [{}], not one struct by value", kinds.join(", "));
        Ok(self.arguments[0].bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_errors() {
        assert!(kernels(b"").is_err());
        assert!(kernels(b"\x7fELF").is_err());
        assert!(kernels(&[0; 4096]).is_err());
    }
}
