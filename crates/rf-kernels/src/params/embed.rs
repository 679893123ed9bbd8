//! Twin of `kernels/include/rf/params/embed.h`.

use bytemuck::{Pod, Zeroable};
use rf_quant::DType;

use super::{Address, Launch, Operand, Weight};

/// Threads of a workgroup, which embeds one row.
const EMBED_THREADS: u32 = 128;

/// Embedding from a table of any format, with an optional norm.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct EmbedParams {
    /// `[vocab_size, columns]`.
    pub table: Weight,
    /// `[rows]` u32.
    pub ids: Address,
    /// `[rows, columns]` f32: `table[ids[t]] · scale`.
    pub x: Address,
    /// Norm weight, `[columns]` f32; with a norm.
    pub norm: Address,
    /// `[rows, columns]`: `x / √(mean(x²) + eps) · norm`; with a norm.
    pub out: Operand,
    /// Factor on every element.
    pub scale: f32,
    /// Constant that is added to the mean square.
    pub eps: f32,
    /// Width; with a norm a multiple of 4.
    pub columns: u32,
    /// Number of rows.
    pub rows: u32,
    /// Threads of a workgroup, from [`embed_rms_norm_threads`]; with a norm.
    pub threads: u32,
    /// Larger ids read this row.
    pub last_id: u32,
}

impl EmbedParams {
    /// The launch without a norm.
    pub fn embed(&self, table: DType) -> Launch {
        Launch::linear(kernel_name!(table, "embed_", "_f32"), self.rows as usize, EMBED_THREADS)
    }

    /// The launch with the norm.
    pub fn embed_rms_norm(&self, table: DType) -> Launch {
        Launch::linear(
            kernel_name!(table, "embed_rms_norm_", "_f32_q8"),
            self.rows as usize,
            self.threads,
        )
    }
}

/// Threads of a workgroup that embeds and normalises a row: two vectors of four columns each.
pub fn embed_rms_norm_threads(columns: u32) -> u32 {
    columns.div_ceil(8).next_multiple_of(32).clamp(32, 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_after_their_formats() {
        for dtype in DType::ALL {
            let params = EmbedParams { rows: 3, ..EmbedParams::default() };
            for launch in [params.embed(dtype), params.embed_rms_norm(dtype)] {
                let name = format!("_{}_f32", dtype.name().to_lowercase());
                assert!(launch.kernel.contains(&name), "{dtype}: {launch:?}");
            }
        }
    }
}
