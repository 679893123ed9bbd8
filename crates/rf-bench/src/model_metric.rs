//! Metrics of a whole model: the suite `inference`.

use std::time::Instant;

use rocmforge::engine::SyntheticFeeder;

use crate::model::ModelFile;
use crate::{Clock, Error, Prepared, Target};

/// Prompt lengths in tokens.
const PROMPTS: [usize; 3] = [128, 512, 2048];

/// Batch sizes of decoding, in sequences.
pub const DECODE_BATCHES: [usize; 3] = [1, 4, 8];

/// Largest length of a sequence in decode measurements, in tokens; longer ones are truncated.
pub const DECODE_TOKENS: usize = 128;

/// Depth of the decode steps of [`ModelMetric::prepare`], in tokens.
const DECODE_DEPTH: usize = 64;

/// A metric of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelMetric {
    /// Time to load an engine from a file, in milliseconds.
    Load,
    /// Throughput of a prompt with this number of tokens, in tokens/s.
    Prefill(usize),
    /// TTFT of a text with this number of tokens, in milliseconds.
    Ttft(usize),
    /// Total decode throughput of a batch with this number of sequences, in tokens/s.
    Decode(usize),
    /// Peak growth of the resident memory, in MiB.
    PeakMemory,
}

impl ModelMetric {
    /// Every metric, in the order of reports.
    pub fn all() -> Vec<Self> {
        let prompts =
            PROMPTS.into_iter().flat_map(|tokens| [Self::Prefill(tokens), Self::Ttft(tokens)]);
        let decode = DECODE_BATCHES.into_iter().map(Self::Decode);
        [Self::Load].into_iter().chain(prompts).chain(decode).chain([Self::PeakMemory]).collect()
    }

    /// The name in reports and baselines, stable across versions.
    pub fn name(self) -> String {
        match self {
            Self::Load => "inference/load".to_owned(),
            Self::Prefill(tokens) => format!("inference/prefill/tokens={tokens}"),
            Self::Ttft(tokens) => format!("inference/ttft/tokens={tokens}"),
            Self::Decode(batch) => format!("inference/decode/batch={batch}"),
            Self::PeakMemory => "inference/memory/peak".to_owned(),
        }
    }

    /// The unit of the samples.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Load | Self::Ttft(_) => "ms",
            Self::Prefill(_) | Self::Decode(_) => "tokens/s",
            Self::PeakMemory => "MiB",
        }
    }

    /// Returns true if the metric is a throughput, for which higher is better.
    pub fn is_throughput(self) -> bool {
        self.unit() == "tokens/s"
    }

    /// Capacity of the KV cache that the metric needs, in tokens over all sequences.
    pub fn context_tokens(self) -> usize {
        match self {
            Self::Prefill(tokens) => tokens,
            Self::Ttft(tokens) => tokens + 1,
            Self::Decode(batch) => batch * DECODE_TOKENS,
            Self::Load | Self::PeakMemory => 1,
        }
    }

    /// Returns true if [`Self::prepare`] supports the metric: a paired comparison measures prefill
    /// and decode.
    pub fn is_repeatable(self) -> bool {
        matches!(self, Self::Prefill(_) | Self::Decode(_))
    }

    /// Loads the model for repeated runs. A run is the whole prompt, or one decode step at depth
    /// 64.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the metric is not repeatable or the context of the model is too
    /// small; errors of loading the model.
    pub fn prepare(self, file: &ModelFile, target: &Target) -> Result<Prepared, Error> {
        let name = self.name();
        if !self.is_repeatable() {
            return Err(Error::Unsupported(format!("{name} is not part of paired comparisons")));
        }
        let open = file.loader().open(&mut |_| ())?;
        let (needed, context) = (self.context_tokens(), open.model().config().context_length);
        if needed > context {
            return Err(Error::Unsupported(format!(
                "{name} needs a context of {needed} tokens, and the model has {context}"
            )));
        }
        let sequences = if let Self::Decode(batch) = self { batch } else { 1 };
        let open = open
            .with(|loader| loader.context_tokens(needed).kv_tokens(needed).sequences(sequences));
        let engine = open.load_on_backend(target.backend(), &mut |_| ())?.engine;
        let mut feeder = SyntheticFeeder::new(engine, sequences);
        if let Self::Decode(batch) = self {
            (0..batch).try_for_each(|sequence| feeder.prompt(sequence, DECODE_DEPTH))?;
        }
        Ok(Prepared::new(Clock::Host, move || {
            let depth = if matches!(self, Self::Decode(_)) { DECODE_DEPTH } else { 0 };
            feeder.truncate(depth)?;
            let start = Instant::now();
            match self {
                Self::Decode(batch) => feeder.step(batch)?,
                Self::Prefill(tokens) => feeder.prompt(0, tokens)?,
                _ => {}
            }
            Ok(start.elapsed())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_the_records() {
        let names: Vec<String> = ModelMetric::all().into_iter().map(ModelMetric::name).collect();
        assert_eq!(
            names,
            [
                "inference/load",
                "inference/prefill/tokens=128",
                "inference/ttft/tokens=128",
                "inference/prefill/tokens=512",
                "inference/ttft/tokens=512",
                "inference/prefill/tokens=2048",
                "inference/ttft/tokens=2048",
                "inference/decode/batch=1",
                "inference/decode/batch=4",
                "inference/decode/batch=8",
                "inference/memory/peak",
            ]
        );
    }
}
