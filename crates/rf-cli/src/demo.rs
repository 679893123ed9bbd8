//! The built-in demo model.

use rf_gguf::Gguf;

/// The prompt of the demo model where the user gives none.
pub(crate) const PROMPT: &str = "Tell me a story about a fox and a lost key.";

/// The default temperature of the demo model: with 0.8, a model this small confuses names.
pub(crate) const TEMPERATURE: f32 = 0.5;

/// Opens the built-in model.
///
/// # Errors
///
/// If the program was built without it.
#[cfg(feature = "demo-model")]
pub(crate) fn open() -> anyhow::Result<Gguf> {
    // Blocks have alignment 1, so any address works.
    static MODEL: &[u8] = include_bytes!("../demo/stories-7m-Q8_0.gguf");
    Ok(Gguf::from_static(MODEL)?)
}

/// Opens the built-in model.
///
/// # Errors
///
/// If the program was built without it.
#[cfg(not(feature = "demo-model"))]
pub(crate) fn open() -> anyhow::Result<Gguf> {
    Err(crate::failure::bad_input!(
        "no model given, and this program was built without the demo model: give one with -m FILE, \
         or build with the feature demo-model"
    ))
}
