//! The test that both engines run, and its result.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Largest batch in tokens, equal to llama.cpp's default physical batch.
pub(super) const BATCH_TOKENS: usize = 512;

/// The test that both engines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Test {
    /// Length of the prompt; 0 for none.
    pub prompt_tokens: usize,
    /// Length of the generation; 0 for none.
    pub generated_tokens: usize,
    /// Tokens in the context before the prompt and before the generation.
    pub depth_tokens: usize,
    /// CPU threads of each engine.
    pub threads: usize,
    /// Runs of each engine, each in a fresh process.
    pub repetitions: usize,
}

/// The throughput that one process measured. Both sides print it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    /// Name and version of the engine.
    pub program: String,
    /// Instruction sets that the engine is built with or uses.
    pub features: String,
    /// Throughput of the prompt; `None` without a prompt.
    pub prompt_tokens_per_s: Option<f64>,
    /// Throughput of the generation; `None` without a generation.
    pub decode_tokens_per_s: Option<f64>,
}

impl Speeds {
    /// Parses the last non-empty line of a program's output.
    pub(super) fn parse(text: &str, program: &str) -> Result<Self, Error> {
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        serde_json::from_str(line).map_err(|error| Error::PeerOutput {
            program: program.to_owned(),
            reason: format!("'{line}': {error}"),
        })
    }
}
