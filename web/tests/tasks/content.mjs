// Reasoning, tools and files.
import assert from "node:assert/strict";
import { ask } from "../harness.mjs";
import { PIXEL, lastRequest, parameters } from "./steps.mjs";

export default [
  [
    "read the reasoning",
    "scripted",
    async (page) => {
      await ask(page, "give a reason");
      await page.getByText(/Thought for 0\.\d s/).click();
      await page.locator(".reasoning strong").getByText("reasons").waitFor();
      assert.equal(await page.locator("article > .content > .markdown").innerText(), "Because of this.");
    },
  ],
  [
    "give the result of a tool",
    "scripted",
    async (page, it) => {
      await parameters(page, {
        tools: '[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}]',
      });
      await ask(page, "the weather?");
      assert.equal(lastRequest(it).tools[0].function.name, "get_weather");
      await page.locator(".call code").getByText('"city": "Oslo"').waitFor();
      await page.getByRole("textbox", { name: "Result of get_weather" }).fill("sun");
      await page.getByRole("button", { name: "Send result" }).click();
      await page.getByText("The tool says sun.").first().waitFor();
      assert.deepEqual(lastRequest(it).messages.at(-1), { role: "tool", content: "sun", tool_call_id: "call_1" });
    },
  ],
  [
    "ask about a file of text",
    "scripted",
    async (page, it) => {
      await page
        .locator("#composer input[type=file]")
        .setInputFiles({ name: "notes.md", mimeType: "text/markdown", buffer: Buffer.from("# Notes\n") });
      await page.locator(".file").getByText("notes.md").waitFor();
      await ask(page, "Summarise");
      assert.equal(lastRequest(it).messages[0].content, "notes.md:\n```\n# Notes\n```\n\nSummarise");
      await page
        .locator("#composer input[type=file]")
        .setInputFiles({ name: "a.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF") });
      await page.getByText("does not read PDF files").waitFor();
      await page
        .locator("#composer input[type=file]")
        .setInputFiles({ name: "a.png", mimeType: "image/png", buffer: PIXEL });
      await page.getByText("this model cannot see images").waitFor();
    },
  ],
  [
    "show images and a sound to a model that takes them: picker, paste and drop",
    "scripted",
    async (page, it) => {
      it.scripted.state.vision = true;
      const props = page.waitForResponse(/\/props/);
      await page.reload();
      await (await props).finished();
      await page.waitForTimeout(50);
      await page
        .locator("#composer input[type=file]")
        .setInputFiles({ name: "a.png", mimeType: "image/png", buffer: PIXEL });
      await page.locator(".file img").waitFor();
      for (const kind of ["paste", "drop"]) {
        await page.evaluate(
          ({ kind: name, base64 }) => {
            const data = new DataTransfer();
            const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
            data.items.add(new File([bytes], `${name}.png`, { type: "image/png" }));
            const options = { bubbles: true, cancelable: true };
            document
              .getElementById("input")
              .dispatchEvent(
                name === "paste"
                  ? new ClipboardEvent("paste", { ...options, clipboardData: data })
                  : new DragEvent("drop", { ...options, dataTransfer: data }),
              );
          },
          { kind, base64: PIXEL.toString("base64") },
        );
        await page.locator(".file").getByText(`${kind}.png`).waitFor();
      }
      const sound = { name: "a.wav", mimeType: "audio/wav", buffer: Buffer.from("RIFF") };
      await page.locator("#composer input[type=file]").setInputFiles(sound);
      await page.locator(".file").getByText("a.wav").waitFor();
      await ask(page, "What is this?");
      const parts = lastRequest(it).messages[0].content;
      assert.deepEqual(
        parts.map(({ type }) => type),
        ["image_url", "image_url", "image_url", "input_audio", "text"],
      );
      assert.match(parts[0].image_url.url, /^data:image\/png;base64,/);
      assert.deepEqual(parts[3].input_audio, { data: Buffer.from("RIFF").toString("base64"), format: "wav" });
      await page.locator("img.picture").first().waitFor();
      await page.locator("article audio").waitFor();
      it.scripted.state.vision = false;
    },
  ],
];
