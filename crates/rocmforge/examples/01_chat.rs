//! A conversation with two turns. Give a model as the argument: a path, or `OWNER/REPO[:QUANT]`.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::{Error, Model};

fn main() -> Result<(), Error> {
    let model = match std::env::args().nth(1) {
        Some(source) => Model::load(source)?,
        None => Model::demo()?,
    };
    let chat = model.chat().user("Tell me a story about a fox and a lost key.").max_tokens(60);
    let answer = chat.answer()?;
    println!("{}\n", answer.content);

    // The answer becomes a part of the conversation.
    let chat = chat.assistant(&answer).user("Tell me another one.");
    let answer = chat.answer()?;
    println!("{}\n", answer.content);
    println!(
        "{} tokens, {} of {} prompt tokens came from the cache",
        answer.usage.completion_tokens, answer.usage.cached_tokens, answer.usage.prompt_tokens
    );
    Ok(())
}
