//! Speculative decoding: its flags, and the source of drafts.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rf_engine::{Engine, EngineOptions, Model, Speculation, SpeculationOptions};
use rf_hub::ModelName;

use crate::device::Placement;
use crate::failure::bad_input;
use crate::hub;
use crate::loading::{self, ModelFile, Source};
use crate::terminal;

/// Flags of speculative decoding.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub(crate) struct DraftArgs {
    /// Guess tokens and check several in one batch, which changes the speed and not the text: from
    /// repetitions in the text (ngram), with the model of -md (draft), or with the head of the
    /// model that predicts further tokens (mtp); auto is draft with -md, on a CPU mtp if the file
    /// has such a head and else ngram, and off on a GPU
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Auto)]
    spec: Mode,
    /// Draft tokens with this smaller model, which must have the same vocabulary (-md)
    #[arg(long, value_name = "FILE")]
    model_draft: Option<PathBuf>,
    /// Draft tokens with this model of the Hugging Face hub (-hfd)
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", conflicts_with = "model_draft")]
    hf_repo_draft: Option<ModelName>,
    /// Draft at most N tokens at once
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().max_draft_tokens)]
    draft_max: usize,
    /// Leave out drafts of fewer than N tokens
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().min_draft_tokens)]
    draft_min: usize,
}

/// The source of drafts. llama.cpp's names are aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Auto,
    #[value(alias = "none")]
    Off,
    #[value(aliases = ["ngram-simple", "ngram-cache", "ngram-map-k", "ngram-map-k4v", "ngram-mod"])]
    Ngram,
    #[value(alias = "draft-simple")]
    Draft,
    #[value(alias = "draft-mtp")]
    Mtp,
}

/// Checked flags, and the opened draft model.
pub(crate) struct Drafts {
    mode: Mode,
    /// The model has a head that predicts further tokens.
    has_mtp: bool,
    model: Option<(ModelFile, Model)>,
    options: SpeculationOptions,
}

/// Checked flags, and the loaded draft model.
pub(crate) struct LoadedDrafts {
    mode: Mode,
    /// The mode was not chosen by the user.
    is_auto: bool,
    engine: Option<Engine>,
    options: SpeculationOptions,
}

impl DraftArgs {
    /// Returns true if a draft model is named.
    pub(crate) fn has_model(&self) -> bool {
        self.model_draft.is_some() || self.hf_repo_draft.is_some()
    }

    /// Checks the flags, and opens the draft model for `model`.
    pub(crate) fn open(&self, model: &Model) -> Result<Drafts> {
        let options = SpeculationOptions {
            max_draft_tokens: self.draft_max,
            min_draft_tokens: self.draft_min,
        };
        if self.draft_max == 0 {
            return Err(bad_input!("--draft-max 0 drafts nothing: give 1 or more, or --spec off"));
        }
        if self.draft_min > self.draft_max {
            return Err(bad_input!(
                "--draft-min {} is above --draft-max {}: give a smaller one",
                self.draft_min,
                self.draft_max
            ));
        }
        let has_model = self.has_model();
        let mode = match self.spec {
            Mode::Auto if has_model => Mode::Draft,
            Mode::Ngram | Mode::Mtp if has_model => {
                let name = if self.spec == Mode::Mtp { "mtp" } else { "ngram" };
                return Err(bad_input!(
                    "--spec {name} needs no draft model: leave out -md, or give --spec draft"
                ));
            }
            Mode::Draft if !has_model => {
                return Err(bad_input!("--spec draft needs a draft model: give one with -md FILE"));
            }
            mode => mode,
        };
        let has_mtp = model.config().mtp.is_some();
        if mode == Mode::Mtp {
            let heads = mtp_heads(model);
            if !has_mtp {
                return Err(without_mtp(heads));
            }
            if heads > 1 {
                terminal::note(format_args!(
                    "the file has {heads} MTP heads: the first one drafts"
                ));
            }
        }
        let draft = if mode == Mode::Draft { self.open_model(model)? } else { None };
        Ok(Drafts { mode, has_mtp, model: draft, options })
    }

    fn open_model(&self, model: &Model) -> Result<Option<(ModelFile, Model)>> {
        let path = match &self.hf_repo_draft {
            Some(name) => Some(hub::fetch(name)?),
            None => self.model_draft.clone(),
        };
        let file = ModelFile::of_path(path);
        let draft = loading::open_model(&file, None)?;
        model.check_draft_vocabulary(&draft)?;
        Ok(Some((file, draft)))
    }
}

