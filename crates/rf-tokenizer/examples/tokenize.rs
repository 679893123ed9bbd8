//! Tokenises a text with the tokenizer of a file:
//! `cargo run -p rf-tokenizer --example tokenize -- FILE TEXT`. Without arguments it reads the demo
//! model.

#![expect(clippy::print_stdout, reason = "an example")]

use std::env;
use std::error::Error;

use rf_tokenizer::rf_gguf::Gguf;
use rf_tokenizer::{DecodeOptions, EncodeOptions, StreamDecoder, Tokenizer, VocabConfig};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocmforge/demo/stories-7m-Q8_0.gguf");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let file = Gguf::open(arguments.next().unwrap_or(DEMO.into()))?;
    let text = arguments.next().unwrap_or("Once upon a time, there was a little fox named".into());
    let tokenizer = Tokenizer::new(VocabConfig::from_gguf(&file)?)?;

    // PLAIN is for text of a user, PROMPT for a prompt with special tokens such as `<|im_start|>`.
    let ids = tokenizer.encode(&text, EncodeOptions::PLAIN);
    println!("{} of {} ids: {ids:?}", ids.len(), tokenizer.vocab_size());

    // A token may end within a character, so the pieces of a stream come from a decoder.
    let mut decoder = StreamDecoder::new(DecodeOptions::default());
    let pieces = ids.iter().map(|&id| decoder.push(&tokenizer, id));
    println!("{:?}", pieces.collect::<Result<Vec<_>, _>>()?);
    println!("{}", tokenizer.decode(&ids, DecodeOptions::default())?);
    Ok(())
}
