"""outlines: answers as objects, by a schema."""

import os

import openai
import outlines
from pydantic import BaseModel


class Flag(BaseModel):
    """Yes or no."""

    ok: bool


client = openai.OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="none")
model = outlines.from_openai(client, "demo")
answer = model("Is it sunny?", Flag)
assert Flag.model_validate_json(answer).ok in (True, False), answer
