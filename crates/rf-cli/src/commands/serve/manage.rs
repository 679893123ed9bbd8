//! Models that clients download, make of others, and remove while the server runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, anyhow};
use rf_server::{LoadError, ManageError, ModelChange, ModelEntry, ModelManager};
use rocmforge::hub::{self, FetchEvent, Hub, ShortName};

use super::config::ModelOptions;
use super::made::{Known, Made};
use super::models::{NamedModel, SharedSettings, on_demand};
use crate::loading::ModelFile;

/// The prefixes that Ollama's clients give to models of the hub.
const PREFIXES: [&str; 2] = ["hf.co/", "huggingface.co/"];

/// The models of a server by their names.
pub(super) struct Models {
    settings: Arc<SharedSettings>,
    known: Mutex<BTreeMap<String, Known>>,
}

impl Models {
    /// The models that a server has at its start.
    pub(super) fn new(settings: Arc<SharedSettings>, known: BTreeMap<String, Known>) -> Self {
        Self { settings, known: Mutex::new(known) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a model, which is loaded on demand.
    fn entry(&self, name: &str, aliases: Vec<String>, model: &Known) -> Result<ModelEntry> {
        let made = model.made.clone().unwrap_or_default();
        let (entry, sampling) = on_demand(name, model.file.clone(), &self.settings, made.clone())?;
        let named = NamedModel { name: name.to_owned(), aliases, sampling };
        let mut settings = named.settings(&ModelOptions::default(), &self.settings.sampling);
        let sampling = settings.sampling.as_ref().unwrap_or(&self.settings.sampling);
        made.sampling.check().map_err(|mistake| anyhow!(mistake.message))?;
        settings.sampling = Some(made.sampling.over(sampling));
        (settings.generation, settings.system) = (made.sampling.generation(), made.system);
        Ok(entry.with_settings(settings))
    }
}

impl ModelManager for Models {
    fn pull(
        &self,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ModelEntry, ManageError> {
        let text = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let model = crate::hub::model_name(text)
            .map_err(|reason| ManageError::Unknown(format!("{text}: {reason}").into()))?;
        let companions = self.settings.projector.companions();
        let hub = crate::hub::of_environment(companions).map_err(of_hub)?;
        let path = hub.fetch(&model, &mut |event| match event {
            FetchEvent::Progress { done_bytes, total_bytes } => progress(done_bytes, total_bytes),
            FetchEvent::Retry { file, reason } => {
                tracing::warn!(file, "the download stopped: {reason}, trying again");
            }
            _ => {}
        });
        let path = path.map_err(of_hub)?;
        // With its quantisation, so that only this model is removed later.
        let cached = hub.cached().into_iter().find(|cached| cached.path == path);
        let file = ModelFile::of_path(Some(path));
        let known = Known { file, hub: cached.map(|cached| cached.name), made: None };
        let listed = ShortName::find(text).map_or_else(|| text.to_owned(), ToString::to_string);
        let aliases = if listed == name { Vec::new() } else { vec![name.to_owned()] };
        let entry = self
            .entry(&listed, aliases, &known)
            .map_err(|error| ManageError::Failed(whole(&error)))?;
        self.lock().insert(listed, known);
        Ok(entry)
    }

    fn make(
        &self,
        from: &str,
        name: &str,
        change: &ModelChange,
    ) -> Result<ModelEntry, ManageError> {
        let known = self.lock().get(from).cloned();
        let Some(mut model) = known else { return Err(unknown(from)) };
        let changed = Made::of(model.made.take().unwrap_or_default(), change);
        model.made = Some(changed.map_err(|error| refused(&error))?);
        let entry = self.entry(name, Vec::new(), &model);
        let entry = entry.map_err(|error| refused(&error))?;
        let mut known = self.lock();
        if known.contains_key(name) {
            return Err(ManageError::Refused(
                format!("there is a model `{name}`: remove it first").into(),
            ));
        }
        known.insert(name.to_owned(), model);
        Ok(entry)
    }

    fn remove(&self, name: &str) -> Result<(), ManageError> {
        let mut known = self.lock();
        let Some(model) = known.get(name) else { return Err(unknown(name)) };
        if model.hub.is_none() && model.made.is_none() {
            let message = format!("`{name}` is not a downloaded model: remove its file yourself");
            return Err(ManageError::Refused(message.into()));
        }
        let same_file = |other: &Known| other.file.path == model.file.path;
        let is_last = known.values().filter(|other| same_file(other)).count() == 1;
        if let Some(hub) = model.hub.as_ref().filter(|_| is_last) {
            Hub::from_env().and_then(|cache| cache.remove(hub)).map_err(of_hub)?;
        }
        known.remove(name);
        Ok(())
    }
}

fn unknown(name: &str) -> ManageError {
    ManageError::Unknown(format!("the model `{name}` does not exist").into())
}

fn refused(error: &anyhow::Error) -> ManageError {
    ManageError::Refused(whole(error))
}

/// A client sees the whole chain.
fn whole(error: &anyhow::Error) -> LoadError {
    LoadError::from(anyhow!("{error:#}"))
}

fn of_hub(error: hub::Error) -> ManageError {
    use hub::Error as E;
    match error {
        E::Name { .. }
        | E::UnknownRepository { .. }
        | E::Denied { .. }
        | E::NoGguf { .. }
        | E::UnknownQuant { .. }
        | E::MissingParts { .. }
        | E::NotCached { .. } => ManageError::Unknown(error.into()),
        _ => ManageError::Failed(error.into()),
    }
}
