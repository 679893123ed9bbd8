//! Pictures and sounds in prompts: the files, and their places in a text.
//!
//! A text has a [mark](media_marker) in the place of each file. Chat templates carry the mark as
//! they carry any text, so they need not know pictures and sounds. The mark is drawn once per
//! process, so that nobody can write it into a message. A text with more or fewer marks than files
//! is refused.

mod encoders;
pub(crate) mod file;
mod projectors;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use rf_engine::MixedPrompt;

pub use self::encoders::MediaEncoders;
use self::encoders::MediaPart;
pub use self::file::{Media, MediaKind};
pub use self::projectors::Projectors;
pub(crate) use self::projectors::{ProjectorFile, rows_of_a_batch};
use crate::error::Error;

/// The mark of a file in a text that its author places.
const TEXT_MARKER: &str = "<__media__>";

/// The most pictures and sounds of a prompt.
const MAX_FILES: usize = 32;

/// The mark that stands for a picture or a sound in the messages of this process.
pub fn media_marker() -> &'static str {
    static MARKER: OnceLock<String> = OnceLock::new();
    MARKER.get_or_init(|| {
        // Each `RandomState` has different random keys.
        let [a, b] = [(); 2].map(|()| RandomState::new().hash_one(0));
        format!("<__media_{a:016x}{b:016x}__>")
    })
}

/// A text to continue, with a mark for each of so many files: where its author wrote `<__media__>`,
/// or before the text.
pub fn marked_text(text: &str, files: usize) -> String {
    let marker = media_marker();
    if files == 0 || text.contains(TEXT_MARKER) {
        return text.replace(TEXT_MARKER, marker);
    }
    marker.repeat(files) + text
}

/// The prompt of a text with special tokens and marks, which a chat template rendered. Pictures and
/// sounds are encoded, which takes long.
///
/// # Errors
///
/// If the number of marks is not that of files, there is no projector for one of them, or it cannot
/// be decoded or encoded.
pub fn mixed_prompt(
    model: &rf_engine::Model,
    encoders: Option<&MediaEncoders>,
    text: &str,
    files: &[Media],
) -> Result<MixedPrompt, Error> {
    let pieces: Vec<&str> = text.split(media_marker()).collect();
    if files.len() > MAX_FILES {
        return Err(Error::TooManyFiles { files: files.len(), most: MAX_FILES });
    }
    if pieces.len() != files.len() + 1 {
        return Err(Error::MediaMarkers { found: pieces.len() - 1, files: files.len() });
    }
    let mut pieces = pieces.into_iter();
    let first = pieces.next().unwrap_or_default();
    let mut prompt = MixedPrompt::from(model.rendered_ids(first));
    let mut images = 0;
    for (file, piece) in files.iter().zip(pieces) {
        let encoders = encoders.ok_or_else(|| Error::no_encoder(file.kind()))?;
        for part in encoders.parts(file, images)?.iter() {
            match part {
                MediaPart::Text(text) => prompt.push_tokens(&model.piece_ids(text)),
                MediaPart::Rows(rows) => prompt.push_media(Arc::clone(rows)),
            }
        }
        images += usize::from(file.kind() == MediaKind::Image);
        prompt.push_tokens(&model.piece_ids(piece));
    }
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_where_the_author_wrote_them_or_before_the_text() {
        let marker = media_marker();
        assert_eq!(marked_text("a <__media__> b", 1), format!("a {marker} b"));
        assert_eq!(marked_text("a", 2), format!("{marker}{marker}a"));
        assert_eq!(marked_text("a", 0), "a");
        assert_eq!(media_marker(), marker, "one mark per process");
        assert!(marker.len() > 40);
    }
}
