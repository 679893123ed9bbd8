//! The built-in demo model.

/// The prompt of the demo model where the user gives none.
pub(crate) const PROMPT: &str = "Tell me a story about a fox and a lost key.";

pub(crate) use rocmforge::DEMO_TEMPERATURE as TEMPERATURE;
