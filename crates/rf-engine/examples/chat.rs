//! A conversation on the CPU: `cargo run --release -p rf-engine --example chat -- FILE`.
//!
//! Without a file it uses the demo model, which continues stories.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::env;
use std::io::{self, Write};
use std::ops::ControlFlow;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::sampling::SamplerConfig;
use rf_engine::{
    Answer, Conversation, Delta, Engine, EngineOptions, GenerateOptions, Message, Model,
};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocmforge/demo/stories-7m-Q8_0.gguf");

/// For models whose file has no template.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}\n{% endfor %}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut model = Model::open(env::args().nth(1).unwrap_or(DEMO.into()))?;
    if model.chat_template().is_none() {
        model = model.with_chat_template(TEMPLATE)?;
    }
    let backend = CpuBackend::new(CpuOptions::default())?;
    let mut engine = Engine::load(model, &backend, EngineOptions::default(), &mut |_| ())?;

    // The session keeps the keys and values of the conversation, so that only the new question is
    // computed.
    let mut session = engine.session();
    let mut conversation = Conversation::default();
    for question in ["Tell me a story about a fox.", "What does the fox do next?"] {
        println!("> {question}");
        conversation.messages.push(Message::new("user", question));
        let prompt = engine.model().chat_prompt(&conversation)?;
        let options = GenerateOptions::default()
            // The same answers in every run.
            .with_sampler(SamplerConfig::default().with_seed(1))
            .with_max_tokens(48)
            // Markers of tool calls may be control tokens, whose text is left out otherwise.
            .with_rendered_tokens(prompt.rendered_tokens.clone());
        let (mut parser, mut answer) = (prompt.parser(), Answer::default());
        let mut read = |deltas: Vec<Delta>| {
            for delta in deltas {
                // Others are reasoning, and the parts of tool calls.
                if let Delta::Content(text) = &delta {
                    print!("{text}");
                }
                answer.extend([delta]);
            }
        };
        let outcome = engine.generate(&mut session, &prompt.ids, &options, &mut |text| {
            read(parser.push(text));
            match io::stdout().flush() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        read(parser.finish());
        println!("\n[{} tokens]", outcome.ids.len());
        conversation.messages.push(answer.into());
    }
    Ok(())
}
