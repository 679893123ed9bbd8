//! The measurement of this engine, in the process that a comparison starts for it.

use std::path::Path;
use std::time::Instant;

use rocmforge::engine::{self, SyntheticFeeder};

use super::speeds::{BATCH_TOKENS, Speeds, Test};
use crate::model::ModelFile;
use crate::{Error, Target, machine};

/// Tokens of the warm-up before a generation.
const WARM_UP_TOKENS: usize = 8;

/// Measures this engine once. `root` is the checkout, whose revision names the engine.
///
/// # Errors
///
/// Errors of loading and running the model.
pub fn measure_own(
    root: &Path,
    model: &ModelFile,
    target: &Target,
    test: Test,
) -> Result<Speeds, Error> {
    let loader = model
        .loader()
        .context_tokens(test.depth_tokens + test.prompt_tokens.max(test.generated_tokens))
        .batch_tokens(BATCH_TOKENS);
    let open = loader.open(&mut |_| ())?;
    let engine = open.load_on_backend(target.backend(), &mut |_| ())?.engine;
    let mut feeder = SyntheticFeeder::new(engine, 1);
    feeder.prompt(0, test.depth_tokens)?;
    let mut speed = |tokens: usize, warm_up: usize, run: Run| {
        if tokens == 0 {
            return Ok(None);
        }
        feeder.truncate(test.depth_tokens)?;
        run(&mut feeder, warm_up)?;
        feeder.truncate(test.depth_tokens)?;
        let start = Instant::now();
        run(&mut feeder, tokens)?;
        Ok::<_, Error>(Some(tokens as f64 / start.elapsed().as_secs_f64()))
    };
    let (pp, tg) = (test.prompt_tokens, test.generated_tokens);
    Ok(Speeds {
        program: format!("ROCmForge {}", machine::revision(root)),
        features: target.backend().description(),
        prompt_tokens_per_s: speed(pp, pp, prompt)?,
        decode_tokens_per_s: speed(tg, tg.min(WARM_UP_TOKENS), generate)?,
    })
}

/// Processes a number of tokens.
type Run = fn(&mut SyntheticFeeder, usize) -> Result<(), engine::Error>;

fn prompt(feeder: &mut SyntheticFeeder, tokens: usize) -> Result<(), engine::Error> {
    feeder.prompt(0, tokens)
}

fn generate(feeder: &mut SyntheticFeeder, tokens: usize) -> Result<(), engine::Error> {
    (0..tokens).try_for_each(|_| feeder.step(1))
}
