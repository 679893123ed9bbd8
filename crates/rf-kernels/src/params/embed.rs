//! `kernels/include/rf/params/embed.h`.

use bytemuck::{Pod, Zeroable};
use rf_quant::DType;

use super::{Address, Launch, Operand, Weight};

/// Threads of the workgroups that have a row each.
const EMBED_THREADS: u32 = 128;

/// Rows of a table of any format, and their norms.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct EmbedParams {
    /// `[vocab_size, columns]`.
    pub table: Weight,
    /// `[rows]` u32.
    pub ids: Address,
    /// `[rows, columns]` f32: `table[ids[t]] · scale`.
    pub x: Address,
    /// `[columns]` f32; with a norm.
    pub norm: Address,
    /// `x / √(mean(x²) + eps) · norm`; with a norm.
    pub out: Operand,
    /// 1 changes nothing.
    pub scale: f32,
    /// Added to the mean square.
    pub eps: f32,
    /// Width; with a norm a multiple of 4.
    pub columns: u32,
    /// How many.
    pub rows: u32,
    /// From [`embed_rms_norm_threads`]; with a norm.
    pub threads: u32,
    /// Zero.
    pub reserved: u32,
}

impl EmbedParams {
    /// Embedding alone.
    pub fn embed(&self, table: DType) -> Launch {
        Launch::linear(kernel_of(&EMBED, table), self.rows as usize, EMBED_THREADS)
    }

    /// Embedding with the norm.
    pub fn embed_rms_norm(&self, table: DType) -> Launch {
        Launch::linear(kernel_of(&EMBED_RMS_NORM, table), self.rows as usize, self.threads)
    }

    /// The first rows of the table as they are, without ids and factor.
    pub fn dequantize(&self, table: DType) -> Launch {
        Launch::linear(kernel_of(&DEQUANTIZE, table), self.rows as usize, EMBED_THREADS)
    }
}

/// Threads of a workgroup that embeds and norms a row: two vectors of four columns each.
pub fn embed_rms_norm_threads(columns: u32) -> u32 {
    columns.div_ceil(8).next_multiple_of(32).clamp(32, 1024)
}

/// The kernel for a format; there is none of the name that other formats get.
fn kernel_of(kernels: &[&'static str; 16], dtype: DType) -> &'static str {
    let index = DType::ALL.iter().position(|each| *each == dtype);
    index.and_then(|index| kernels.get(index)).copied().unwrap_or("embed_of_unknown_format")
}

/// In the order of [`DType::ALL`].
const EMBED: [&str; 16] = [
    "embed_f32_f32",
    "embed_f16_f32",
    "embed_bf16_f32",
    "embed_q4_0_f32",
    "embed_q4_1_f32",
    "embed_q5_0_f32",
    "embed_q5_1_f32",
    "embed_q8_0_f32",
    "embed_q2_k_f32",
    "embed_q3_k_f32",
    "embed_q4_k_f32",
    "embed_q5_k_f32",
    "embed_q6_k_f32",
    "embed_mxfp4_f32",
    "embed_mxfp6_e2m3_f32",
    "embed_mxfp6_e3m2_f32",
];

const DEQUANTIZE: [&str; 16] = [
    "dequantize_f32_f32",
    "dequantize_f16_f32",
    "dequantize_bf16_f32",
    "dequantize_q4_0_f32",
    "dequantize_q4_1_f32",
    "dequantize_q5_0_f32",
    "dequantize_q5_1_f32",
    "dequantize_q8_0_f32",
    "dequantize_q2_k_f32",
    "dequantize_q3_k_f32",
    "dequantize_q4_k_f32",
    "dequantize_q5_k_f32",
    "dequantize_q6_k_f32",
    "dequantize_mxfp4_f32",
    "dequantize_mxfp6_e2m3_f32",
    "dequantize_mxfp6_e3m2_f32",
];

const EMBED_RMS_NORM: [&str; 16] = [
    "embed_rms_norm_f32_f32_q8",
    "embed_rms_norm_f16_f32_q8",
    "embed_rms_norm_bf16_f32_q8",
    "embed_rms_norm_q4_0_f32_q8",
    "embed_rms_norm_q4_1_f32_q8",
    "embed_rms_norm_q5_0_f32_q8",
    "embed_rms_norm_q5_1_f32_q8",
    "embed_rms_norm_q8_0_f32_q8",
    "embed_rms_norm_q2_k_f32_q8",
    "embed_rms_norm_q3_k_f32_q8",
    "embed_rms_norm_q4_k_f32_q8",
    "embed_rms_norm_q5_k_f32_q8",
    "embed_rms_norm_q6_k_f32_q8",
    "embed_rms_norm_mxfp4_f32_q8",
    "embed_rms_norm_mxfp6_e2m3_f32_q8",
    "embed_rms_norm_mxfp6_e3m2_f32_q8",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_after_their_formats() {
        for dtype in DType::ALL {
            let params = EmbedParams { rows: 3, ..EmbedParams::default() };
            let launches =
                [params.embed(dtype), params.embed_rms_norm(dtype), params.dequantize(dtype)];
            for launch in launches {
                let name = format!("_{}_f32", dtype.name().to_lowercase());
                assert!(launch.kernel.contains(&name), "{dtype}: {launch:?}");
            }
        }
    }
}
