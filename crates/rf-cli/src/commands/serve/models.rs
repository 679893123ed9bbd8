//! The models of a server: their files, their names, and how each is loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::Args;
use rf_server::{
    KeepAlive, LoadError, ModelEntry, ModelKind, ModelLoader, ModelSettings, SettingsSource,
};
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::gguf::Gguf;
use rocmforge::hub::{CachedModel, Hub, ModelName};
use rocmforge::{DiskCacheOptions, Loader, Model, ModelDetails, SamplerConfig, SamplingDefaults};

use super::config::{ConfigFile, ModelOptions};
use super::made::{Known, Made};
use crate::adapters::AdapterArgs;
use crate::args::{ComputeArgs, TemplateChoice};
use crate::commands::list;
use crate::device::Placement;
use crate::drafts::DraftArgs;
use crate::failure::bad_input;
use crate::hub::{self, Companions};
use crate::media::ProjectorArgs;
use crate::{loading, terminal};

/// The models, and when they are unloaded.
#[derive(Debug, Args)]
pub(super) struct ServedModelArgs {
    /// Serve the GGUF model FILE, or the model of a short name, see `rf-cli list --all`. For a
    /// split model, name any of its parts (repeatable) [default: all downloaded models, and the
    /// built-in demo model]
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,
    #[arg(
        help = "Serve this model of the Hugging Face hub, downloaded unless it is cached (-hf; repeatable) \
                [default QUANT: Q4_K_M, else Q8_0, else the first file]"
    )]
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", value_parser = hub::repository)]
    hf_repo: Vec<ModelName>,
    /// Serve all model files in DIR
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Serve the model under each NAME, in which * stands for any text. Repeat the option for
    /// further models, in their order [default: the name of the file, which is always accepted]
    #[arg(short, long, value_name = "NAME[,NAME…]")]
    alias: Vec<String>,
    /// Limit the memory of all loaded models to GIB gibibytes, by unloading models [default: the
    /// free memory of the GPU, or of the machine, at the start]
    #[arg(long, value_name = "GIB", help_heading = "Several models")]
    memory_budget: Option<f64>,
    /// Unload a model that no request used for DURATION, such as 10m [default: unload only to free
    /// memory; Ollama's `keep_alive` overrides]
    #[arg(
        long,
        value_name = "DURATION",
        allow_negative_numbers = true,
        help_heading = "Several models"
    )]
    pub(super) keep_alive: Option<KeepAlive>,
    /// Take options of single models from FILE, in TOML: context, template, drafts, adapters,
    /// sampling, aliases, keep-alive, preload, cache-ram and cache-disk
    #[arg(long, value_name = "FILE", help_heading = "Several models")]
    models_config: Option<PathBuf>,
    /// Let nobody download, copy or remove models over HTTP. Else a server without -m and -hf lets
    /// programs of this machine do so, and keys with `manage_models`
    #[arg(long, help_heading = "Several models")]
    no_manage: bool,
}

/// A model to serve.
pub(super) struct ModelFile {
    /// `None` for the demo model.
    path: Option<PathBuf>,
    /// At least one.
    pub(super) names: Vec<String>,
    /// The model of the hub, if the file is one of its cache folder and nobody named it.
    hub: Option<ModelName>,
}

impl ServedModelArgs {
    /// Returns true if no model is named, so that the demo model is used.
    pub(super) fn is_demo(&self) -> bool {
        self.model.is_empty() && self.hf_repo.is_empty() && self.models.is_none()
    }

    /// Returns true if models may be downloaded, copied and removed over HTTP.
    pub(super) fn manages(&self) -> bool {
        !self.no_manage && self.model.is_empty() && self.hf_repo.is_empty()
    }

    /// Returns true if `--keep-alive` bounds the idle time of a model, also that of a single one.
    pub(super) fn is_unloaded(&self) -> bool {
        self.keep_alive.is_some_and(|keep_alive| keep_alive.duration().is_some())
    }

    /// Returns true if a file has options of single models.
    pub(super) fn has_config(&self) -> bool {
        self.models_config.is_some()
    }

    /// The options of single models.
    pub(super) fn config(&self, files: &[ModelFile]) -> Result<ConfigFile> {
        let names = files.iter().map(|file| file.names.clone()).collect();
        ConfigFile::read(self.models_config.clone(), names)
    }

    pub(super) fn memory_budget_bytes(&self) -> Result<Option<u64>> {
        const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
        match self.memory_budget {
            Some(gib) if gib > 0.0 => Ok(Some((gib * GIB) as u64)),
            Some(gib) => {
                Err(bad_input!("--memory-budget {gib} has no room for a model: give more GiB"))
            }
            None => Ok(None),
        }
    }

