//! The pre-tokenizers by name, after `llama.cpp`'s table.
//!
//! The expressions and their meaning are those of `llama.cpp`, which can differ from those that a
//! model was trained with:
//! - it ignores the case of letters: `\p{Lu}` and `\p{Ll}` are both `\p{L}`, and case in
//!   expressions of the GPT-4o kind is ASCII case;
//! - words of `tekken`, `gpt-4o` and `llama4` have no combining marks, so that Hindi and Thai words
//!   split at their vowel signs;
//! - only `\s` matches white space beyond ASCII, not a range that spans it.
//!
//! The table contains look-aheads as written in the source. [`PatternStep::compile`] removes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::bytes::{Regex, RegexBuilder};

use super::digits::Grouping;

/// Further properties of a named pre-tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) form: ByteForm,
    /// True if the beginning-of-sequence token is added by default.
    pub(crate) add_bos: bool,
    /// True if a piece that is a token skips the merges.
    pub(crate) ignore_merges: bool,
}

/// The representation of bytes in the texts of the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteForm {
    /// GPT-2's printable characters.
    StandIns,
    /// UTF-8, and `<0xXX>` tokens for unknown characters.
    Utf8,
    /// UTF-8 with U+2581 for spaces.
    EscapedUtf8,
    /// `EscapedUtf8`. In addition, runs of line breaks are looked up as a whole, and the
    /// beginning-of-sequence token is always added.
    Gemma,
}

impl ByteForm {
    pub(crate) fn escapes_spaces(self) -> bool {
        matches!(self, Self::EscapedUtf8 | Self::Gemma)
    }
}

/// One compiled step of a pre-tokenizer.
#[derive(Debug)]
pub(super) enum CompiledStep {
    Match(Arc<Regex>, Tail),
    Digits(Grouping),
}

/// The treatment of a match that ends in white space and does not end the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// The match stays: the expression has no look-ahead.
    Keep,
    /// `\s+(?!\S)`: the last character belongs to the next piece.
    Leave,
    /// `Leave`, except for line breaks, which `\s*[\r\n]+` matched.
    LeaveUnlessNewline,
    /// `\s{512}(?!\S)|…|\s{1,2}(?!\S)|\s`: white space in powers of two (Jais 2).
    PowersOfTwo,
}

/// One step of a pre-tokenizer in the table.
#[derive(Debug)]
pub(super) enum PatternStep {
    Regex(&'static str),
    Digits(Grouping),
}

/// The steps and flags of the pre-tokenizer called `name`.
pub(super) fn lookup(name: &str) -> Option<(&'static [PatternStep], Flags)> {
    TABLE.iter().find(|row| row.0.contains(&name)).map(|row| (row.1, row.2))
}

impl PatternStep {
    /// Compiles an expression. A [`Tail`] replaces its look-ahead at white space.
    pub(super) fn compile(&self) -> CompiledStep {
        let source = match self {
            Self::Regex(source) => *source,
            Self::Digits(grouping) => return CompiledStep::Digits(*grouping),
        };
        let head = source.strip_suffix(r"|\s+").unwrap_or(source);
        if let Some(head) = head.strip_suffix(r"|\s+(?!\S)") {
            let newlines = head.contains(r"\s*[\r\n]");
            let tail = if newlines { Tail::LeaveUnlessNewline } else { Tail::Leave };
            return CompiledStep::Match(regex(&format!(r"{head}|\s+")), tail);
        }
        if let Some((head, _)) = source.split_once(r"|\s{512}(?!\S)|") {
            return CompiledStep::Match(regex(&format!(r"{head}|\s+")), Tail::PowersOfTwo);
        }
        CompiledStep::Match(regex(source), Tail::Keep)
    }
}

/// Compiles an expression once per process: Unicode classes make that and the first search slow.
/// The expressions are constants, so their number is bounded.
#[expect(clippy::expect_used, reason = "the expressions are constants, and a test compiles each")]
fn regex(source: &str) -> Arc<Regex> {
    static COMPILED: Mutex<BTreeMap<String, Arc<Regex>>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = compiled.get(source) {
        return Arc::clone(regex);
    }
    let regex = RegexBuilder::new(source).build().expect("the expression is valid");
    let regex = Arc::new(regex);
    compiled.insert(source.to_owned(), Arc::clone(&regex));
    regex
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|row| row.0).copied()
}

type Row = (&'static [&'static str], &'static [PatternStep], Flags);

