//! Drafts from the model's own block (multi-token prediction, MTP).
//!
//! The block is one more layer after those of the model (`rf_model::mtp`). Its inputs are a token
//! and the model's state of the token before it. With
//! [`EngineOptions::mtp`](crate::EngineOptions::mtp) the program has three stages ([`MtpStage`]):
//! the layers up to the output norm, the block, and the output matrix.
//!
//! The engine computes the block after every batch of the model, with the same tokens and states.
//! The cache of the block therefore has the tokens of every sequence, whatever the scheduler, the
//! prefix cache and preemption do. This costs one layer per batch.
//!
//! A draft is a chain of tokens through the block, each with its own state instead of the model's.
//! Its keys and values lie after the newest token, in pages that are returned at the end of the
//! draft (`PagePool::reserve`). The batch that checks the draft overwrites them.
//!
//! A session keeps the states of its last batch (`token_states`), so the block continues from the
//! last accepted token when a draft is cut, also if recurrent states return to those before the
//! draft. After a prefix from the cache, the state of one token is unknown and zeros replace it:
//! this may cost acceptance, and never changes a token. A GPU gets the states with the input of the
//! next stage, because its values live within one stage.

use std::sync::Arc;

use rf_graph::{Batch, Executor, Input, Output, Span};
use rf_kv::PageGroup;
use rf_model::MtpStage;

use super::feed::{Pieces, SequenceInput};
use super::tiers::Tiers;
use crate::error::Error;
use crate::sampling::Sampler;
use crate::session::{Session, lock};

/// The values between the stages of a batch.
pub(super) struct Mtp {
    hidden_size: usize,
    vocab_size: usize,
    /// The states of the batch, `[tokens, hidden_size]`.
    states: Vec<f32>,
    /// For each token, the state of the token before it.
    before: Vec<f32>,
    /// The state and the logits of a drafted token.
    output: Vec<f32>,
}

impl Mtp {
    pub(super) fn new(hidden_size: usize, vocab_size: usize) -> Self {
        let (states, before, output) = (Vec::new(), Vec::new(), Vec::new());
        Self { hidden_size, vocab_size, states, before, output }
    }

