//! Tokens with a role at run time: begin, end, fill in the middle.

use crate::vocab::{Attr, Vocab};
use crate::{Error, VocabConfig};

/// Ids of the tokens with a role; `None` if the vocabulary has no such token.
#[derive(Debug, Default)]
pub(crate) struct SpecialIds {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) eot: Option<u32>,
    pub(crate) eom: Option<u32>,
    pub(crate) unk: Option<u32>,
    pub(crate) sep: Option<u32>,
    pub(crate) pad: Option<u32>,
    pub(crate) mask: Option<u32>,
    pub(crate) fim_pre: Option<u32>,
    pub(crate) fim_suf: Option<u32>,
    pub(crate) fim_mid: Option<u32>,
    pub(crate) fim_pad: Option<u32>,
    pub(crate) fim_rep: Option<u32>,
    pub(crate) fim_sep: Option<u32>,
    /// Ids that end a generation, ascending.
    pub(crate) eog: Vec<u32>,
    /// Keys of the file whose id is not in the vocabulary, with that id.
    pub(crate) ignored: Vec<(&'static str, u32)>,
}

/// The default ids of a tokenizer family, for files without the keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DefaultIds {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) unk: Option<u32>,
    pub(crate) sep: Option<u32>,
    pub(crate) pad: Option<u32>,
    pub(crate) mask: Option<u32>,
}

impl SpecialIds {
    /// Takes ids from the file's keys, otherwise from the family's defaults, otherwise by known
    /// texts. Tokens found by text become control tokens, because converters often leave them
    /// normal and they would then be printed.
    pub(crate) fn resolve(config: &VocabConfig, defaults: DefaultIds, vocab: &mut Vocab) -> Self {
        let len = vocab.len();
        let mut ignored = Vec::new();
        let mut pick = |name: &'static str, key: Option<u32>, default: Option<u32>| {
            ignored.extend(key.filter(|&id| id >= len).map(|id| (name, id)));
            key.filter(|&id| id < len).or(default.filter(|&id| id < len))
        };
        let mut ids = Self {
            bos: pick("tokenizer.ggml.bos_token_id", config.bos_token_id, defaults.bos),
            eos: pick("tokenizer.ggml.eos_token_id", config.eos_token_id, defaults.eos),
            eot: pick("tokenizer.ggml.eot_token_id", config.eot_token_id, None),
            eom: pick("tokenizer.ggml.eom_token_id", config.eom_token_id, None),
            unk: pick("tokenizer.ggml.unknown_token_id", config.unknown_token_id, defaults.unk),
            sep: pick("tokenizer.ggml.seperator_token_id", config.separator_token_id, defaults.sep),
            pad: pick("tokenizer.ggml.padding_token_id", config.padding_token_id, defaults.pad),
            mask: pick("tokenizer.ggml.mask_token_id", config.mask_token_id, defaults.mask),
            fim_pre: pick("tokenizer.ggml.fim_pre_token_id", config.fim_pre_token_id, None),
            fim_suf: pick("tokenizer.ggml.fim_suf_token_id", config.fim_suf_token_id, None),
            fim_mid: pick("tokenizer.ggml.fim_mid_token_id", config.fim_mid_token_id, None),
            fim_pad: pick("tokenizer.ggml.fim_pad_token_id", config.fim_pad_token_id, None),
            fim_rep: pick("tokenizer.ggml.fim_rep_token_id", config.fim_rep_token_id, None),
            fim_sep: pick("tokenizer.ggml.fim_sep_token_id", config.fim_sep_token_id, None),
            eog: Vec::new(),
            ignored: Vec::new(),
        };
        ids.ignored = ignored;
        for (slot, texts) in [
            (&mut ids.eot, EOT),
            (&mut ids.eom, &["<|eom_id|>"]),
            (&mut ids.fim_pre, FIM_PRE),
            (&mut ids.fim_suf, FIM_SUF),
            (&mut ids.fim_mid, FIM_MID),
            (&mut ids.fim_pad, FIM_PAD),
            (&mut ids.fim_rep, FIM_REP),
            (&mut ids.fim_sep, &["<|file_sep|>"]),
        ] {
            if slot.is_none() {
                *slot = texts.iter().find_map(|text| vocab.id_of(text.as_bytes()));
                if let Some(id) = *slot {
                    make_control(vocab, id);
                }
            }
        }
        ids.collect_eog(vocab);
        strip_around_specials(config, vocab);
        ids
    }

    fn collect_eog(&mut self, vocab: &mut Vocab) {
        let find = |vocab: &Vocab, text: &str| vocab.id_of(text.as_bytes());
        let mut eog: Vec<u32> =
            [self.fim_pad, self.fim_rep, self.fim_sep].into_iter().flatten().collect();
        // GLM has no token that ends a turn: the start of the next role ends it.
        let is_glm = find(vocab, "<|observation|>").is_some();
        let roles: &[&str] = if is_glm { &["<|user|>", "<|observation|>"] } else { &[] };
        for text in EOG.iter().chain(roles) {
            if let Some(id) = find(vocab, text) {
                make_control(vocab, id);
                eog.push(id);
            }
        }
        // gpt-oss: these tokens structure an answer, and its parser needs them.
        for text in ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"] {
            if let Some(id) = find(vocab, text) {
                vocab.set_attr(id, Attr::USER_DEFINED);
            }
        }
        eog.extend([self.eos, self.eot, self.eom].into_iter().flatten());

        // If turns end with another token, `<|end|>` only ends a message (gpt-oss, Solar Open).
        let ends = |text| find(vocab, text).is_some_and(|id| eog.contains(&id));
        let call = ends("<|call|>") || ends("<|calls|>");
        let message_end = call && (ends("<|return|>") || ends("<|flush|>"));
        // Gemma 4 has a `</s>` that is an HTML tag.
        let html_tag = ends("<|tool_response>");
        let mut exclude = |text, attr| {
            if let Some(id) = find(vocab, text)
                && eog.contains(&id)
            {
                eog.retain(|&other| other != id);
                vocab.set_attr(id, attr);
            }
        };
        if message_end {
            exclude("<|end|>", Attr::USER_DEFINED);
        }
        if html_tag {
            exclude("</s>", Attr::NORMAL);
        }
        eog.sort_unstable();
        eog.dedup();
        self.eog = eog;
    }
}

