// Conversations that an earlier page kept in localStorage.
import type { Conversation, Message } from "../conversation";
import { newId } from "./id";

const PREFIX = "rocmforge.";

interface OldMessage {
  role: string;
  content?: string;
  reasoning?: string;
  model?: string;
  error?: string;
}

/** Reads them and removes them from there. */
export function takeLegacy(): { conversation: Conversation; messages: Message[] }[] {
  const index = read<{ id: string; title: string }[]>("conversations") ?? [];
  const taken = index.reverse().flatMap(({ id, title }, order) => {
    const old = read<{ messages: OldMessage[] }>(`conversation.${id}`);
    localStorage.removeItem(`${PREFIX}conversation.${id}`);
    return old ? [fromList(title, old.messages, order)] : [];
  });
  localStorage.removeItem(`${PREFIX}conversations`);
  localStorage.removeItem(`${PREFIX}open`);
  return taken;
}

function read<T>(key: string): T | null {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + key) ?? "null") as T | null;
  } catch {
    return null;
  }
}

/** A conversation without branches. */
export function fromList(
  title: string,
  list: OldMessage[],
  order = 0,
): { conversation: Conversation; messages: Message[] } {
  const id = newId();
  const now = Date.now() + order;
  const messages: Message[] = [];
  let system: string | undefined;
  for (const { role, content, reasoning, model, error } of list) {
    if (role === "system") {
      system = content;
      continue;
    }
    if (role !== "user" && role !== "assistant") continue;
    const parent = messages.at(-1)?.id ?? null;
    messages.push({
      id: newId(),
      conversation: id,
      parent,
      role,
      content: content ?? "",
      created: now + messages.length,
      ...(reasoning ? { reasoning } : {}),
      ...(model ? { model } : {}),
      ...(error ? { error, state: "error" as const } : {}),
    });
  }
  const head = messages.at(-1)?.id ?? null;
  return {
    conversation: { id, title: title || "Conversation", created: now, updated: now, head, system, params: {} },
    messages,
  };
}
