"""huggingface_hub: chat, a stream, tools, a schema and embeddings of the inference client."""

import json
import os

from huggingface_hub import InferenceClient

USER = [{"role": "user", "content": "What is the weather in Oslo?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}

client = InferenceClient(base_url=os.environ["SERVER"] + "/v1", api_key="none")
answer = client.chat.completions.create(model="fixed", messages=USER)
assert answer.choices[0].message.content.startswith("Every prompt")
stream = client.chat.completions.create(model="fixed", messages=USER, stream=True)
text = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
assert text.startswith("Every prompt"), text
answer = client.chat.completions.create(model="fixed", messages=USER, tools=TOOLS)
assert answer.choices[0].message.tool_calls[0].function.name == "weather"
answer = client.chat.completions.create(
    model="demo",
    messages=USER,
    response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
)
assert isinstance(json.loads(answer.choices[0].message.content)["ok"], bool)