#[rustfmt::skip] // one row per line; the expressions are long
const TABLE: &[Row] = &[
    (&["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"], &[LLAMA3], LLAMA),
    (&["jais-2"], &[PatternStep::Regex(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}")], PLAIN),
    (&["dbrx", "smaug-bpe", "glm5"], &[LLAMA3], PLAIN),
    (&["deepseek-llm"], &[PatternStep::Regex(r"[\r\n]"), PatternStep::Regex(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"), PatternStep::Regex(r"\s?[[!-/:-~！-／：-～‘-‟　-。]--\s]+"), PatternStep::Regex(r"\s+$"), PatternStep::Regex(r"[[一-龥ࠀ-一가-퟿]--\s]+"), PatternStep::Regex(r"\p{N}+")], PLAIN),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[PatternStep::Regex(r"\p{N}{1,3}"), PatternStep::Regex(r"[一-龥぀-ゟ゠-ヿ]+"), DEEPSEEK_V3], PLAIN),
    (&["spark2_5"], &[PatternStep::Regex(r"\p{N}{1,3}"), PatternStep::Regex(r"[一-龥぀-ゟ゠-ヿ]+"), PatternStep::Regex(r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##), PatternStep::Regex(r"\p{N}")], PLAIN),
    (&["youtu"], &[PatternStep::Regex(r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"), PatternStep::Regex(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")], WHOLE),
    (&["deepseek-coder"], &[PatternStep::Regex(r"[\r\n]"), PatternStep::Regex(r"\s?\p{L}+"), PatternStep::Regex(r"\s?\p{P}+"), PatternStep::Regex(r"[[一-龥ࠀ-一가-퟿]--\s]+"), PatternStep::Regex(r"\p{N}")], PLAIN),
    (&["falcon"], &[PatternStep::Regex(r"[\p{P}\$\+<=>\^~\|`]+"), GPT2, PatternStep::Regex(r"[0-9][0-9][0-9]")], PLAIN),
    (&["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"], &[PatternStep::Regex(r"\p{N}"), GPT2], PLAIN),
    (&["gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling"], &[GPT2], PLAIN),
    (&["stablelm2", "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open", "grok-2"], &[QWEN2], PLAIN),
    (&["qwen35"], &[PatternStep::Regex(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")], PLAIN),
    (&["poro-chat", "bloom", "gpt3-finnish"], &[PatternStep::Regex(r" ?[^(\s|.,!?…。，、।۔،)]+")], PLAIN),
    (&["chatglm-bpe", "glm4"], &[LLAMA3], PLAIN),
    (&["viking"], &[PatternStep::Regex(r" ?[^(\s|.,!?…。，、।۔،)]+"), PatternStep::Regex(r"\p{N}")], PLAIN),
    (&["tekken"], &[PatternStep::Regex(r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")], LLAMA),
    (&["chameleon"], &[PatternStep::Regex(r"<sentinel:[0-9]+>"), PatternStep::Regex(r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), PatternStep::Regex(r"([\t\n]|    |  )"), PatternStep::Regex(r"\p{N}"), PatternStep::Regex(r"[\p{P}!-/:-@\[-`{-~]"), GPT2], BOS),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[PatternStep::Regex(r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")], PLAIN),
    (&["granite-embed-multi-97m"], &[PatternStep::Regex(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}--[a-z]]*[\p{L}\p{M}--[A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}--[a-z]]+[\p{L}\p{M}--[A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")], WHOLE),
    (&["tiny_aya", "cohere2moe"], &[PatternStep::Digits(Grouping::WithLead), PatternStep::Regex(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")], PLAIN),
    (&["kimi-k2"], &[KIMI], PLAIN),
    (&["superbpe"], &[PatternStep::Regex(r"\p{N}+"), PatternStep::Digits(Grouping::Thousands)], PLAIN),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], &[PatternStep::Regex(r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")], PLAIN),
    (&["seed-coder"], &[PatternStep::Regex(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")], PLAIN),
    (&["ufakzeka"], &[PatternStep::Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")], PLAIN),
    (&["afmoe"], &[PatternStep::Digits(Grouping::WithLead), PatternStep::Regex(r"[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"), DEEPSEEK_V3], PLAIN),
    (&["laguna"], &[PatternStep::Regex(r"[^\n]+|[\n]+"), QWEN2], PLAIN),
    (&["exaone-moe"], &[PatternStep::Regex(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")], PLAIN),
    (&["gemma4", "granite-embed-multi-311m"], &[PatternStep::Regex(r"[^\n]+|[\n]+")], GEMMA),
    (&["sarvam-moe"], &[PatternStep::Regex(r"[^\n]+|[\n]+")], SARVAM),
    (&["minicpm5"], &[PatternStep::Regex(r"\p{N}{1,3}"), PatternStep::Regex(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")], WHOLE),
    (&["whitespace"], &[PatternStep::Regex(r"\S+")], RAW),
    (&["default"], &[PatternStep::Regex(r"[\p{P}\$\+<=>\^~\|]+"), GPT2, PatternStep::Regex(r"\p{N}+"), PatternStep::Regex(r"[0-9][0-9][0-9]")], PLAIN),
];

const GPT2: PatternStep =
    PatternStep::Regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)");

const LLAMA3: PatternStep = PatternStep::Regex(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

const QWEN2: PatternStep = PatternStep::Regex(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

const DEEPSEEK_V3: PatternStep = PatternStep::Regex(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
);

/// The equivalent of `llama.cpp`'s hand-written splitter for `\p{Han}+`.
const KIMI: PatternStep = PatternStep::Regex(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]+|[^\r\n\p{L}\p{N}]?[\p{L}--[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

const PLAIN: Flags = Flags { form: ByteForm::StandIns, add_bos: false, ignore_merges: false };
const BOS: Flags = Flags { add_bos: true, ..PLAIN };
const WHOLE: Flags = Flags { ignore_merges: true, ..PLAIN };
const LLAMA: Flags = Flags { add_bos: true, ..WHOLE };
const RAW: Flags = Flags { form: ByteForm::Utf8, ..PLAIN };
const SARVAM: Flags = Flags { form: ByteForm::EscapedUtf8, ..PLAIN };
const GEMMA: Flags = Flags { form: ByteForm::Gemma, ..PLAIN };
