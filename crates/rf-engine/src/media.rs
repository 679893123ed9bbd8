//! Pictures and sound in prompts: rows of embeddings in the place of tokens.
//!
//! Each row has a unique id, above all token ids, which the hash of its media and its index
//! determine ([`MediaRows::row_id`]). A prompt is a list of ids as before, and the rows are beside
//! it ([`PromptMedia`]). So sequences, the prefix cache, forks and preemption treat rows as tokens:
//! two prompts share the pages of a picture if and only if the picture is the same.
//!
//! What reads the ids as tokens skips those of rows: penalties, drafts from the text, saved
//! sequences. A batch has the rows of one media alone, so the engine cuts prompts there. Rows that
//! see each other both ways are computed in one batch, so the scheduler plans all of them or none.
//!
//! With the positions of M-RoPE, a picture takes as many positions as its longer side has rows.
//! Positions are then not places in the cache, and the batch states them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rf_graph::{Media, Position, text_position};

/// The least id of a media row. Vocabularies are smaller.
const FIRST_ROW_ID: u32 = 1 << 31;

/// The rows of one picture, of a part of it that the projector sees alone, or of sound.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct MediaRows {
    /// `[count, width]`.
    pub rows: Vec<f32>,
    /// Elements of a row: [`Engine::media_width`](crate::Engine::media_width).
    pub width: usize,
    /// True if the rows see each other both ways, in the layers where the model lets them.
    pub non_causal: bool,
    /// Columns and rows of a picture whose positions are those of a grid (M-RoPE). The rows are
    /// then in the order of reading.
    pub grid: Option<[usize; 2]>,
    /// A digest of all that determines the rows: the file, the projector and its limits. Media of
    /// one digest are taken for the same, so it has to resist attacks: SHA-256, for example.
    pub digest: [u8; 32],
}

impl MediaRows {
    /// Rows of `width` elements that are causal and have consecutive positions.
    pub fn new(rows: Vec<f32>, width: usize, digest: [u8; 32]) -> Self {
        Self { rows, width, non_causal: false, grid: None, digest }
    }

    /// Sets [`non_causal`](Self::non_causal).
    #[must_use]
    pub fn with_non_causal(mut self, non_causal: bool) -> Self {
        self.non_causal = non_causal;
        self
    }

    /// Sets [`grid`](Self::grid).
    #[must_use]
    pub fn with_grid(mut self, grid: Option<[usize; 2]>) -> Self {
        self.grid = grid;
        self
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.rows.len().checked_div(self.width).unwrap_or(0)
    }

    /// The number of positions that the rows take.
    pub fn positions(&self) -> usize {
        self.grid.map_or(self.count(), |[columns, rows]| columns.max(rows))
    }

    /// The id of a row. Eight rows have all bits of the digest.
    pub fn row_id(&self, index: usize) -> u32 {
        let (words, _) = self.digest.as_chunks::<4>();
        let word = u32::from_le_bytes(words[index % words.len()]);
        // Rows of one media differ also where the words of its digest are equal.
        (word ^ (index as u32).wrapping_mul(0x9E37_79B9)) | FIRST_ROW_ID
    }

    /// The position of a row, of which the first is at `first`.
    fn position(&self, first: u32, index: usize) -> Position {
        match self.grid {
            Some([columns, _]) => {
                let (row, column) = (index / columns, index % columns);
                [first, first + row as u32, first + column as u32, 0]
            }
            None => text_position(first as usize + index),
        }
    }

    /// True if the rows form the grid, or there is none.
    fn is_whole(&self) -> bool {
        let count = self.count();
        let is_grid = |[columns, rows]: [usize; 2]| columns.checked_mul(rows) == Some(count);
        count > 0 && self.rows.len() == count * self.width && self.grid.is_none_or(is_grid)
    }
}

impl fmt::Debug for MediaRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaRows")
            .field("count", &self.count())
            .field("width", &self.width)
            .field("non_causal", &self.non_causal)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

/// Returns true if an id is that of a media row.
pub(crate) fn is_row(id: u32) -> bool {
    id >= FIRST_ROW_ID
}

/// A prompt of tokens and media.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MixedPrompt {
    pub(crate) ids: Vec<u32>,
    pub(crate) media: PromptMedia,
}

impl MixedPrompt {
    /// Appends tokens.
    pub fn push_tokens(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
    }

    /// Appends media.
    pub fn push_media(&mut self, rows: Arc<MediaRows>) {
        let start = self.ids.len();
        let shift = self.media.shift(start);
        self.ids.extend((0..rows.count()).map(|index| rows.row_id(index)));
        self.media.placed.push(Placed { start, first: start - shift, rows });
    }

    /// The ids of tokens and rows.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Each token; `None` for a row.
    pub fn tokens(&self) -> impl Iterator<Item = Option<u32>> {
        self.ids.iter().map(|id| (!is_row(*id)).then_some(*id))
    }

