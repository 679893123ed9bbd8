"""anthropic: messages, streams, tools, counted tokens, models."""

import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ["SERVER"], api_key="none", max_retries=0)
USER = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOLS = [
    {
        "name": "weather",
        "description": "The weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]

message = client.messages.create(model="fixed", max_tokens=64, messages=USER, system="Be brief.")
assert message.content[0].text.startswith("Every prompt") and message.stop_reason == "end_turn"
with client.messages.stream(model="fixed", max_tokens=64, messages=USER) as stream:
    assert "".join(stream.text_stream) == message.content[0].text

with client.messages.stream(model="fixed", max_tokens=256, messages=USER, tools=TOOLS) as stream:
    message = stream.get_final_message()
use = next(block for block in message.content if block.type == "tool_use")
assert message.stop_reason == "tool_use" and use.input == {"city": "Oslo", "days": 2}
result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
turns = [
    *USER,
    {"role": "assistant", "content": message.content},
    {"role": "user", "content": [result]},
]
message = client.messages.create(model="fixed", max_tokens=64, messages=turns, tools=TOOLS)
assert message.content[0].text == "It will be sunny in Oslo."

assert client.messages.count_tokens(model="demo", messages=USER).input_tokens > 0
assert {model.id for model in client.models.list()} == {"demo", "fixed"}
