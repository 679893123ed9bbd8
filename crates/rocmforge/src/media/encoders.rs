//! The encoders of a projector on a backend.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rf_engine::MediaRows;
use rf_graph::{Backend, Progress};
use rf_vision::{Chunk, DecodeLimits, Encoder, SoundEncoder, SoundLimits};
use sha2::{Digest, Sha256};

use super::file::{Media, MediaKind};
use super::projectors::Projectors;
use crate::error::Error;

/// Bytes of embeddings of recent files. Later turns of a conversation send its files again.
const CACHED_BYTES: usize = 256 << 20;

/// The encoders of a model on a backend, with the embeddings of recent files.
pub struct MediaEncoders {
    images: Option<Mutex<Encoder>>,
    sounds: Option<Mutex<SoundEncoder>>,
    /// Locked while a file is decoded and waits for its encoder: the memory of decoded files would
    /// be that of all requests that wait.
    decoder: Mutex<()>,
    cache: Mutex<Cache>,
}

/// A part of a picture or a sound in a prompt.
pub(super) enum MediaPart {
    Text(String),
    Rows(Arc<MediaRows>),
}

/// The parts of recent files, the oldest first.
#[derive(Default)]
struct Cache {
    parts: VecDeque<(Key, Arc<[MediaPart]>)>,
    bytes: usize,
}

/// The digest of a file, of its kind, and of the index of a picture in its prompt, which some
/// projectors read.
type Key = [u8; 32];

impl MediaEncoders {
    pub(crate) fn new(
        projectors: &Projectors,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let images = projectors.images.clone();
        let images = images.map(|images| Encoder::new(images, backend, progress)).transpose()?;
        let sounds = projectors.sounds.clone();
        let sounds =
            sounds.map(|sounds| SoundEncoder::new(sounds, backend, progress)).transpose()?;
        Ok(Self {
            images: images.map(Mutex::new),
            sounds: sounds.map(Mutex::new),
            decoder: Mutex::default(),
            cache: Mutex::default(),
        })
    }

    /// Returns true if files of a kind are encoded.
    pub fn encodes(&self, kind: MediaKind) -> bool {
        match kind {
            MediaKind::Image => self.images.is_some(),
            MediaKind::Audio => self.sounds.is_some(),
        }
    }

    /// Memory of the encoders, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let images = self.images.as_ref().map(|images| locked(images).memory().total_bytes());
        let sounds = self.sounds.as_ref().map(|sounds| locked(sounds).memory().total_bytes());
        images.into_iter().chain(sounds).sum()
    }

    /// The parts of a file, `index` being the number of a picture in the prompt. It takes long, and
    /// one file waits for another.
    pub(super) fn parts(&self, file: &Media, index: usize) -> Result<Arc<[MediaPart]>, Error> {
        let index = if file.kind() == MediaKind::Image { index as u64 } else { u64::MAX };
        let key: Key = Sha256::new()
            .chain_update(index.to_le_bytes())
            .chain_update(file.bytes())
            .finalize()
            .into();
        if let Some(parts) = locked(&self.cache).get(&key) {
            return Ok(parts);
        }
        let parts = self.encode(file, index as usize)?.into_iter().enumerate();
        let parts = parts.map(|(number, chunk)| match chunk {
            Chunk::Text(text) => MediaPart::Text(text),
            Chunk::Rows(embeddings) => {
                let digest = Sha256::new().chain_update(key).chain_update(number.to_le_bytes());
                let group = embeddings.group;
                let rows =
                    MediaRows::new(embeddings.values, embeddings.width, digest.finalize().into());
                let grid = group.grid.map(|grid| [grid.columns, grid.rows]);
                MediaPart::Rows(Arc::new(rows.with_non_causal(group.non_causal).with_grid(grid)))
            }
        });
        let parts: Arc<[MediaPart]> = parts.collect();
        locked(&self.cache).add(key, &parts);
        Ok(parts)
    }

    fn encode(&self, file: &Media, index: usize) -> Result<Vec<Chunk>, Error> {
        let missing = || Error::no_encoder(file.kind());
        match file.kind() {
            MediaKind::Image => {
                let images = self.images.as_ref().ok_or_else(missing)?;
                let decoder = locked(&self.decoder);
                let picture = rf_vision::decode(file.bytes(), &DecodeLimits::default())?;
                let mut images = locked(images);
                drop(decoder);
                Ok(images.encode(&picture, index)?)
            }
            MediaKind::Audio => {
                let sounds = self.sounds.as_ref().ok_or_else(missing)?;
                let decoder = locked(&self.decoder);
                let sound = rf_vision::decode_sound(file.bytes(), &SoundLimits::default())?;
                let mut sounds = locked(sounds);
                drop(decoder);
                Ok(sounds.encode(&sound)?)
            }
        }
    }
}

/// A panic of another thread leaves nothing half done that the next one would read.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for MediaEncoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaEncoders").finish_non_exhaustive()
    }
}

impl Cache {
    /// The parts of a file, which is then the most recent one.
    fn get(&mut self, key: &Key) -> Option<Arc<[MediaPart]>> {
        let at = self.parts.iter().position(|(known, _)| known == key)?;
        let found = self.parts.remove(at)?;
        let parts = Arc::clone(&found.1);
        self.parts.push_back(found);
        Some(parts)
    }

    fn add(&mut self, key: Key, parts: &Arc<[MediaPart]>) {
        self.bytes += bytes_of(parts);
        self.parts.push_back((key, Arc::clone(parts)));
        while self.bytes > CACHED_BYTES
            && let Some((_, oldest)) = self.parts.pop_front()
        {
            self.bytes -= bytes_of(&oldest);
        }
    }
}

fn bytes_of(parts: &[MediaPart]) -> usize {
    let bytes = parts.iter().map(|part| match part {
        MediaPart::Text(text) => text.len(),
        MediaPart::Rows(rows) => size_of_val(rows.rows.as_slice()),
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_leave_a_full_cache() {
        let rows = |floats: usize| -> Arc<[MediaPart]> {
            let rows = MediaRows::new(vec![0.0; floats], 1, [0; 32]);
            [MediaPart::Rows(Arc::new(rows))].into()
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
