//! The tokenizer of one model.

use crate::bpe::Bpe;
use crate::charsmap::Charsmap;
use crate::partition::{Fragment, SpecialMatcher};
use crate::pre_tokenizer::{ByteForm, Flags, PreTokenizer};
use crate::special::{self, DefaultIds, SpecialIds};
use crate::unigram::Unigram;
use crate::vocab::Vocab;
use crate::wordpiece::WordPiece;
use crate::{Error, VocabConfig, spm};

/// Text to token ids and back, as the model was trained. Cheap to share, immutable.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) vocab: Vocab,
    pub(crate) model: TokenizerModel,
    special: SpecialIds,
    matcher: SpecialMatcher,
    /// The ids that `add_special` adds.
    prefix: Option<u32>,
    suffix: Option<u32>,
    pub(crate) add_space_prefix: bool,
    pre_is_default: bool,
    suppress: Vec<u32>,
    chat_template: Option<String>,
}

/// The tokenizer family.
#[derive(Debug)]
pub(crate) enum TokenizerModel {
    Bpe(Box<Bpe>),
    Spm,
    WordPiece(Box<WordPiece>),
    Unigram(Box<Unigram>),
}

/// The tokenizer family by name, before the vocabulary is read.
#[derive(Debug)]
enum Family {
    Bpe(PreTokenizer),
    Spm,
    WordPiece,
    Unigram,
}

/// How [`Tokenizer::encode`] treats special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeOptions {
    /// Add the beginning and end tokens of the model.
    pub add_special: bool,
    /// Parse special tokens in the text, such as `<|im_end|>`. Leave it off for text from a user.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// Plain text: nothing added, nothing parsed.
    pub const PLAIN: Self = Self { add_special: false, parse_special: false };
    /// A whole prompt: special tokens added and parsed.
    pub const PROMPT: Self = Self { add_special: true, parse_special: true };

    /// Sets [`add_special`](Self::add_special).
    #[must_use]
    pub const fn with_add_special(mut self, add_special: bool) -> Self {
        self.add_special = add_special;
        self
    }

    /// Sets [`parse_special`](Self::parse_special).
    #[must_use]
    pub const fn with_parse_special(mut self, parse_special: bool) -> Self {
        self.parse_special = parse_special;
        self
    }
}

impl Tokenizer {
    /// Builds the tokenizer. This takes about 75 ms for 128k tokens and 280k merges on two cores.
    ///
    /// # Errors
    ///
    /// If the family or the pre-tokenizer is unknown, the arrays do not fit each other, a text
    /// has two ids, or a token that has to be added is not defined.
    pub fn new(mut config: VocabConfig) -> Result<Self, Error> {
        let family = Family::of(&config)?;
        let pre_is_default =
            matches!(family, Family::Bpe(_)) && pre_tokenizer_name(&config).is_none();
        let flags = family.flags();
        let tokens = std::mem::take(&mut config.tokens);
        let scores = std::mem::take(&mut config.scores);
        let mut vocab = Vocab::new(tokens, scores, &config.token_types)?;
        if matches!(family, Family::Spm | Family::Unigram) {
            vocab.check_scores()?;
        }
        let special = SpecialIds::resolve(&config, family.default_ids(&vocab), &mut vocab);

        // A file that says nothing and has no such token gets none.
        let adds_bos = family.adds_bos() && special.bos.is_some();
        let add_bos = config.add_bos_token.unwrap_or(adds_bos)
            || flags.is_some_and(|flags| flags.form == ByteForm::Gemma)
            || matches!(family, Family::WordPiece);
        let add_eos = config.add_eos_token.unwrap_or(matches!(family, Family::Unigram));
        let key = ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id");
        let prefix = special::required(add_bos, special.bos, key.0, key.1)?;
        let suffix = if matches!(family, Family::WordPiece) {
            let key = ("tokenizer.ggml.add_sep_token", "tokenizer.ggml.seperator_token_id");
            special::required(true, special.sep, key.0, key.1)?
        } else {
            let key = ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id");
            special::required(add_eos, special.eos, key.0, key.1)?
        };
        // Each word of WordPiece starts with a space.
        let add_space_prefix = matches!(family, Family::WordPiece)
            || config.add_space_prefix.unwrap_or(matches!(family, Family::Spm));
        Ok(Self {
            model: family.model(&config, &vocab)?,
            matcher: SpecialMatcher::new(&vocab),
            special,
            prefix,
            suffix,
            add_space_prefix,
            pre_is_default,
            suppress: config.suppress_tokens.into_iter().filter(|&id| id < vocab.len()).collect(),
            chat_template: config.chat_template,
            vocab,
        })
    }

