//! The file with options of single models (`--models-config`).

mod sampling;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use anyhow::Result;
use clap::ValueEnum;
use rf_server::{GenerationDefaults, KeepAlive};
use rocmforge::SamplerConfig;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

pub(super) use self::sampling::SamplingOptions;
use crate::adapters::{self, AdapterOptions};
use crate::args::TemplateChoice;
use crate::drafts::{DraftOptions, Mode};
use crate::failure::bad_input;
use crate::sources;

/// The file with the options, which can be read again.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// `None` if there is no file, and so no options.
    path: Option<PathBuf>,
    /// The names of each model, that by which it is served first.
    names: Vec<Vec<String>>,
    config: RwLock<ModelsConfig>,
}

impl ConfigFile {
    /// Reads the options of models of these names.
    pub(super) fn read(path: Option<PathBuf>, names: Vec<Vec<String>>) -> Result<Self> {
        let file = Self { path, names, config: RwLock::default() };
        file.read_again()?;
        Ok(file)
    }

    /// Reads the file again. If that fails, the options stay as they are.
    pub(super) fn read_again(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let config = ModelsConfig::read(path, &self.names)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The options of a model; none for one that the file does not name.
    pub(super) fn of(&self, name: &str) -> ModelOptions {
        self.config.read().unwrap_or_else(PoisonError::into_inner).of(name)
    }
}

/// The options of each model, by its name.
#[derive(Debug, Default)]
struct ModelsConfig {
    options: BTreeMap<String, ModelOptions>,
}

/// The options of a model, which win over those of the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelOptions {
    pub(super) context: Option<usize>,
    pub(super) template: Option<TemplateChoice>,
    pub(super) drafts: DraftOptions,
    pub(super) adapters: AdapterOptions,
    pub(super) aliases: Vec<String>,
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) is_preloaded: bool,
    /// MiB of host memory for pages of earlier prompts.
    pub(super) cache_ram: Option<u64>,
    /// The folder for pages of earlier prompts.
    pub(super) cache_disk: Option<PathBuf>,
    sampling: SamplingOptions,
}

impl ModelOptions {
    /// The parameters of sampling with those of the model.
    pub(super) fn sampling(&self, base: &SamplerConfig) -> SamplerConfig {
        self.sampling.over(base)
    }

