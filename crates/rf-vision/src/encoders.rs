//! The types of projectors, one file each.

mod gemma3;
mod gemma4uv;
mod gemma4v;
mod idefics3;
mod internvl;
mod lfm2;
mod llama4;
mod minicpm;
mod muse_glimmer;
mod pixtral;
mod qwen25vl;
mod qwen3vl;
mod rope;
mod segments;
mod tower;

use crate::kind::ProjectorKind;

/// Every supported type.
pub(crate) static ALL: &[&ProjectorKind] = &[
    &qwen3vl::QWEN3VL,
    &qwen25vl::QWEN25VL,
    &gemma4v::GEMMA4V,
    &gemma4uv::GEMMA4UV,
    &gemma3::GEMMA3,
    &pixtral::PIXTRAL,
    &muse_glimmer::MUSE_GLIMMER,
    &internvl::INTERNVL,
    &idefics3::IDEFICS3,
    &lfm2::LFM2,
    &llama4::LLAMA4,
    &minicpm::MINICPM,
];
