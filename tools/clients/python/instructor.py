"""instructor: answers as objects, by a schema and by a tool."""

import os

import instructor
import openai
from pydantic import BaseModel, Field


class weather(BaseModel):  # noqa: N801: the model calls the tool by this name
    """The weather of a city."""

    city: str = Field(max_length=12)
    days: int = Field(ge=1, le=9)


base = openai.OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="none")
USER = [{"role": "user", "content": "What is the weather in Oslo?"}]
client = instructor.from_openai(base, mode=instructor.Mode.TOOLS)
made = client.chat.completions.create(
    model="fixed", messages=USER, response_model=weather, max_retries=0
)
# The fixed answer begins with reasoning, which a demanded call forbids, so that the arguments are
# any that the schema allows.
assert len(made.city) <= 12 and made.days in range(1, 10), made


class Flag(BaseModel):
    """Yes or no."""

    ok: bool


client = instructor.from_openai(base, mode=instructor.Mode.JSON_SCHEMA)
made = client.chat.completions.create(
    model="demo", messages=USER, response_model=Flag, max_retries=0
)
assert made.ok in (True, False)
