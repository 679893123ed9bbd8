"""guidance: a choice and a regular expression, in the form of vLLM."""

import os

from guidance import assistant, gen, models, select, user

url = os.environ["SERVER"] + "/v1"
lm = models.experimental.VLLMModel("demo", base_url=url, api_key="none")
with user():
    lm += "What colour is the sky?"
with assistant():
    lm += select(["blue", "green"], name="colour")
with user():
    lm += "How many clouds are there?"
with assistant():
    lm += gen(name="count", regex="[0-9]{2}")
assert lm["colour"] in ("blue", "green"), lm["colour"]
assert len(lm["count"]) == 2 and lm["count"].isdigit(), lm["count"]