/// The id of a token that must be added, or an error if the file does not define it.
pub(crate) fn required(
    add: bool,
    id: Option<u32>,
    flag: &'static str,
    key: &'static str,
) -> Result<Option<u32>, Error> {
    match (add, id) {
        (false, _) => Ok(None),
        (true, Some(id)) => Ok(Some(id)),
        (true, None) => Err(Error::MissingSpecialToken { flag, key }),
    }
}

fn make_control(vocab: &mut Vocab, id: u32) {
    vocab.set_attr(id, vocab.attr(id) | Attr::CONTROL);
}

/// Sets the stripping rules of models whose special tokens absorb adjacent white space. GGUF has no
/// key for them, so the model's name decides.
fn strip_around_specials(config: &VocabConfig, vocab: &mut Vocab) {
    let pre = config.pre.as_deref().unwrap_or_default();
    let architecture = config.architecture.as_deref().unwrap_or_default();
    let name = config.name.as_deref().unwrap_or_default().to_lowercase();
    let mask = |text: &str, vocab: &mut Vocab| {
        if let Some(id) = vocab.id_of(text.as_bytes()) {
            vocab.set_attr(id, vocab.attr(id) | Attr::LSTRIP);
        }
    };
    if ["jina-v2-de", "jina-v2-es", "jina-v2-code"].iter().any(|p| pre.contains(p))
        || ["nomic-bert-moe", "jina-bert-v3"].iter().any(|a| architecture.contains(a))
    {
        mask("<mask>", vocab);
    } else if name.contains("phi-3") || name.contains("phi3") {
        for id in 0..vocab.len() {
            let text = vocab.text(id);
            let keeps = matches!(text, Some("<unk>" | "<s>" | "<|endoftext|>"));
            if !keeps && (vocab.attr(id).any(Attr::SPECIAL) || text == Some("</s>")) {
                vocab.set_attr(id, vocab.attr(id) | Attr::RSTRIP);
            }
        }
    } else if name.contains("modern-bert") {
        mask("[MASK]", vocab);
    }
}

/// Texts of tokens that end a generation regardless of the keys of the file. The last group is not
/// in llama.cpp's list. It relies on the keys, which older conversions lack.
const EOG: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Llama 4, EXAONE, Command R, Seed-OSS, Hunyuan
    "<|eot|>",
    "<|eom|>",
    "[|endofturn|]",
    "<|END_OF_TURN_TOKEN|>",
    "<seed:eos>",
    "<｜hy_place▁holder▁no▁2｜>",
];

/// Texts that end a turn, the most specific first.
const EOT: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

const FIM_PRE: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];
const FIM_SUF: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];
const FIM_MID: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];
const FIM_PAD: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FIM_REP: &[&str] = &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
