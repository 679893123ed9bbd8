//! Any template: no panic, no deep recursion, bounded time and memory (libFuzzer's limits).

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rf_template::{Limits, Template};
use serde_json::{Value, json};

/// Variables as a chat has them.
static VARIABLES: LazyLock<[(&str, Value); 4]> = LazyLock::new(|| {
    let call = json!({"function": {"name": "f", "arguments": {"x": [1, null, 1.5]}}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "é🦙 <b>\n"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    [
        ("messages", messages),
        ("tools", tools),
        ("add_generation_prompt", json!(true)),
        ("bos_token", json!("<s>")),
    ]
});

fuzz_target!(|source: &str| {
    if let Ok(template) = Template::new(source) {
        // A sanitizer makes steps slow. Smaller limits leave time for more inputs.
        let limits = Limits::default().with_steps(20_000).with_bytes(1 << 20);
        let template = template.with_limits(limits);
        let variables = VARIABLES.iter().map(|(name, value)| (*name, value));
        drop(template.render(variables, &|format| Some(format.to_owned())));
    }
});