    /// Computes a batch: the model, the block, and the logits.
    pub(super) fn compute(
        &mut self,
        executor: &mut dyn Executor,
        batch: &Batch<'_>,
        (feeds, pieces): (&[SequenceInput<'_>], &Pieces),
        output: Output<'_>,
    ) -> Result<(), Error> {
        let width = self.hidden_size;
        self.states.resize(batch.ids.len() * width, 0.0);
        let no_rows = Batch { output_rows: &[], ..*batch };
        let states = Output::rows(&mut self.states).of_stage(MtpStage::Trunk.index());
        executor.forward(&no_rows, states)?;
        self.before.clear();
        let spans = batch.spans.iter().zip(pieces);
        for (Span { tokens, past_tokens, .. }, (index, _)) in spans {
            let known = &feeds[*index].session.token_states;
            known.push_before(*past_tokens, 1, width, &mut self.before);
            let others = tokens.start * width..(tokens.end - 1) * width;
            self.before.extend_from_slice(&self.states[others]);
        }
        let input = Batch { input: Some(Input::Rows(&self.before)), ..no_rows };
        executor.forward(&input, Output::rows(&mut []).of_stage(MtpStage::Block.index()))?;
        let input = Batch { input: Some(Input::Rows(&self.states)), ..*batch };
        Ok(executor.forward(&input, output)?)
    }

    /// Keeps the states of a computed batch for the next one.
    pub(super) fn keep_states(&self, feeds: &mut [SequenceInput<'_>], pieces: &Pieces) {
        let mut rest = &self.states[..];
        for (index, range) in pieces {
            let (states, others) = rest.split_at(range.len() * self.hidden_size);
            rest = others;
            let session = &mut *feeds[*index].session;
            session.token_states.set(session.tokens.len(), self.hidden_size, states);
        }
    }

    /// Guesses `len` tokens after `ids`: the newest token of a sequence, and those before it that
    /// the cache lacks. Guesses none where the cache is full.
    pub(super) fn draft(
        &mut self,
        (executor, tiers): (&mut dyn Executor, &mut Tiers),
        session: &mut Session,
        ids: &[u32],
        len: usize,
        sampler: &mut Sampler,
    ) -> Result<Vec<u32>, Error> {
        let width = self.hidden_size;
        let mut past_tokens = session.len();
        let mut draft = Vec::with_capacity(len);
        if len == 0 || past_tokens == 0 {
            return Ok(draft);
        }
        self.before.clear();
        session.token_states.push_before(past_tokens, ids.len(), width, &mut self.before);
        let (pool, media) = (Arc::clone(&session.pool), Arc::clone(session.media()));
        let mut pool = lock(&pool);
        // The last drafted token is not computed.
        let end = past_tokens + ids.len() + len - 1;
        let Ok(mut room) = pool.reserve(&mut session.table, end) else { return Ok(draft) };
        tiers.execute(room.take_moves(), executor);
        executor.copy_pages(room.copies())?;
        self.output.resize(width + self.vocab_size, 0.0);
        let mut ids = ids.to_vec();
        loop {
            let positions = media.positions(past_tokens..past_tokens + ids.len());
            let span = Span {
                tokens: 0..ids.len(),
                past_tokens,
                positions: positions.as_deref(),
                media: None,
                pages: room.table().pages(PageGroup::Full),
                window_pages: room.table().pages(PageGroup::Window),
                state: room.table().state(),
            };
            let (spans, output_rows) = (&[span], &[ids.len() - 1]);
            let batch =
                Batch { ids: &ids, spans, output_rows, input: Some(Input::Rows(&self.before)) };
            let output = Output::rows(&mut self.output).of_stage(MtpStage::Block.index());
            executor.forward(&batch, output)?;
            let (state, logits) = self.output.split_at(width);
            let id = sampler.sample(logits)?;
            draft.push(id);
            if draft.len() == len {
                return Ok(draft);
            }
            self.before.clear();
            self.before.extend_from_slice(state);
            past_tokens += ids.len();
            ids.clear();
            ids.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rf_cpu::{CpuBackend, CpuOptions};
    use rf_graph::KvType;

    use crate::engine::{Engine, Outputs, SequenceInput};
    use crate::model::Model;
    use crate::options::EngineOptions;
    use crate::sampling::{Sampler, SamplerConfig};
    use crate::session::Session;

    /// A golden model with its block, a text, and the block's most probable token at each position.
    fn golden(name: &str) -> (Engine, Vec<u32>, Vec<u32>) {
        let models = rf_testing::golden_models();
        let golden = models.iter().find(|model| model.name() == name).unwrap();
        let backend = CpuBackend::new(CpuOptions::default().with_threads(2)).unwrap();
        let options = EngineOptions::default()
            .with_kv_type(KvType::F32)
            .with_page_tokens(16)
            .with_sequences(2)
            .with_speculates(true)
            .with_mtp(true);
        let model = Model::open(golden.path()).unwrap();
        let engine = Engine::load(model, &backend, options, &mut |_| ()).unwrap();
        (engine, golden.ids(), golden.mtp_top1())
    }

    fn feed(engine: &mut Engine, session: &mut Session, ids: &[u32]) {
        engine.forward(&mut [SequenceInput { session, ids, outputs: Outputs::None }]).unwrap();
    }

    fn greedy() -> Sampler {
        Sampler::new(SamplerConfig::greedy()).unwrap()
    }

    #[test]
    fn the_first_drafted_token_is_the_golden_one_after_batches_and_drafts_of_any_size() {
        let (mut engine, ids, top) = golden("glm4moe");
        for (chunk, len) in [(1, 1), (1, 20), (7, 3), (30, 2)] {
            let mut session = engine.session();
            for chunk in ids.chunks(chunk) {
                feed(&mut engine, &mut session, chunk);
                let used_pages = engine.kv_stats().used_pages;
                let at = session.len();
                let Some(newest) = ids.get(at) else { break };
                let draft = engine.draft(&mut session, &[*newest], len, &mut greedy()).unwrap();
                assert_eq!((draft.len(), draft[0]), (len, top[at]), "position {at}");
                assert_eq!((session.len(), engine.kv_stats().used_pages), (at, used_pages));
            }
        }
    }

    #[test]
    fn drafts_go_on_after_forks_and_rejected_tokens() {
        let (mut engine, ids, top) = golden("glm4moe");
        let mut session = engine.session();
        feed(&mut engine, &mut session, &ids[..20]);
        let mut fork = session.fork();
        // The fork shares the page that its draft writes to.
        for session in [&mut fork, &mut session] {
            let draft = engine.draft(session, &[ids[20]], 5, &mut greedy()).unwrap();
            assert_eq!(draft[0], top[20]);
        }
        let drafted = [ids[20], ids[21], 7, 8, 9];
        fork.tentatively(true, |fork| feed(&mut engine, fork, &drafted));
        fork.confirm(22, 16);
        for (session, at) in [(&mut fork, 22), (&mut session, 20)] {
            let draft = engine.draft(session, &[ids[at]], 3, &mut greedy()).unwrap();
            assert_eq!(draft[0], top[at]);
        }
    }

    #[test]
    fn drafts_begin_with_tokens_that_are_computed_again() {
        let (mut engine, ids, top) = golden("qwen35_mtp");
        let mut session = engine.session();
        feed(&mut engine, &mut session, &ids[..50]);
        let drafted = [ids[50], ids[51], ids[52], 7, 8];
        session.tentatively(true, |session| feed(&mut engine, session, &drafted));
        session.confirm(53, 16);
        assert_eq!(session.len(), 50, "the states before the draft");
        let draft = engine.draft(&mut session, &ids[50..54], 2, &mut greedy()).unwrap();
        assert_eq!(draft[0], top[53]);
        feed(&mut engine, &mut session, &ids[50..60]);
        let draft = engine.draft(&mut session, &ids[60..61], 2, &mut greedy()).unwrap();
        assert_eq!(draft[0], top[60]);
    }

    #[test]
    fn a_full_cache_has_no_drafts() {
        let (mut engine, ids, top) = golden("glm4moe");
        let mut session = engine.session();
        let context_tokens = engine.context_tokens();
        let text: Vec<u32> = ids.iter().copied().cycle().take(context_tokens - 1).collect();
        feed(&mut engine, &mut session, &text);
        let mut draft = |session: &mut Session, len| {
            engine.draft(session, &[ids[0]], len, &mut greedy()).unwrap()
        };
        assert_eq!(draft(&mut session, 1).len(), 1);
        assert_eq!(draft(&mut session, 2), [0_u32; 0]);
        session.reset();
        assert_eq!(draft(&mut session, 2), [0_u32; 0]);
        // The block's cache follows another text in the same pages.
        feed(&mut engine, &mut session, &ids[..30]);
        let next = engine.draft(&mut session, &ids[30..31], 1, &mut greedy()).unwrap();
        assert_eq!(next, [top[30]]);
    }
}
