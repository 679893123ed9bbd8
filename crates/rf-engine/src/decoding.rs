//! Decoding of one sequence: the candidates for each next token, computed one by one or ahead with
//! a draft.

use std::ops::Range;
use std::time::Instant;

use rf_graph::Candidate;

use crate::engine::{Engine, Feed, Outputs};
use crate::error::Error;
use crate::generation::NextToken;
use crate::session::Session;
use crate::speculation::{Draft, Speculation};

/// The candidates for the next token of a sequence, and for those after it while the tokens are
/// the drafted ones.
pub(crate) struct Decoding<'a> {
    rows: Rows,
    speculation: Option<&'a mut Speculation>,
    /// Chosen tokens before the newest one that the cache lacks, because it has returned to the
    /// states before a draft.
    replay: Vec<u32>,
    /// The guess of the tokens after the newest one. They are in the cache.
    draft: Draft,
    /// The tokens of the last batch: those computed again, the newest one and the draft.
    fed: Vec<u32>,
    /// Tokens of the draft that were chosen.
    accepted: usize,
    /// Tokens of all drafts so far.
    pub(crate) drafted_tokens: usize,
    /// Those of them that were chosen.
    pub(crate) accepted_tokens: usize,
}

/// The output of a batch, row by row.
#[derive(Default)]
struct Rows {
    /// How many of the most probable tokens a row has; `None` for the logits of all tokens.
    best: Option<usize>,
    vocab_size: usize,
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl<'a> Decoding<'a> {
    /// Computes the tokens of a prompt that the cache lacks. With `best`, only so many of the most
    /// probable tokens are fetched.
    pub(crate) fn start(
        engine: &mut Engine,
        session: &mut Session,
        prompt: &[u32],
        best: Option<usize>,
        mut speculation: Option<&'a mut Speculation>,
    ) -> Result<Self, Error> {
        if let Some(speculation) = &mut speculation {
            speculation.start(prompt);
        }
        let vocab_size = engine.model().config().vocab_size;
        let mut rows = Rows { best, vocab_size, ..Rows::default() };
        let ids = &prompt[session.len()..];
        rows.compute(engine, session, ids, Outputs::Last)?;
        let (drafted_tokens, accepted_tokens) = (0, 0);
        let (draft, replay, fed) = (Draft::default(), Vec::new(), Vec::new());
        let accepted = 0;
        Ok(Self {
            rows,
            speculation,
            replay,
            draft,
            fed,
            accepted,
            drafted_tokens,
            accepted_tokens,
        })
    }

    /// The candidates for the next token.
    pub(crate) fn next(&self) -> NextToken<'_> {
        self.rows.row(self.accepted)
    }

    /// The logits of the next token, if all were fetched.
    pub(crate) fn logits_mut(&mut self) -> Option<&mut [f32]> {
        self.rows.logits_mut(self.accepted)
    }

    /// Moves to the candidates after `newest`, the chosen token, if it is the drafted one. Returns
    /// false otherwise.
    pub(crate) fn accept(&mut self, newest: u32) -> bool {
        let is_drafted = self.draft.ids.get(self.accepted) == Some(&newest);
        if is_drafted {
            self.accepted += 1;
            if let Some(speculation) = &mut self.speculation {
                speculation.push(newest);
            }
        }
        is_drafted
    }

    /// The number of tokens before the newest one.
    pub(crate) fn past_tokens(&self, session: &Session) -> usize {
        session.len() + self.replay.len()
    }

    /// Drops the tokens of the draft that were not chosen from the cache.
    pub(crate) fn settle(&mut self, engine: &Engine, session: &mut Session) {
        let (draft, accepted) = (std::mem::take(&mut self.draft), self.accepted);
        self.accepted = 0;
        let drafted = draft.ids.len();
        if drafted == 0 {
            return;
        }
        let _span = tracing::debug_span!("verify", drafted, accepted).entered();
        let confirmed = session.len() - (drafted - accepted);
        session.confirm(confirmed, engine.page_tokens());
        // The last tokens of the batch that were chosen.
        self.fed.truncate(self.fed.len() - (drafted - accepted));
        self.replay = self.fed.split_off(self.fed.len() - (confirmed - session.len()));
        self.drafted_tokens += drafted;
        self.accepted_tokens += accepted;
        if let Some(speculation) = &mut self.speculation {
            speculation.note_result(&draft, accepted);
        }
    }

    /// Computes `newest`, the token after those in the cache, and a draft of at most `most` tokens
    /// after it.
    pub(crate) fn decode(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        newest: u32,
        most: usize,
    ) -> Result<(), Error> {
        self.draft = self.draft_after(engine, session, newest, most)?;
        let position = self.past_tokens(session);
        let drafted = self.draft.ids.len();
        let span = tracing::debug_span!("decode", position, drafted).entered();
        let start = Instant::now();
        let mut ids = std::mem::take(&mut self.replay);
        ids.push(newest);
        ids.extend(&self.draft.ids);
        let rows = &mut self.rows;
        session.tentatively(drafted > 0, |session| {
            rows.compute(engine, session, &ids, Outputs::Tail(1 + drafted))
        })?;
        drop(span);
        if let Some(speculation) = &mut self.speculation {
            speculation.note_batch(ids.len(), start.elapsed());
        }
        self.fed = ids;
        Ok(())
    }

    /// Computes the chosen tokens before the newest one that the cache lacks.
    pub(crate) fn catch_up(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
    ) -> Result<(), Error> {
        let ids = std::mem::take(&mut self.replay);
        if !ids.is_empty() {
            engine.forward(&mut [Feed { session, ids: &ids, outputs: Outputs::None }])?;
        }
        Ok(())
    }

    /// A draft for which context, batch and KV cache have room.
    fn draft_after(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        newest: u32,
        most: usize,
    ) -> Result<Draft, Error> {
        let Some(speculation) = &mut self.speculation else { return Ok(Draft::default()) };
        let _span = tracing::debug_span!("draft").entered();
        let len = session.len() + self.replay.len() + 1;
        // A draft is not split into batches.
        let batch = engine.batch_tokens().min(session.tokens_to_checkpoint());
        let room = batch.saturating_sub(self.replay.len() + 1);
        let most = most.min(room).min(engine.context_tokens().saturating_sub(len));
        let mut draft = speculation.draft((engine, session), &self.replay, newest, most)?;
        let needed = session.pages_needed_tentatively(len + draft.ids.len());
        if !needed.fits_in(engine.available_pages()) {
            draft.ids.clear();
        }
        Ok(draft)
    }
}

impl Rows {
    /// Computes tokens of a sequence.
    fn compute(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        ids: &[u32],
        outputs: Outputs,
    ) -> Result<(), Error> {
        let mut feeds = [Feed { session, ids, outputs }];
        match self.best {
            Some(k) => self.candidates = engine.forward_top_k(&mut feeds, k)?,
            None => engine.forward_into(&mut feeds, &mut self.logits)?,
        }
        Ok(())
    }

    fn row(&self, index: usize) -> NextToken<'_> {
        if let Some(k) = self.best {
            return NextToken::Best(&self.candidates[index * k..(index + 1) * k]);
        }
        NextToken::Logits(&self.logits[self.logits_range(index)])
    }

    fn logits_mut(&mut self, index: usize) -> Option<&mut [f32]> {
        let range = self.logits_range(index);
        self.best.is_none().then(|| &mut self.logits[range])
    }

    fn logits_range(&self, index: usize) -> Range<usize> {
        index * self.vocab_size..(index + 1) * self.vocab_size
    }
}
