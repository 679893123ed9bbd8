//! A tiny model whose weights spell fixed answers, so that clients, tools and parsers can be tested
//! from end to end.
//!
//! The model has one layer that does nothing. Its output depends on the last token only: each piece
//! of an answer is a token of its own, which leads to the next piece. Prompts consist of single
//! bytes, because no bytes are merged but two spaces, so no prompt has a token of an answer. A chat
//! template chooses the answer: it ends the prompt with a control token, which leads to the first
//! piece.

use std::collections::HashSet;
use std::path::Path;

use rf_gguf::{Error, GgufWriter, StringArray, TensorPlan};
use rf_quant::DType;

/// Answers, and the control token after which each one begins. The first answer also follows every
/// token that is part of no answer.
pub(crate) type Answers<'a> = &'a [(&'a str, &'a str)];

/// Elements of an attention head.
const HEAD: usize = 32;
const CONTEXT: u32 = 32768;

/// Writes the model.
pub(crate) fn write(path: &Path, template: &str, answers: Answers<'_>) -> Result<(), Error> {
    let model = FixedModel::new(answers);
    let (vocab, hidden) = (model.tokens.len() as u64, model.hidden_size as u64);
    let head = HEAD as u64;
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", "llama")?.add("general.name", "fixed answers")?;
    for (key, value) in [
        ("llama.context_length", CONTEXT),
        ("llama.embedding_length", hidden as u32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", HEAD as u32),
        ("llama.attention.head_count", (model.hidden_size / HEAD) as u32),
        ("llama.attention.head_count_kv", 1),
        ("tokenizer.ggml.bos_token_id", model.end_token),
        ("tokenizer.ggml.eos_token_id", model.end_token),
    ] {
        writer.add(key, value)?;
    }
    let tokens: StringArray = model.tokens.iter().collect();
    // The tokenizer wants at least one.
    let merges: StringArray = ["Ġ Ġ"].iter().collect();
    writer
        .add("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)?
        .add("tokenizer.ggml.model", "gpt2")?
        .add("tokenizer.ggml.pre", "gpt-2")?
        .add("tokenizer.ggml.add_bos_token", false)?
        .add("tokenizer.ggml.tokens", tokens)?
        .add("tokenizer.ggml.token_type", model.token_types.clone())?
        .add("tokenizer.ggml.merges", merges)?
        .add("tokenizer.chat_template", template)?;
    for (name, shape) in [
        ("token_embd.weight", &[hidden, vocab][..]),
        ("blk.0.attn_norm.weight", &[hidden]),
        ("blk.0.attn_q.weight", &[hidden, hidden]),
        ("blk.0.attn_k.weight", &[hidden, head]),
        ("blk.0.attn_v.weight", &[hidden, head]),
        ("blk.0.attn_output.weight", &[hidden, hidden]),
        ("blk.0.ffn_norm.weight", &[hidden]),
        ("blk.0.ffn_gate.weight", &[hidden, head]),
        ("blk.0.ffn_up.weight", &[hidden, head]),
        ("blk.0.ffn_down.weight", &[head, hidden]),
        ("output_norm.weight", &[hidden]),
        ("output.weight", &[hidden, vocab]),
    ] {
        writer.add_tensor(name, shape, DType::F32)?;
    }
    writer.write_file(path, |tensor, out| {
        for value in model.values(tensor) {
            out.write_all(&value.to_le_bytes())?;
        }
        Ok(())
    })
}

struct FixedModel {
    tokens: Vec<String>,
    token_types: Vec<i32>,
    end_token: u32,
    /// The state of each token. Tokens of no answer have state 0.
    states: Vec<usize>,
    /// The token that follows in each state.
    next: Vec<u32>,
    hidden_size: usize,
}

impl FixedModel {
    fn new(answers: Answers<'_>) -> Self {
        const NORMAL: i32 = 1;
        const CONTROL: i32 = 3;
        let mut model = Self {
            tokens: (0..=255).map(|byte| stand_in(byte).to_string()).collect(),
            token_types: vec![NORMAL; 256],
            end_token: 257,
            states: vec![0; 256],
            next: Vec::new(),
            hidden_size: 0,
        };
        model.push("ĠĠ".to_owned(), NORMAL, 0);
        model.push("<|im_end|>".to_owned(), CONTROL, 0);
        let mut known: HashSet<String> = model.tokens.iter().cloned().collect();
        for (marker, answer) in answers {
            // The state of the marker leads to the first piece.
            let state = model.next.len();
            model.push((*marker).to_owned(), CONTROL, state);
            for piece in pieces(answer, &mut known) {
                let id = model.tokens.len() as u32;
                model.next.push(id);
                let state = model.next.len();
                model.push(piece, NORMAL, state);
            }
            model.next.push(model.end_token);
        }
        model.hidden_size = model.next.len().next_multiple_of(HEAD);
        model
    }

    fn push(&mut self, token: String, kind: i32, state: usize) {
        self.tokens.push(token);
        self.token_types.push(kind);
        self.states.push(state);
    }

    /// The elements of a tensor.
    fn values(&self, tensor: &TensorPlan) -> Vec<f32> {
        let elements: u64 = tensor.shape().iter().product();
        let is_norm = tensor.name().ends_with("norm.weight");
        let mut values = vec![if is_norm { 1.0 } else { 0.0 }; elements as usize];
        match tensor.name() {
            "token_embd.weight" => {
                for (token, state) in self.states.iter().enumerate() {
                    values[token * self.hidden_size + state] = 1.0;
                }
            }
            "output.weight" => {
                for (state, token) in self.next.iter().enumerate() {
                    values[*token as usize * self.hidden_size + state] = 10.0;
                }
            }
            _ => {}
        }
        values
    }
}

/// Divides an answer into pieces that no token has yet, in the alphabet of the vocabulary.
fn pieces(answer: &str, known: &mut HashSet<String>) -> Vec<String> {
    let text: Vec<char> = answer.bytes().map(stand_in).collect();
    let mut pieces: Vec<String> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = text.len() - at;
        // A single byte is a token of prompts, so none may be left over.
        let lengths = [5, 6, 4, 7, 3, 8, 2].into_iter().chain(9..=rest);
        let fits = lengths.filter(|length| *length == rest || length + 2 <= rest);
        let mut candidates = fits.map(|length| text[at..at + length].iter().collect::<String>());
        let new = candidates.find(|piece| !known.contains(piece));
        // Another answer may have the same end, which then joins the pieces before it.
        let piece = new.unwrap_or_else(|| {
            let mut end: String = text[at..].iter().collect();
            while known.contains(&end) {
                let before = pieces.pop().expect("no answer is the end of another one");
                at -= before.chars().count();
                end = before + &end;
            }
            end
        });
        at += piece.chars().count();
        known.insert(piece.clone());
        pieces.push(piece);
    }
    pieces
}

/// GPT-2's character for a byte.
fn stand_in(byte: u8) -> char {
    let is_visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_visible(&byte) {
        return char::from(byte);
    }
    let index = (0..byte).filter(|byte| !is_visible(byte)).count() as u32;
    char::from_u32(256 + index).unwrap_or(char::REPLACEMENT_CHARACTER)
}
