//! Answers as Rust types: the schema of the type restricts what the model can write.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::{Error, Grammar, Model};
use schemars::JsonSchema;
use serde::Deserialize;

/// A character of a story.
#[derive(Deserialize, JsonSchema)]
struct Character {
    kind: Kind,
    brave: bool,
    age: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
enum Kind {
    Fox,
    Rabbit,
    Owl,
}

fn main() -> Result<(), Error> {
    let model = Model::demo()?;
    let chat = model.chat().user("Invent a character.").seed(3).max_tokens(200);
    let character: Character = chat.generate()?;
    let Character { kind, brave, age } = character;
    println!("a {kind:?} of {age} years, {}", if brave { "brave" } else { "shy" });

    // A grammar, a regular expression or a list of choices works in the same way.
    let choices = Grammar::Choice(vec!["yes".into(), "no".into()]);
    let answer = model.chat().user("Is a fox brave?").grammar(choices).answer()?;
    println!("{}", answer.content);
    Ok(())
}
