"""strands-agents: an agent that calls a tool."""

import os

from strands import Agent, tool
from strands.models.openai import OpenAIModel

calls = []


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: Its name.
        days: The number of days.
    """
    calls.append((city, days))
    return "sunny"


arguments = {"base_url": os.environ["SERVER"] + "/v1", "api_key": "none"}
model = OpenAIModel(client_args=arguments, model_id="fixed")
agent = Agent(model=model, tools=[weather], callback_handler=None)
answer = str(agent("What is the weather in Oslo?"))
assert answer.strip().endswith("It will be sunny in Oslo."), answer
assert calls == [("Oslo", 2)], calls
