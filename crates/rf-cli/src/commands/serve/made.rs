//! How the models of a server came about: from a file, from the hub, or from another model.

use anyhow::{Result, anyhow};
use rf_server::ModelChange;
use rocmforge::hub::ModelName;
use serde_json::Value;

use super::config::SamplingOptions;
use crate::args::TemplateChoice;
use crate::loading::ModelFile;

/// A model of the server.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) file: ModelFile,
    /// The model of the hub whose file it is.
    pub(super) hub: Option<ModelName>,
    /// The changes of a client that derived the model from another one.
    pub(super) made: Option<Made>,
}

/// The changes of a client to a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    pub(super) context: Option<usize>,
    pub(super) template: Option<TemplateChoice>,
    pub(super) system: Option<String>,
    pub(super) sampling: SamplingOptions,
}

impl Made {
    /// The changes after further ones.
    pub(super) fn of(earlier: Self, change: &ModelChange) -> Result<Self> {
        let mut parameters = change.parameters.clone();
        let context =
            match parameters.remove("num_ctx") {
                None | Some(Value::Null) => earlier.context,
                Some(value) => {
                    let tokens = value.as_u64().and_then(|tokens| usize::try_from(tokens).ok());
                    let tokens = tokens.filter(|&tokens| tokens > 1);
                    Some(tokens.ok_or_else(|| {
                        anyhow!("`num_ctx`: expected a number of tokens, at least 2")
                    })?)
                }
            };
        let sampling: SamplingOptions = if parameters.is_empty() {
            earlier.sampling
        } else {
            serde_json::from_value(parameters.into())
                .map_err(|error| anyhow!("`parameters`: {error}"))?
        };
        let template = change.template.as_deref().filter(|template| !template.is_empty());
        let template = template.map(TemplateChoice::of_client).transpose()?;
        Ok(Self {
            context,
            template: template.or(earlier.template),
            system: change.system.clone().or(earlier.system),
            sampling,
        })
    }
}