    /// Returns the models in the order of the options, at least one.
    pub(super) fn files(&self, companions: Companions) -> Result<Vec<ModelFile>> {
        let mut paths: Vec<Option<PathBuf>> = Vec::new();
        for model in &self.model {
            paths.push(Some(hub::named(model, companions)?));
        }
        for name in &self.hf_repo {
            paths.push(Some(hub::fetch(name, companions)?));
        }
        if let Some(folder) = &self.models {
            paths.extend(model_files(folder)?.into_iter().map(Some));
        }
        let downloaded = if self.is_demo() && self.manages() { downloaded() } else { Vec::new() };
        paths.splice(0..0, downloaded.iter().map(|model| Some(model.path.clone())));
        let mut downloaded = downloaded.into_iter();
        if self.is_demo() {
            paths.push(None);
        }
        if self.alias.len() > paths.len() {
            let (names, models) = (self.alias.len(), paths.len());
            return Err(bad_input!(
                "{names} names are too many for {models} models: give one --alias per model"
            ));
        }
        let mut names = self.alias.iter().cloned();
        let file = |path: Option<PathBuf>| {
            let model = downloaded.next();
            let stem = match (&model, path.as_deref()) {
                (Some(model), _) => list::name_of(model),
                (None, path) => path.map_or_else(|| "demo".to_owned(), model_name),
            };
            let hub = model.map(|model| model.name);
            ModelFile { path, names: names_of(names.next().as_deref(), stem), hub }
        };
        let mut files: Vec<_> = paths.into_iter().map(file).collect();
        // Of two files with the same name, aliases tell them apart.
        let all: Vec<String> = files.iter().flat_map(|file| file.names.clone()).collect();
        let is_unique = |name: &String| all.iter().filter(|other| *other == name).count() == 1;
        for file in &mut files {
            let mut is_first = true;
            file.names.retain(|name| std::mem::take(&mut is_first) || is_unique(name));
        }
        Ok(files)
    }
}

/// The downloaded models that can be served, the newest one first.
fn downloaded() -> Vec<CachedModel> {
    let mut cached = Hub::from_env().map(|hub| hub.cached()).unwrap_or_default();
    cached.sort_by_key(|model| std::cmp::Reverse(model.modified));
    let is_served =
        |path: &Path| Gguf::open(path).is_ok_and(|gguf| ModelDetails::of(&gguf).is_ok());
    cached.retain(|model| is_served(&model.path));
    cached
}

/// The names of a model: those of its alias, and that of its file. The first one, which answers
/// have, is no pattern.
fn names_of(alias: Option<&str>, stem: String) -> Vec<String> {
    let given = alias.into_iter().flat_map(|alias| alias.split(',')).map(str::trim);
    let given = given.filter(|name| !name.is_empty()).map(str::to_owned);
    let (patterns, mut names): (Vec<_>, Vec<_>) = given.partition(|name| name.contains('*'));
    names.push(stem);
    names.extend(patterns);
    let mut unique = Vec::with_capacity(names.len());
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}

/// The model files of a folder, by name. Those that hold no model that can be served are left out.
fn model_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut paths = list().map_err(|error| {
        bad_input!("cannot read the folder {}: {error}: check the path", folder.display())
    })?;
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "gguf") && is_first_part(path));
    paths.sort_unstable();
    let details = |path: &Path| Ok::<_, anyhow::Error>(ModelDetails::of(&Gguf::open(path)?)?);
    paths.retain(|path| match details(path) {
        Ok(_) => true,
        Err(error) => {
            terminal::warn(format_args!("leaving out {}: {error:#}", path.display()));
            false
        }
    });
    if paths.is_empty() {
        return Err(bad_input!("{} has no model file that can be served", folder.display()));
    }
    Ok(paths)
}

/// The name of a model file, without its extension and the number of its part.
fn model_name(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.unwrap_or_default();
    match part_suffix(&stem) {
        Some((name, _)) => name.to_owned(),
        None => stem,
    }
}

fn is_first_part(path: &Path) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    part_suffix(&stem.unwrap_or_default()).is_none_or(|(_, part)| part == 1)
}

/// Divides `name-00002-of-00003` into the name and the number of the part.
fn part_suffix(stem: &str) -> Option<(&str, u32)> {
    let (rest, parts) = stem.rsplit_once("-of-")?;
    let (name, part) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(parts) && is_number(part)).then(|| Some((name, part.parse().ok()?)))?
}

