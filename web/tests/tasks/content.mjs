// Reasoning, tools and files.
import assert from "node:assert/strict";
import { ask } from "../harness.mjs";
import { PIXEL, lastRequest, parameters } from "./steps.mjs";

const picker = (page) => page.locator("#composer input[type=file]");
const pick = (page, name, mimeType, buffer) => picker(page).setInputFiles({ name, mimeType, buffer });

/** Pastes or drops a file. */
const give = (page, kind, name, type, buffer) =>
  page.evaluate(
    ({ kind, name, type, base64 }) => {
      const data = new DataTransfer();
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
      data.items.add(new File([bytes], name, { type }));
      const options = { bubbles: true, cancelable: true };
      document
        .getElementById("input")
        .dispatchEvent(
          kind === "paste"
            ? new ClipboardEvent("paste", { ...options, clipboardData: data })
            : new DragEvent("drop", { ...options, dataTransfer: data }),
        );
    },
    { kind, name, type, base64: buffer.toString("base64") },
  );

/** The model sees and hears from now on. */
async function see(page, it) {
  it.scripted.state.vision = true;
  const props = page.waitForResponse(/\/props/);
  await page.reload();
  await (await props).finished();
  await page.waitForTimeout(50);
}

/** A tone, as the browser records it. */
async function recorded(page) {
  const base64 = await page.evaluate(async () => {
    const context = new AudioContext();
    const tone = new OscillatorNode(context);
    const target = new MediaStreamAudioDestinationNode(context);
    tone.connect(target);
    tone.start();
    const recorder = new MediaRecorder(target.stream);
    const parts = [];
    recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
    const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
    recorder.start();
    await new Promise((resolve) => setTimeout(resolve, 700));
    recorder.stop();
    await ended;
    await context.close();
    const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  });
  return Buffer.from(base64, "base64");
}

/** A PDF file whose page is a picture. */
async function scanned(page) {
  const jpeg = await page.screenshot({ type: "jpeg" });
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Kids [3 0 R] /Resources << /XObject << /X 5 0 R >> >> >>",
    "<< /Contents 4 0 R >>",
    "<< >>\nstream\n/X Do\nendstream",
    `<< /Subtype /Image /Filter /DCTDecode /Length ${jpeg.length} >>\nstream\n${jpeg.toString("latin1")}\nendstream`,
  ].map((object, index) => `${index + 1} 0 obj\n${object}\nendobj\n`);
  return Buffer.from(`%PDF-1.7\n${objects.join("")}trailer << /Root 1 0 R >>`, "latin1");
}

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
      await pick(page, "notes.md", "text/markdown", Buffer.from("# Notes\n"));
      await page.locator(".file").getByText("notes.md").waitFor();
      await ask(page, "Summarise");
      assert.equal(lastRequest(it).messages[0].content, "notes.md:\n```\n# Notes\n```\n\nSummarise");
      await pick(page, "a.png", "image/png", PIXEL);
      await page.getByText("this model cannot see images").waitFor();
    },
  ],
  [
    "ask about a PDF file: picker, paste and drop",
    "scripted",
    async (page, it) => {
      // Chromium prints a document as other programs write theirs.
      const other = await page.context().newPage();
      await other.setContent(
        "<h1>Größe</h1><p>An efficient <b>office</b>.</p><table><tr><td>left</td><td>right</td></tr></table>" +
          '<p style="break-before: page">The second page.</p>',
      );
      const printed = await other.pdf();
      await other.close();
      await pick(page, "letter.pdf", "application/pdf", printed);
      await page.locator(".file").getByText("letter.pdf").waitFor();
      for (const kind of ["paste", "drop"]) {
        await give(page, kind, `${kind}.pdf`, "application/pdf", printed);
        await page.locator(".file").getByText(`${kind}.pdf`).waitFor();
      }
      await ask(page, "Summarise");
      const text = "[page 1]\nGröße\nAn efficient office.\n\nleft right\n\n[page 2]\nThe second page.";
      const { content } = lastRequest(it).messages[0];
      assert.ok(content.startsWith(`letter.pdf:\n\`\`\`\n${text}\n\`\`\``), content);
      assert.equal(content.split(text).length, 4);
      await page.getByText("letter.pdf").last().click();
      await page.getByText("The second page.").first().waitFor();
    },
  ],
  [
    "see why a PDF file cannot be read, and show a scanned one to a model that sees",
    "scripted",
    async (page, it) => {
      await pick(page, "a.pdf", "application/pdf", Buffer.from("%PDF-1.7"));
      await page.getByText("a.pdf has no pages.").waitFor();
      const encrypted = "%PDF-1.7\ntrailer << /Encrypt 1 0 R >>";
      await pick(page, "b.pdf", "application/pdf", Buffer.from(encrypted));
      await page.getByText("b.pdf is encrypted in a way that this page does not know.").waitFor();
      const scan = await scanned(page);
      await pick(page, "scan.pdf", "application/pdf", scan);
      await page.getByText("scan.pdf has no text but pictures, which this model cannot see.").waitFor();
      await see(page, it);
      await pick(page, "scan.pdf", "application/pdf", scan);
      await page.locator(".file img").waitFor();
      await ask(page, "What is this?");
      assert.match(lastRequest(it).messages[0].content[0].image_url.url, /^data:image\/jpeg;base64,/);
    },
  ],
  [
    "show images and a sound to a model that takes them: picker, paste and drop",
    "scripted",
    async (page, it) => {
      await see(page, it);
      await pick(page, "a.png", "image/png", PIXEL);
      await page.locator(".file img").waitFor();
      for (const kind of ["paste", "drop"]) {
        await give(page, kind, `${kind}.png`, "image/png", PIXEL);
        await page.locator(".file").getByText(`${kind}.png`).waitFor();
      }
      await pick(page, "a.wav", "audio/wav", Buffer.from("RIFF"));
      await page.locator(".file").getByText("a.wav").waitFor();
      // Another form is decoded in the page.
      await pick(page, "b.webm", "audio/webm", await recorded(page));
      await page.locator(".file").getByText("b.webm").waitFor();
      await pick(page, "c.ogg", "audio/ogg", Buffer.from("no sound"));
      await page.getByText("c.ogg: the browser cannot read this sound.").waitFor();
      await ask(page, "What is this?");
      const parts = lastRequest(it).messages[0].content;
      assert.deepEqual(
        parts.map(({ type }) => type),
        ["image_url", "image_url", "image_url", "input_audio", "input_audio", "text"],
      );
      assert.match(parts[0].image_url.url, /^data:image\/png;base64,/);
      assert.deepEqual(parts[3].input_audio, { data: Buffer.from("RIFF").toString("base64"), format: "wav" });
      const decoded = Buffer.from(parts[4].input_audio.data, "base64");
      assert.equal(parts[4].input_audio.format, "wav");
      assert.equal(decoded.toString("latin1", 0, 4), "RIFF");
      const samples = new Int16Array(decoded.buffer, decoded.byteOffset + 44, (decoded.length - 44) / 2);
      assert.ok(samples.length > 1600 && samples.some((sample) => Math.abs(sample) > 3000), `${samples.length}`);
      await page.locator("img.picture").first().waitFor();
      await page.locator("article audio").first().waitFor();
    },
  ],
];
