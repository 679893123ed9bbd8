//! Writes the model with fixed answers that the tests use, for clients that are tested by hand:
//! `cargo run -p rf-server --example fixed_answers -- FILE`.

#[path = "../tests/fixed/answers.rs"]
mod answers;
#[path = "../tests/fixed/mod.rs"]
mod fixed;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("expected the name of a file")?;
    answers::answers(|answers| fixed::write(path.as_ref(), answers::TEMPLATE, answers))?;
    Ok(())
}
