//! What an AMD code object says about its kernels: the metadata note of its ELF file.
//!
//! The note is a `MessagePack` map, described under "Code Object V3 and above Metadata" in LLVM's AMDGPU usage
//! guide.

use anyhow::{Context, Result, ensure};
use object::{
    Endianness,
    elf::FileHeader64,
    read::elf::{FileHeader as _, SectionHeader as _},
};
use serde::Deserialize;

/// `NT_AMDGPU_METADATA`.
const NOTE_TYPE: u32 = 32;

/// The fields of a kernel that the report uses.
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
    /// Scratch memory per lane: spills, and arrays that registers cannot index.
    #[serde(rename = ".private_segment_fixed_size")]
    pub(super) private_bytes: u32,
    #[serde(rename = ".kernarg_segment_size")]
    pub(super) kernarg_bytes: u32,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(super) workgroup: u32,
    #[serde(rename = ".wavefront_size")]
    pub(super) wave: u32,
    /// gfx10 and newer: whether a workgroup has both compute units of a processor and their LDS.
    #[serde(rename = ".workgroup_processor_mode", default)]
    pub(super) both_units: u32,
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

/// The kernels of a code object, by name.
///
/// # Errors
///
/// Not an ELF file, or one without a readable note.
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
    /// The size of the one struct that a kernel takes by value.
    ///
    /// # Errors
    ///
    /// It takes something else, or the compiler adds arguments of its own.
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
    fn what_is_no_code_object_is_an_error() {
        assert!(kernels(b"").is_err());
        assert!(kernels(b"\x7fELF").is_err());
        assert!(kernels(&[0; 4096]).is_err());
    }
}
