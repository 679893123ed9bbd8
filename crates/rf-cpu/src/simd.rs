//! SIMD ISAs under one vector interface of 16 lanes.
//!
//! A kernel is written once, as a [`Kernel`] over [`Simd`], and runs on every [`Isa`]. All ISAs
//! compute the same bits: integer dot products are exact, and float operations are in the same
//! order with the same fused multiply-adds.

#![expect(unsafe_code, reason = "intrinsics, and pointers into packed weights")]
#![expect(
    clippy::inline_always,
    reason = "intrinsics are only inlined into functions of their ISA"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a pointer's offset and the load from it"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "rows, tokens and panels index several arrays at once"
)]

/// `[f(0), f(1), …]`, with the length from the context. `std::array::from_fn` and closures may not
/// be inlined, and then the intrinsics in them become calls too.
macro_rules! array {
    ($any:expr, |$i:ident| $value:expr) => {{
        let mut out = [$any; _];
        for $i in 0..out.len() {
            out[$i] = $value;
        }
        out
    }};
}

pub(crate) mod activations;
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod convolution;
pub(crate) mod float_gemm;
mod format;
pub(crate) mod gemm;
mod isa;
pub(crate) mod kernels;
pub(crate) mod latent;
mod math;
mod matvec;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
pub(crate) mod recurrence;
pub(crate) mod rope;
pub(crate) mod tiles;
mod vector;

pub(crate) use format::{IQ1_VALUES, IQ2_VALUES, IQ3_S_VALUES, IQ3_XXS_VALUES, Plane, planes};
pub use isa::{Isa, UnknownIsa};
pub(crate) use matvec::FLOAT_CHUNK;
pub(crate) use vector::{Kernel, LANES, Simd};
