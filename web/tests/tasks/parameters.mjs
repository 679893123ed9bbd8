// Parameters, and what they give.
import assert from "node:assert/strict";
import { ask, lastAnswer } from "../harness.mjs";
import { lastRequest, parameters } from "./steps.mjs";

export default [
  [
    "set a system prompt and parameters for one conversation",
    "scripted",
    async (page, it) => {
      await parameters(page, {
        system: "Be short.",
        temperature: "0.2",
        top_k: "7",
        stop: "END",
        dry_multiplier: "0.8",
      });
      await ask(page, "Hi");
      const { messages: sent, temperature, top_k, stop, dry_multiplier } = lastRequest(it);
      assert.deepEqual(
        [sent[0], temperature, top_k, stop, dry_multiplier],
        [{ role: "system", content: "Be short." }, 0.2, 7, ["END"], 0.8],
      );
      await page.getByRole("button", { name: "New conversation" }).click();
      await ask(page, "Ho");
      assert.equal(lastRequest(it).messages[0].role, "user");
      assert.equal(lastRequest(it).temperature, undefined);
    },
  ],
  [
    "get JSON that fits a schema, after a mistake in it",
    "demo",
    async (page) => {
      await page.getByRole("button", { name: "Parameters of the conversation" }).click();
      await page.getByText("Structure", { exact: true }).click();
      const field = page.locator("dialog [name=json_schema]");
      await field.fill('{"type": "strin"}');
      await page.getByText('the schema has the unknown type "strin"').waitFor();
      await field.fill(
        '{"type": "object", "properties": {"n": {"enum": [3, 4]}}, "required": ["n"], "additionalProperties": false}',
      );
      assert.equal(await field.getAttribute("aria-invalid"), "false");
      await page.locator("dialog [name=max_tokens]").fill("300");
      await page.getByRole("button", { name: "Done" }).click();
      await ask(page, "How old is the fox?");
      assert.equal(typeof JSON.parse(await lastAnswer(page)).n, "number");
    },
  ],
  [
    "get an answer that fits a grammar",
    "demo",
    async (page) => {
      await parameters(page, { grammar: 'root ::= "yes" | "no"' });
      await ask(page, "Is a fox a bird?");
      assert.match(await lastAnswer(page), /^(yes|no)$/);
    },
  ],
  [
    "see what the server refuses",
    "demo",
    async (page) => {
      await parameters(page, { custom: '{"temperature": "hot"}' });
      await ask(page, "Hi");
      assert.match(await page.locator("article .error").innerText(), /temperature/);
    },
  ],
  [
    "see the probabilities of the tokens",
    "demo",
    async (page) => {
      await parameters(page, { logprobs: true, max_tokens: "12" });
      await ask(page, "Tell me a story.");
      await page.getByRole("button", { name: "Details" }).click();
      assert.equal(await page.locator(".token").count(), 12);
      await page.locator(".token").first().click();
      assert.match(await page.locator(".alternatives").innerText(), /%.*·.*%/);
      await page.getByRole("heading", { name: "Raw text" }).waitFor();
      await page.getByRole("heading", { name: "Request" }).waitFor();
    },
  ],
];
