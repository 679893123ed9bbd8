//! Reference data, and the checks of one model.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rf_engine::sampling::SamplerConfig;
use rf_engine::{
    Engine, EngineOptions, GenerateExtras, GenerateOptions, GenerationOutcome, Model,
    Normalization, Outputs, Pooling, SequenceInput, Speculation, SpeculationOptions,
};
use rf_graph::{Backend, KvType};
use rf_testing::GoldenModel;
use serde_json::Value;

/// The largest error of a logit by operands that are rounded to f16, as a share of the largest
/// logit.
pub(crate) const F16_DEVIATION: f32 = 5e-3;

/// The same for models whose logits depend more on rounding. The reference, with the operands of
/// matrix products and attention rounded to f16, is off by 1.4e-2 and 1.2e-2 in the first two. In
/// the third one it chooses other experts for a token, and is off by 0.15.
const F16_DEVIATIONS: [(&str, f32); 3] =
    [("gemma4_31b", 1.4e-2), ("gemma4_e4b", 1.2e-2), ("deepseek2_groups", 2e-2)];

/// The folder of the demo model.
pub(crate) fn demo_folder() -> PathBuf {
    rf_testing::demo_model().parent().unwrap().to_owned()
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

pub(crate) fn load(path: &Path, backend: &dyn Backend, options: EngineOptions) -> Engine {
    Engine::load(Model::open(path).unwrap(), backend, options, &mut |_| ()).unwrap()
}

pub(crate) fn all_logits(engine: &mut Engine, ids: &[u32]) -> Vec<f32> {
    let mut session = engine.session();
    engine
        .forward(&mut [SequenceInput { session: &mut session, ids, outputs: Outputs::All }])
        .unwrap()
}

/// The logits of every token, one token at a time.
pub(crate) fn logits_by_token(engine: &mut Engine, ids: &[u32]) -> Vec<f32> {
    let mut session = engine.session();
    let mut forward = |id: &u32| {
        let ids = std::slice::from_ref(id);
        engine
            .forward(&mut [SequenceInput { session: &mut session, ids, outputs: Outputs::All }])
            .unwrap()
    };
    ids.iter().flat_map(&mut forward).collect()
}

pub(crate) fn argmax(row: &[f32]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a))).unwrap()
}

/// Mean of −ln p of each id but the first.
pub(crate) fn mean_nll(logits: &[f32], ids: &[u32]) -> f64 {
    let vocab = logits.len() / ids.len();
    let rows = logits.chunks_exact(vocab).zip(&ids[1..]);
    let nll = rows.map(|(row, id)| {
        let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = row.iter().map(|l| (f64::from(*l) - max).exp()).sum();
        max + sum.ln() - f64::from(row[*id as usize])
    });
    nll.sum::<f64>() / (ids.len() - 1) as f64
}

pub(crate) fn greedy(engine: &mut Engine, prompt: &[u32], n: usize) -> Vec<u32> {
    greedy_with(engine, prompt, n, None).ids
}

pub(crate) fn greedy_with(
    engine: &mut Engine,
    prompt: &[u32],
    n: usize,
    speculation: Option<&mut Speculation>,
) -> GenerationOutcome {
    let options = GenerateOptions::default()
        .with_sampler(SamplerConfig::greedy())
        .with_max_tokens(n)
        .with_ignore_eos(true);
    let mut session = engine.session();
    let go_on = &mut |_: &str| ControlFlow::Continue(());
    let extras = GenerateExtras::default().with_speculation(speculation);
    engine.generate_with(&mut session, prompt, &options, extras, go_on).unwrap()
}

/// A golden model of the repository.
pub(crate) fn find(name: &str) -> TinyModel {
    let models = rf_testing::golden_models();
    TinyModel(models.into_iter().find(|model| model.name() == name).unwrap())
}

/// A golden model with its checks.
pub(crate) struct TinyModel(pub(crate) GoldenModel);

