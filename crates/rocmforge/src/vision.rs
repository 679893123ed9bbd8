//! Pictures in prompts: the projector of a model, and the places of pictures in a text.
//!
//! A text has a [mark](image_marker) in the place of each picture. Chat templates carry the mark as
//! they carry any text, so they need not know pictures. The mark is drawn once per process, so that
//! nobody can write it into a message. A text with more or fewer marks than pictures is refused.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rf_engine::{MediaRows, MixedPrompt};
use rf_gguf::Gguf;
use rf_graph::{Backend, Progress};
use rf_vision::{Chunk, DecodeLimits, Encoder, Piece, Projector};
use sha2::{Digest, Sha256};

use crate::error::Error;

/// The mark of a picture in a text that its author places.
const TEXT_MARKER: &str = "<__media__>";

/// Bytes of embeddings of recent pictures. Later turns of a conversation send its pictures again.
const CACHED_BYTES: usize = 256 << 20;

/// The most pictures of a prompt.
const MAX_IMAGES: usize = 32;

/// The mark that stands for a picture in the messages of this process.
pub fn image_marker() -> &'static str {
    static MARKER: OnceLock<String> = OnceLock::new();
    MARKER.get_or_init(|| {
        // Each has random keys of its own.
        let [a, b] = [(); 2].map(|()| RandomState::new().hash_one(0));
        format!("<__media_{a:016x}{b:016x}__>")
    })
}

/// A picture file: PNG, JPEG, WebP, GIF or BMP.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    bytes: Arc<[u8]>,
}

impl Image {
    /// The bytes of a file. They are decoded when a prompt needs them.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { bytes: bytes.into() }
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("bytes", &self.bytes.len()).finish()
    }
}

/// A text to continue, with a mark for each of so many pictures: where its author wrote
/// `<__media__>`, or before the text.
pub fn marked_text(text: &str, images: usize) -> String {
    let marker = image_marker();
    if images == 0 || text.contains(TEXT_MARKER) {
        return text.replace(TEXT_MARKER, marker);
    }
    marker.repeat(images) + text
}

