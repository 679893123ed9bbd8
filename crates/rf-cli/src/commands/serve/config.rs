//! The file with options of single models (`--models-config`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use anyhow::Result;
use clap::ValueEnum;
use rf_server::KeepAlive;
use rocmforge::SamplerConfig;
use serde::Deserialize;
use toml::Spanned;

use crate::args::TemplateChoice;
use crate::drafts::Mode;
use crate::failure::bad_input;
use crate::sources;

/// The file with the options, which can be read again.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// `None` if there is no file, and so no options.
    path: Option<PathBuf>,
    /// The names of all models.
    names: Vec<String>,
    config: RwLock<ModelsConfig>,
}

impl ConfigFile {
    /// Reads the options of models of these names.
    pub(super) fn read(path: Option<PathBuf>, names: Vec<String>) -> Result<Self> {
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
    pub(super) drafts: Option<Mode>,
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
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigToml {
    #[serde(default)]
    models: BTreeMap<String, Spanned<ModelToml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ModelToml {
    context: Option<Spanned<usize>>,
    template: Option<Spanned<String>>,
    drafts: Option<Spanned<String>>,
    #[serde(default)]
    aliases: Vec<String>,
    keep_alive: Option<KeepAlive>,
    #[serde(default)]
    preload: bool,
    cache_ram: Option<u64>,
    cache_disk: Option<PathBuf>,
    sampling: Option<Spanned<SamplingOptions>>,
}

/// Parameters of sampling for requests that set none, with the names that requests use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SamplingOptions {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    top_n_sigma: Option<f32>,
    repeat_penalty: Option<f32>,
    /// -1 for the whole context.
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    xtc_probability: Option<f32>,
    xtc_threshold: Option<f32>,
    seed: Option<u64>,
}

impl SamplingOptions {
    pub(super) fn over(&self, base: &SamplerConfig) -> SamplerConfig {
        fn set<T: Copy>(own: &mut T, value: Option<T>) {
            *own = value.unwrap_or(*own);
        }
        let mut config = base.clone();
        set(&mut config.temperature, self.temperature);
        set(&mut config.top_k, self.top_k);
        set(&mut config.top_p, self.top_p);
        set(&mut config.min_p, self.min_p);
        set(&mut config.typical_p, self.typical_p);
        set(&mut config.top_n_sigma, self.top_n_sigma);
        set(&mut config.repeat_penalty, self.repeat_penalty);
        set(&mut config.repeat_last_n, self.repeat_last_n.map(|n| usize::try_from(n).ok()));
        set(&mut config.presence_penalty, self.presence_penalty);
        set(&mut config.frequency_penalty, self.frequency_penalty);
        set(&mut config.xtc_probability, self.xtc_probability);
        set(&mut config.xtc_threshold, self.xtc_threshold);
        set(&mut config.seed, self.seed.map(Some));
        config
    }
}

impl ModelsConfig {
    /// Reads the file, and checks it for models of these names.
    fn read(path: &Path, names: &[String]) -> Result<Self> {
        let text = sources::file_text(path)?;
        Self::parse(&text, path, names)
    }

    fn of(&self, name: &str) -> ModelOptions {
        self.options.get(name).cloned().unwrap_or_default()
    }

    fn parse(text: &str, path: &Path, names: &[String]) -> Result<Self> {
        let place = Place { path, text };
        let config: ConfigToml = toml::from_str(text)
            .map_err(|error| place.error(error.span().unwrap_or(0..0), error.message()))?;
        let mut options = BTreeMap::new();
        for (name, model) in config.models {
            let span = model.span();
            if !names.contains(&name) {
                let problem =
                    format!("no model has the name {name:?}: known are {}", names.join(", "));
                return Err(place.error(span, &problem));
            }
            options.insert(name, place.checked(model.into_inner())?);
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
    fn checked(&self, model: ModelToml) -> Result<ModelOptions> {
        if let Some(context) = model.context.as_ref().filter(|context| *context.get_ref() == 0) {
            return Err(self.error(context.span(), "a context has at least one token"));
        }
        let template = match model.template {
            None => None,
            Some(given) => {
                let source = TemplateChoice::of(given.get_ref());
                Some(source.map_err(|error| self.error(given.span(), &format!("{error:#}")))?)
            }
        };
        let drafts = match model.drafts {
            None => None,
            Some(given) => match Mode::from_str(given.get_ref(), true) {
                Ok(mode) if mode != Mode::Draft => Some(mode),
                _ => {
                    let problem = "expected auto, off, ngram or mtp";
                    return Err(self.error(given.span(), problem));
                }
            },
        };
        let sampling = match model.sampling {
            None => SamplingOptions::default(),
            Some(given) => {
                let checked = given.get_ref().over(&SamplerConfig::default()).validate();
                checked.map_err(|error| self.error(given.span(), &error.to_string()))?;
                given.into_inner()
            }
        };
        Ok(ModelOptions {
            context: model.context.map(Spanned::into_inner),
            template,
            drafts,
            aliases: model.aliases,
            keep_alive: model.keep_alive,
            is_preloaded: model.preload,
            cache_ram: model.cache_ram,
            cache_disk: model.cache_disk,
            sampling,
        })
    }

    /// A problem with its line and column.
    fn error(&self, span: Range<usize>, problem: &str) -> anyhow::Error {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        bad_input!("{}, line {line}, column {column}: {problem}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ModelsConfig> {
        ModelsConfig::parse(text, Path::new("models.toml"), &["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn each_model_has_its_options() {
        let config = parse(
            "[models.a]\ncontext = 8192\ntemplate = \"chatml\"\ndrafts = \"off\"\n\
             aliases = [\"gpt-*\"]\nkeep-alive = \"10m\"\npreload = true\n\
             cache-ram = 512\ncache-disk = \"pages\"\n\
             [models.a.sampling]\ntemperature = 0.25\ntop_k = 20\nrepeat_last_n = -1\n",
        );
        let options = config.unwrap().of("a");
        assert_eq!((options.context, options.drafts), (Some(8192), Some(Mode::Off)));
        assert_eq!((options.aliases.len(), options.is_preloaded), (1, true));
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
    fn a_mistake_is_named_with_its_line_and_column() {
        for (text, place, problem) in [
            ("[models.a]\ncontext = \"x\"\n", "line 2, column 11", "invalid type"),
            ("[models.a]\n  context = 0\n", "line 2, column 13", "at least one token"),
            ("[models.a]\ncontexts = 1\n", "line 2, column 1", "unknown field"),
            ("[models.c]\n", "line 1, column 1", "no model has the name \"c\": known are a, b"),
            (
                "[models.b]\ntemplate = \"no such\"\n",
                "line 2, column 12",
                "neither a file nor built in",
            ),
            ("[models.b]\ndrafts = \"draft\"\n", "line 2, column 10", "auto, off, ngram or mtp"),
            ("[models.b.sampling]\ntop_p = 7.0\n", "line 1, column 1", "top_p"),
            ("[models.b]\nkeep-alive = \"x\"\n", "line 2, column 14", "expected a duration"),
            ("[models.a\n", "line 1, column 10", ""),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("models.toml, {place}: ")), "{text}: {error}");
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