impl TinyModel {
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.0.ids()
    }

    pub(crate) fn load(&self, backend: &dyn Backend) -> Engine {
        self.load_with_batches(backend, EngineOptions::default().batch_tokens)
    }

    /// The error of a backend that refuses the model.
    pub(crate) fn load_error(&self, backend: &dyn Backend) -> String {
        let options = if self.is_embedding() { self.embedding_options() } else { self.options() };
        let loaded = Engine::load(self.open(), backend, options, &mut |_| ());
        format!("{:?}", loaded.err().unwrap())
    }

    fn load_with_batches(&self, backend: &dyn Backend, batch_tokens: usize) -> Engine {
        load(&self.0.path(), backend, self.options().with_batch_tokens(batch_tokens))
    }

    /// The context that the reference had: longrope depends on it.
    pub(crate) fn options(&self) -> EngineOptions {
        let most = self.open().config().max_context_length.unwrap_or(usize::MAX);
        let context_tokens = Some(self.0.context_tokens().min(most));
        EngineOptions::default().with_kv_type(KvType::F32).with_context_tokens(context_tokens)
    }

    /// Those of an embedding model, or of a reranker.
    fn embedding_options(&self) -> EngineOptions {
        let pooling = self.open().config().default_pooling();
        assert_eq!(Some(pooling.name()), self.0.pooling());
        EngineOptions::default().with_kv_type(KvType::F32).with_pooling(Some(pooling))
    }

    /// The stored values: logits, or else embeddings or scores.
    pub(crate) fn is_embedding(&self) -> bool {
        self.0.pooling().is_some()
    }

    /// Checks the normalised embedding, or the scores of a reranker.
    pub(crate) fn check_embedding(&self, backend: &dyn Backend, what: &str) {
        let (error, bound) = (self.embedding_error(backend), self.0.bound());
        assert!(error < bound, "{} on {what}: off by {error}, bound {bound}", self.name());
    }

    /// The largest error of a value of the normalised embedding, or of the scores of a reranker.
    pub(crate) fn embedding_error(&self, backend: &dyn Backend) -> f32 {
        let options = self.embedding_options();
        let pooling = options.pooling;
        let mut engine = Engine::load(self.open(), backend, options, &mut |_| ()).unwrap();
        let mut vector = engine.embed(&[&self.ids()]).unwrap().remove(0);
        if pooling != Some(Pooling::Rank) {
            Normalization::Norm(2).apply(&mut vector);
        }
        let stored = self.0.results();
        assert_eq!(vector.len(), stored.len(), "{}", self.name());
        // Not `f32::max`, which drops NaN.
        let errors = vector.iter().zip(stored).map(|(a, b)| (a - b).abs());
        errors.fold(0.0, |most, error| if error <= most { most } else { error })
    }

    /// Returns true if integer matmuls round the activations.
    pub(crate) fn has_integer_weights(&self) -> bool {
        let model = self.open();
        let mut dtypes = model.gguf().tensors().iter().map(|tensor| tensor.dtype().unwrap());
        dtypes.any(|dtype| !dtype.is_float())
    }

    /// Checks the logits at the stored positions and the mean NLL.
    pub(crate) fn check(&self, backend: &dyn Backend, what: &str) {
        let logits = all_logits(&mut self.load(backend), &self.ids());
        let wrong = self.deviations(&logits, what);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Messages for values beyond their bound: the logits at the stored positions, the mean NLL.
    pub(crate) fn deviations(&self, logits: &[f32], what: &str) -> Vec<String> {
        self.deviations_from_f16(logits, what, false)
    }

    /// As [`Self::deviations`]; with `from_f16` for matmuls and attention that round operands to
    /// f16.
    pub(crate) fn deviations_from_f16(
        &self,
        logits: &[f32],
        what: &str,
        from_f16: bool,
    ) -> Vec<String> {
        let name = self.name();
        let mut wrong = Vec::new();
        let nll = mean_nll(logits, &self.ids());
        let off = nll / self.0.mean_nll() - 1.0;
        let most = if self.has_integer_weights() { 0.01 } else { 0.002 };
        if off.is_nan() || off.abs() >= most {
            wrong.push(format!("{name} on {what}: NLL off by {off}"));
        }
        if !self.has_integer_weights() {
            let error = self.largest_error(logits);
            let bound = self.bound(logits, from_f16);
            if error.is_nan() || error >= bound {
                wrong.push(format!("{name} on {what}: off by {error}, bound {bound}"));
            }
        }
        wrong
    }

    /// The allowed difference of a logit. An operand that is rounded to f16 is off by up to 2⁻¹¹ of
    /// its value; over the layers these errors add up to some parts in a thousand of the largest
    /// logit.
    pub(crate) fn bound(&self, logits: &[f32], from_f16: bool) -> f32 {
        let bound = self.0.bound();
        let largest = logits.iter().map(|x| x.abs()).fold(0.0, f32::max);
        if from_f16 { bound.max(self.f16_deviation() * largest) } else { bound }
    }

    /// The largest error of a logit by operands that are rounded to f16, as a share of the largest
    /// logit.
    pub(crate) fn f16_deviation(&self) -> f32 {
        let own = F16_DEVIATIONS.iter().find(|(name, _)| *name == self.name());
        own.map_or(F16_DEVIATION, |(_, deviation)| *deviation)
    }

    /// Returns true if layers have recurrent states.
    pub(crate) fn is_recurrent(&self) -> bool {
        self.open().config().is_recurrent()
    }

    /// Returns true if layers attend to latents.
    pub(crate) fn has_latents(&self) -> bool {
        self.open().config().has_latents()
    }

    pub(crate) fn open(&self) -> Model {
        Model::open(self.0.path()).unwrap()
    }

    /// The largest difference that chunks of a prompt make, as a share of the largest logit.
    pub(crate) fn chunk_deviation(&self, backend: &dyn Backend) -> f32 {
        let logits = |batch_tokens| {
            all_logits(&mut self.load_with_batches(backend, batch_tokens), &self.ids())
        };
        let whole = logits(512);
        let from_f16 = backend.rounds_operands_to_f16();
        assert!(self.largest_error(&whole) < self.bound(&whole, from_f16));
        let largest = whole.iter().map(|x| x.abs()).fold(0.0, f32::max);
        let chunks = [1, 7, 64, 200].into_iter().flat_map(logits);
        let differences = chunks.zip(whole.iter().cycle()).map(|(a, b)| (a - b).abs());
        // A value that is not a number is the largest one.
        differences.max_by(f32::total_cmp).unwrap() / largest
    }

    /// The logits at the stored positions, and the stored ones.
    pub(crate) fn at_positions(&self, logits: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let vocab = logits.len() / self.ids().len();
        let rows = self.0.positions();
        let ours = rows.iter().flat_map(|p| &logits[p * vocab..][..vocab]);
        (ours.copied().collect(), self.0.results())
    }

    /// Largest difference from the stored logits.
    pub(crate) fn largest_error(&self, logits: &[f32]) -> f32 {
        let (ours, stored) = self.at_positions(logits);
        ours.iter().zip(stored).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }

    /// Checks the greedy continuation.
    pub(crate) fn check_greedy(&self, backend: &dyn Backend) {
        let expected = self.0.greedy();
        let found = greedy(&mut self.load(backend), &self.ids(), expected.len());
        assert_eq!(found, expected, "{}", self.name());
    }

    /// Checks the greedy continuation with drafts of three tokens. Returns how many were drafted.
    pub(crate) fn check_greedy_with_drafts(&self, backend: &dyn Backend) -> usize {
        let expected = self.0.greedy();
        let options = self.options().with_speculates(true);
        let mut engine = load(&self.0.path(), backend, options);
        let lengths =
            SpeculationOptions::default().with_max_draft_tokens(3).with_min_draft_tokens(3);
        let mut speculation = Speculation::ngram(&engine, lengths).unwrap();
        let found = greedy_with(&mut engine, &self.ids(), expected.len(), Some(&mut speculation));
        assert_eq!(found.ids, expected, "{} with drafts", self.name());
        found.timings.drafted_tokens
    }
}

/// Runs steps of an engine with a device that is lost in the second one. The error says so, then
/// and later.
pub(crate) fn assert_lost_in_the_second_step(mut engine: Engine) {
    let mut session = engine.session();
    let mut forward = |id| {
        let feed = SequenceInput { session: &mut session, ids: &[id], outputs: Outputs::Last };
        engine.forward(&mut [feed])
    };
    assert!(forward(1).is_ok());
    for _ in 0..2 {
        assert_eq!(forward(2).unwrap_err().to_string(), "the device is lost");
    }
}
