//! Projector files: the one of a model, and its encoders.

use std::path::{Path, PathBuf};

use rf_gguf::Gguf;
use rf_vision::{Piece, Projector, SoundProjector};

use crate::error::Error;

/// The choice of the projector of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProjectorFile {
    /// The one in the folder of the model, if there is one.
    #[default]
    Beside,
    /// No projector: pictures and sounds are refused.
    Off,
    /// This file.
    Path(PathBuf),
}

impl ProjectorFile {
    /// Opens the projector of a model, whose file is at `path`.
    pub(crate) fn open(
        &self,
        path: Option<&Path>,
        model: &rf_engine::Model,
    ) -> Result<Option<Projectors>, Error> {
        let config = model.config();
        let expected = config.hidden_size * (1 + config.deepstack_layers);
        match self {
            Self::Off => Ok(None),
            Self::Path(path) => {
                let mut projectors = Projectors::open(&Gguf::open(path)?)?;
                let (projector, found) = projectors.first();
                projectors.keep(|_, width| width == expected);
                if projectors.is_empty() {
                    return Err(Error::WrongProjector {
                        path: path.clone(),
                        projector,
                        architecture: config.architecture.clone(),
                        found,
                        expected,
                    });
                }
                Ok(Some(projectors))
            }
            Self::Beside => {
                let files = path.and_then(Path::parent).map(projectors_in).unwrap_or_default();
                Ok(files.iter().find_map(|path| {
                    let gguf = Gguf::open(path).map_err(rf_vision::Error::from);
                    match gguf.and_then(|gguf| Projectors::open(&gguf)) {
                        Ok(mut projectors) => {
                            projectors.keep(|name, width| {
                                width == expected
                                    && architectures(name).contains(&&*config.architecture)
                            });
                            Some(projectors).filter(|projectors| !projectors.is_empty())
                        }
                        Err(error) => {
                            tracing::warn!(path = %path.display(), "not used: {error}");
                            None
                        }
                    }
                }))
            }
        }
    }
}

/// The encoders of a projector file: one for pictures, one for sounds, or both.
#[derive(Clone, Debug)]
pub struct Projectors {
    pub(super) images: Option<Projector>,
    pub(super) sounds: Option<SoundProjector>,
}

impl Projectors {
    /// Opens the encoders of a file that are supported.
    fn open(gguf: &Gguf) -> Result<Self, rf_vision::Error> {
        use rf_vision::Error::{NoSound, NoVision, UnsupportedProjector};
        let (images, sounds) = match (Projector::open(gguf), SoundProjector::open(gguf)) {
            (Ok(images), Ok(sounds)) => (Some(images), Some(sounds)),
            (Ok(images), Err(NoSound)) => (Some(images), None),
            (Err(NoVision), Ok(sounds)) => (None, Some(sounds)),
            (Ok(images), Err(error @ UnsupportedProjector { .. })) => {
                tracing::warn!("sounds are not encoded: {error}");
                (Some(images), None)
            }
            (Err(error @ UnsupportedProjector { .. }), Ok(sounds)) => {
                tracing::warn!("pictures are not encoded: {error}");
                (None, Some(sounds))
            }
            (Err(first), Err(second)) => {
                return Err(if matches!(first, NoVision) { second } else { first });
            }
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
        };
        Ok(Self { images, sounds })
    }

    /// The encoder of pictures. It has limits on the tokens of a picture.
    pub fn images(&self) -> Option<&Projector> {
        self.images.as_ref()
    }

    /// The encoder of sounds.
    pub fn sounds(&self) -> Option<&SoundProjector> {
        self.sounds.as_ref()
    }

    /// The name of the first encoder, and the width of its rows.
    fn first(&self) -> (&'static str, usize) {
        let images = self.images.as_ref().map(|images| (images.name(), images.width()));
        let sounds = self.sounds.as_ref().map(|sounds| (sounds.name(), sounds.width()));
        images.or(sounds).unwrap_or(("none", 0))
    }

    /// Drops the encoders whose name and width do not fit.
    fn keep(&mut self, fits: impl Fn(&str, usize) -> bool) {
        self.images.take_if(|images| !fits(images.name(), images.width()));
        self.sounds.take_if(|sounds| !fits(sounds.name(), sounds.width()));
    }

    fn is_empty(&self) -> bool {
        self.images.is_none() && self.sounds.is_none()
    }
}

/// The projectors in a folder, by name.
fn projectors_in(folder: &Path) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths.filter(|path| is_projector_name(path)).collect();
    paths.sort();
    paths
}

fn is_projector_name(path: &Path) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
    let is_gguf = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    is_gguf && stem.is_some_and(|stem| stem.contains("mmproj"))
}

/// The architectures of the text models of a projector. The folder of a model may have projectors
/// of other models of the same width.
fn architectures(projector: &str) -> &'static [&'static str] {
    match projector {
        "qwen3vl_merger" => &["qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"],
        "qwen2vl_merger" | "qwen2.5vl_merger" => &["qwen2vl"],
        "gemma3" => &["gemma3"],
        "gemma4v" | "gemma4uv" | "gemma4a" => &["gemma4"],
        "pixtral" => &["llama", "mistral3", "mistral4"],
        "muse-glimmer" => &["muse-glimmer"],
        "lfm2" => &["lfm2", "lfm2moe"],
        "minicpmv4_6" => &["qwen35"],
        "internvl" => &["qwen2", "qwen3", "qwen3moe", "llama", "internlm2", "gpt-oss"],
        "llama4" => &["llama4"],
        "idefics3" => &["llama", "smollm3"],
        "ultravox" => &["llama", "qwen3", "gemma3"],
        "voxtral" => &["llama", "mistral3"],
        "qwen2a" => &["qwen2", "qwen2vl"],
        "qwen3a" => &["qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe"],
        _ => &[],
    }
}

/// Tokens of a batch that the rows of a picture need if they see each other both ways; 0 if they
/// do not.
pub(crate) fn rows_of_a_batch(projectors: &Projectors) -> usize {
    let Some(images) = projectors.images() else { return 0 };
    let pieces = images.pieces([1024, 1024], 0).unwrap_or_default();
    let rows = pieces.iter().filter_map(|piece| match piece {
        Piece::Rows(group) if group.non_causal => Some(group.rows),
        _ => None,
    });
    let most = rows.max();
    most.map_or(0, |rows| images.token_limits().map_or(rows, |limits| limits.max.max(rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projectors_have_names() {
        for (name, is_one) in [
            ("mmproj-F16.gguf", true),
            ("Qwen3-VL-8B.mmproj-Q8_0.GGUF", true),
            ("model.gguf", false),
            ("mmproj.txt", false),
        ] {
            assert_eq!(is_projector_name(Path::new(name)), is_one, "{name}");
        }
    }
}
