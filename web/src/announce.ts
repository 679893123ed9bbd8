import { on } from "./data/bus";
import { store } from "./data/store";
import { byId, h } from "./dom";
import { Sentences } from "./sentences";
import type { Message } from "./conversation";

const sentences = new Map<string, Sentences>();
const MOST_ROWS = 20;

/** Reads a text aloud in screen readers, after those before it. */
export function announce(text: string): void {
  const region = byId("announcer");
  region.append(h("p", { text }));
  while (region.childElementCount > MOST_ROWS) region.firstElementChild?.remove();
}

/** Announces the shown answer sentence by sentence. */
export function start(): void {
  on("message", (message: Message) => {
    if (message.role !== "assistant" || message.conversation !== store.current.id) return;
    const isStreaming = message.state === "streaming";
    if (!sentences.has(message.id)) {
      if (!isStreaming) return;
      const made = new Sentences();
      made.next(message.content, true);
      sentences.set(message.id, made);
      announce("Answering.");
    }
    for (const sentence of sentences.get(message.id)?.next(message.content, !isStreaming) ?? []) announce(sentence);
    if (isStreaming) return;
    sentences.delete(message.id);
    if (message.error) announce(message.error);
    else if (message.state === "stopped") announce("Stopped.");
    else if (message.calls?.length) announce(`The model calls ${message.calls.map(({ name }) => name).join(", ")}.`);
  });
}
