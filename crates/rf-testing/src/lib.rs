//! Helpers that the tests of several crates share. A dev-dependency only, never published.
//!
//! Start at [`golden_models`]: tiny models with the results that llama.cpp computes for them, in
//! the folder `golden` of the repository. [`shared`] finds larger test data next to the repository,
//! if there are any. A test that cannot run prints the reason with [`skip!`] and passes.
//!
//! With the feature `engine` there are also engines and stub backends. A unit test of `rf-engine`
//! itself must not use it: there the engine is compiled a second time, so the types differ.
//!
//! Functions panic where test data in the repository are missing or damaged.
//!
//! ```
//! let models = rf_testing::golden_models();
//! let tiny = models.iter().find(|model| model.name() == "smollm3").ok_or("no such model")?;
//! assert_eq!(tiny.architecture(), "smollm3");
//! assert_eq!(tiny.path(), rf_testing::tiny_model());
//! # Ok::<(), &str>(())
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "functions of tests: damaged test data end a test"
)]

mod adapters;
#[cfg(feature = "engine")]
mod backend;
mod examples;
mod folders;
mod golden;
mod random;
mod skip;
mod transcript;
mod unpacked;

/// Engines of test models on the CPU, and their options.
#[cfg(feature = "engine")]
pub mod engine;
/// A stand-in for the Hugging Face hub.
#[cfg(feature = "hub")]
pub mod hub;

pub use adapters::{GoldenAdapters, golden_adapters};
#[cfg(feature = "engine")]
pub use backend::StubBackend;
pub use examples::{output_of_example, outputs_of_numbered_examples};
pub use folders::{demo_model, golden_folder, shared, tiny_model};
pub use golden::{GoldenModel, golden_model, golden_models, golden_models_in};
pub use random::{Lcg, SplitMix64, prompt};
/// Several backends as one, for tests of the crates below `rf-device`.
#[cfg(feature = "engine")]
pub use rf_device::HybridBackend;
pub use skip::skipped;
pub use transcript::transcript;
pub use unpacked::{packed_bytes, packed_text, plain_or_unpacked};
