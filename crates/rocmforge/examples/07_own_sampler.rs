//! Your own sampler: the program reads the logits of each step and chooses the next token.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::device::Placement;
use rocmforge::engine::{DecodeOptions, Outputs, SequenceInput, StreamDecoder};
use rocmforge::{Error, Loader, Purpose, Source};

fn main() -> Result<(), Error> {
    let loader = Loader::new(Source::Demo).purpose(Purpose::Texts).context_tokens(256);
    let placement: Placement = loader.placement()?;
    let mut loaded = loader.open(&mut |_| ())?.load_on(&placement, &mut |_| ())?;
    let engine = &mut loaded.engine;
    let model = engine.model().clone();

    let mut session = engine.session();
    let mut ids = model.text_ids("Once upon a time");
    let mut decoder = StreamDecoder::new(DecodeOptions::default());
    for step in 0..40 {
        let feed = SequenceInput { session: &mut session, ids: &ids, outputs: Outputs::Last };
        let logits = engine.forward(&mut [feed])?;
        // The most probable token, but every fourth time the second one.
        let mut best: Vec<u32> = (0..).take(logits.len()).collect();
        best.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        let next = best[usize::from(step % 4 == 3)];
        if model.tokenizer().is_eog(next) {
            break;
        }
        print!("{}", decoder.push(model.tokenizer(), next).unwrap_or_default());
        ids = vec![next];
    }
    println!();
    Ok(())
}
