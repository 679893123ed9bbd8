"""instructor: answers as objects, by a schema and by a tool."""

import os

import instructor
import openai
from pydantic import BaseModel


class weather(BaseModel):  # noqa: N801: the model calls the tool by this name
    """The weather of a city."""

    city: str
    days: int


base = openai.OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="none")
USER = [{"role": "user", "content": "What is the weather in Oslo?"}]
client = instructor.from_openai(base, mode=instructor.Mode.TOOLS)
made = client.chat.completions.create(
    model="fixed", messages=USER, response_model=weather, max_retries=0
)
assert (made.city, made.days) == ("Oslo", 2)


class Flag(BaseModel):
    """Yes or no."""

    ok: bool


client = instructor.from_openai(base, mode=instructor.Mode.JSON_SCHEMA)
made = client.chat.completions.create(
    model="demo", messages=USER, response_model=Flag, max_retries=0
)
assert made.ok in (True, False)
