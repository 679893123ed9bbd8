//! The metadata note: a `MessagePack` map that describes the kernels. The format is in LLVM's user
//! guide for the AMDGPU backend under "Code Object V3 and Above Metadata".

use serde::{Deserialize, Deserializer};

use super::elf;
use crate::Error;

#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    #[serde(rename = "amdhsa.kernels", default)]
    pub(super) kernels: Vec<KernelMetadata>,
}

/// A kernel as its compiler describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct KernelMetadata {
    /// The name by which programs find it.
    #[serde(rename = ".name")]
    pub name: String,
    /// The symbol of the descriptor.
    #[serde(rename = ".symbol")]
    pub symbol: String,
    /// The arguments, hidden ones included.
    #[serde(rename = ".args", default)]
    pub arguments: Vec<ArgumentMetadata>,
    /// The number of vector registers of a wave.
    #[serde(rename = ".vgpr_count")]
    pub vgprs: u32,
    /// The number of scalar registers that the code uses, with VCC.
    #[serde(rename = ".sgpr_count")]
    pub sgprs: u32,
    /// The number of vector registers in scratch memory.
    #[serde(rename = ".vgpr_spill_count", default)]
    pub vgpr_spills: u32,
    /// The number of scalar registers in lanes of vector registers.
    #[serde(rename = ".sgpr_spill_count", default)]
    pub sgpr_spills: u32,
    /// The LDS that every workgroup has, before dynamic LDS.
    #[serde(rename = ".group_segment_fixed_size")]
    pub lds_bytes: u32,
    /// The private memory of a thread: spills, and arrays that registers cannot index.
    #[serde(rename = ".private_segment_fixed_size")]
    pub scratch_bytes: u32,
    /// The size of the arguments in memory, hidden ones included.
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg_bytes: u32,
    /// The maximum number of threads of a workgroup.
    #[serde(rename = ".max_flat_workgroup_size")]
    pub max_workgroup_size: u32,
    /// The only supported size of a workgroup, if the source fixes it.
    #[serde(rename = ".reqd_workgroup_size", default)]
    pub required_workgroup_size: Option<[u32; 3]>,
    /// The number of lanes of a wave.
    #[serde(rename = ".wavefront_size")]
    pub wave_size: u32,
    /// True if a workgroup may use both compute units of a workgroup processor and their LDS.
    #[serde(rename = ".workgroup_processor_mode", default, deserialize_with = "flag")]
    pub workgroup_processor_mode: bool,
}

/// An argument of a kernel.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct ArgumentMetadata {
    /// The name in the source, if the compiler recorded it.
    #[serde(rename = ".name", default)]
    pub name: Option<String>,
    /// The offset in the arguments in bytes.
    #[serde(rename = ".offset")]
    pub offset: u32,
    /// The size in bytes.
    #[serde(rename = ".size")]
    pub bytes: u32,
    /// The name of its meaning, such as `by_value`.
    #[serde(rename = ".value_kind")]
    pub kind: String,
}

/// Reads the metadata of the kernels in a code object for any AMD GPU, in the order of the file.
/// [`CodeObject`](super::CodeObject) reads the code too, of RDNA 2 to 4.
///
/// # Errors
///
/// The file is no code object, or is damaged.
///
/// ```
/// let file = include_bytes!("../../tests/fixtures/two_kernels.gfx1100.co");
/// let kernels = rf_emu::kernel_metadata(file)?;
/// let scale = kernels.iter().find(|kernel| kernel.name == "scale").unwrap();
/// assert_eq!((scale.wave_size, scale.vgpr_spills), (32, 0));
/// # Ok::<(), rf_emu::Error>(())
/// ```
pub fn kernel_metadata(file: &[u8]) -> Result<Vec<KernelMetadata>, Error> {
    Ok(Metadata::decode(&elf::read_note(file)?)?.kernels)
}

impl Metadata {
    pub(super) fn decode(note: &[u8]) -> Result<Self, Error> {
        Ok(rmp_serde::from_slice(note)?)
    }
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(u32::deserialize(deserializer)? != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_errors() {
        assert!(kernel_metadata(b"").is_err());
        assert!(kernel_metadata(b"\x7fELF").is_err());
        assert!(kernel_metadata(&[0; 4096]).is_err());
    }
}
