//! Converts token ids to text, at once or as a stream.

use crate::pre_tokenizer::ByteForm;
use crate::tokenizer::TokenizerModel;
use crate::vocab::Attr;
use crate::{Error, Tokenizer, byte_map};

/// Options of decoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Include control and unknown tokens (`<|im_end|>`).
    pub render_special: bool,
    /// The ids continue a text, as generated ids continue a prompt: a leading space is text.
    /// Otherwise decoding removes the space that encoding adds in front of a text.
    pub continuation: bool,
}

impl DecodeOptions {
    /// Sets [`render_special`](Self::render_special).
    #[must_use]
    pub const fn with_render_special(mut self, render_special: bool) -> Self {
        self.render_special = render_special;
        self
    }

    /// Sets [`continuation`](Self::continuation).
    #[must_use]
    pub const fn with_continuation(mut self, continuation: bool) -> Self {
        self.continuation = continuation;
        self
    }
}

impl Tokenizer {
    /// The bytes of `ids`. Inverse of [`encode`](Self::encode) with
    /// [`PLAIN`](crate::EncodeOptions::PLAIN) options, except for `WordPiece` and unigram
    /// vocabularies, which keep neither case nor white space.
    ///
    /// # Errors
    ///
    /// If an id is not in the vocabulary.
    pub fn decode_bytes(&self, ids: &[u32], options: DecodeOptions) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        let mut start = Start::new(options);
        for &id in ids {
            self.append_piece(id, options.render_special, &mut start, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// The text of `ids`; bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// If an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> Result<String, Error> {
        let bytes = self.decode_bytes(ids, options)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The bytes of one token, special or not.
    ///
    /// # Errors
    ///
    /// If the id is not in the vocabulary.
    pub fn piece(&self, id: u32) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.append_piece(id, true, &mut Start::Past, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns true if decoding leaves out the text of `id`, unless told to render it: control and
    /// unknown tokens.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.attr(id).any(Attr::CONTROL | Attr::UNKNOWN)
    }

    fn append_piece(
        &self,
        id: u32,
        render_special: bool,
        start: &mut Start,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let out_of_range = || Error::TokenOutOfRange { id, vocab_size: self.vocab_size() };
        let text = self.vocab.text(id).ok_or_else(out_of_range)?;
        let attr = self.vocab.attr(id);
        let from = bytes.len();
        if attr.any(Attr::CONTROL | Attr::UNKNOWN) {
            if render_special {
                bytes.extend_from_slice(text.as_bytes());
            }
            return Ok(());
        }
        if attr.any(Attr::USER_DEFINED) {
            bytes.extend_from_slice(text.as_bytes());
        } else if attr.any(Attr::BYTE) {
            bytes.extend(byte_of_token(text));
        } else if attr.any(Attr::NORMAL) {
            match &self.model {
                TokenizerModel::Bpe(bpe) if bpe.form() == ByteForm::StandIns => {
                    append_stand_ins(text, bytes);
                }
                _ => append_unescaped(text, bytes),
            }
        }
        if bytes.len() > from && matches!(start, Start::At) {
            *start = Start::Past;
            if self.add_space_prefix && bytes[from] == b' ' {
                bytes.remove(from);
            }
        }
        Ok(())
    }
}

/// Converts ids to text one by one and never splits a character. The texts of all
/// [`push`](Self::push) calls and of [`finish`](Self::finish) together equal the text of
/// [`Tokenizer::decode`] for all ids, unless some are [rendered](Self::rendering).
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    options: DecodeOptions,
    /// Control tokens whose text is included.
    rendered: Vec<u32>,
    start: Start,
    /// The first bytes of an incomplete character.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// A decoder at the start of a text, or of a continuation with [`DecodeOptions::continuation`].
    pub fn new(options: DecodeOptions) -> Self {
        Self { options, rendered: Vec::new(), start: Start::new(options), pending: Vec::new() }
    }

    /// Includes the text of these control tokens, too. A parser of tool calls needs some of them.
    #[must_use]
    pub fn rendering(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.rendered.extend(ids);
        self
    }

    /// The text that `id` completes. Empty while a character is incomplete. All calls must pass the
    /// same tokenizer.
    ///
    /// # Errors
    ///
    /// If the id is not in the vocabulary. The decoder remains usable.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String, Error> {
        let render = self.options.render_special || self.rendered.contains(&id);
        tokenizer.append_piece(id, render, &mut self.start, &mut self.pending)?;
        let mut text = String::with_capacity(self.pending.len());
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    break;
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(len) = error.error_len() else {
                        self.pending = invalid.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &invalid[len..];
                }
            }
        }
        Ok(text)
    }

    /// The remaining text: U+FFFD for an incomplete character, otherwise empty. The decoder is then
    /// at the start of a continuation.
    pub fn finish(&mut self) -> String {
        self.start = Start::Past;
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// True if any text has been returned.
#[derive(Debug, Clone, Copy)]
enum Start {
    At,
    Past,
}

impl Start {
    fn new(options: DecodeOptions) -> Self {
        if options.continuation { Self::Past } else { Self::At }
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_of_token(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// Characters that represent no byte are kept; they occur in tokens that were added by hand.
fn append_stand_ins(text: &str, bytes: &mut Vec<u8>) {
    for c in text.chars() {
        match byte_map::byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

fn append_unescaped(text: &str, bytes: &mut Vec<u8>) {
    for (index, part) in text.split('\u{2581}').enumerate() {
        if index > 0 {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(part.as_bytes());
    }
}
