//! Speculative decoding: which source drafts tokens, on which device.

use std::sync::Arc;

use rf_device::Placement;
use rf_engine::{AdapterError, Engine, Model, Speculation, SpeculationOptions};

use crate::error::Error;
use crate::load_event::LoadEvent;
use crate::sizing::{DraftRoom, Sizes};
use crate::source::Source;

/// The source of drafts. A draft is a guess of the next tokens, which the model checks in one
/// batch. Drafts change the speed and not the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drafts {
    /// On a CPU the model's own head (MTP) if it has one, else repetitions in the text. No drafts
    /// on a GPU.
    #[default]
    Auto,
    /// No drafts.
    Off,
    /// Repetitions in the text.
    Ngram,
    /// The model's own head, which predicts further tokens.
    Mtp,
    /// A smaller model with the same vocabulary.
    Model(Source),
}

/// The source of drafts, with its model opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenDrafts {
    choice: Choice,
    has_mtp: bool,
    model: Option<Arc<Model>>,
    lengths: SpeculationOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Auto,
    Off,
    Ngram,
    Mtp,
    Model,
}

impl OpenDrafts {
    /// Checks that `model` can use the drafts, and opens the draft model.
    pub(crate) fn open(
        drafts: &Drafts,
        lengths: SpeculationOptions,
        model: &Model,
        observe: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Result<Self, Error> {
        let SpeculationOptions { min_draft_tokens: min, max_draft_tokens: max, .. } = lengths;
        if max == 0 || min > max {
            return Err(Error::DraftLengths { min, max });
        }
        let has_adapters = !model.adapters().is_empty();
        let has_mtp = model.config().mtp.is_some() && !has_adapters;
        let (choice, draft) = match drafts {
            Drafts::Auto => (Choice::Auto, None),
            Drafts::Off => (Choice::Off, None),
            Drafts::Ngram => (Choice::Ngram, None),
            Drafts::Mtp if has_mtp => (Choice::Mtp, None),
            Drafts::Mtp if has_adapters => {
                let error = rf_model::Error::from(AdapterError::WithMtp);
                return Err(rf_engine::Error::from(error).into());
            }
            Drafts::Mtp => return Err(Error::NoMtp { heads_in_metadata: mtp_heads(model) }),
            Drafts::Model(source) => {
                let draft = Model::from_gguf(source.open(observe)?)?;
                model.check_draft_vocabulary(&draft)?;
                (Choice::Model, Some(Arc::new(draft)))
            }
        };
        Ok(Self { choice, has_mtp, model: draft, lengths })
    }

    /// Returns true if another model drafts.
    pub(crate) fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// The room for drafts in the engine that checks them.
    pub(crate) fn room(&self, placement: Option<&Placement>) -> DraftRoom {
        let choice = self.on(placement);
        let speculates = !matches!(choice, Choice::Off | Choice::Auto);
        DraftRoom { speculates, mtp: choice == Choice::Mtp }
    }

    /// Loads the draft model, if there is one. It is loaded before the model, which may take all
    /// memory that is left.
    pub(crate) fn load(
        &self,
        placement: &Placement,
        model: &Model,
        sizes: &Sizes,
    ) -> Result<Option<Engine>, Error> {
        let load = |draft: &Arc<Model>| {
            let options = sizes.draft_options(model, draft);
            Ok(placement.load(draft, options, &mut |_| ())?.engine)
        };
        self.model.as_ref().map(load).transpose()
    }

    /// The source of drafts for a loaded model. `on_cpu` is true if the CPU runs the whole model,
    /// which then computes the same logits in batches of any size.
    pub(crate) fn speculation(
        &self,
        engine: &Engine,
        draft: Option<Engine>,
        on_cpu: bool,
    ) -> Result<Option<Speculation>, Error> {
        let lengths = self.lengths;
        let found = match (self.choice, draft) {
            (_, Some(draft)) => Speculation::draft_model(engine, draft, lengths),
            (Choice::Mtp, None) => Speculation::mtp(engine, lengths),
            (Choice::Ngram, None) => Speculation::ngram(engine, lengths),
            // The head is not loaded if a GPU was to run the model and did not.
            (Choice::Auto, None) if on_cpu => {
                Speculation::mtp(engine, lengths).or_else(|_| Speculation::ngram(engine, lengths))
            }
            (Choice::Auto | Choice::Off | Choice::Model, None) => return Ok(None),
        };
        match found {
            // A model whose cache cannot drop tokens decodes one by one.
            Err(_) if self.choice == Choice::Auto => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// The choice on the devices of a placement. It stays [`Choice::Auto`] with a GPU.
    fn on(&self, placement: Option<&Placement>) -> Choice {
        let has_gpu = placement.is_some_and(|placement| placement.gpu().is_some());
        match self.choice {
            Choice::Auto if has_gpu => Choice::Auto,
            Choice::Auto if self.has_mtp => Choice::Mtp,
            Choice::Auto => Choice::Ngram,
            choice => choice,
        }
    }
}

/// Heads that predict further tokens (MTP), as the metadata of a file count them.
pub(crate) fn mtp_heads(model: &Model) -> i128 {
    let key = format!("{}.nextn_predict_layers", model.config().architecture);
    model.gguf().metadata().get(&key).and_then(rf_gguf::Value::as_integer).unwrap_or(0)
}

/// Memory of a model and of its draft model, in bytes.
pub fn memory_bytes(engine: &Engine, speculation: Option<&Speculation>) -> u64 {
    let draft = speculation.and_then(Speculation::draft_engine);
    engine.memory().total_bytes() + draft.map_or(0, |draft| draft.memory().total_bytes())
}
