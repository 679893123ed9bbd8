//! An answer piece by piece: as an iterator, and as an async stream.

#![expect(clippy::print_stdout, reason = "an example")]

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;

use rocmforge::{Delta, Error, Model, Stream as _};

fn main() -> Result<(), Error> {
    let model = Model::demo()?;
    let chat = model.chat().user("Tell me a story about a fox.").max_tokens(40).seed(4);

    // Blocking: no runtime is involved.
    for delta in chat.stream()? {
        show(&delta?);
    }

    // Async: the stream works with every runtime. With the crate `futures`, this loop is
    // `while let Some(delta) = stream.next().await`.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let mut stream = chat.stream()?;
        while let Some(delta) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
            show(&delta?);
        }
        Ok(())
    })
}

fn show(delta: &Delta) {
    match delta {
        Delta::Content(text) | Delta::Reasoning(text) => {
            print!("{text}");
            // The next piece may take a while. A closed pipe ends the program at the next line.
            drop(io::stdout().flush());
        }
        Delta::Finished { reason, usage, .. } => {
            println!("\n[{reason}: {} tokens]\n", usage.completion_tokens);
        }
        _ => {}
    }
}
