//! Speculative decoding: its flags, and the source of drafts.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rocmforge::engine::SpeculationOptions;
use rocmforge::hub::ModelName;
use rocmforge::{Drafts, Loader, OpenModel, Source};

use crate::failure::bad_input;
use crate::hub::{self, Companions};
use crate::terminal;

/// Flags of speculative decoding.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub(crate) struct DraftArgs {
    /// Select speculative decoding, which changes the speed but not the answer. ngram: drafts from
    /// repetitions in the text; draft: from a smaller model (-md); mtp: from the model's own head.
    /// auto: draft with -md; otherwise on a CPU mtp if the file has such a head, else ngram; off on
    /// a GPU
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Auto)]
    spec: Mode,
    /// Draft tokens with this smaller model, which must have the same vocabulary (-md)
    #[arg(long, value_name = "FILE")]
    model_draft: Option<PathBuf>,
    /// Draft tokens with this model of the Hugging Face hub (-hfd)
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", value_parser = hub::repository, conflicts_with = "model_draft")]
    hf_repo_draft: Option<ModelName>,
    /// Draft at most N tokens at once
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().max_draft_tokens)]
    draft_max: usize,
    /// Discard drafts of fewer than N tokens
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

/// The drafts of a single model, which replace those of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftOptions {
    pub(crate) mode: Option<Mode>,
    /// The file of the draft model.
    pub(crate) model: Option<PathBuf>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) min_tokens: Option<usize>,
}

impl DraftArgs {
    /// Returns true if a draft model is named.
    pub(crate) fn has_model(&self) -> bool {
        self.model_draft.is_some() || self.hf_repo_draft.is_some()
    }

    /// The flags with the options of a single model. A source of drafts replaces the draft model.
    pub(crate) fn with_options(&self, options: &DraftOptions) -> Self {
        let mut own = self.clone();
        if options.mode.is_some() || options.model.is_some() {
            own.spec = options.mode.unwrap_or(Mode::Draft);
            own.model_draft.clone_from(&options.model);
            own.hf_repo_draft = None;
        }
        own.draft_max = options.max_tokens.unwrap_or(own.draft_max);
        own.draft_min = options.min_tokens.unwrap_or(own.draft_min);
        own
    }

    /// Checks the flags, and adds the drafts to the options of a model.
    pub(crate) fn add_to(&self, loader: Loader) -> Result<Loader> {
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
        let lengths = SpeculationOptions::default()
            .with_max_draft_tokens(self.draft_max)
            .with_min_draft_tokens(self.draft_min);
        Ok(loader.drafts(self.drafts()?).draft_lengths(lengths))
    }

    fn drafts(&self) -> Result<Drafts> {
        let has_model = self.has_model();
        Ok(match self.spec {
            Mode::Auto | Mode::Draft if has_model => Drafts::Model(self.draft_model()?),
            Mode::Ngram | Mode::Mtp if has_model => {
                let name = if self.spec == Mode::Mtp { "mtp" } else { "ngram" };
                return Err(bad_input!(
                    "--spec {name} needs no draft model: leave out -md, or give --spec draft"
                ));
            }
            Mode::Draft => {
                return Err(bad_input!("--spec draft needs a draft model: give one with -md FILE"));
            }
            Mode::Auto => Drafts::Auto,
            Mode::Off => Drafts::Off,
            Mode::Ngram => Drafts::Ngram,
            Mode::Mtp => Drafts::Mtp,
        })
    }

    fn draft_model(&self) -> Result<Source> {
        Ok(match (&self.hf_repo_draft, &self.model_draft) {
            (Some(name), _) => Source::File(hub::fetch(name, Companions::None)?),
            (None, Some(path)) => Source::File(path.clone()),
            (None, None) => Source::Demo,
        })
    }

    /// Says which of several heads drafts.
    pub(crate) fn note_heads(&self, open: &OpenModel) {
        let heads = open.mtp_heads();
        if self.spec == Mode::Mtp && heads > 1 {
            terminal::note(format_args!("the file has {heads} MTP heads: the first one drafts"));
        }
    }
}

/// The share of drafted tokens that were accepted, for a line of metrics; empty without drafts.
pub(crate) fn acceptance(timings: &rocmforge::Timings) -> String {
    timings.acceptance().map_or_else(String::new, |share| {
        let (accepted, drafted) = (timings.accepted_tokens, timings.drafted_tokens);
        format!(", accepted {accepted} of {drafted} drafted ({:.0} %)", 100.0 * share)
    })
}