/// The choice of the projector of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProjectorFile {
    /// The one in the folder of the model, if there is one.
    #[default]
    Beside,
    /// No projector: pictures are refused.
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
    ) -> Result<Option<Projector>, Error> {
        let config = model.config();
        let expected = config.hidden_size * (1 + config.deepstack_layers);
        match self {
            Self::Off => Ok(None),
            Self::Path(path) => {
                let projector = Projector::open(&Gguf::open(path)?)?;
                let found = projector.width();
                if found != expected {
                    return Err(Error::WrongProjector {
                        path: path.clone(),
                        projector: projector.name(),
                        architecture: config.architecture.clone(),
                        found,
                        expected,
                    });
                }
                Ok(Some(projector))
            }
            Self::Beside => {
                let files = path.and_then(Path::parent).map(projectors_in).unwrap_or_default();
                let fits = |projector: &Projector| {
                    projector.width() == expected
                        && architectures(projector.name()).contains(&&*config.architecture)
                };
                Ok(files.iter().find_map(|path| {
                    let projector = Gguf::open(path).map_err(rf_vision::Error::from);
                    match projector.and_then(|gguf| Projector::open(&gguf)) {
                        Ok(projector) => Some(projector).filter(fits),
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
        "gemma4v" | "gemma4uv" => &["gemma4"],
        "pixtral" => &["llama", "mistral3", "mistral4"],
        "muse-glimmer" => &["muse-glimmer"],
        "lfm2" => &["lfm2", "lfm2moe"],
        "minicpmv4_6" => &["qwen35"],
        "internvl" => &["qwen2", "qwen3", "qwen3moe", "llama", "internlm2", "gpt-oss"],
        "llama4" => &["llama4"],
        "idefics3" => &["llama", "smollm3"],
        _ => &[],
    }
}

/// Tokens of a batch that the rows of a picture need if they see each other both ways; 0 if they
/// do not.
pub(crate) fn rows_of_a_batch(projector: &Projector) -> usize {
    let pieces = projector.pieces([1024, 1024], 0).unwrap_or_default();
    let rows = pieces.iter().filter_map(|piece| match piece {
        Piece::Rows(group) if group.non_causal => Some(group.rows),
        _ => None,
    });
    let most = rows.max();
    most.map_or(0, |rows| projector.token_limits().map_or(rows, |limits| limits.max.max(rows)))
}

/// The projector of a model on a backend, with the embeddings of recent pictures.
pub struct Vision {
    encoder: Mutex<Encoder>,
    cache: Mutex<Cache>,
}

/// A part of a picture in a prompt.
enum Part {
    Text(String),
    Rows(Arc<MediaRows>),
}

/// The parts of recent pictures, the oldest first.
#[derive(Default)]
struct Cache {
    parts: VecDeque<(Key, Arc<[Part]>)>,
    bytes: usize,
}

/// The digest of a file and of the index of the picture in its prompt, which some projectors read.
type Key = [u8; 32];

impl Vision {
    pub(crate) fn new(
        projector: Projector,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let encoder = Encoder::new(projector, backend, progress)?;
        Ok(Self { encoder: Mutex::new(encoder), cache: Mutex::default() })
    }

    /// Memory of the projector, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.encoder.lock().unwrap_or_else(PoisonError::into_inner).memory().total_bytes()
    }

    /// The parts of a picture. It takes long, and one picture waits for another.
    fn parts(&self, image: &Image, index: usize) -> Result<Arc<[Part]>, Error> {
        let key: Key = Sha256::new()
            .chain_update((index as u64).to_le_bytes())
            .chain_update(&image.bytes)
            .finalize()
            .into();
        if let Some(parts) = self.cache().get(&key) {
            return Ok(parts);
        }
        let picture = rf_vision::decode(&image.bytes, &DecodeLimits::default())?;
        let chunks = {
            let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
            encoder.encode(&picture, index)?
        };
        let parts = chunks.into_iter().enumerate().map(|(number, chunk)| match chunk {
            Chunk::Text(text) => Part::Text(text),
            Chunk::Rows(embeddings) => {
                let digest = Sha256::new().chain_update(key).chain_update(number.to_le_bytes());
                let group = embeddings.group;
                let rows =
                    MediaRows::new(embeddings.values, embeddings.width, digest.finalize().into());
                let grid = group.grid.map(|grid| [grid.columns, grid.rows]);
                Part::Rows(Arc::new(rows.with_non_causal(group.non_causal).with_grid(grid)))
            }
        });
        let parts: Arc<[Part]> = parts.collect();
        self.cache().add(key, &parts);
        Ok(parts)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Vision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vision").finish_non_exhaustive()
    }
}

impl Cache {
    /// The parts of a picture, which is then the most recent one.
    fn get(&mut self, key: &Key) -> Option<Arc<[Part]>> {
        let at = self.parts.iter().position(|(known, _)| known == key)?;
        let found = self.parts.remove(at)?;
        let parts = Arc::clone(&found.1);
        self.parts.push_back(found);
        Some(parts)
    }

    fn add(&mut self, key: Key, parts: &Arc<[Part]>) {
        self.bytes += bytes_of(parts);
        self.parts.push_back((key, Arc::clone(parts)));
        while self.bytes > CACHED_BYTES
            && let Some((_, oldest)) = self.parts.pop_front()
        {
            self.bytes -= bytes_of(&oldest);
        }
    }
}

fn bytes_of(parts: &[Part]) -> usize {
    let bytes = parts.iter().map(|part| match part {
        Part::Text(text) => text.len(),
        Part::Rows(rows) => size_of_val(rows.rows.as_slice()),
    });
    bytes.sum()
}

/// The prompt of a text with special tokens and marks, which a chat template rendered. Pictures are
/// encoded, which takes long.
///
/// # Errors
///
/// If the number of marks is not that of pictures, there is no projector, or a picture cannot be
/// decoded or encoded.
pub fn mixed_prompt(
    model: &rf_engine::Model,
    vision: Option<&Vision>,
    text: &str,
    images: &[Image],
) -> Result<MixedPrompt, Error> {
    let pieces: Vec<&str> = text.split(image_marker()).collect();
    if images.len() > MAX_IMAGES {
        return Err(Error::TooManyImages { images: images.len(), most: MAX_IMAGES });
    }
    if pieces.len() != images.len() + 1 {
        return Err(Error::ImageMarkers { found: pieces.len() - 1, images: images.len() });
    }
    let mut pieces = pieces.into_iter();
    let first = pieces.next().unwrap_or_default();
    let mut prompt = MixedPrompt::from(model.rendered_ids(first));
    for (index, (image, piece)) in images.iter().zip(pieces).enumerate() {
        let vision = vision.ok_or(Error::NoProjector)?;
        for part in vision.parts(image, index)?.iter() {
            match part {
                Part::Text(text) => prompt.push_tokens(&model.piece_ids(text)),
                Part::Rows(rows) => prompt.push_media(Arc::clone(rows)),
            }
        }
        prompt.push_tokens(&model.piece_ids(piece));
    }
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_where_the_author_wrote_them_or_before_the_text() {
        let marker = image_marker();
        assert_eq!(marked_text("a <__media__> b", 1), format!("a {marker} b"));
        assert_eq!(marked_text("a", 2), format!("{marker}{marker}a"));
        assert_eq!(marked_text("a", 0), "a");
        assert_eq!(image_marker(), marker, "one mark per process");
        assert!(marker.len() > 40);
    }

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

    #[test]
    fn the_oldest_pictures_leave_a_full_cache() {
        let rows = |floats: usize| -> Arc<[Part]> {
            let rows = MediaRows::new(vec![0.0; floats], 1, [0; 32]);
            [Part::Rows(Arc::new(rows))].into()
        };
        let third = CACHED_BYTES / size_of::<f32>() / 3;
        let mut cache = Cache::default();
        for key in 0..3 {
            cache.add([key; 32], &rows(third));
        }
        assert!(cache.get(&[0; 32]).is_some());
        cache.add([3; 32], &rows(third));
        let has = [0, 1, 2, 3].map(|key| cache.get(&[key; 32]).is_some());
        assert_eq!(has, [true, false, true, true]);
        assert!(cache.bytes <= CACHED_BYTES);
    }
}