    /// The ids of `text`.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        self.encode_bytes(text.as_bytes(), options)
    }

    /// The ids of bytes that need not be UTF-8. Each stray byte keeps its own token, so decoding
    /// returns the same bytes (`llama.cpp` replaces them by U+FFFD for BPE).
    pub fn encode_bytes(&self, text: &[u8], options: EncodeOptions) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        ids.extend(self.prefix.filter(|_| options.add_special));
        let mut after_special = true;
        for fragment in self.matcher.partition(&self.vocab, text, options.parse_special) {
            match fragment {
                Fragment::Special(id) => {
                    ids.push(id);
                    after_special = true;
                }
                Fragment::Text(range) => {
                    self.encode_fragment(&text[range], after_special, &mut ids);
                    after_special = false;
                }
            }
        }
        ids.extend(self.suffix.filter(|_| options.add_special));
        ids
    }

    /// The ids of a prompt that a chat template rendered: special tokens are parsed, and the
    /// beginning-of-sequence token comes first exactly once. Most templates write it themselves.
    pub fn encode_rendered(&self, text: &str) -> Vec<u32> {
        let mut ids = self.encode(text, EncodeOptions { add_special: false, parse_special: true });
        if let Some(bos) = self.special.bos.filter(|_| self.adds_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    fn encode_fragment(&self, text: &[u8], after_special: bool, ids: &mut Vec<u32>) {
        match &self.model {
            TokenizerModel::Bpe(bpe) if bpe.form().escapes_spaces() => {
                bpe.encode(&self.vocab, &escape_spaces(text, false), ids);
            }
            TokenizerModel::Bpe(bpe) => bpe.encode(&self.vocab, text, ids),
            TokenizerModel::Spm => {
                let escaped = escape_spaces(text, self.add_space_prefix && after_special);
                spm::encode(&self.vocab, self.special.unk, &escaped, ids);
            }
            TokenizerModel::WordPiece(model) => model.encode(self.special.unk, text, ids),
            TokenizerModel::Unigram(model) => {
                model.encode(&self.vocab, self.special.unk, text, self.add_space_prefix, ids);
            }
        }
    }

    /// The number of tokens; ids are below it.
    pub fn vocab_size(&self) -> u32 {
        self.vocab.len()
    }

    /// The text of `id` in the vocabulary, in which characters represent bytes or spaces.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The id of a token by its text in the vocabulary, such as `<|im_end|>`.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.vocab.id_of(text.as_bytes())
    }

    /// Returns true if the file names no pre-tokenizer and a generic one is in use. Callers should
    /// warn: the model may receive ids that it was not trained on.
    pub fn pre_is_default(&self) -> bool {
        self.pre_is_default
    }

    /// Returns true if [`EncodeOptions::add_special`] adds the beginning-of-sequence token.
    pub fn adds_bos(&self) -> bool {
        self.prefix.is_some()
    }

    /// Returns true if [`EncodeOptions::add_special`] adds the end-of-sequence token, or the
    /// separator that ends the texts of `WordPiece` models.
    pub fn adds_eos(&self) -> bool {
        self.suffix.is_some()
    }

    /// Returns true if `id` ends a generation: the end of the sequence, of a turn, of a message,
    /// and tokens that are known to mean one of these.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.eog.binary_search(&id).is_ok()
    }

    /// Returns the ids that end a generation, ascending.
    pub fn eog_ids(&self) -> &[u32] {
        &self.special.eog
    }

    /// Keys of the file whose id is not in the vocabulary, with that id. The default took its
    /// place. Callers should warn: an answer may not end where it should.
    pub fn ignored_ids(&self) -> &[(&'static str, u32)] {
        &self.special.ignored
    }

    /// Tokens whose type is none that is known, with the type. They count as unused. Callers should
    /// warn: a control token may be treated as text.
    pub fn unknown_types(&self) -> &[(u32, i32)] {
        self.vocab.unknown_types()
    }

    /// Ids that must never be sampled.
    pub fn suppressed_ids(&self) -> &[u32] {
        &self.suppress
    }

    /// The source of the file's chat template, as the file has it.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// Beginning of a sequence.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// End of a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// End of a turn.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// End of a message within a turn.
    pub fn eom(&self) -> Option<u32> {
        self.special.eom
    }

    /// The token of unknown text.
    pub fn unk(&self) -> Option<u32> {
        self.special.unk
    }

    /// Separator of two texts.
    pub fn sep(&self) -> Option<u32> {
        self.special.sep
    }

    /// Padding of a batch.
    pub fn pad(&self) -> Option<u32> {
        self.special.pad
    }

    /// Mask of a hidden token.
    pub fn mask(&self) -> Option<u32> {
        self.special.mask
    }

    /// Fill in the middle: precedes the text before the gap.
    pub fn fim_pre(&self) -> Option<u32> {
        self.special.fim_pre
    }

    /// Fill in the middle: precedes the text after the gap.
    pub fn fim_suf(&self) -> Option<u32> {
        self.special.fim_suf
    }

    /// Fill in the middle: start of the generated text.
    pub fn fim_mid(&self) -> Option<u32> {
        self.special.fim_mid
    }

    /// Fill in the middle: end of the generated text in some models.
    pub fn fim_pad(&self) -> Option<u32> {
        self.special.fim_pad
    }

    /// Fill in the middle: precedes the name of a repository.
    pub fn fim_rep(&self) -> Option<u32> {
        self.special.fim_rep
    }

    /// Fill in the middle: separator of files of a repository.
    pub fn fim_sep(&self) -> Option<u32> {
        self.special.fim_sep
    }
}

