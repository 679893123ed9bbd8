//! The metadata note: a `MessagePack` map that describes the kernels.

use serde::Deserialize;

use crate::Error;

#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    #[serde(rename = "amdhsa.kernels", default)]
    pub(super) kernels: Vec<KernelMetadata>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KernelMetadata {
    #[serde(rename = ".name")]
    pub(super) name: String,
    /// The symbol of the descriptor.
    #[serde(rename = ".symbol")]
    pub(super) symbol: String,
    #[serde(rename = ".args", default)]
    pub(super) arguments: Vec<ArgumentMetadata>,
    #[serde(rename = ".vgpr_count")]
    pub(super) vgprs: u32,
    #[serde(rename = ".sgpr_count")]
    pub(super) sgprs: u32,
    #[serde(rename = ".group_segment_fixed_size")]
    pub(super) lds_bytes: u32,
    #[serde(rename = ".private_segment_fixed_size")]
    pub(super) scratch_bytes: u32,
    #[serde(rename = ".kernarg_segment_size")]
    pub(super) kernarg_bytes: u32,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(super) max_workgroup_size: u32,
    #[serde(rename = ".reqd_workgroup_size", default)]
    pub(super) required_workgroup_size: Option<[u32; 3]>,
    #[serde(rename = ".wavefront_size")]
    pub(super) wave_size: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct ArgumentMetadata {
    #[serde(rename = ".name", default)]
    pub(super) name: Option<String>,
    #[serde(rename = ".offset")]
    pub(super) offset: u32,
    #[serde(rename = ".size")]
    pub(super) bytes: u32,
    #[serde(rename = ".value_kind")]
    pub(super) kind: String,
}

impl Metadata {
    pub(super) fn decode(note: &[u8]) -> Result<Self, Error> {
        Ok(rmp_serde::from_slice(note)?)
    }
}
