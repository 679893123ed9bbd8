//! Renders the chat template of a file with messages and tools:
//! `cargo run -p rf-chat --example prompt -- FILE`. Without an argument it reads the demo model.

#![expect(clippy::print_stdout, reason = "an example")]

use std::env;
use std::error::Error;

use rf_chat::serde_json::json;
use rf_chat::{ChatTemplate, Conversation, Message, MessageCall, Tool};
use rf_tokenizer::rf_gguf::Gguf;
use rf_tokenizer::{Tokenizer, VocabConfig};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocmforge/demo/stories-7m-Q8_0.gguf");

fn main() -> Result<(), Box<dyn Error>> {
    let file = Gguf::open(env::args().nth(1).unwrap_or(DEMO.into()))?;
    let tokenizer = Tokenizer::new(VocabConfig::from_gguf(&file)?)?;
    let template = match tokenizer.chat_template() {
        Some(source) => ChatTemplate::of_tokenizer(source, &tokenizer)?,
        None => ChatTemplate::builtin("chatml")?,
    };

    let weather = Tool::from_json(&json!({
        "name": "weather",
        "description": "The weather in a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    }))?;
    // The model has called the tool, and the next answer tells its result.
    let (id, name, arguments) = ("call-1".into(), "weather".into(), json!({"town": "Oslo"}));
    let call = MessageCall { id, name, arguments };
    let result = Message::new("tool", "-3 °C, snow");
    let messages = vec![
        Message::new("system", "Be brief."),
        Message::new("user", "Is it cold in Oslo?"),
        Message { tool_calls: vec![call], ..Message::new("assistant", "") },
        Message { tool_call_id: Some("call-1".into()), ..result },
    ];
    let conversation = Conversation::default().with_messages(messages).with_tools(vec![weather]);
    let prompt = conversation.prompt(&template)?;
    println!("{}", prompt.text);

    // The ids for the model, and how its answer is read.
    println!("calls: {:?}, reasoning: {:?}", prompt.format.tools, prompt.format.reasoning);
    println!("{} tokens", prompt.tokenized(&tokenizer).ids.len());
    Ok(())
}
