// AI SDK: text, streams, tools in several steps, objects.
import assert from "node:assert";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({
  name: "rocmforge",
  baseURL: `${process.env.SERVER}/v1`,
  supportsStructuredOutputs: true,
});
const fixed = provider("fixed");

const { text } = await generateText({ model: fixed, prompt: "Hello" });
assert(text.startsWith("Every prompt"));
let streamed = "";
for await (const part of streamText({ model: fixed, prompt: "Hello" }).textStream) streamed += part;
assert.equal(streamed, text);
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string(), days: z.number() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const called = await generateText({
  model: fixed,
  prompt: "What is the weather in Oslo?",
  tools: { weather },
  stopWhen: stepCountIs(3),
});
assert.equal(called.text, "It will be sunny in Oslo.");
assert.equal(called.steps.length, 2);
const made = await generateObject({
  model: provider("demo"),
  schema: z.object({ ok: z.boolean() }),
  prompt: "Hello",
});
assert.equal(typeof made.object.ok, "boolean");
