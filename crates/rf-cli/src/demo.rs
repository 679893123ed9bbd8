//! The model that is part of the program.

use rf_gguf::Gguf;

/// What to ask the demo model for when nobody asks anything.
pub(crate) const PROMPT: &str = "Tell me a story about a fox and a lost key.";

/// The temperature that suits it: with llama.cpp's 0.8 so small a model mixes up its names.
pub(crate) const TEMPERATURE: f32 = 0.5;

/// Opens the built-in model.
///
/// # Errors
///
/// When the program was built without it.
#[cfg(feature = "demo-model")]
pub(crate) fn open() -> anyhow::Result<Gguf> {
    // Blocks have alignment 1, so the bytes may lie anywhere.
    static MODEL: &[u8] = include_bytes!("../demo/stories-7m-Q8_0.gguf");
    Ok(Gguf::from_static(MODEL)?)
}

/// Opens the built-in model.
///
/// # Errors
///
/// When the program was built without it.
#[cfg(not(feature = "demo-model"))]
pub(crate) fn open() -> anyhow::Result<Gguf> {
    Err(crate::failure::bad_input!(
        "no model given, and this program was built without the demo model: give one with -m FILE, \
         or build with the feature demo-model"
    ))
}