/// The number of heads that predict further tokens (MTP), as the metadata has it.
fn mtp_heads(model: &Model) -> i128 {
    let key = format!("{}.nextn_predict_layers", model.config().architecture);
    model.gguf().metadata().get(&key).and_then(rf_gguf::Value::as_integer).unwrap_or(0)
}

/// Why a model does not predict several tokens itself.
fn without_mtp(heads: i128) -> anyhow::Error {
    if heads > 0 {
        bad_input!(
            "--spec mtp: the file lacks the tensors of its MTP heads: give ngram, or convert the \
             model again with them"
        )
    } else {
        bad_input!(
            "--spec mtp: the model has no heads that predict several tokens (MTP): give ngram, or \
             leave it out"
        )
    }
}

impl Drafts {
    /// The source of drafts on the devices of a placement. It stays [`Mode::Auto`] with a GPU.
    fn mode_on(&self, placement: &Placement) -> Mode {
        match self.mode {
            Mode::Auto if placement.gpu().is_some() => Mode::Auto,
            Mode::Auto if self.has_mtp => Mode::Mtp,
            Mode::Auto => Mode::Ngram,
            mode => mode,
        }
    }

    /// The options of an engine that checks the drafts.
    pub(crate) fn engine_options(
        &self,
        placement: &Placement,
        options: EngineOptions,
    ) -> EngineOptions {
        let mode = self.mode_on(placement);
        let speculates = !matches!(mode, Mode::Off | Mode::Auto);
        EngineOptions { speculates, mtp: mode == Mode::Mtp, ..options }
    }

    /// Loads the draft model, if there is one, for a model with these options. It is loaded first,
    /// because the model may take all memory that is left.
    pub(crate) fn load(
        self,
        placement: &Placement,
        context_tokens: usize,
        options: EngineOptions,
    ) -> Result<LoadedDrafts> {
        let (is_auto, mode) = (self.mode == Mode::Auto, self.mode_on(placement));
        let Self { model, options: limits, .. } = self;
        let load = |(file, model): (ModelFile, Model)| {
            let most = model.config().max_context_length.unwrap_or(usize::MAX);
            let context_tokens = Some(context_tokens.min(most));
            // It drafts for one sequence.
            let options = EngineOptions {
                context_tokens,
                kv_tokens: None,
                sequences: 1,
                checkpoints: 0,
                host_state_bytes: 0,
                speculates: true,
                mtp: false,
                ..options
            };
            let source = Source { file: &file, template: None, quiet: true };
            Ok::<_, anyhow::Error>(loading::load(model, placement, options, source)?.engine)
        };
        Ok(LoadedDrafts { mode, is_auto, engine: model.map(load).transpose()?, options: limits })
    }
}

impl LoadedDrafts {
    /// The source of drafts for a loaded model. `is_exact` is true if the model computes the same
    /// logits in batches of any size.
    pub(crate) fn speculation(
        self,
        engine: &Engine,
        is_exact: bool,
    ) -> Result<Option<Speculation>> {
        let limits = self.options;
        let found = match (self.mode, self.engine) {
            (_, Some(draft)) => Speculation::draft_model(engine, draft, limits),
            (Mode::Mtp, None) => Speculation::mtp(engine, limits),
            (Mode::Ngram, None) => Speculation::ngram(engine, limits),
            // The GPU did not do, so that the CPU has the model.
            (Mode::Auto, None) if is_exact => Speculation::ngram(engine, limits),
            (Mode::Auto | Mode::Off | Mode::Draft, None) => return Ok(None),
        };
        match found {
            // A model whose cache cannot drop tokens decodes one by one.
            Err(_) if self.is_auto => Ok(None),
            found => Ok(Some(found?)),
        }
    }
}

/// Bytes that a model and its draft model hold.
pub(crate) fn memory_bytes(engine: &Engine, speculation: Option<&Speculation>) -> u64 {
    let draft = speculation.and_then(Speculation::draft_engine);
    engine.memory().total_bytes() + draft.map_or(0, |draft| draft.memory().total_bytes())
}

/// How many drafted tokens were accepted, for a line of metrics; empty without drafts.
pub(crate) fn acceptance(timings: &rf_engine::Timings) -> String {
    timings.acceptance().map_or_else(String::new, |share| {
        let (accepted, drafted) = (timings.accepted_tokens, timings.drafted_tokens);
        format!(", accepted {accepted} of {drafted} drafted ({:.0} %)", 100.0 * share)
    })
}
