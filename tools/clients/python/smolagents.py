"""smolagents: chat, streams and a call of a tool."""

import json
import os

from smolagents import OpenAIModel, tool


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: The city.
        days: The number of days.
    """
    return f"sunny in {city} for {days} days"


model = OpenAIModel(model_id="fixed", api_base=os.environ["SERVER"] + "/v1", api_key="none")
user = [{"role": "user", "content": [{"type": "text", "text": "What is the weather in Oslo?"}]}]
assert model.generate(user).content.startswith("Every prompt")
assert "".join(part.content or "" for part in model.generate_stream(user)).startswith("Every prompt")
call = model.generate(user, tools_to_call_from=[weather]).tool_calls[0].function
assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Oslo", "days": 2}), call