    /// The other parameters of requests that set none.
    pub(super) fn generation(&self) -> GenerationDefaults {
        self.sampling.generation()
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigToml {
    #[serde(default)]
    models: BTreeMap<Spanned<String>, ModelToml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ModelToml {
    context: Option<Spanned<usize>>,
    template: Option<Spanned<String>>,
    drafts: Option<Spanned<String>>,
    draft_model: Option<Spanned<PathBuf>>,
    draft_max: Option<Spanned<usize>>,
    draft_min: Option<Spanned<usize>>,
    lora: Option<Vec<Spanned<String>>>,
    control_vectors: Option<Vec<Spanned<String>>>,
    control_vector_layer_range: Option<Spanned<(usize, usize)>>,
    #[serde(default)]
    aliases: Vec<Spanned<String>>,
    keep_alive: Option<KeepAlive>,
    #[serde(default)]
    preload: bool,
    cache_ram: Option<u64>,
    cache_disk: Option<PathBuf>,
    sampling: Option<Spanned<SamplingOptions>>,
}

impl ModelsConfig {
    /// Reads the file, and checks it for models of these names.
    fn read(path: &Path, names: &[Vec<String>]) -> Result<Self> {
        let text = sources::file_text(path)?;
        Self::parse(&text, path, names)
    }

    fn of(&self, name: &str) -> ModelOptions {
        self.options.get(name).cloned().unwrap_or_default()
    }

    fn parse(text: &str, path: &Path, names: &[Vec<String>]) -> Result<Self> {
        let place = Place { path, text };
        let config: ConfigToml = toml::from_str(text)
            .map_err(|error| place.error(error.span().unwrap_or(0..0), error.message()))?;
        let mut models: Vec<_> = config.models.into_iter().collect();
        models.sort_by_key(|(name, _)| name.span().start);
        let known: Vec<&str> =
            names.iter().filter_map(|names| Some(names.first()?.as_str())).collect();
        let mut owners = HashMap::new();
        for names in names {
            for name in names {
                owners.entry(name.clone()).or_insert_with(|| names[0].clone());
            }
        }
        let mut options = BTreeMap::new();
        for (name, model) in models {
            let span = name.span();
            let name = name.into_inner();
            if !known.contains(&name.as_str()) {
                let problem =
                    format!("no model has the name {name:?}: known are {}", known.join(", "));
                return Err(place.error(span, &problem));
            }
            place.check_aliases(&name, &model.aliases, &mut owners)?;
            options.insert(name.clone(), place.checked(&name, model)?);
        }
        Ok(Self { options })
    }
}

/// The file of an error.
struct Place<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    fn checked(&self, name: &str, model: ModelToml) -> Result<ModelOptions> {
        if let Some(context) = model.context.as_ref().filter(|context| *context.get_ref() == 0) {
            return Err(self.error(context.span(), "a context has at least one token"));
        }
        let template = match &model.template {
            None => None,
            Some(given) => {
                let source = TemplateChoice::of(given.get_ref());
                Some(source.map_err(|error| self.error(given.span(), &format!("{error:#}")))?)
            }
        };
        let (drafts, adapters) = (self.drafts(&model)?, self.adapters(&model)?);
        let sampling = match model.sampling {
            None => SamplingOptions::default(),
            Some(given) => {
                given.get_ref().check().map_err(|mistake| {
                    let span = self.span_of_sampling(name, &mistake.names);
                    self.error(span.unwrap_or_else(|| given.span()), &mistake.message)
                })?;
                given.into_inner()
            }
        };
        Ok(ModelOptions {
            context: model.context.map(Spanned::into_inner),
            template,
            drafts,
            adapters,
            aliases: model.aliases.into_iter().map(Spanned::into_inner).collect(),
            keep_alive: model.keep_alive,
            is_preloaded: model.preload,
            cache_ram: model.cache_ram,
            cache_disk: model.cache_disk,
            sampling,
        })
    }

    fn drafts(&self, model: &ModelToml) -> Result<DraftOptions> {
        let file = model.draft_model.as_ref();
        if let Some(file) = file {
            self.check_file(file.get_ref(), &file.span())?;
        }
        let mode = match &model.drafts {
            None => None,
            Some(given) => match (Mode::from_str(given.get_ref(), true), file) {
                (Ok(Mode::Ngram | Mode::Mtp), Some(_)) => {
                    let problem = "these drafts need no draft-model: expected auto, off or draft";
                    return Err(self.error(given.span(), problem));
                }
                (Ok(Mode::Draft), None) => {
                    let problem = "a model that drafts is missing: add draft-model = \"FILE\"";
                    return Err(self.error(given.span(), problem));
                }
                (Ok(mode), _) => Some(mode),
                (Err(_), _) => {
                    let problem = "expected auto, off, ngram, draft or mtp";
                    return Err(self.error(given.span(), problem));
                }
            },
        };
        let (most, least) = (model.draft_max.as_ref(), model.draft_min.as_ref());
        if let Some(most) = most.filter(|most| *most.get_ref() == 0) {
            let problem = "drafts have at least one token: or give drafts = \"off\"";
            return Err(self.error(most.span(), problem));
        }
        if let Some((most, least)) = most.zip(least)
            && least > most
        {
            return Err(
                self.error(least.span(), "draft-min is above draft-max: give a smaller one")
            );
        }
        Ok(DraftOptions {
            mode,
            model: file.map(|file| file.get_ref().clone()),
            max_tokens: most.map(|most| *most.get_ref()),
            min_tokens: least.map(|least| *least.get_ref()),
        })
    }

    fn adapters(&self, model: &ModelToml) -> Result<AdapterOptions> {
        let layers = model.control_vector_layer_range.as_ref();
        if let Some(layers) = layers.filter(|layers| layers.get_ref().0 > layers.get_ref().1) {
            return Err(self.error(layers.span(), "the first layer is after the last one"));
        }
        let scaled = |files: &Option<Vec<Spanned<String>>>| -> Result<Option<Vec<_>>> {
            let Some(files) = files else { return Ok(None) };
            let files = files.iter().map(|file| {
                let scaled = adapters::scaled_file(file.get_ref())
                    .map_err(|problem| self.error(file.span(), problem))?;
                self.check_file(&scaled.0, &file.span())?;
                Ok(scaled)
            });
            Ok(Some(files.collect::<Result<_>>()?))
        };
        Ok(AdapterOptions {
            lora: scaled(&model.lora)?,
            control_vectors: scaled(&model.control_vectors)?,
            control_layers: layers.map(|layers| *layers.get_ref()),
        })
    }

    fn check_file(&self, path: &Path, span: &Range<usize>) -> Result<()> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => {
                let problem = format!("{} is not a file: check the path", path.display());
                Err(self.error(span.clone(), &problem))
            }
            Err(error) => {
                let problem = format!("cannot read {}: {error}: check the path", path.display());
                Err(self.error(span.clone(), &problem))
            }
        }
    }