/// The settings that all models of a server share.
pub(super) struct SharedSettings {
    pub(super) placement: Placement,
    /// The chat template instead of those of the models, and its variables.
    pub(super) template: TemplateChoice,
    pub(super) compute: ComputeArgs,
    /// The value of `-c`.
    pub(super) context: Option<usize>,
    /// True if models that can generate compute embeddings instead.
    pub(super) embeds: bool,
    /// Tokens of the KV cache.
    pub(super) kv_size: Option<usize>,
    /// MiB of host memory for pages of earlier prompts.
    pub(super) cache_ram: Option<u64>,
    /// The folder for pages of earlier prompts, and its limit.
    pub(super) cache_disk: Option<PathBuf>,
    pub(super) cache_disk_bytes: u64,
    pub(super) scheduler: SchedulerOptions,
    pub(super) drafts: DraftArgs,
    pub(super) projector: ProjectorArgs,
    /// Adapters of the only model, unless its options have others.
    pub(super) adapters: AdapterArgs,
    /// True if the server has one model, which may use all memory.
    pub(super) is_single: bool,
    /// Sampling of requests that set no parameters.
    pub(super) sampling: SamplerConfig,
    /// Options of single models.
    pub(super) config: Arc<ConfigFile>,
}

/// The models of the server, what makes their settings, and their origins. A single one is loaded
/// now and stays, unless it `is_unloaded` when nobody uses it or `is_reloaded` with other adapters.
pub(super) fn entries(
    files: Vec<ModelFile>,
    settings: &Arc<SharedSettings>,
    (is_unloaded, is_reloaded): (bool, bool),
) -> Result<(Vec<ModelEntry>, SettingsSource, BTreeMap<String, Known>)> {
    let is_single = files.len() == 1;
    let is_loaded = is_single && !is_unloaded && !is_reloaded;
    let settings = Arc::clone(settings);
    let (mut entries, mut models) = (Vec::new(), Vec::new());
    let mut known = BTreeMap::new();
    for ModelFile { path, names, hub } in files {
        let mut names = names.into_iter();
        let name = names.next().unwrap_or_default();
        let file = loading::ModelFile::of_path(path);
        let (entry, sampling) = if is_loaded {
            let model = settings.load(&name, &file, (&Made::default(), false), &[], &mut |_| ())?;
            let sampling = model.details().sampling;
            (ModelEntry::loaded(&name, model), sampling)
        } else {
            on_demand(&name, file.clone(), &settings, Made::default())?
        };
        known.insert(name.clone(), Known { file, hub, made: None });
        let model = NamedModel { name, aliases: names.collect(), sampling };
        let options = settings.config.of(&model.name);
        let entry = entry.with_settings(model.settings(&options, &settings.sampling));
        let is_preloaded = options.is_preloaded || (is_single && is_reloaded && !is_unloaded);
        entries.push(if is_preloaded { entry.preloaded() } else { entry });
        models.push(model);
    }
    let source = SettingsSource::new(move || {
        settings.config.read_again()?;
        let renewed = models.iter().map(|model| {
            let options = settings.config.of(&model.name);
            (model.name.clone(), model.settings(&options, &settings.sampling))
        });
        Ok(renewed.collect())
    });
    Ok((entries, source, known))
}

/// A model that is loaded when a request names it, and the parameters of sampling in its file.
pub(super) fn on_demand(
    name: &str,
    file: loading::ModelFile,
    settings: &Arc<SharedSettings>,
    made: Made,
) -> Result<(ModelEntry, SamplingDefaults)> {
    // The header is all that a list of models needs.
    let details = ModelDetails::of(&file.open()?)?;
    let kind = match ModelKind::of(&details) {
        ModelKind::Text if settings.embeds => ModelKind::Embeddings,
        kind => kind,
    };
    let sampling = details.sampling.clone();
    let loader = OnDemand { settings: Arc::clone(settings), name: name.to_owned(), file, made };
    Ok((ModelEntry::on_demand(name, kind, details, loader), sampling))
}

/// A model that is loaded when a request names it.
struct OnDemand {
    settings: Arc<SharedSettings>,
    name: String,
    file: loading::ModelFile,
    made: Made,
}

impl ModelLoader for OnDemand {
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<Model, LoadError> {
        self.load_with_adapters(&[], make_room)
    }

    fn load_with_adapters(
        &self,
        adapters: &[PathBuf],
        make_room: &mut dyn FnMut(u64),
    ) -> Result<Model, LoadError> {
        let made = (&self.made, true);
        let loaded = self.settings.load(&self.name, &self.file, made, adapters, make_room);
        // A client sees the whole chain.
        loaded.map_err(|error| LoadError::from(anyhow!("{error:#}")))
    }
}