/// The name of the BPE pre-tokenizer, if the file has one.
fn pre_tokenizer_name(config: &VocabConfig) -> Option<&str> {
    if config.model == "gemma4" {
        return Some("gemma4");
    }
    config.pre.as_deref().filter(|name| !name.is_empty())
}

impl Family {
    fn of(config: &VocabConfig) -> Result<Self, Error> {
        match config.model.as_str() {
            "llama" => Ok(Self::Spm),
            "bert" => Ok(Self::WordPiece),
            "t5" => Ok(Self::Unigram),
            "gpt2" | "gemma4" => {
                let pre_tokenizer =
                    PreTokenizer::named(pre_tokenizer_name(config).unwrap_or("default"))?;
                if config.merges.is_empty() {
                    return Err(Error::MissingMerges);
                }
                Ok(Self::Bpe(pre_tokenizer))
            }
            model => Err(Error::UnsupportedModel { model: model.to_owned() }),
        }
    }

    fn flags(&self) -> Option<Flags> {
        match self {
            Self::Bpe(pre_tokenizer) => Some(pre_tokenizer.flags),
            _ => None,
        }
    }

    /// Returns true if the beginning-of-sequence token is added to files that do not say.
    fn adds_bos(&self) -> bool {
        match self {
            Self::Bpe(pre_tokenizer) => pre_tokenizer.flags.add_bos,
            Self::Spm | Self::WordPiece => true,
            Self::Unigram => false,
        }
    }

    fn default_ids(&self, vocab: &Vocab) -> DefaultIds {
        let none = DefaultIds::default();
        match self {
            Self::Spm => DefaultIds { bos: Some(1), eos: Some(2), unk: Some(0), ..none },
            Self::WordPiece => DefaultIds {
                bos: Some(101),
                unk: Some(100),
                sep: Some(102),
                pad: Some(0),
                mask: Some(103),
                ..none
            },
            Self::Unigram => DefaultIds { eos: Some(1), unk: Some(2), pad: Some(0), ..none },
            // Files of Falcon, the first with BPE, have no ids. In other vocabularies the token of
            // this id is text, such as a comma.
            Self::Bpe(_) => {
                let end = Some(11).filter(|id| vocab.text(*id) == Some("<|endoftext|>"));
                DefaultIds { bos: end, eos: end, ..none }
            }
        }
    }

    fn model(self, config: &VocabConfig, vocab: &Vocab) -> Result<TokenizerModel, Error> {
        Ok(match self {
            Self::Bpe(pre_tokenizer) => {
                TokenizerModel::Bpe(Box::new(Bpe::new(vocab, &config.merges, pre_tokenizer)))
            }
            Self::Spm => TokenizerModel::Spm,
            Self::WordPiece => {
                let lowercase = config.lowercase.unwrap_or(true);
                let strip_accents = config.strip_accents.unwrap_or(lowercase);
                TokenizerModel::WordPiece(Box::new(WordPiece::new(vocab, lowercase, strip_accents)))
            }
            Self::Unigram => {
                let charsmap = Charsmap::parse(&config.precompiled_charsmap)?;
                let merge_spaces = config.remove_extra_whitespaces.unwrap_or(false);
                TokenizerModel::Unigram(Box::new(Unigram::new(vocab, charsmap, merge_spaces)))
            }
        })
    }
}

/// `text` with U+2581 for each space, and one more in front if `prefix`.
fn escape_spaces(text: &[u8], prefix: bool) -> Vec<u8> {
    const SPACE: &[u8] = "\u{2581}".as_bytes();
    let mut escaped = Vec::with_capacity(text.len() + text.len() / 2 + SPACE.len());
    if prefix {
        escaped.extend_from_slice(SPACE);
    }
    for &byte in text {
        match byte {
            b' ' => escaped.extend_from_slice(SPACE),
            other => escaped.push(other),
        }
    }
    escaped
}