    /// The number of tokens and rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there are neither tokens nor rows.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns true if there is no media.
    pub fn is_text(&self) -> bool {
        self.media.is_empty()
    }
}

impl From<Vec<u32>> for MixedPrompt {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, media: PromptMedia::default() }
    }
}

/// The media of a sequence, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PromptMedia {
    placed: Vec<Placed>,
}

/// Media in a sequence.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    /// The place of the first row.
    start: usize,
    /// The position of the first row.
    first: usize,
    rows: Arc<MediaRows>,
}

/// Successive places of a sequence that are all tokens, or rows of one media.
pub(crate) struct Stretch<'a> {
    /// The place after the last one.
    pub(crate) end: usize,
    /// The media, and the index of its first row here.
    media: Option<(&'a MediaRows, usize)>,
}

impl Placed {
    fn end(&self) -> usize {
        self.start + self.rows.count()
    }
}

impl PromptMedia {
    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Each media.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &MediaRows> {
        self.placed.iter().map(|placed| placed.rows.as_ref())
    }

    /// The media that begin before a place.
    fn before(&self, place: usize) -> &[Placed] {
        &self.placed[..self.placed.partition_point(|placed| placed.start < place)]
    }

    /// How many fewer positions than places are before a place that is no media's.
    fn shift(&self, place: usize) -> usize {
        self.before(place).last().map_or(0, |last| {
            let positions = last.first + last.rows.positions();
            last.end().saturating_sub(positions)
        })
    }

    /// The stretch that begins at a place.
    pub(crate) fn stretch(&self, place: usize) -> Stretch<'_> {
        let inside = self.before(place + 1).last().filter(|placed| place < placed.end());
        if let Some(placed) = inside {
            let media = Some((placed.rows.as_ref(), place - placed.start));
            return Stretch { end: placed.end(), media };
        }
        let next = self.placed.get(self.before(place + 1).len());
        Stretch { end: next.map_or(usize::MAX, |next| next.start), media: None }
    }

    /// The id of the row at a place; `None` for a token.
    pub(crate) fn row_id(&self, place: usize) -> Option<u32> {
        self.stretch(place).media.map(|(rows, index)| rows.row_id(index))
    }

    /// The end of a step that was to end at `end` and has `computed` places before it. Rows that
    /// see each other both ways are all before the end, or none of them.
    pub(crate) fn whole_step(&self, computed: usize, end: usize) -> usize {
        let cut = self.before(end).last().filter(|placed| end < placed.end());
        match cut {
            Some(placed) if placed.rows.non_causal && placed.start > computed => placed.start,
            Some(placed) if placed.rows.non_causal => placed.end(),
            _ => end,
        }
    }

    /// The position of each place; `None` if positions are places.
    pub(crate) fn positions(&self, places: Range<usize>) -> Option<Vec<Position>> {
        let before = self.before(places.end);
        if before.iter().all(|placed| placed.rows.grid.is_none()) {
            return None;
        }
        let mut positions = Vec::with_capacity(places.len());
        let mut place = places.start;
        while place < places.end {
            let Stretch { end, media } = self.stretch(place);
            let end = end.min(places.end);
            if let Some((rows, index)) = media {
                let placed = self.before(place + 1).last();
                let first = placed.map_or(0, |placed| placed.first) as u32;
                let of_row = |row| rows.position(first, row);
                positions.extend((index..index + (end - place)).map(of_row));
            } else {
                let shift = self.shift(place);
                positions.extend((place..end).map(|place| text_position(place - shift)));
            }
            place = end;
        }
        Some(positions)
    }

    /// Checks the media of a prompt against what a program reads.
    pub(crate) fn check(&self, width: Option<usize>, most_rows: usize) -> Result<(), MediaError> {
        if self.is_empty() {
            return Ok(());
        }
        let Some(width) = width else { return Err(MediaError::Unsupported) };
        for media in self.iter() {
            if media.width != width || !media.is_whole() {
                return Err(MediaError::Shape { found: media.width, expected: width });
            }
            let rows = media.count();
            if media.non_causal && rows > most_rows {
                return Err(MediaError::TooLarge { rows, most_rows });
            }
        }
        Ok(())
    }
}

impl<'a> Stretch<'a> {
    /// True if all of it has to be in one batch.
    pub(crate) fn is_whole(&self) -> bool {
        self.media.is_some_and(|(rows, _)| rows.non_causal)
    }

    /// The first `count` rows of the stretch; `None` for tokens.
    pub(crate) fn media(&self, count: usize) -> Option<Media<'a>> {
        let (media, index) = self.media?;
        let rows = &media.rows[index * media.width..(index + count) * media.width];
        Some(Media { rows, non_causal: media.non_causal })
    }
}

