//! Tools: the model calls a function of the program, and the result goes back into the
//! conversation.

#![expect(clippy::print_stdout, reason = "an example")]

use rocmforge::serde_json::{self, Value, json};
use rocmforge::{Error, Model, Tool, ToolChoice};

fn main() -> Result<(), Error> {
    let model = Model::demo()?;
    let tool = Tool::from_json(&json!({
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a town",
            "parameters": {
                "type": "object",
                "properties": { "town": { "enum": ["Oslo", "Rome"] } },
                "required": ["town"],
            },
        },
    }))?;
    // A model with tool training decides itself; the demo model has to be told.
    let chat = model
        .chat()
        .user("How is the weather in Rome?")
        .tool(tool)
        .tool_choice(ToolChoice::Required)
        .seed(1)
        .max_tokens(200);
    let answer = chat.answer()?;

    let mut chat = chat.assistant(&answer).tool_choice(ToolChoice::Auto).max_tokens(20);
    for call in &answer.calls {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        println!("the model calls {} with {arguments}", call.name);
        let town = arguments["town"].as_str().unwrap_or("nowhere");
        chat = chat.tool_result(&call.id, format!("It is sunny in {town}."));
    }
    println!("then it says: {}", chat.answer()?.content);
    Ok(())
}
