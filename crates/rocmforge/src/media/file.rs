//! The file of a picture or a sound.

use std::fmt;
use std::sync::Arc;

/// A picture or a sound in a prompt, as the bytes of its file. They are decoded when a prompt needs
/// them.
#[derive(Clone, PartialEq, Eq)]
pub struct Media {
    kind: MediaKind,
    bytes: Arc<[u8]>,
}

/// The kind of a file: picture or sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture: PNG, JPEG, WebP, GIF or BMP.
    Image,
    /// A sound: WAV or MP3.
    Audio,
}

impl Media {
    /// The bytes of a file of pictures.
    pub fn image(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { kind: MediaKind::Image, bytes: bytes.into() }
    }

    /// The bytes of a file of sound.
    pub fn audio(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { kind: MediaKind::Audio, bytes: bytes.into() }
    }

    /// The kind of the file.
    pub fn kind(&self) -> MediaKind {
        self.kind
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.len();
        f.debug_struct("Media").field("kind", &self.kind).field("bytes", &bytes).finish()
    }
}