/// A model with what its settings are made of.
pub(super) struct NamedModel {
    pub(super) name: String,
    /// Those of the command line.
    pub(super) aliases: Vec<String>,
    /// The parameters of sampling in its file.
    pub(super) sampling: SamplingDefaults,
}

impl NamedModel {
    pub(super) fn settings(
        &self,
        options: &ModelOptions,
        sampling: &SamplerConfig,
    ) -> ModelSettings {
        let aliases = self.aliases.iter().chain(&options.aliases).cloned().collect();
        let sampling = options.sampling(&self.sampling.fill_in(sampling.clone()));
        let keep_alive = options.keep_alive;
        ModelSettings::default()
            .with_aliases(aliases)
            .with_sampling(sampling)
            .with_generation(options.generation())
            .with_keep_alive(keep_alive)
    }
}

impl SharedSettings {
    /// Loads a model, with further adapters that are off. Calls `make_room` with the bytes that it
    /// needs.
    fn load(
        &self,
        name: &str,
        file: &loading::ModelFile,
        (made, quiet): (&Made, bool),
        adapters: &[PathBuf],
        make_room: &mut dyn FnMut(u64),
    ) -> Result<Model> {
        let options = self.config.of(name);
        let context = options.context.or(made.context).or(self.context);
        let drafts = self.drafts.with_options(&options.drafts);
        let template = options.template.as_ref().or(made.template.as_ref());
        let template = template.unwrap_or(&self.template);
        let loader = self.loader(file, context, (&drafts, template), &options)?;
        let loader = adapters.iter().fold(loader, |loader, path| loader.lora(path, 0.0));
        let open = loading::open(loader)?;
        loading::warn_of_context(open.model(), context);
        drafts.note_heads(&open);
        if let Some(error) = open.model().chat_template_error() {
            terminal::warn(format_args!(
                "{}, so chat requests fail: give another template with --chat-template",
                terminal::shown(&error.to_string())
            ));
        }
        Ok(loading::load(&open, &self.placement, quiet, make_room)?.start()?)
    }

    fn loader(
        &self,
        file: &loading::ModelFile,
        context: Option<usize>,
        (drafts, template): (&DraftArgs, &TemplateChoice),
        options: &ModelOptions,
    ) -> Result<Loader> {
        let mut loader = loading::sized(file.loader(), &self.compute, context)?
            .scheduler(self.scheduler)
            .shares_memory(!self.is_single);
        let adapters = self.adapters.with_options(&options.adapters);
        loader = adapters.add_to(self.projector.add_to(loader));
        loader = drafts.add_to(template.add_to(loader))?;
        if self.embeds {
            loader = loader.embeddings();
        }
        if let Some(tokens) = self.kv_size {
            loader = loader.kv_tokens(tokens);
        }
        if let Some(mib) = options.cache_ram.or(self.cache_ram) {
            loader = loader.host_cache_bytes(mib.saturating_mul(1 << 20));
        }
        if let Some(folder) = options.cache_disk.as_ref().or(self.cache_disk.as_ref()) {
            let (folder, max_bytes) = (folder.clone(), self.cache_disk_bytes);
            loader = loader.disk_cache(DiskCacheOptions::new(folder, max_bytes));
        }
        Ok(loader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_several_names_of_which_a_pattern_is_not_the_first() {
        for (alias, expected) in [
            (None, vec!["m"]),
            (Some("m"), vec!["m"]),
            (Some("a"), vec!["a", "m"]),
            (Some("gpt-*, a,b,a,"), vec!["a", "b", "m", "gpt-*"]),
            (Some("*"), vec!["m", "*"]),
        ] {
            assert_eq!(names_of(alias, "m".to_owned()), expected, "{alias:?}");
        }
    }

    #[test]
    fn names_are_those_of_files_without_the_number_of_a_part() {
        for (path, name, is_first) in [
            ("a/llama-3.2-1b.Q8_0.gguf", "llama-3.2-1b.Q8_0", true),
            ("big-00001-of-00003.gguf", "big", true),
            ("big-00002-of-00003.gguf", "big", false),
            ("one-of-us.gguf", "one-of-us", true),
            ("x-1-of-2.gguf", "x-1-of-2", true),
        ] {
            assert_eq!(model_name(Path::new(path)), name);
            assert_eq!(is_first_part(Path::new(path)), is_first, "{path}");
        }
    }
}