/// Media that a model or its backend does not compute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The program takes no media.
    #[error(
        "the model takes no pictures on this device: use a model for pictures, and run it on the \
         CPU"
    )]
    Unsupported,
    /// The projector belongs to another model.
    #[error(
        "the projector makes rows of {found} values, and the model reads rows of {expected}: use \
         the projector (mmproj) of this model"
    )]
    Shape {
        /// Elements of a row.
        found: usize,
        /// Elements that the model reads.
        expected: usize,
    },
    /// Rows that see each other do not fit in a batch.
    #[error(
        "a picture has {rows} rows, which one batch has to compute, and a batch has room for \
         {most_rows}: use larger batches or a smaller picture"
    )]
    TooLarge {
        /// Rows of the picture.
        rows: usize,
        /// Rows of a batch.
        most_rows: usize,
    },
    /// Log probabilities of a prompt with media.
    #[error("a prompt with pictures has no log probabilities")]
    Logprobs,
    /// A part of rows that are computed together.
    #[error("rows that see each other both ways are computed together")]
    Cut,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tokens, a picture of 2 rows of 3, a token, sound of 4 rows that see each other, tokens.
    fn prompt() -> MixedPrompt {
        let picture = MediaRows::new(vec![0.0; 12], 2, [1; 32]).with_grid(Some([3, 2]));
        let sound = MediaRows::new(vec![0.0; 8], 2, [2; 32]).with_non_causal(true);
        let mut prompt = MixedPrompt::from(vec![5, 6]);
        prompt.push_media(Arc::new(picture));
        prompt.push_tokens(&[7]);
        prompt.push_media(Arc::new(sound));
        prompt.push_tokens(&[8, 9]);
        prompt
    }

    #[test]
    fn ids_of_rows_differ_and_are_no_tokens() {
        let prompt = prompt();
        let rows: Vec<u32> = prompt.ids().iter().copied().filter(|id| is_row(*id)).collect();
        assert_eq!(rows.len(), 10);
        let mut unique = rows.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), rows.len());
        assert_eq!(prompt.len(), 15);
    }

    #[test]
    fn a_grid_takes_as_many_positions_as_its_longer_side() {
        let media = &prompt().media;
        let positions = media.positions(0..15).unwrap();
        let expected = [
            [0, 0, 0, 0],
            [1, 1, 1, 0],
            [2, 2, 2, 0],
            [2, 2, 3, 0],
            [2, 2, 4, 0],
            [2, 3, 2, 0],
            [2, 3, 3, 0],
            [2, 3, 4, 0],
            [5, 5, 5, 0],
            [6, 6, 6, 0],
        ];
        assert_eq!(positions[..10], expected);
        assert_eq!(positions[14], [11, 11, 11, 0]);
        for start in 2..15 {
            assert_eq!(media.positions(start..15).unwrap(), positions[start..], "{start}");
        }
        assert_eq!(media.positions(0..2), None, "no picture precedes the tokens");
        assert_eq!(media.positions(100..101).unwrap(), [[97, 97, 97, 0]]);
    }

    #[test]
    fn stretches_are_tokens_or_one_media() {
        let media = &prompt().media;
        let ends: Vec<usize> = [0, 1, 2, 5, 8, 9, 12, 13].map(|at| media.stretch(at).end).into();
        assert_eq!(ends, [2, 2, 8, 8, 9, 13, 13, usize::MAX]);
        let whole = [0, 2, 8, 9, 12, 13].map(|at| media.stretch(at).is_whole());
        assert_eq!(whole, [false, false, false, true, true, false]);
        assert_eq!(media.stretch(3).media(4).unwrap().rows.len(), 8);
        assert!(media.stretch(8).media(1).is_none());
    }

    #[test]
    fn a_step_has_all_rows_that_see_each_other_or_none() {
        let media = &prompt().media;
        // A picture whose rows do not see each other is cut anywhere.
        assert_eq!(media.whole_step(0, 4), 4);
        assert_eq!(media.whole_step(0, 11), 9);
        assert_eq!(media.whole_step(9, 11), 13);
        assert_eq!(media.whole_step(9, 13), 13);
        assert_eq!(media.whole_step(0, 15), 15);
    }

    #[test]
    fn media_of_another_model_are_refused() {
        let media = prompt().media;
        assert_eq!(media.check(Some(2), 4), Ok(()));
        assert_eq!(media.check(None, 4), Err(MediaError::Unsupported));
        let error = MediaError::Shape { found: 2, expected: 3 };
        assert_eq!(media.check(Some(3), 4), Err(error));
        let error = MediaError::TooLarge { rows: 4, most_rows: 3 };
        assert_eq!(media.check(Some(2), 3), Err(error));
        assert_eq!(PromptMedia::default().check(None, 1), Ok(()));
    }
}
