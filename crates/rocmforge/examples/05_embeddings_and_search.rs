//! Embeddings, and a search by similarity. Any model works; one that was trained for embeddings
//! finds more: give it as the argument.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::{Error, Model, Source};

fn main() -> Result<(), Error> {
    let source = std::env::args().nth(1).map_or(Source::Demo, Source::from);
    let model = Model::loader(source).embeddings().load()?;
    let documents = [
        "The fox looked for the lost key.",
        "The baker made bread for the whole village.",
        "The key was under the wooden bridge.",
    ];
    let vectors = model.embed(&documents)?;
    let query = model.embed(&["Where is the key?"])?.remove(0);

    // The vectors have length 1, so the dot product is the cosine of their angle.
    let similarity =
        |vector: &Vec<f32>| -> f32 { vector.iter().zip(&query).map(|(a, b)| a * b).sum() };
    let mut found: Vec<(f32, &str)> = vectors.iter().map(similarity).zip(documents).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (similarity, document) in found {
        println!("{similarity:.3}  {document}");
    }
    Ok(())
}
