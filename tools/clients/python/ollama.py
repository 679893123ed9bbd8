"""ollama: chat, generate, tools, embeddings, models and their management."""

import os

import ollama

client = ollama.Client(host=os.environ["SERVER"])
USER = [{"role": "user", "content": "What is the weather in Oslo?"}]


def weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: The city
        days: The days
    """
    return f"sunny in {city} for {days} days"


assert {model.model for model in client.list().models} == {"demo", "fixed"}
assert client.show("demo").details.family == "llama"
assert client.chat(model="demo", messages=USER, options={"num_predict": 8}).message.content
parts = client.chat(model="fixed", messages=USER, stream=True)
assert "".join(part.message.content for part in parts).startswith("Every prompt")
answer = client.chat(model="fixed", messages=USER, tools=[weather])
call = answer.message.tool_calls[0]
assert call.function.name == "weather" and call.function.arguments["days"] == 2
result = {"role": "tool", "tool_name": "weather", "content": weather(**call.function.arguments)}
answer = client.chat(model="fixed", messages=[*USER, answer.message, result], tools=[weather])
assert answer.message.content == "It will be sunny in Oslo."
assert client.generate(model="demo", prompt="Once", options={"num_predict": 4}).response
assert any(model.model == "demo" for model in client.ps().models)
client.copy("fixed", "copied")
client.create(model="made", from_="fixed", system="Be brief.", parameters={"temperature": 0})
assert {model.model for model in client.list().models} == {"demo", "fixed", "copied", "made"}
assert client.chat(model="made", messages=USER).message.content.startswith("Every prompt")
for name in "copied", "made":
    client.delete(name)
assert {model.model for model in client.list().models} == {"demo", "fixed"}
vectors = ollama.Client(host=os.environ["EMBEDDINGS"])
assert len(vectors.embed(model="demo", input=["one", "two"]).embeddings) == 2
