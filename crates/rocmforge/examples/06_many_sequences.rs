//! Many callers share one model: their requests are computed in common batches, and each answer is
//! the one that it would be alone.

#![expect(clippy::print_stdout, reason = "an example")]

use std::thread;

use rocmforge::{Error, Model};

fn main() -> Result<(), Error> {
    let model = Model::demo()?;
    let animals = ["fox", "rabbit", "owl", "bear"];
    let ask = |animal: &str| {
        let prompt = format!("Tell me a story about a {animal}.");
        model.chat().user(prompt).seed(7).max_tokens(30).answer()
    };
    let together = thread::scope(|scope| {
        let threads = animals.map(|animal| scope.spawn(move || ask(animal)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    for (animal, answer) in animals.into_iter().zip(together) {
        let answer = answer?;
        println!("{animal}: {}", answer.content);
        assert_eq!(answer.content, ask(animal)?.content);
    }
    Ok(())
}
