//! Progress while a model is loaded, and the end of an answer that is no longer needed.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::{Delta, Error, LoadEvent, Model, Source};

fn main() -> Result<(), Error> {
    let source = std::env::args().nth(1).map_or(Source::Demo, Source::from);
    let model = Model::loader(source).load_with(&mut |event| match event {
        LoadEvent::Download { name, done_bytes, total_bytes, .. } => {
            println!("downloading {name}: {done_bytes} of {total_bytes} bytes");
        }
        LoadEvent::MemoryNeed(need) => println!("needs {} MiB", need.total_bytes() >> 20),
        LoadEvent::Placed(layers) => println!("{layers}"),
        LoadEvent::Progress(progress) if progress.done_bytes == progress.total_bytes => {
            println!("loaded {} bytes", progress.total_bytes);
        }
        LoadEvent::Warning(warning) => println!("warning: {warning}"),
        _ => {}
    })?;

    // Dropping the stream cancels the request: its part of the cache is free before the next step.
    let mut text = String::new();
    for delta in model.chat().user("Tell me a long story.").stream()? {
        if let Delta::Content(piece) = delta? {
            text += &piece;
        }
        if text.len() > 100 {
            break;
        }
    }
    println!("{text} …");
    Ok(())
}