    /// Checks that each alias is a name, and that no other model has it. `owners` has the model of
    /// each name, and gets those of the aliases.
    fn check_aliases(
        &self,
        model: &str,
        aliases: &[Spanned<String>],
        owners: &mut HashMap<String, String>,
    ) -> Result<()> {
        for alias in aliases {
            let name = alias.get_ref();
            if name.is_empty() || name.trim() != name || name.chars().any(char::is_control) {
                let problem = format!(
                    "{name:?} is no alias: give a name without spaces around it, in which * stands \
                     for any text"
                );
                return Err(self.error(alias.span(), &problem));
            }
            let owner = owners.entry(name.clone()).or_insert_with(|| model.to_owned());
            if owner != model {
                let problem =
                    format!("the model {owner:?} has the name {name:?}, too: give each its own");
                return Err(self.error(alias.span(), &problem));
            }
        }
        Ok(())
    }

    /// The place of a parameter of sampling, which has one of these names.
    fn span_of_sampling(&self, model: &str, names: &[String]) -> Option<Range<usize>> {
        let mut places: ConfigPlaces = toml::from_str(self.text).ok()?;
        let sampling = places.models.remove(model)?.sampling;
        names.iter().find_map(|name| Some(sampling.get(name)?.span()))
    }

    /// A problem with its line and column.
    fn error(&self, span: Range<usize>, problem: &str) -> anyhow::Error {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        bad_input!("{}, line {line}, column {column}: {problem}", self.path.display())
    }
}

/// The places of the parameters of sampling in the file.
#[derive(Deserialize)]
struct ConfigPlaces {
    models: BTreeMap<String, ModelPlaces>,
}

#[derive(Deserialize)]
struct ModelPlaces {
    #[serde(default)]
    sampling: BTreeMap<String, Spanned<IgnoredAny>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ModelsConfig> {
        let names = [&["a", "fox*"][..], &["b", "owl"]];
        let names = names.map(|names| names.iter().map(ToString::to_string).collect());
        ModelsConfig::parse(text, Path::new("models.toml"), &names)
    }

    #[test]
    fn each_model_has_its_options() {
        let config = parse(
            "[models.a]\ncontext = 8192\ntemplate = \"chatml\"\ndrafts = \"off\"\n\
             aliases = [\"gpt-*\", \"fox*\"]\nkeep-alive = \"10m\"\npreload = true\n\
             cache-ram = 512\ncache-disk = \"pages\"\ndraft-max = 5\ndraft-min = 2\n\
             [models.a.sampling]\ntemperature = 0.25\ntop_k = 20\nrepeat_last_n = -1\n",
        );
        let options = config.unwrap().of("a");
        assert_eq!((options.context, options.drafts.mode), (Some(8192), Some(Mode::Off)));
        let lengths = (options.drafts.max_tokens, options.drafts.min_tokens);
        assert_eq!(lengths, (Some(5), Some(2)));
        assert_eq!((options.aliases.len(), options.is_preloaded), (2, true));
        assert_eq!(options.keep_alive, Some("10m".parse().unwrap()));
        assert_eq!(options.cache_ram, Some(512));
        assert_eq!(options.cache_disk.as_deref(), Some(Path::new("pages")));
        assert!(options.template.is_some());
        let base = SamplerConfig::default().with_top_p(0.5).with_top_k(7);
        let sampling = options.sampling(&base);
        let expected = base.clone().with_temperature(0.25).with_top_k(20).with_repeat_last_n(None);
        assert_eq!(sampling, expected);
        let config = parse("").unwrap();
        assert_eq!(config.of("b").sampling(&base), base);
    }

    #[test]
    fn files_of_a_model_have_scales() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["l.gguf", "c.gguf", "d.gguf"] {
            std::fs::write(path(name), "").unwrap();
        }
        let text = format!(
            "[models.b]\nlora = [\"{0}\", \"{0}:0.5\"]\ncontrol-vectors = [\"{1}:-1\"]\n\
             control-vector-layer-range = [1, 2]\ndraft-model = \"{2}\"\n",
            path("l.gguf"),
            path("c.gguf"),
            path("d.gguf"),
        );
        let options = parse(&text).unwrap().of("b");
        let scaled = |name: &str, scale: f32| (PathBuf::from(path(name)), scale);
        let AdapterOptions { lora, control_vectors, control_layers } = options.adapters;
        assert_eq!(lora.unwrap(), [scaled("l.gguf", 1.0), scaled("l.gguf", 0.5)]);
        assert_eq!(control_vectors.unwrap(), [scaled("c.gguf", -1.0)]);
        assert_eq!(control_layers, Some((1, 2)));
        assert_eq!(options.drafts.model, Some(path("d.gguf").into()));
        let none = parse("[models.b]\nlora = []\n").unwrap().of("b").adapters;
        assert_eq!((none.lora, none.control_vectors), (Some(Vec::new()), None));

