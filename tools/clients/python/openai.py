"""openai: chat, streams, tools, structured output, completions, responses, embeddings, errors."""

import asyncio
import os

import openai

client = openai.OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="none", max_retries=0)
USER = [{"role": "user", "content": "What is the weather in Oslo?"}]
WEATHER = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
TOOLS = [{"type": "function", "function": WEATHER}]

assert {model.id for model in client.models.list()} == {"demo", "fixed"}

answer = client.chat.completions.create(model="demo", messages=USER, max_tokens=16)
assert answer.choices[0].message.content and answer.usage.completion_tokens <= 16

stream = client.chat.completions.create(
    model="demo", messages=USER, max_tokens=16, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert chunks[-1].usage.total_tokens > 0

answer = client.chat.completions.create(model="fixed", messages=USER, tools=TOOLS)
call = answer.choices[0].message.tool_calls[0]
assert answer.choices[0].finish_reason == "tool_calls"
assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Oslo", "days": 2}')
result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
answer = client.chat.completions.create(
    model="fixed", messages=[*USER, answer.choices[0].message, result], tools=TOOLS
)
assert answer.choices[0].message.content == "It will be sunny in Oslo."
with client.chat.completions.stream(model="fixed", messages=USER, tools=TOOLS) as stream:
    final = stream.get_final_completion()
assert final.choices[0].message.tool_calls[0].function.name == "weather"

schema = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
            "additionalProperties": False,
        },
    },
}
answer = client.chat.completions.create(model="demo", messages=USER, response_format=schema)
assert answer.choices[0].message.content.startswith("{")

text = client.completions.create(model="demo", prompt="Once upon a time", max_tokens=8, logprobs=2)
assert text.choices[0].text and text.choices[0].logprobs.tokens

response = client.responses.create(model="fixed", input="Hello")
assert response.output_text.startswith("Every prompt gets this answer.")
with client.responses.stream(model="fixed", input="Hello") as stream:
    events = [event.type for event in stream]
    assert stream.get_final_response().output_text == response.output_text
assert events[0] == "response.created" and events[-1] == "response.completed", events
response = client.responses.create(
    model="fixed", input="Hello", tools=[{"type": "function", **WEATHER, "strict": True}]
)
assert [item.name for item in response.output if item.type == "function_call"] == ["weather"]

vectors = openai.OpenAI(base_url=os.environ["EMBEDDINGS"] + "/v1", api_key="none")
made = vectors.embeddings.create(model="demo", input=["one", "two"])
assert len(made.data) == 2 and len(made.data[0].embedding) > 100

try:
    client.chat.completions.create(model="missing", messages=USER)
    raise SystemExit("a model that does not exist answered")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error


async def many():
    """Many requests at a time."""
    base = os.environ["SERVER"] + "/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="none") as several:
        ask = several.chat.completions.create
        answers = [ask(model="demo", messages=USER, max_tokens=8) for _ in range(16)]
        return await asyncio.gather(*answers)


assert len(asyncio.run(many())) == 16
