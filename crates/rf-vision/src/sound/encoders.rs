//! The types of audio projectors.

mod gemma4a;
mod local_attention;
mod qwen3a;
mod whisper;

use super::kind::SoundKind;

/// Every supported type.
pub(super) static ALL: &[&SoundKind] =
    &[&whisper::ULTRAVOX, &whisper::QWEN2A, &whisper::VOXTRAL, &qwen3a::QWEN3A, &gemma4a::GEMMA4A];