        let file = path("d.gguf");
        for (drafts, problem) in [("mtp", "need no draft-model"), ("draft", "")] {
            let text = format!("[models.b]\ndraft-model = \"{file}\"\ndrafts = \"{drafts}\"\n");
            match parse(&text) {
                Ok(_) => assert!(problem.is_empty()),
                Err(error) => {
                    let error = error.to_string();
                    let place = "models.toml, line 3, column 10: ";
                    assert!(error.starts_with(place) && error.contains(problem), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_column() {
        for (text, place, problem) in [
            ("[models.a]\ncontext = \"x\"\n", "line 2, column 11", "invalid type"),
            ("[models.a]\n  context = 0\n", "line 2, column 13", "at least one token"),
            ("[models.a]\ncontexts = 1\n", "line 2, column 1", "unknown field"),
            ("[models.c]\n", "line 1, column 9", "no model has the name \"c\": known are a, b"),
            (
                "[models.b]\ntemplate = \"no such\"\n",
                "line 2, column 12",
                "neither a file nor built in",
            ),
            ("[models.b]\ntemplate = \"{% if %}\"\n", "line 2, column 12", "template"),
            ("[models.b]\ndrafts = \"draft\"\n", "line 2, column 10", "draft-model"),
            ("[models.b]\ndrafts = \"x\"\n", "line 2, column 10", "auto, off, ngram"),
            ("[models.b]\ndraft-model = \"x.gguf\"\n", "line 2, column 15", "cannot read x.gguf"),
            ("[models.b]\ndraft-max = 0\n", "line 2, column 13", "at least one token"),
            ("[models.b]\ndraft-max = 2\ndraft-min = 3\n", "line 3, column 13", "above draft-max"),
            ("[models.b]\nlora = [\"x.gguf:2\"]\n", "line 2, column 9", "cannot read x.gguf"),
            ("[models.b]\nlora = [\".\"]\n", "line 2, column 9", "not a file"),
            ("[models.b]\nlora = [\n  \":1\"]\n", "line 3, column 3", "expected a file"),
            ("[models.b]\ncontrol-vectors = [\"x\"]\n", "line 2, column 20", "cannot read x"),
            (
                "[models.b]\ncontrol-vector-layer-range = [2, 1]\n",
                "line 2, column 30",
                "after the last",
            ),
            ("[models.b]\naliases = [\"x\", \"\"]\n", "line 2, column 17", "no alias"),
            ("[models.b]\naliases = [\" x\"]\n", "line 2, column 12", "no alias"),
            ("[models.b]\naliases = [\"a\"]\n", "line 2, column 12", "\"a\" has the name \"a\""),
            ("[models.b]\naliases = [\"fox*\"]\n", "line 2, column 12", "\"a\" has the name"),
            (
                "[models.b]\naliases = [\"x\"]\n[models.a]\naliases = [\"y\", \"x\"]\n",
                "line 4, column 17",
                "\"b\" has the name \"x\"",
            ),
            ("[models.b.sampling]\ntop_p = 7.0\n", "line 2, column 9", "top_p is 7"),
            (
                "[models.b.sampling]\nmin_p = 0\nrepetition_penalty = 0\n",
                "line 3, column 22",
                "repeat_penalty is 0",
            ),
            ("[models.b]\nsampling = { top_p = 7 }\n", "line 2, column 22", "top_p is 7"),
            ("[models.b.sampling]\nmirostat = 3\n", "line 2, column 12", "expected 0, 1 or 2"),
            (
                "[models.b.sampling]\nmirostat = 2\nmirostat_tau = -1\n",
                "line 3, column 16",
                "mirostat_tau is -1",
            ),
            (
                "[models.b.sampling]\nsamplers = [\"top_k\", \"x\"]\n",
                "line 2, column 12",
                "unknown sampler 'x'",
            ),
            ("[models.b.sampling]\nbad_words = [\"\"]\n", "line 2, column 13", "bad_words[0]"),
            ("[models.b.sampling]\nmin_tokens = -1\n", "line 2, column 14", "expected usize"),
            ("[models.b.sampling]\nlogit_bias = { x = 1 }\n", "line 2, column 14", "no token"),
            ("[models.b]\nkeep-alive = \"x\"\n", "line 2, column 14", "expected a duration"),
            ("[models.a\n", "line 1, column 10", ""),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("models.toml, {place}: ")), "{text}: {error}");
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
