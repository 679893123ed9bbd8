//! The source of a model: a file, a repository, or the demo model.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rf_gguf::Gguf;
use rf_hub::{Hub, ModelName, ShortName};

use crate::error::Error;
use crate::load_event::LoadEvent;

/// Where a model comes from.
///
/// A text becomes a source as follows. The path of an existing file and every text that ends with
/// `.gguf` is a file. `OWNER/REPO` and `OWNER/REPO:QUANT` name a model of the Hugging Face hub, and
/// so does a [short name](ShortName) such as `qwen3.5:9b`. Any other text is the path of a file,
/// which is then reported as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The model that is built into this crate (feature `demo-model`): 7 M parameters, for tests
    /// and first steps.
    #[default]
    Demo,
    /// A file in GGUF format, or the first part of a split one.
    File(PathBuf),
    /// A model of the hub. It is downloaded once, into the cache folder that other programs share.
    Hub(ModelName),
}

impl Source {
    /// The path of the file. Downloads a model of the hub unless it is cached. `None` for the demo
    /// model.
    ///
    /// # Errors
    ///
    /// If the hub has no such model, or the download fails.
    pub fn path(&self, observe: &mut dyn FnMut(LoadEvent<'_>)) -> Result<Option<PathBuf>, Error> {
        let name = match self {
            Self::Demo => return Ok(None),
            Self::File(path) => return Ok(Some(path.clone())),
            Self::Hub(name) => name,
        };
        let hub = Hub::from_env()?;
        let folder = hub.cache().to_owned();
        let path = hub.fetch(name, &mut |event| match event {
            rf_hub::FetchEvent::Progress { done_bytes, total_bytes } => {
                observe(LoadEvent::Download { name, folder: &folder, done_bytes, total_bytes });
            }
            rf_hub::FetchEvent::Unreachable(error) => {
                observe(LoadEvent::HubUnreachable { name, error });
            }
            rf_hub::FetchEvent::Retry { file, reason } => {
                observe(LoadEvent::DownloadRetry { file, reason });
            }
            _ => {}
        })?;
        Ok(Some(path))
    }

    /// Opens the container.
    ///
    /// # Errors
    ///
    /// The errors of [`path`](Self::path), and if the file cannot be read or is damaged.
    pub fn open(&self, observe: &mut dyn FnMut(LoadEvent<'_>)) -> Result<Gguf, Error> {
        match self.path(observe)? {
            Some(path) => Ok(Gguf::open(path)?),
            None => demo_model(),
        }
    }
}

/// Opens the built-in model.
#[cfg(feature = "demo-model")]
fn demo_model() -> Result<Gguf, Error> {
    // Blocks have alignment 1, so any address works.
    static MODEL: &[u8] = include_bytes!("../demo/stories-7m-Q8_0.gguf");
    Ok(Gguf::from_static(MODEL)?)
}

/// Refuses the built-in model, which this program lacks.
#[cfg(not(feature = "demo-model"))]
fn demo_model() -> Result<Gguf, Error> {
    Err(Error::WithoutDemoModel)
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = Path::new(text);
        let is_file = path.exists() || path.extension().is_some_and(|end| end == "gguf");
        let name = || Some(ShortName::find(text)?.model().clone());
        Ok(match text.parse().ok().or_else(name) {
            Some(name) if !is_file => Self::Hub(name),
            _ => Self::File(path.to_owned()),
        })
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        let Ok(source) = text.parse();
        source
    }
}

impl From<String> for Source {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<ModelName> for Source {
    fn from(name: ModelName) -> Self {
        Self::Hub(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_file_or_a_name_of_the_hub() {
        let file = |path: &str| Source::File(path.into());
        assert_eq!(Source::from("a/model.gguf"), file("a/model.gguf"));
        assert_eq!(Source::from("missing"), file("missing"));
        assert_eq!(Source::from("/a/b/c"), file("/a/b/c"));
        // A folder of this crate, which is read before the hub is asked.
        assert_eq!(Source::from("src/lib.rs"), file("src/lib.rs"));
        let Source::Hub(name) = Source::from("Qwen/Qwen3-8B-GGUF:Q4_K_M") else { panic!() };
        assert_eq!((name.repo(), name.quant()), ("Qwen/Qwen3-8B-GGUF", Some("Q4_K_M")));
        let Source::Hub(name) = Source::from("gpt-oss") else { panic!() };
        assert_eq!((name.repo(), name.quant()), ("ggml-org/gpt-oss-20b-GGUF", None));
    }
}
